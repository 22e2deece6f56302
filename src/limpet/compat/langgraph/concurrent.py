"""Two runs at once on one thread.

A run loads the latest checkpoint and saves each of its own on top of the one before. If another run
saves in between, LangGraph's savers keep both lines and later show the one with the greater id: the
turns of the other run are lost, without an error.

Here a run continues its line only while that is the latest: a `put` on a checkpoint that is no
longer the head raises Conflict, and nothing is stored. It is the compare-and-set of the commit that
decides, so this costs nothing and no crash or pause can get around it. With "wait", a run also
holds a lease on its thread, so that another run waits until it has ended instead of failing.

A run that addresses an older checkpoint by its id, to go back and branch, is not refused. `put`
does not say which checkpoint was addressed, so it is remembered when `get_tuple` is called: in a
context variable, which LangGraph passes on to the threads and tasks that save. Only runs and
`update_state` are judged; who calls `put` directly (imports, tools) is never refused.
"""

import gc
import os
import sys
import weakref
from contextvars import ContextVar
from itertools import count
from typing import Any, Literal, NamedTuple

from langgraph.checkpoint.base import CheckpointTuple

from limpet.api.integrations import Claim, Hold, Opened, Steps, leases, limits
from limpet.compat.langgraph import upstream
from limpet.errors import Conflict, InvalidInput
from limpet.model import ScopeKey

Concurrent = Literal["refuse", "wait", "allow"]

TTL_S = 30.0
_LOADS_MAX = 64  # scopes: one context may go through any number of threads
_COLLECT_EVERY = 5  # polls
_numbers = count()


class _Load(NamedTuple):
    """How a scope was loaded last: by which run, which id it addressed, and which was found."""

    run: object | None
    addressed: str | None
    found: str | None


_loads: ContextVar[dict[tuple[int, ScopeKey], _Load]] = ContextVar("limpet_langgraph_loads")
_given: ContextVar[dict[str, Any] | None] = ContextVar("limpet_langgraph_given")


