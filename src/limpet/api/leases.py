"""Leases: how they are claimed and released, and the threads that renew them.

A lease is a key that a scope carries. Its holder sends the key with every write, and a write with a
key that the scope no longer carries is Conflict: so a worker that was paused past its lease changes
nothing, whatever its own clock says.
"""

import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from math import ceil
from typing import Any, NamedTuple

from limpet.api.opened import Opened, ScopeBase, ScopeContext, Tools, start_thread
from limpet.api.verbs import Block, Pause, Steps, Work
from limpet.backends.support import logs
from limpet.backends.support.backoff import Backoff
from limpet.backends.support.forks import renew_after_fork
from limpet.core import limits, times
from limpet.errors import Conflict, InvalidInput, LimpetError, Unavailable
from limpet.model import ScopeKey
from limpet.protocol import Claim, Hold

_TTL_S_MIN = 0.05  # less could not be renewed in time
_PAUSE_S_MIN = 0.01
_PAUSE_S_MAX = 0.5
_RENEWALS = 3  # per `ttl_s`
_RETRIES = 10  # per `ttl_s`, if a renewal fails
_RELEASE_PAUSES_S = (0.05, 0.5, 5.0)  # between the releases of a lease that may yet be granted
_JOIN_S_MAX = 5.0
_THREADS_MAX = 4
_IDLE_S = 1.0  # after which a thread notices that the lease it waited for is gone


class Holder(NamedTuple):
    """Who holds a lease that a caller waits for. `is_alive` None: only a renewal would show it."""

    owner: str
    is_alive: bool | None


class Wanted(NamedTuple):
    """A claim, and how long to wait for a holder that is alive.

    `inspect` finds out about each holder. The lease of a dead one is ended; the end of one that may
    be dead is waited for, until it is renewed. Without `inspect` every holder counts as alive.
    """

    claim: Claim
    wait_s: float
    inspect: "Callable[[Hold], Steps[Holder]] | None" = None


def prepare(tools: Tools, scope: ScopeKey, owner: str, ttl_s: float, wait_s: float) -> Wanted:
    owner = limits.check_id("owner", owner)
    ttl_s = limits.check_seconds("ttl_s", ttl_s)
    wait_s = limits.check_seconds("wait_s", wait_s)
    if ttl_s < _TTL_S_MIN:
        raise InvalidInput(f"ttl_s must be at least {_TTL_S_MIN:g} seconds. found=`{ttl_s:g}`")
    stamp = tools.draw()
    key = f"{stamp.nonce}{stamp.bits:020x}"
    return Wanted(Claim(scope, key, owner, int(ttl_s * 1_000_000), stamp), wait_s)


def claim(tools: Tools, asking: Wanted) -> "Steps[Term]":
    (wanted, wait_s, inspect), clock = asking, tools.clock
    deadline = clock.monotonic() + wait_s
    backoff = Backoff(clock, first_s=_PAUSE_S_MIN, longest_s=_PAUSE_S_MAX)
    before: Hold | None = None
    is_renewed = False
    while True:
        begun_s = clock.monotonic()
        asked = wanted._replace(stamp=tools.draw())
        held: Hold = yield _claim(asked)
        if held.key == wanted.key:
            return Term(tools, asked, held, begun_s)
        holder = Holder(held.owner, True) if inspect is None else (yield from inspect(held))
        if holder.is_alive is False:
            # Whatever it sent before it died is refused from here on, as after the end of a lease.
            yield _release(asked._replace(key=held.key, owner=held.owner))
            continue
        if before is not None and held.left_us > before.left_us:
            is_renewed = True  # or it is another one: its holder is alive
        before = held
        left_s = deadline - clock.monotonic()
        if left_s <= 0 and (holder.is_alive or is_renewed):
            raise _held_by(holder.owner, asked, held)
        # Not much longer than it lasts; sooner, since it may be released.
        pauses_s = [max(_PAUSE_S_MIN, held.left_us / 1_000_000), backoff.pause_s() or 0.0]
        yield Pause(min([*pauses_s, left_s] if left_s > 0 else pauses_s))


