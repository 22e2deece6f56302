"""The hub: one thread that looks after all who watch a store.

An engine says that something may have changed, and where (`listening.Listener`). The hub then looks
at what is watched there, compares revisions, and tells those for whom there is something new: so a
thousand watchers cost what one does, and one for whom nothing changed is never woken. What cannot
be reached is tried again until it can; nobody is told of that, and nothing is missed, since it is
always the present that is looked at.
"""

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from limpet.api.opened import Opened, start_thread
from limpet.core import limits
from limpet.errors import LimpetError, Unavailable
from limpet.model import ScopeKey, SnapshotInfo
from limpet.protocol import Backend, Listener, Query, Target, Topic

# One who watches, as the hub sees it.

_FIRST_LOOK_S_MAX = 10.0


class Watcher:
    """One who watches: what is new for it. `tell` is called when there is, in another thread."""

    def __init__(self, topic: Topic, tell: Callable[[], object], *, exists: bool = False) -> None:
        """`exists` says that what is watched is known to be there: if it is not, it was deleted."""
        self.topic = topic
        self.pid = os.getpid()
        self.is_new = True  # and is told of what there is, changed or not
        self.is_seen = False
        self._tell = tell
        self._lock = threading.Lock()
        self._told: dict[ScopeKey, str] = {}
        self._news: dict[ScopeKey, SnapshotInfo] = {}
        self._knows = exists
        self._ended = False
        self._error: Exception | None = None

    def again(self, tell: Callable[[], object]) -> "Watcher":
        """Return one that goes on where this one is, in a child that was forked meanwhile."""
        other = Watcher(self.topic, tell)
        other._told, other._news = dict(self._told), dict(self._news)
        other._knows = self._knows
        return other

    def see(self) -> None:
        """Take note that it was looked at: if nothing was offered, there is nothing."""
        self.is_new = False
        if not self.is_seen:
            self.is_seen = True
            self._call()

    def patience_s(self, timeout_s: float | None) -> float | None:
        """Return how long to wait for news: at first also for the look, which may take long."""
        if timeout_s is None or self.is_seen:
            return timeout_s
        return max(timeout_s, _FIRST_LOOK_S_MAX)

    def take(self) -> tuple[list[SnapshotInfo], bool]:
        """Return what is new, the latest of each scope, and whether that was the last of it."""
        with self._lock:
            news, self._news = list(self._news.values()), {}
            if self._error is not None and not news:
                raise self._error
            return news, self._ended and self._error is None

    def offer(self, present: Collection[SnapshotInfo]) -> None:
        """Hand over what there is now; what was handed over before is left out."""
        with self._lock:
            self._knows = self._knows or bool(present)
            for info in present:
                if self._told.get(info.scope) != info.revision:
                    self._told[info.scope] = info.revision
                    self._news.pop(info.scope, None)
                    self._news[info.scope] = info
            for scope in self._told.keys() - {info.scope for info in present}:
                del self._told[scope]
            if not self._news:
                return
        self._call()

    def end(self, error: Exception | None = None, *, if_known: bool = False) -> None:
        """Let it end, when it has taken what is new; `if_known`: only if there was anything."""
        with self._lock:
            if if_known and not self._knows:
                return
            self._ended, self._error = True, error
        self._call()

    def _call(self) -> None:
        with suppress(RuntimeError):  # an event loop that is closed: nobody waits there any more
            self._tell()


# What the hub looks at: what a topic shows at this moment.


class Present(NamedTuple):
    """What there is now; `exists` is False if it was deleted, or never there.

    `error` is why it cannot be told: for this topic, while others can.
    """

    infos: list[SnapshotInfo]
    exists: bool
    error: LimpetError | None = None


def shown(backend: Backend, target: Target, mark: str | None) -> Present:
    """Return what a target is now, of which the mark was read."""
    try:
        info = None if mark is None else backend.read_info(*target)
    except Unavailable:
        raise
    except LimpetError as error:
        return Present([], False, error)
    return Present([], False) if info is None else Present([info], True)


def found(backend: Backend, prefix: str, snapshot_id: str) -> Present:
    """Return the snapshot of an id, wherever it is."""
    try:
        infos = backend.list_snapshots(Query(prefix=prefix, id=snapshot_id), limit=1)
    except Unavailable:
        raise
    except LimpetError as error:
        return Present([], False, error)
    return Present(infos, bool(infos))


def listed(backend: Backend, *, session_id: str | None, prefix: str) -> Present:
    """Return what the scopes of a session show, or of all below a prefix."""
    heads: list[SnapshotInfo] = []
    after: ScopeKey | None = None
    while True:
        page = backend.list_scopes(
            session_id=session_id,
            kind=None,
            prefix=prefix,
            after=after,
            limit=limits.PAGE_ITEMS_MAX,
        )
        heads += [scope.head for scope in page if scope.head is not None]
        if len(page) < limits.PAGE_ITEMS_MAX:
            return Present(heads, bool(page) or after is not None)
        after = page[-1].key


