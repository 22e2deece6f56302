"""Supervised runs: work of many steps that survives its worker.

Any worker can continue a run where it stopped::

    from limpet import runs

    with runs.start(store, "nightly-report", task="report", initial={"pages": []}) as run:
        while not run.completed and len(run.state["pages"]) < 10:
            run.state["pages"].append(write_page(run.state))
            run.step(run.state)

A run is the scope `main` of kind `run` in the session of its name. The status of its head is the
status of the run.
"""

import builtins
import os
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Literal, overload

from limpet.api.opened import Tools
from limpet.api.store import AsyncStore, Store
from limpet.core import codec, limits, prepare
from limpet.errors import InvalidInput
from limpet.model import JSON
from limpet.runs import verbs
from limpet.runs.attempt import Plan, check_labels, check_metadata
from limpet.runs.handles import AsyncRun, Run, hold
from limpet.runs.model import FACTS, Aborted, RunError, RunInfo

__all__ = [
    "Aborted",
    "AsyncRun",
    "Run",
    "RunError",
    "RunInfo",
    "abort",
    "adopt",
    "get",
    "list",
    "start",
]

OnSuccess = Literal["delete", "keep"]


def __dir__() -> builtins.list[str]:
    return sorted(__all__)


@overload
def start(
    store: Store,
    run_id: str,
    *,
    task: str | None = None,
    owner: str | None = None,
    ttl_s: float = 30.0,
    wait_s: float = 0.0,
    on_success: OnSuccess = "keep",
    initial: JSON = None,
    again: bool = False,
    labels: Mapping[str, str] | None = None,
    metadata: Mapping[str, JSON] | None = None,
) -> AbstractContextManager[Run]: ...


@overload
def start(
    store: AsyncStore,
    run_id: str,
    *,
    task: str | None = None,
    owner: str | None = None,
    ttl_s: float = 30.0,
    wait_s: float = 0.0,
    on_success: OnSuccess = "keep",
    initial: JSON = None,
    again: bool = False,
    labels: Mapping[str, str] | None = None,
    metadata: Mapping[str, JSON] | None = None,
) -> AbstractAsyncContextManager[AsyncRun]: ...


def start(
    store: Store | AsyncStore,
    run_id: str,
    *,
    task: str | None = None,
    owner: str | None = None,
    ttl_s: float = 30.0,
    wait_s: float = 0.0,
    on_success: OnSuccess = "keep",
    initial: JSON = None,
    again: bool = False,
    labels: Mapping[str, str] | None = None,
    metadata: Mapping[str, JSON] | None = None,
) -> Any:
    """Begin a run, or resume it; with an `AsyncStore`: `async with`, and `await run.step(…)`::

        with runs.start(store, "nightly-report", initial={"pages": []}) as run:
            while not run.completed and len(run.state["pages"]) < 10:
                run.state["pages"].append(write_page(run.state))
                run.step(run.state)

    A run whose worker died, or that failed or was aborted, is resumed, with the last saved state in
    `run.state`. A process of this host that died is noticed at once, otherwise its lease is waited
    for. If the run has completed, also while this call waited, `run.completed` is true, and no
    step can be saved. Leaving the block completes the run; an exception marks it as failed.

    Args:
        store: where the run is, a `Store` or an `AsyncStore`.
        run_id: the name of the run, which is also the id of its session.
        task: the sort of run, to list runs by.
        owner: a name of the worker for people to read. Default: its host and process.
        ttl_s: how long after the death of this worker another host may take the run over.
        wait_s: how long to wait for a worker that is alive.
        on_success: "keep" leaves the run as completed, with its last state in history; "delete"
            deletes it with its history.
        initial: `run.state` as long as no step was saved.
        again: begin another round if the run has completed.
        labels: given to every snapshot of the run.
        metadata: given to every snapshot of the run.

    Raises:
        Conflict: a worker that is alive holds it, also after `wait_s`.
        Aborted: it was aborted at this moment; or, at the end of the block, meanwhile.
        InvalidInput: an argument is not acceptable.
    """
    _check_store(store)
    task = verbs.check_task(task)
    tools = store.driver.tools
    plan = Plan(
        verbs.scope_of(run_id),
        _owner(owner),
        deletes=_deletes(on_success),
        adopts=False,
        task=task,
        labels=None if labels is None else check_labels(labels, task),
        metadata=_own(tools, metadata),
        initial=_encoded(tools, initial),
        again=limits.check_flag("again", again),
    )
    return hold(store, plan, ttl_s, wait_s)


@overload
def adopt(
    store: Store,
    run_id: str,
    *,
    owner: str | None = None,
    ttl_s: float = 30.0,
    wait_s: float = 0.0,
    on_success: OnSuccess = "keep",
) -> AbstractContextManager[Run]: ...


