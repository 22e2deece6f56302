"""The verbs about leases, and the thread that keeps them from ending.

A lease is a key that a scope carries. Whoever holds it writes under it, and a write under a key
that the scope carries no longer is Conflict: so a worker that was paused past its lease changes
nothing, whatever its own clock says.
"""

import os
import threading
import weakref
from contextlib import suppress
from datetime import datetime

from holdfast.core import limits, times
from holdfast.engine import Engine, Tools
from holdfast.errors import Conflict, HoldfastError, InvalidInput, Unavailable
from holdfast.model import ScopeKey
from holdfast.protocol import Claim, Hold
from holdfast.steps import Pause, Steps, Work

_PAUSE_S_MIN = 0.01
_PAUSE_S_MAX = 0.5
_RENEWALS = 3  # of a lease, while it lasts
_RETRIES = 10  # as many attempts, if they fail
_LETTING_GO_S = (0.05, 0.5, 5.0)  # when a lease that may yet be granted is given back
_JOIN_S_MAX = 5.0


def prepare(
    tools: Tools, scope: ScopeKey, *, owner: str, ttl_s: float, wait_s: float
) -> "tuple[Claim, float]":
    """Return the claim that a caller asks for, and how long it may take, both checked."""
    owner = limits.check_id("owner", owner)
    ttl_s = limits.check_seconds("ttl_s", ttl_s)
    wait_s = limits.check_seconds("wait_s", wait_s)
    if not ttl_s:
        raise InvalidInput("ttl_s must be more than nothing")
    stamp = tools.draw()
    key = f"{stamp.nonce}{stamp.bits:020x}"
    return Claim(scope, key, owner, int(ttl_s * 1_000_000) or 1, stamp), wait_s


def claim(tools: Tools, wanted: Claim, wait_s: float) -> Steps[Hold]:
    """Ask for a lease until it is granted, or for as long as the caller is willing to wait."""
    clock = tools.clock
    deadline = clock.monotonic() + wait_s
    pause_s = _PAUSE_S_MIN
    while True:
        asked = wanted._replace(stamp=tools.draw())
        held: Hold = yield lambda backend, asked=asked: backend.claim(asked)  # type: ignore[misc]
        left_s = deadline - clock.monotonic()
        if held.key == wanted.key:
            return held
        if left_s <= 0:
            session_id, scope_id, kind = wanted.scope
            where = f"session=`{session_id}` scope=`{scope_id}` kind=`{kind}`"
            raise Conflict(f"somebody else holds the lease. owner=`{held.owner}` {where}")
        # Not much longer than it lasts; sooner, since it may be given back.
        ends_s = max(_PAUSE_S_MIN, held.left_us / 1_000_000)
        yield Pause(min(left_s, ends_s, pause_s * (0.5 + clock.jitter())))
        pause_s = min(1.5 * pause_s, _PAUSE_S_MAX)


def release(tools: Tools, held: Claim) -> Work[None]:
    """Give a lease back."""
    asked = held._replace(stamp=tools.draw())
    return lambda backend: backend.release(asked)


def give_back(tools: Tools, term: "Term") -> Work[None]:
    """Give a lease back at the end; a child that was forked meanwhile leaves it to its parent."""
    if term.pid == os.getpid():
        return release(tools, term.claim)
    return lambda backend: None


class Term:
    """A lease that is held, and until when. Shared by the two faces."""

    def __init__(self, tools: Tools, claim: Claim, held: Hold) -> None:
        self.claim = claim
        self.pid = os.getpid()
        self._tools = tools
        self.extend(held)

    def extend(self, held: Hold) -> None:
        """Take note that it lasts from now on."""
        self.until = self._tools.draw().now + held.left_us
        ttl_s = self.claim.ttl_us / 1_000_000
        self.due = self._tools.clock.monotonic() + ttl_s / _RENEWALS

    def retry(self) -> None:
        """Try again soon."""
        self.due = self._tools.clock.monotonic() + self.claim.ttl_us / 1_000_000 / _RETRIES

    @property
    def expires_at(self) -> datetime:
        """When it ends unless it is renewed, by the clock of this machine."""
        return times.from_us(self.until)


class _Unwanted(Term):
    """A lease that nobody wants any more, though it may yet be granted: it is given back often."""

    def __init__(self, tools: Tools, claim: Claim) -> None:
        super().__init__(tools, claim, Hold(claim.key, claim.owner, 0))
        self._pauses_s = iter(_LETTING_GO_S)
        self.is_over()

    def is_over(self) -> bool:
        """Tell whether that was the last time; if not, set the next."""
        pause_s = next(self._pauses_s, None)
        self.due = self._tools.clock.monotonic() + (pause_s or 0.0)
        return pause_s is None


class Renewals:
    """Renews the leases that are held over one engine. Its thread runs while there are any."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._begin_anew()
        _all.add(self)

    def _begin_anew(self) -> None:
        # After a fork it is the parent who goes on to renew: threads stay there.
        self._changed = threading.Condition()
        self._terms: set[Term] = set()
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(self, term: Term) -> None:
        """Renew a lease from now on."""
        with self._changed:
            self._terms.add(term)
            if self._thread is None and not self._closed:
                run = threading.Thread(target=self._run, name="holdfast-leases", daemon=True)
                self._thread = run
                run.start()
            self._changed.notify()

    def remove(self, term: Term) -> None:
        """Renew it no longer."""
        with self._changed:
            self._terms.discard(term)
            self._changed.notify()

    def let_go(self, claim: Claim) -> None:
        """Give back a lease that may still be granted to somebody who has gone away."""
        self.add(_Unwanted(self._engine.tools, claim))

    def close(self) -> None:
        """Give back what is still held; nobody can write under it any more."""
        with self._changed:
            self._closed = True
            terms, self._terms = list(self._terms), set()
            thread = self._thread
            self._changed.notify()
        for term in terms:
            with suppress(HoldfastError):
                release(self._engine.tools, term.claim)(self._engine.backend)
        if thread is not None:
            thread.join(_JOIN_S_MAX)

    def _run(self) -> None:
        clock = self._engine.tools.clock
        while True:
            with self._changed:
                if not self._terms:
                    self._thread = None
                    return
                term = min(self._terms, key=lambda each: each.due)
                left_s = term.due - clock.monotonic()
                if left_s > 0:
                    self._changed.wait(left_s)
                    continue
            self._renew(term)

    def _renew(self, term: Term) -> None:
        try:
            if isinstance(term, _Unwanted):
                release(self._engine.tools, term.claim)(self._engine.backend)
                if term.is_over():
                    self.remove(term)
                return
            asked = term.claim._replace(stamp=self._engine.tools.draw())
            term.extend(self._engine.backend.renew(asked))
        except Unavailable:
            term.retry()
        except Exception:
            # It has passed to somebody else, or there is a fault: every write under it will tell.
            self.remove(term)


_all: "weakref.WeakSet[Renewals]" = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for each in list(_all):
        each._begin_anew()


os.register_at_fork(after_in_child=_after_fork_in_child)