def by_session(infos: Iterable[SnapshotInfo]) -> dict[str, list[SnapshotInfo]]:
    """Return what scopes show, by their sessions."""
    sessions: dict[str, list[SnapshotInfo]] = {}
    for info in infos:
        sessions.setdefault(info.session_id, []).append(info)
    return sessions


_LINGER_S = 2.0  # with nobody to look after: the next one may be about to come
_PAUSE_S_MIN = 0.05
_PAUSE_S_MAX = 1.0
_JOIN_S_MAX = 5.0
_CHUNK = 500  # targets looked at in one question


class _Watched:
    """A topic and all who watch it."""

    def __init__(self) -> None:
        self.watchers: set[Watcher] = set()
        self.marks: dict[ScopeKey, str] = {}
        self.heads: dict[str, list[SnapshotInfo]] = {}  # by session, where there are many
        self.is_followed = False  # before, there is no use in looking: changes would be missed

    def has_new(self) -> bool:
        return any(each.is_new for each in self.watchers)


class Hub:
    """Looks after the watchers of one engine. Its thread runs while there are any."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self._listener: Listener | None = None
        self._closed = False
        self._begin_anew()
        _hubs.add(self)

    def _begin_anew(self) -> None:
        """Forget everybody: also after a fork, since threads stay in the parent."""
        if self._listener is not None:
            _left_alone.append(self._listener)  # to end it here might end it there
        self._changed = threading.Condition()
        self._topics: dict[Topic, _Watched] = {}
        self._thread: threading.Thread | None = None
        self._listener = None
        self._leaving: deque[Watcher] = deque()
        self._has_left = False  # somebody whose topic need not be followed any more

    def join(self, watcher: Watcher) -> None:
        """Look after a watcher from now on; it is told first of what there is. May be repeated."""
        with self._changed:
            if self._closed:
                watcher.end()
                return
            watched = self._topics.get(watcher.topic)
            if watched is not None and watcher in watched.watchers:
                return
            if self._thread is None or not self._thread.is_alive():
                self._thread = start_thread(self._run, "limpet-hub")
            watcher.is_new = True
            self._topics.setdefault(watcher.topic, _Watched()).watchers.add(watcher)
            self._wake()

    def leave(self, watcher: Watcher) -> None:
        """Look after it no longer. May be repeated.

        The garbage collector may call this in any thread, at any moment, also in that of the hub:
        so no lock is taken and nothing is changed that somebody may be going through.
        """
        self._leaving.append(watcher)
        listener = self._listener
        if listener is not None:
            listener.wake()

    def _let_go(self) -> None:
        """Forget those who have left."""
        while self._leaving:
            watcher = self._leaving.popleft()
            watched = self._topics.get(watcher.topic)
            if watched is not None:
                watched.watchers.discard(watcher)
                if not watched.watchers:
                    del self._topics[watcher.topic]
                    self._has_left = True

    def close(self) -> None:
        """Let all watchers end, and the thread. May be repeated."""
        with self._changed:
            self._closed = True
            watchers = [each for watched in self._topics.values() for each in watched.watchers]
            self._topics.clear()
            thread = self._thread
            self._wake()
        for watcher in watchers:
            watcher.end()
        if thread is not None and thread is not threading.current_thread():
            thread.join(_JOIN_S_MAX)

    def _wake(self) -> None:
        self._changed.notify_all()
        if self._listener is not None:
            self._listener.wake()

    # The thread

    def _run(self) -> None:
        pause_s = _PAUSE_S_MIN
        heard: frozenset[str] | None = None
        while self._is_wanted():
            try:
                if self._listener is None:
                    heard = None
                    self._listen()
                self._follow()
                lively = self._look(heard)
                heard = self._wait(lively)
                pause_s = _PAUSE_S_MIN
            except Unavailable:
                self._stop_listening()
                with self._changed:
                    self._changed.wait(pause_s * (0.5 + self._opened.tools.clock.jitter()))
                pause_s = min(2 * pause_s, _PAUSE_S_MAX)
            except Exception as error:
                self._give_up(error)

    def _is_wanted(self) -> bool:
        """Wait until there is somebody to look after; tell whether there is."""
        with self._changed:
            if self._thread is not threading.current_thread():
                return False  # another one has taken its place
            self._let_go()
            if not self._closed and not self._topics:
                self._changed.wait_for(lambda: self._topics or self._closed, _LINGER_S)
            if self._topics and not self._closed:
                return True
            self._thread = None
            listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
        return False

    def _listen(self) -> None:
        listener = self._opened.backend.listen()
        with self._changed:
            self._listener = listener
            for watched in self._topics.values():
                watched.is_followed = False
            if self._closed or self._leaving or not self._topics:
                listener.wake()  # whoever closed or left meanwhile had nothing to wake

    def _stop_listening(self) -> None:
        with self._changed:
            listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()

    def _follow(self) -> None:
        with self._changed:
            listener, topics = self._listener, dict(self._topics)
            is_same = all(watched.is_followed for watched in topics.values())
            if listener is None or (is_same and not self._has_left):
                return
            self._has_left = False
        listener.follow(topics)
        for watched in topics.values():
            watched.is_followed = True

    def _wait(self, lively: bool) -> frozenset[str] | None:
        listener = self._listener
        return frozenset() if listener is None else listener.wait(lively=lively)

    def _give_up(self, error: Exception) -> None:
        """Tell everybody why nothing more comes: the store is closed, or there is a fault."""
        if not isinstance(error, LimpetError):
            fault, error = error, Unavailable("watching has ended by a fault")
            error.__cause__ = fault
        with self._changed:
            watchers = [each for watched in self._topics.values() for each in watched.watchers]
            self._topics.clear()
        for watcher in watchers:
            watcher.end(error)

    # Looking

    def _look(self, heard: frozenset[str] | None) -> bool:
        """Look at what may have changed, and at what is watched anew; tell whether it had."""
        with self._changed:
            due = [
                (topic, watched)
                for topic, watched in self._topics.items()
                if watched.is_followed
                and (heard is None or watched.has_new() or _is_about(topic, heard))
            ]
            new = [each for _, watched in due for each in watched.watchers if each.is_new]
        found = self._look_at_targets(iter(due), {each.topic for each in new})
        for topic, watched in due:
            if topic.target is None:
                found |= self._tell(watched, self._present(topic, watched, heard))
        for watcher in new:
            watcher.see()
        return found

    def _look_at_targets(
        self, due: Iterable[tuple[Topic, _Watched]], new: Collection[Topic]
    ) -> bool:
        backend, found = self._opened.backend, False
        targets = ((topic, topic.target, watched) for topic, watched in due if topic.target)
        while chunk := list(islice(targets, _CHUNK)):
            marks = backend.read_marks([target for _, target, _ in chunk])
            for (topic, target, watched), mark in zip(chunk, marks, strict=True):
                if topic in new or watched.marks.get(target.scope) != mark:
                    # One that does not answer now is looked at again, and keeps nobody waiting.
                    with suppress(Unavailable):
                        found |= self._tell(watched, shown(backend, target, mark))
        return found

    def _present(self, topic: Topic, watched: _Watched, heard: frozenset[str] | None) -> Present:
        """Return what all scopes of a topic show now."""
        backend = self._opened.backend
        if topic.id is not None:
            return found(backend, topic.prefix, topic.id)
        if topic.session_id is not None:
            return listed(backend, session_id=topic.session_id, prefix=topic.prefix)
        # Many sessions: only those are listed of which something was heard.
        if heard is None or watched.has_new():
            everything = listed(backend, session_id=None, prefix=topic.prefix)
            watched.heads = by_session(everything.infos)
        for each in heard or ():
            if each.startswith(topic.prefix):
                watched.heads[each] = listed(backend, session_id=each, prefix="").infos
                if not watched.heads[each]:
                    del watched.heads[each]
        infos = [info for heads in watched.heads.values() for info in heads]
        return Present(infos, exists=True)  # they come and go: only a single one can be gone

    def _tell(self, watched: _Watched, present: Present) -> bool:
        """Tell all who watch a topic what there is; return whether that is something new."""
        marks = {info.scope: info.revision for info in present.infos}
        changed, watched.marks = marks != watched.marks, marks
        for watcher in list(watched.watchers):
            if present.error is not None:
                watcher.end(present.error)
            elif present.exists:
                watcher.offer(present.infos)
            else:
                watcher.end(if_known=True)
        return changed


def _is_about(topic: Topic, sessions: frozenset[str]) -> bool:
    if topic.target is not None:
        return topic.target.scope.session_id in sessions
    if topic.session_id is not None:
        return topic.session_id in sessions
    return any(each.startswith(topic.prefix) for each in sessions)


_hubs: "weakref.WeakSet[Hub]" = weakref.WeakSet()
_left_alone: list[Listener] = []


def _after_fork_in_child() -> None:
    for hub in list(_hubs):
        hub._begin_anew()


os.register_at_fork(after_in_child=_after_fork_in_child)