@overload
def adopt(
    store: AsyncStore,
    run_id: str,
    *,
    owner: str | None = None,
    ttl_s: float = 30.0,
    wait_s: float = 0.0,
    on_success: OnSuccess = "keep",
) -> AbstractAsyncContextManager[AsyncRun]: ...


def adopt(
    store: Store | AsyncStore,
    run_id: str,
    *,
    owner: str | None = None,
    ttl_s: float = 30.0,
    wait_s: float = 0.0,
    on_success: OnSuccess = "keep",
) -> Any:
    """Take over the run of a worker that died::

        for dead in runs.list(store, status="expired"):
            with runs.adopt(store, dead.run_id) as run:
                finish(run)

    As `start`, but it never begins a run, and resumes none that completed, failed or was aborted.

    Args:
        store: where the run is, a `Store` or an `AsyncStore`.
        run_id: the name of the run.
        owner: as for `start`.
        ttl_s: as for `start`.
        wait_s: as for `start`.
        on_success: as for `start`.

    Raises:
        NotFound: there is no such run.
        Conflict: a worker that is alive holds it, also after `wait_s`; or the run is not running.
    """
    _check_store(store)
    plan = Plan(verbs.scope_of(run_id), _owner(owner), deletes=_deletes(on_success), adopts=True)
    return hold(store, plan, ttl_s, wait_s)


@overload
def abort(store: Store, run_id: str) -> RunInfo: ...


@overload
def abort(store: AsyncStore, run_id: str) -> Awaitable[RunInfo]: ...


def abort(store: Store | AsyncStore, run_id: str) -> Any:
    """Abort a run, from any process; return its new status and facts::

        runs.abort(store, "nightly-report")

    Its worker learns it by `run.aborted`, by `run.check()`, or by its next step. Once this has
    returned the run cannot complete any more. A run that is not running is left as it is.

    Args:
        store: where the run is. With an `AsyncStore`, await the result.
        run_id: the name of the run.

    Raises:
        NotFound: there is no such run.
    """
    _check_store(store)
    return store.driver.drive(verbs.abort(store.driver.tools, run_id))


@overload
def get(store: Store, run_id: str) -> RunInfo | None: ...


@overload
def get(store: AsyncStore, run_id: str) -> Awaitable[RunInfo | None]: ...


def get(store: Store | AsyncStore, run_id: str) -> Any:
    """Return the status and facts of a run, or None if there is none::

        found = runs.get(store, "nightly-report")
        print(found.status if found else "not begun")

    Args:
        store: where the run is. With an `AsyncStore`, await the result.
        run_id: the name of the run.
    """
    _check_store(store)
    return store.driver.run(verbs.get(store.driver.tools, run_id))


@overload
def list(
    store: Store, *, status: str | None = None, task: str | None = None, prefix: str = ""
) -> Iterator[RunInfo]: ...


@overload
def list(
    store: AsyncStore, *, status: str | None = None, task: str | None = None, prefix: str = ""
) -> AsyncIterator[RunInfo]: ...


def list(
    store: Store | AsyncStore,
    *,
    status: str | None = None,
    task: str | None = None,
    prefix: str = "",
) -> Any:
    """Yield runs in the order of their names::

        for each in runs.list(store, status="failed", prefix="nightly-"):
            print(each.run_id, each.error.message)

    A running run whose worker is dead or does not renew its lease is `expired`, and not listed as
    `running`. That is a hint: `start` and `adopt` find out.

    Args:
        store: where the runs are. With an `AsyncStore`: `async for`.
        status: only runs with this status.
        task: only runs of this task.
        prefix: only runs whose name begins with this.
    """
    _check_store(store)
    walk = verbs.listed(store.driver.tools, status=status, task=task, prefix=prefix)
    return store.driver.stream(walk)


def _check_store(store: object) -> None:
    if not isinstance(store, Store | AsyncStore):
        raise InvalidInput(f"expected a store. type=`{type(store).__name__}`")


def _deletes(on_success: object) -> bool:
    if on_success not in ("delete", "keep"):
        raise InvalidInput("on_success must be delete or keep")
    return on_success == "delete"


def _owner(owner: str | None) -> str:
    if owner is None:
        return f"{os.uname().nodename}:{os.getpid()}"
    return limits.check_id("owner", owner)


def _encoded(tools: Tools, initial: JSON) -> bytes | None:
    if initial is None:
        return None
    return prepare.encode_state(initial, tools.state_bytes_max, tools.default)[0]


def _own(tools: Tools, metadata: Mapping[str, JSON] | None) -> Mapping[str, JSON] | None:
    """Return a checked copy, which the caller cannot change later."""
    if metadata is None:
        return None
    plain = check_metadata(metadata)
    # Encoded as it is stored: next to the facts, and among them for workers that resume the run.
    whole = {**plain, FACTS: {"metadata": plain}}
    copied: Any = codec.decode(prepare.encode_metadata(whole, tools.state_bytes_max, tools.default))
    own: Mapping[str, JSON] = copied[FACTS]["metadata"]
    return own
