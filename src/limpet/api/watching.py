"""Watching: one background thread per store polls for all subscriptions.

An engine reports that something may have changed, and in which sessions (`protocol.Listener`). The
dispatcher then reads the revisions of what is watched there and notifies the subscriptions for
which something is new: a thousand of them cost what one does, and one for which nothing changed is
never woken. Storage that does not answer is asked again until it does. Nothing is missed by that,
since it is always the current state that is compared.
"""

import math
import os
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from limpet.api.opened import Opened, start_thread
from limpet.api.verbs import each_scope
from limpet.backends.support import logs
from limpet.backends.support.backoff import Backoff
from limpet.backends.support.forks import renew_after_fork
from limpet.errors import LimpetError, Unavailable
from limpet.model import ScopeKey, SnapshotInfo
from limpet.protocol import Backend, Listener, Query, Target, Topic

_FIRST_POLL_S_MAX = 10.0
_LINGER_S = 2.0  # without subscriptions: the next one may be about to come
_RETRY_S_MIN = 0.05
_RETRY_S_MAX = 1.0
_JOIN_S_MAX = 5.0
_TARGETS_MAX = 500  # in one call of the backend


class Subscription:
    """What is new in one topic, for one caller."""

    def __init__(self, topic: Topic, notify: Callable[[], object], *, exists: bool = False) -> None:
        """`notify` is called in another thread when `take` has something to return.

        `exists` says that the topic is known to exist: if it is not found, it was deleted.
        """
        self.topic = topic
        self.pid = os.getpid()
        self.is_new = True  # and gets the current state, changed or not
        self._is_polled = False
        self._notify = notify
        self._lock = threading.Lock()
        self._revisions: dict[ScopeKey, str] = {}
        self._taken: dict[ScopeKey, str] = {}  # the revisions that the caller has seen last
        self._changes: dict[ScopeKey, SnapshotInfo] = {}
        self._existed = exists
        self._closed = False
        self._error: Exception | None = None

    def resumed(self, notify: Callable[[], object]) -> "Subscription":
        """Return one that goes on where this one is, in a child that was forked meanwhile."""
        other = Subscription(self.topic, notify, exists=self._existed)
        other._revisions, other._changes = dict(self._revisions), dict(self._changes)
        other._taken = dict(self._taken)
        return other

    def wait_s(self, timeout_s: float | None) -> float | None:
        """Return how long to wait for a change: longer for the first poll, which may be slow."""
        if timeout_s is None or self._is_polled:
            return timeout_s
        return max(timeout_s, _FIRST_POLL_S_MAX)

    def take(self) -> tuple[list[SnapshotInfo], bool]:
        """Return what is new, the latest of each scope, and whether nothing more will come."""
        with self._lock:
            changes, self._changes = list(self._changes.values()), {}
            self._taken |= {info.scope: info.revision for info in changes}
            if self._error is not None and not changes:
                raise self._error
            return changes, self._closed and self._error is None

    # Called by the dispatcher.

    def set_polled(self) -> None:
        """Note that the topic was polled: if nothing was published, there is nothing."""
        self.is_new = False
        if not self._is_polled:
            self._is_polled = True
            self._call()

    def publish(self, current: Collection[SnapshotInfo]) -> None:
        """Take over what differs from what was published before; the topic exists."""
        with self._lock:
            self._existed = True
            for info in current:
                if self._revisions.get(info.scope) != info.revision:
                    self._revisions[info.scope] = info.revision
                    self._changes.pop(info.scope, None)
                    if self._taken.get(info.scope) != info.revision:
                        self._changes[info.scope] = info
            for scope in self._revisions.keys() - {info.scope for info in current}:
                del self._revisions[scope]
            if not self._changes:
                return
        self._call()

    def publish_absent(self) -> None:
        """Close it if the topic existed before: it was deleted."""
        if self._existed:
            self.close()

    def close(self, error: Exception | None = None) -> None:
        """Let `take` report the end, or raise the error, once all changes are taken."""
        with self._lock:
            self._closed, self._error = True, error
        self._call()

    def _call(self) -> None:
        with suppress(RuntimeError):  # the event loop is closed: no task waits there any more
            self._notify()