def _held_by(owner: str, asked: Claim, held: Hold) -> Conflict:
    session_id, scope_id, kind = asked.scope
    left_us = max(0, held.left_us)
    ends = times.from_us(asked.stamp.now + left_us)
    return Conflict(
        f"another worker holds the lease until {ends:%H:%M:%S} UTC ({ceil(left_us / 1_000_000)} s),"
        " unless it renews it: try again later, or pass a longer wait_s. "
        f"owner=`{owner}` session=`{session_id}` scope=`{scope_id}` kind=`{kind}`",
        scope=asked.scope,
        owner=owner,
        expires_at=ends,
    )


def _claim(asked: Claim) -> Work[Hold]:
    return lambda backend: backend.claim(asked)


def _release(asked: Claim) -> Work[None]:
    return lambda backend: backend.release(asked)


def release(tools: Tools, term: "Term") -> Work[None]:
    """Release a lease; a child that was forked meanwhile leaves it to its parent."""
    if term.pid != os.getpid():
        return lambda backend: None
    return _release(term.claim._replace(stamp=tools.draw()))


class Term:
    """A lease that is held, and until when."""

    def __init__(self, tools: Tools, asked: Claim, held: Hold, begun_s: float) -> None:
        self.claim = asked
        self.is_lost = False
        self.pid = os.getpid()
        self._tools = tools
        self.extend(asked, held, begun_s)

    def extend(self, asked: Claim, held: Hold, begun_s: float) -> None:
        """Count from when it was asked for, so that it never seems to last longer than it does."""
        self.until = asked.stamp.now + held.left_us
        self.due = begun_s + asked.ttl_us / 1_000_000 / _RENEWALS

    def retry(self) -> None:
        self.due = self._tools.clock.monotonic() + self.claim.ttl_us / 1_000_000 / _RETRIES


class LeaseProperties:
    """What `Lease` and `AsyncLease` add to a scope."""

    _term: Term

    def __init__(self, driver: Any, context: ScopeContext, term: Term) -> None:
        """Made by `claim`."""
        super().__init__(driver, context._replace(fence=term.claim.key))  # type: ignore[call-arg]
        self._term = term

    @property
    def token(self) -> str:
        """The unique key of the lease."""
        return self._term.claim.key

    @property
    def expires_at(self) -> datetime:
        """When the lease ends unless it is renewed, by the clock of this machine."""
        return times.from_us(self._term.until)


class _Abandoned(Term):
    """A lease whose caller has gone, though it may yet be granted: it is released repeatedly."""

    def __init__(self, tools: Tools, claim: Claim, pauses_s: Iterable[float]) -> None:
        super().__init__(tools, claim, Hold(claim.key, claim.owner, 0), 0.0)
        self._pauses_s = iter(pauses_s)
        self.schedule()

    def schedule(self) -> bool:
        """Set when it is released next; return False if that was the last time."""
        pause_s = next(self._pauses_s, None)
        self.due = self._tools.clock.monotonic() + (pause_s or 0.0)
        return pause_s is not None


