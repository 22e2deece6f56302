"""The verbs about leases, and the threads that keep them from ending.

A lease is a key that a scope carries. Whoever holds it writes under it, and a write under a key
that the scope carries no longer is Conflict: so a worker that was paused past its lease changes
nothing, whatever its own clock says.
"""

import os
import threading
import weakref
from contextlib import suppress
from datetime import datetime

from limpet.api.opened import Opened, Tools, start_thread
from limpet.api.verbs import Pause, Steps, Work
from limpet.backends.support.forks import renew_after_fork
from limpet.core import limits, times
from limpet.errors import Conflict, InvalidInput, LimpetError
from limpet.model import ScopeKey
from limpet.protocol import Backend, Claim, Hold

_TTL_S_MIN = 0.05  # less could not be renewed in time
_PAUSE_S_MIN = 0.01
_PAUSE_S_MAX = 0.5
_RENEWALS = 3  # of a lease, while it lasts
_RETRIES = 10  # as many attempts, if they fail
_LETTING_GO_S = (0.05, 0.5, 5.0)  # when a lease that may yet be granted is given back
_JOIN_S_MAX = 5.0
_THREADS_MAX = 4
_IDLE_S = 1.0  # after which a thread sees that what it waited for has gone


def prepare(
    tools: Tools, scope: ScopeKey, *, owner: str, ttl_s: float, wait_s: float
) -> "tuple[Claim, float]":
    """Return the claim that a caller asks for, and how long it may take, both checked."""
    owner = limits.check_id("owner", owner)
    ttl_s = limits.check_seconds("ttl_s", ttl_s)
    wait_s = limits.check_seconds("wait_s", wait_s)
    if ttl_s < _TTL_S_MIN:
        raise InvalidInput(f"ttl_s must be at least {_TTL_S_MIN:g} seconds. found=`{ttl_s:g}`")
    stamp = tools.draw()
    key = f"{stamp.nonce}{stamp.bits:020x}"
    return Claim(scope, key, owner, int(ttl_s * 1_000_000), stamp), wait_s


def claim(tools: Tools, wanted: Claim, wait_s: float, *, patient: bool = False) -> "Steps[Term]":
    """Ask for a lease until it is granted, or for as long as the caller is willing to wait.

    With `patient` also for as long as it takes to see that a holder is dead who seems to be: where
    there is no clock that all trust, one look is not enough.
    """
    clock = tools.clock
    deadline = patience = clock.monotonic() + wait_s
    pause_s = _PAUSE_S_MIN
    met: Hold | None = None
    while True:
        begun_s = clock.monotonic()
        asked = wanted._replace(stamp=tools.draw())
        held: Hold = yield lambda backend, asked=asked: backend.claim(asked)  # type: ignore[misc]
        if held.key == wanted.key:
            return Term(tools, asked, held, begun_s)
        if patient and met is None and (yield _seems_over(asked, held)):
            patience = clock.monotonic() + held.left_us / 1_000_000 + 1.0
        if met is not None and held.left_us > met.left_us:
            patience = deadline  # it was renewed, or is another one: somebody lives
        met = held
        left_s = max(deadline, patience) - clock.monotonic()
        if left_s <= 0:
            session_id, scope_id, kind = wanted.scope
            where = f"session=`{session_id}` scope=`{scope_id}` kind=`{kind}`"
            raise Conflict(f"somebody else holds the lease. owner=`{held.owner}` {where}")
        # Not much longer than it lasts; sooner, since it may be given back.
        ends_s = max(_PAUSE_S_MIN, held.left_us / 1_000_000)
        yield Pause(min(left_s, ends_s, pause_s * (0.5 + clock.jitter())))
        pause_s = min(1.5 * pause_s, _PAUSE_S_MAX)


def _seems_over(asked: Claim, held: Hold) -> Work[bool]:
    def work(backend: Backend) -> bool:
        found = backend.read_lease(asked.scope, now=asked.stamp.now)
        return found is not None and found.key == held.key and found.left_us <= 0

    return work


def release(tools: Tools, held: Claim) -> Work[None]:
    """Give a lease back."""
    asked = held._replace(stamp=tools.draw())
    return lambda backend: backend.release(asked)


def give_back(tools: Tools, term: "Term") -> Work[None]:
    """Give a lease back at the end; a child that was forked meanwhile leaves it to its parent."""
    if term.pid == os.getpid():
        return release(tools, term.claim)
    return lambda backend: None


def is_lost(lease: "Held") -> bool:
    """Return whether a lease is known to have passed to another holder."""
    return lease._term.is_lost