class Current(NamedTuple):
    """What a topic holds now; `exists` is False if it was deleted or never existed.

    `error` says why this topic alone, or a part of it, cannot be read.
    """

    infos: list[SnapshotInfo]
    exists: bool
    error: LimpetError | None = None


def _read(read: Callable[[], list[SnapshotInfo]]) -> Current:
    """Return the result of a read; an error other than Unavailable concerns this topic alone."""
    try:
        infos = read()
    except Unavailable:
        raise
    except LimpetError as error:
        return Current([], False, error)
    return Current(infos, bool(infos))


def _read_target(backend: Backend, target: Target, revision: str | None) -> Current:
    def read() -> list[SnapshotInfo]:
        info = None if revision is None else backend.read_info(*target)
        return [] if info is None else [info]

    return _read(read)


def _list_heads(backend: Backend, *, session_id: str | None, prefix: str) -> Current:
    scopes = list(each_scope(backend, session_id=session_id, prefix=prefix))
    return Current([scope.head for scope in scopes if scope.head is not None], bool(scopes))


class _TopicState:
    """A topic, its subscriptions, and what the last poll found."""

    def __init__(self) -> None:
        self.subscriptions: set[Subscription] = set()  # under the lock of the dispatcher
        self.revisions: dict[ScopeKey, str] = {}
        self.heads: dict[str, list[SnapshotInfo]] = {}  # by session, for topics of many sessions
        self.is_followed = False  # polled only then: a change before `follow` would be missed
        self.is_unread = False  # it must be polled again, whether something is reported or not
        self.found: Topic | None = None  # where the id of a topic is: that is followed, too


class _Due(NamedTuple):
    """A topic to poll, and its subscriptions when the poll began: others wait for the next."""

    topic: Topic
    state: _TopicState
    subscriptions: list[Subscription]
    has_new: bool

    def publish(self, current: Current) -> bool:
        """Hand the current state to all subscriptions; return whether it has changed."""
        state = self.state
        revisions = {info.scope: info.revision for info in current.infos}
        changed, state.revisions = revisions != state.revisions, revisions
        for subscription in self.subscriptions:
            if current.exists:
                subscription.publish(current.infos)
            if current.error is not None:
                subscription.close(current.error)
            elif not current.exists:
                subscription.publish_absent()
        return changed