class RunGuard:
    """Decides which saves continue a run, and makes runs of one thread wait for each other."""

    def __init__(self, mode: Concurrent, opened: Opened) -> None:
        if mode not in ("refuse", "wait", "allow"):
            raise InvalidInput('concurrent must be "refuse", "wait" or "allow"')
        self._mode = mode
        self._opened = opened
        self._number = next(_numbers)
        self._collected_s = 0.0

    def loaded(
        self, config: Any, scope: ScopeKey, addressed: str | None, found: str | None
    ) -> None:
        """Remember what a run, or a caller of `update_state`, has loaded."""
        if self._mode == "allow" or self._compares(config, scope):
            return
        loads, key, run = _loads.get({}), (self._number, scope), upstream.run_of(config)
        others = {each: loads[each] for each in [*loads][-_LOADS_MAX:] if each != key}
        _loads.set({**others, key: _Load(run, addressed, found)})

    def _compares(self, config: Any, scope: ScopeKey) -> bool:
        """Return whether a run only compares the latest with the one that it has addressed."""
        before = _loads.get({}).get((self._number, scope))
        is_same_run = before is not None and before.run is upstream.run_of(config)
        return is_same_run and upstream.is_comparing(config)

    def continues(
        self, config: Any, scope: ScopeKey, parent_id: str | None, source: object
    ) -> bool:
        """Return whether a save continues what was loaded, so that its parent must be the head."""
        load = None if self._mode == "allow" else _loads.get({}).get((self._number, scope))
        if load is None or (load.addressed is not None and load.addressed == parent_id):
            return False
        if upstream.run_of(config) is not None:
            return True
        return source == "update" and parent_id == load.found

    # Waiting

    def wait(self, config: Any, scope: ScopeKey) -> Steps[leases.Term | None]:
        """With "wait", wait until no other run is active on the thread; return its lease."""
        if (
            self._mode != "wait"
            or not upstream.is_root_run(config)
            or self._compares(config, scope)
        ):
            return None
        tools = self._opened.tools
        owner = f"{os.uname().nodename}:{os.getpid()}"
        root = scope._replace(scope_id="main")
        asked = leases.prepare(tools, root, owner, TTL_S, limits.WAIT_S_MAX)
        renewals = self._opened.service(leases.Renewals)
        polls = count(1)

        def inspect(held: Hold) -> Steps[leases.Holder]:
            if held.owner == owner and next(polls) % _COLLECT_EVERY == 0:
                gc.collect()
            return leases.Holder(held.owner, True)
            yield

        try:
            term = yield from leases.claim(tools, asked._replace(inspect=inspect))
        except Conflict:
            raise
        except BaseException:
            renewals.abandon(asked.claim)
            raise
        ended = weakref.finalize(term, _release, weakref.ref(renewals), term.claim, term.pid)
        ended.atexit = False
        renewals.after_renewal = self._collect
        renewals.add(term)
        return term

    # No saver is told when a run ends. But LangGraph drops the config of the run then, and with it
    # the lease: at once, or when the garbage is collected if the run failed, since its exception
    # and its frames refer to each other. So that is done now and then while leases are held.

    def hold(
        self, config: Any, found: CheckpointTuple | None, term: leases.Term | None
    ) -> CheckpointTuple | None:
        """Put a lease into the config of the run, but not into those of its tasks."""
        if term is None:
            return found
        if found is not None:
            named = {**found.config["configurable"], upstream.LEASE: term}
            return found._replace(config={**found.config, "configurable": named})
        # LangGraph goes on with the config that it has given, and asks for a version next.
        config["configurable"][upstream.LEASE] = term
        _given.set(config["configurable"])
        return None

    def settle(self) -> None:
        """Take the lease from the config of which LangGraph has made a copy by now."""
        given = _given.get(None)
        if given is not None:
            given.pop(upstream.LEASE, None)
            _given.set(None)

    def _collect(self) -> None:
        now_s = self._opened.tools.clock.monotonic()
        if now_s - self._collected_s >= TTL_S / 3:
            self._collected_s = now_s
            gc.collect()

    def interrupted(self, config: Any, scope: ScopeKey) -> Steps[None]:
        """Release the lease of a run that has asked a question: the answer may come elsewhere."""
        term = config["configurable"].get(upstream.LEASE)
        if isinstance(term, leases.Term) and scope.scope_id == "main":
            self._opened.service(leases.Renewals).remove(term)
            yield leases.release(self._opened.tools, term)

    def check_holder(self, config: Any, scope: ScopeKey) -> Steps[None]:
        """With "wait", refuse to save outside a run while one is active: it would fail.

        Raises:
            Conflict: a run is active on this thread.
        """
        if self._mode != "wait" or upstream.run_of(config) is not None:
            return
        root, now = scope._replace(scope_id="main"), self._opened.tools.draw().now
        held: Hold | None = yield lambda backend: backend.read_lease(root, now=now)
        if held is not None and held.left_us > 0:
            raise Conflict(
                "a run is active on this thread: try again when it has ended. "
                f"thread=`{scope.session_id}` owner=`{held.owner}`",
                scope=scope,
                owner=held.owner,
            )


def _release(renewals: "weakref.ref[leases.Renewals]", claim: Claim, pid: int) -> None:
    found = renewals()
    # A forked child leaves it to its parent, and at the end of the interpreter no thread starts.
    if found is not None and pid == os.getpid() and not sys.is_finalizing():
        found.abandon(claim, pauses_s=(0.0,))


def superseded(scope: ScopeKey, parent_id: object, latest_id: str | None) -> Conflict:
    return Conflict(
        "another run has continued this thread since this one loaded it, so nothing was saved: "
        "invoke again to continue from the latest checkpoint, or create the saver with "
        'concurrent="wait". '
        f"thread=`{scope.session_id}` namespace=`{scope.scope_id}` loaded=`{parent_id}` "
        f"latest=`{latest_id}`",
        scope=scope,
    )