class Term:
    """A lease that is held, and until when. Shared by the two faces."""

    def __init__(self, tools: Tools, asked: Claim, held: Hold, begun_s: float) -> None:
        self.claim = asked
        self.is_lost = False
        self.pid = os.getpid()
        self._tools = tools
        self.extend(asked, held, begun_s)

    def extend(self, asked: Claim, held: Hold, begun_s: float) -> None:
        """Take note that it lasts anew, from when it was asked for: never longer than it does."""
        self.until = asked.stamp.now + held.left_us
        self.due = begun_s + asked.ttl_us / 1_000_000 / _RENEWALS

    def retry(self) -> None:
        """Try again soon."""
        self.due = self._tools.clock.monotonic() + self.claim.ttl_us / 1_000_000 / _RETRIES

    @property
    def expires_at(self) -> datetime:
        """When it ends unless it is renewed, by the clock of this machine."""
        return times.from_us(self.until)


class Held:
    """What both faces show of a lease."""

    _term: Term

    @property
    def token(self) -> str:
        """The key of the lease, which is unique."""
        return self._term.claim.key

    @property
    def expires_at(self) -> datetime:
        """When it ends unless it is renewed, by the clock of this machine."""
        return self._term.expires_at


class _Unwanted(Term):
    """A lease that nobody wants any more, though it may yet be granted: it is given back often."""

    def __init__(self, tools: Tools, claim: Claim) -> None:
        super().__init__(tools, claim, Hold(claim.key, claim.owner, 0), 0.0)
        self._pauses_s = iter(_LETTING_GO_S)
        self.is_over()

    def is_over(self) -> bool:
        """Tell whether that was the last time; if not, set the next."""
        pause_s = next(self._pauses_s, None)
        self.due = self._tools.clock.monotonic() + (pause_s or 0.0)
        return pause_s is None


class Renewals:
    """Renews the leases that are held over one engine, while somebody holds them.

    A few threads, so that one scope that is long in use does not keep the others from it.
    """

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:  # noqa: D102
        # After a fork it is the parent who goes on to renew: threads stay there.
        self._changed = threading.Condition()
        # What nobody has any more is not renewed, however that came about.
        self._terms: weakref.WeakSet[Term] = weakref.WeakSet()
        self._unwanted: set[Term] = set()
        self._busy: set[Term] = set()
        self._threads: set[threading.Thread] = set()
        self._closed = False

    def add(self, term: Term) -> None:
        """Renew a lease from now on."""
        self._add(term, self._terms)

    def let_go(self, claim: Claim) -> None:
        """Give back a lease that may still be granted to somebody who has gone away."""
        self._add(_Unwanted(self._opened.tools, claim), self._unwanted)

    def _add(self, term: Term, to: "set[Term] | weakref.WeakSet[Term]") -> None:
        with self._changed:
            if self._closed:
                return
            to.add(term)
            self._threads = {each for each in self._threads if each.is_alive()}
            if len(self._threads) < min(_THREADS_MAX, len(self._all())):
                self._threads.add(start_thread(self._run, "limpet-leases"))
            self._changed.notify_all()

    def remove(self, term: Term) -> None:
        """Renew it no longer."""
        with self._changed:
            self._terms.discard(term)
            self._unwanted.discard(term)
            self._changed.notify_all()

    def close(self) -> None:
        """Give back what is still held; nobody can write under it any more."""
        with self._changed:
            self._closed = True
            terms, threads = self._all(), list(self._threads)
            self._terms.clear()
            self._unwanted.clear()
            self._changed.notify_all()
        for term in terms:
            with suppress(LimpetError):
                release(self._opened.tools, term.claim)(self._opened.backend)
        for thread in threads:
            thread.join(_JOIN_S_MAX)

    def _all(self) -> list[Term]:
        return [*self._terms, *self._unwanted]

    def _run(self) -> None:
        while True:
            term = self._next()
            if term is None:
                return
            try:
                self._renew(term)
            finally:
                with self._changed:
                    self._busy.discard(term)
            del term  # not to be kept by this thread while it waits for another

    def _next(self) -> Term | None:
        """Wait for a lease that is due; None if this thread is not needed any more."""
        while True:
            with self._changed:
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
                del terms, free, term  # not to be kept by this thread while it waits
                self._changed.wait(left_s)

    def _renew(self, term: Term) -> None:
        try:
            if isinstance(term, _Unwanted):
                release(self._opened.tools, term.claim)(self._opened.backend)
                if term.is_over():
                    self.remove(term)
                return
            begun_s = self._opened.tools.clock.monotonic()
            asked = term.claim._replace(stamp=self._opened.tools.draw())
            term.extend(asked, self._opened.backend.renew(asked), begun_s)
        except (Conflict, InvalidInput):
            term.is_lost = True  # it has passed to somebody else, or the store is closed
            self.remove(term)
        except Exception:
            # What is wrong may pass; if not, the lease ends, and every write tells.
            if not isinstance(term, _Unwanted):
                term.retry()
            elif term.is_over():
                self.remove(term)