class Dispatcher:
    """Polls for all subscriptions of one store. Its thread runs while there are any."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self._listener: Listener[Topic] | None = None
        self._closed = False
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Forget all subscriptions: the thread is still in the parent."""
        if self._listener is not None:
            _parents_listeners.append(self._listener)
        # An interrupt in the `__enter__` of a Condition would leave it locked.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._topics: dict[Topic, _TopicState] = {}
        self._thread: threading.Thread | None = None
        self._listener = None
        self._leaving: deque[Subscription] = deque()
        self._has_unfollowed = False  # a topic that the listener need not follow any more

    def add(self, subscription: Subscription) -> None:
        """Begin to poll for a subscription; it gets the current state first. May be repeated."""
        with self._lock:
            if self._closed:
                subscription.close()
                return
            state = self._topics.get(subscription.topic)
            if state is not None and subscription in state.subscriptions:
                return
            if self._thread is None or not self._thread.is_alive():
                self._thread = start_thread(self._run, "limpet-watch")
            subscription.is_new = True
            state = self._topics.setdefault(subscription.topic, _TopicState())
            state.subscriptions.add(subscription)
            # If nothing was there, the server that a listener asks may not know that something is,
            # and would not notice that it goes.
            state.is_followed = state.is_followed and bool(state.revisions)
            self._wake()

    def remove(self, subscription: Subscription) -> None:
        """Stop polling for a subscription. May be repeated.

        The garbage collector may call this in any thread at any moment, also in the dispatcher's:
        so it takes no lock, and changes nothing that another frame may be iterating over.
        """
        self._leaving.append(subscription)
        listener = self._listener
        if listener is not None:
            listener.wake()

    def close(self) -> None:
        """End all subscriptions, and the thread. May be repeated."""
        with self._lock:
            self._closed = True
            subscriptions = self._take_all()
            thread = self._thread
            self._wake()
        for subscription in subscriptions:
            subscription.close()
        if thread is not None and thread is not threading.current_thread():
            thread.join(_JOIN_S_MAX)

    def _take_all(self) -> list[Subscription]:
        found = [each for state in self._topics.values() for each in state.subscriptions]
        self._topics.clear()
        return found

    def _wake(self) -> None:
        self._changed.notify_all()
        if self._listener is not None:
            self._listener.wake()

    # The thread

    def _run(self) -> None:
        backoff = Backoff(self._opened.tools.clock, first_s=_RETRY_S_MIN, longest_s=_RETRY_S_MAX)
        monotonic, lost_at_s = self._opened.tools.clock.monotonic, math.inf
        sessions: frozenset[str] | None = None  # in which something may have changed; None: in all
        while self._is_needed():
            try:
                if self._listener is None:
                    sessions = None
                    self._listen()
                self._follow()
                active, is_complete = self._poll(sessions)
                if is_complete:
                    if lost_at_s < math.inf:
                        logs.info("watching goes on", seconds=round(monotonic() - lost_at_s, 3))
                        lost_at_s = math.inf
                    sessions = self._wait(active)
                    backoff.reset()
                else:  # what could not be read must not wait for another change
                    sessions = None
                    self._pause(backoff)
            except Unavailable as error:
                if lost_at_s == math.inf:
                    logs.info("watching is interrupted", error=type(error).__name__)
                    lost_at_s = monotonic()
                self._stop_listening()
                self._pause(backoff)
            except Exception as error:
                self._give_up(error)

    def _pause(self, backoff: Backoff) -> None:
        with self._lock:
            self._changed.wait(backoff.pause_s())

    def _is_needed(self) -> bool:
        """Wait until there are subscriptions; return False if the thread can end."""
        with self._lock:
            if self._thread is not threading.current_thread():
                return False  # it was replaced
            self._drop_removed()
            if not self._closed and not self._topics:
                self._changed.wait_for(lambda: self._topics or self._closed, _LINGER_S)
            if self._topics and not self._closed:
                return True
            self._thread = None
        self._stop_listening()
        return False

    def _drop_removed(self) -> None:
        while self._leaving:
            subscription = self._leaving.popleft()
            state = self._topics.get(subscription.topic)
            if state is not None:
                state.subscriptions.discard(subscription)
                if not state.subscriptions:
                    del self._topics[subscription.topic]
                    self._has_unfollowed = True

    def _listen(self) -> None:
        listener = self._opened.backend.listen()
        with self._lock:
            self._listener = listener
            for state in self._topics.values():
                state.is_followed = False
            if self._closed or self._leaving or not self._topics:
                listener.wake()  # `close` or `remove` found no listener to wake meanwhile

    def _stop_listening(self) -> None:
        with self._lock:
            listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()

    def _follow(self) -> None:
        with self._lock:
            listener, topics = self._listener, dict(self._topics)
            is_same = all(state.is_followed for state in topics.values())
            if listener is None or (is_same and not self._has_unfollowed):
                return
            self._has_unfollowed = False
        found = (state.found for state in topics.values())
        listener.follow([*topics, *(each for each in found if each is not None)])
        for state in topics.values():
            state.is_followed = True

    def _wait(self, active: bool) -> frozenset[str] | None:
        listener = self._listener
        return frozenset() if listener is None else listener.wait(active=active)

    def _give_up(self, error: Exception) -> None:
        """End all subscriptions with an error: the store is closed, or this is a bug."""
        if not isinstance(error, LimpetError):
            bug, error = error, Unavailable("watching ended by an unexpected error: see its cause")
            error.__cause__ = bug
        with self._lock:
            subscriptions = self._take_all()
        for subscription in subscriptions:
            subscription.close(error)

    # Polling

    def _poll(self, sessions: frozenset[str] | None) -> tuple[bool, bool]:
        """Poll the topics of these sessions, the new ones, and those that could not be read.

        Return whether one has changed, and whether all could be read.
        """
        with self._lock:
            followed = [each for each in self._topics.items() if each[1].is_followed]
            due = [
                _Due(topic, state, list(state.subscriptions), has_new)
                for topic, state in followed
                if (has_new := any(each.is_new for each in state.subscriptions))
                or sessions is None
                or _is_about(topic, sessions)
            ]
            new = [each for topic in due for each in topic.subscriptions if each.is_new]
        changed = self._poll_targets([each for each in due if each.topic.target is not None])
        for each in due:
            if each.topic.target is None:
                changed |= each.publish(self._read_topic(each, sessions))
        unread = {each.topic for each in due if each.state.is_unread}
        for subscription in new:
            if subscription.topic not in unread:
                subscription.set_polled()
        return changed, not unread

    def _poll_targets(self, due: Iterable[_Due]) -> bool:
        """Return whether a target has changed; those that cannot be read are marked."""
        backend, changed, targets = self._opened.backend, False, iter(due)
        while chunk := list(islice(targets, _TARGETS_MAX)):
            asked = [each.topic.target for each in chunk if each.topic.target is not None]
            revisions = backend.read_revisions(asked)
            for each, target, revision in zip(chunk, asked, revisions, strict=True):
                each.state.is_unread = False
                if each.has_new or each.state.revisions.get(target.scope) != revision:
                    try:
                        changed |= each.publish(_read_target(backend, target, revision))
                    except Unavailable:
                        each.state.is_unread = True  # it must not hold up the others
        return changed

    def _read_topic(self, due: _Due, sessions: frozenset[str] | None) -> Current:
        backend, topic, heads = self._opened.backend, due.topic, due.state.heads
        if topic.id is not None:
            return self._find(due.state, Query(prefix=topic.prefix, id=topic.id))
        if topic.session_id is not None:
            found = _list_heads(backend, session_id=topic.session_id, prefix=topic.prefix)
            return self._with_damage(due, found)
        # Many sessions: only those are listed in which something may have changed.
        if sessions is None or due.has_new:
            heads.clear()
            for info in _list_heads(backend, session_id=None, prefix=topic.prefix).infos:
                heads.setdefault(info.session_id, []).append(info)
        for each in sessions or ():
            if each.startswith(topic.prefix):
                heads[each] = _list_heads(backend, session_id=each, prefix="").infos
                if not heads[each]:
                    del heads[each]
        infos = [info for each in heads.values() for info in each]
        # Sessions come and go: this topic is never deleted.
        return self._with_damage(due, Current(infos, exists=True))

    def _find(self, state: _TopicState, query: Query) -> Current:
        """Read the snapshot with an id in any scope; its scope is followed from then on."""
        current = _read(lambda: self._opened.backend.list_snapshots(query, limit=1))
        found = next((Topic(Target(info.scope, info.id)) for info in current.infos), None)
        # What changed before it was followed is read by the next poll.
        state.is_unread = found != state.found
        if state.is_unread:
            state.found, self._has_unfollowed = found, True
        return current

    def _with_damage(self, due: _Due, found: Current) -> Current:
        """Add the error of a head that was seen before, and that a listing now skips as damaged."""
        for scope in due.state.revisions.keys() - {info.scope for info in found.infos}:
            gone = _read_target(self._opened.backend, Target(scope, None), "")
            if gone.error is not None:
                return Current(found.infos, True, gone.error)
        return found


def _is_about(topic: Topic, sessions: frozenset[str]) -> bool:
    if topic.target is not None:
        return topic.target.scope.session_id in sessions
    if topic.session_id is not None:
        return topic.session_id in sessions
    return any(each.startswith(topic.prefix) for each in sessions)


# Kept alive in a forked child: to close a listener there could close the parent's connection.
_parents_listeners: list[Listener[Topic]] = []