class Renewals:
    """Renews the leases that are held through one store.

    It has a few threads, so that a slow scope does not keep the others from being renewed.
    """

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self.after_renewal: Callable[[], None] = lambda: None
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Forget all leases: the parent has the threads, and goes on to renew them."""
        # An interrupt in the `__enter__` of a Condition would leave it locked.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        # Weak: a lease that is garbage is not renewed any more.
        self._terms: weakref.WeakSet[Term] = weakref.WeakSet()
        self._abandoned: set[Term] = set()
        self._busy: set[Term] = set()
        self._threads: set[threading.Thread] = set()
        self._closed = False

    def add(self, term: Term) -> None:
        self._add(term, self._terms)

    def abandon(self, claim: Claim, pauses_s: Iterable[float] = _RELEASE_PAUSES_S) -> None:
        """Release a lease in the background, once after each of these pauses.

        By default several times, because it may still be granted though its caller has gone.
        """
        self._add(_Abandoned(self._opened.tools, claim, pauses_s), self._abandoned)

    def _add(self, term: Term, to: "set[Term] | weakref.WeakSet[Term]") -> None:
        with self._lock:
            if self._closed:
                return
            to.add(term)
            self._threads = {each for each in self._threads if each.is_alive()}
            if len(self._threads) < min(_THREADS_MAX, len(self._all())):
                self._threads.add(start_thread(self._run, "limpet-leases"))
            self._changed.notify_all()

    def remove(self, term: Term) -> None:
        with self._lock:
            self._terms.discard(term)
            self._abandoned.discard(term)
            self._changed.notify_all()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            terms, threads = self._all(), list(self._threads)
            self._terms.clear()
            self._abandoned.clear()
            self._changed.notify_all()
        for term in terms:
            with suppress(LimpetError):
                release(self._opened.tools, term)(self._opened.backend)
        for thread in threads:
            thread.join(_JOIN_S_MAX)

    def _all(self) -> list[Term]:
        return [*self._terms, *self._abandoned]

    def _run(self) -> None:
        while True:
            term = self._next()
            if term is None:
                return
            try:
                self._renew(term)
            finally:
                with self._lock:
                    self._busy.discard(term)
            del term  # this thread must not keep it alive while it waits for the next
            self.after_renewal()

    def _next(self) -> Term | None:
        """Wait for a lease that is due; return None if this thread can end."""
        while True:
            with self._lock:
                terms = self._all()
                if len(terms) < len(self._threads) or self._closed:
                    self._threads.discard(threading.current_thread())
                    return None
                free = [each for each in terms if each not in self._busy]
                term = min(free, key=lambda each: each.due, default=None)
                left_s = _IDLE_S
                if term is not None:
                    left_s = min(left_s, term.due - self._opened.tools.clock.monotonic())
                    if left_s <= 0:
                        self._busy.add(term)
                        return term
                del terms, free, term  # as above
                self._changed.wait(left_s)

    def _renew(self, term: Term) -> None:
        tools = self._opened.tools
        if isinstance(term, _Abandoned):
            with suppress(Exception):  # tried again, if it is not the last time
                release(tools, term)(self._opened.backend)
            if not term.schedule():
                self.remove(term)
            return
        try:
            begun_s = tools.clock.monotonic()
            asked = term.claim._replace(stamp=tools.draw())
            term.extend(asked, self._opened.backend.renew(asked), begun_s)
        except (Conflict, InvalidInput) as error:
            term.is_lost = True  # it has passed to another worker, or the store is closed
            self.remove(term)
            if isinstance(error, Conflict):
                logs.info("a lease is lost: another worker has it", kind=term.claim.scope.kind)
        except Exception as error:
            term.retry()  # if it keeps failing, the lease ends, and every write is Conflict
            logs.info("a lease is not renewed, and tried again", error=type(error).__name__)


def hold(opened: Opened, wanted: Wanted, inside: "Callable[[Term], Steps[None]]") -> "Steps[None]":
    """Hold a lease while `inside` runs, which may have a `Block`."""
    renewals = opened.service(Renewals)
    try:
        term = yield from claim(opened.tools, wanted)
    except Conflict:
        raise
    except BaseException:
        # It may have been granted, or may still be granted: a cancelled await does not stop a call.
        renewals.abandon(wanted.claim)
        raise
    try:
        renewals.add(term)
        yield from inside(term)
    finally:
        # A thread that the end of the interpreter has stopped may hold any lock for good: then
        # nothing more is done, and the lease ends by itself.
        if not sys.is_finalizing():
            renewals.remove(term)
            try:
                yield release(opened.tools, term)
            except (Unavailable, InvalidInput):
                pass  # the lease ends by itself
            except BaseException:
                renewals.abandon(wanted.claim)  # interrupted, perhaps before the call began
                raise


def held(scope: ScopeBase, wanted: Wanted, lease: type) -> Any:
    """Return a block of the caller that holds the lease of a scope, and gets a `lease`."""

    def inside(term: Term) -> Steps[None]:
        yield Block(lease(scope.driver, scope._context, term))

    return scope.driver.block(hold(scope.driver.opened, wanted, inside))
