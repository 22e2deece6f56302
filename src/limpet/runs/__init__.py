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
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import replace
from typing import Any, Literal, TypedDict, Unpack, cast, overload

from limpet.api.store import AsyncStore, Store, context_of
from limpet.core import codec, limits, prepare
from limpet.errors import InvalidInput
from limpet.model import JSON, State
from limpet.runs import queue, verbs
from limpet.runs.attempt import Plan, check_labels, check_metadata, check_room
from limpet.runs.handles import AsyncRun, Run, hold
from limpet.runs.model import QUEUED, RUNNING, Aborted, RunError, RunInfo
from limpet.runs.processes import host_of_process

__all__ = [
    "Aborted",
    "AsyncRun",
    "Run",
    "RunError",
    "RunInfo",
    "abort",
    "adopt",
    "enqueue",
    "get",
    "list",
    "start",
    "work",
]

OnSuccess = Literal["delete", "keep"]


def __dir__() -> builtins.list[str]:
    return sorted(__all__)


class _Worker(TypedDict, total=False):
    owner: str | None
    ttl_s: float
    wait_s: float
    on_success: OnSuccess
    traceback: bool


class _Given(TypedDict, total=False):
    task: str | None
    initial: JSON
    again: bool
    labels: Mapping[str, str] | None
    metadata: Mapping[str, JSON] | None


class _Start(_Worker, _Given):
    pass


@overload
def start(
    store: Store, run_id: str, *, model: type[State] | None = None, **options: Unpack[_Start]
) -> AbstractContextManager[Run[State]]: ...


@overload
def start(
    store: AsyncStore, run_id: str, *, model: type[State] | None = None, **options: Unpack[_Start]
) -> AbstractAsyncContextManager[AsyncRun[State]]: ...


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
    model: type[Any] | None = None,
    traceback: bool = False,
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
        model: the class of the states, as for `Store.scope`. By default they are any JSON.
        traceback: keep the end of the traceback if the run fails, in `RunInfo.error`. It shows
            file names and lines of your code, and messages of other errors.

    Raises:
        Conflict: a worker that is alive holds it, also after `wait_s`.
        Aborted: it was aborted at this moment; or, at the end of the block, meanwhile.
        InvalidInput: an argument is not acceptable.
    """
    _check_store(store)
    plan = _plan(store, run_id, model, initial, task, labels, metadata, again=again)
    plan = _of_worker(plan, owner, ttl_s, on_success, traceback=traceback)
    return hold(store, plan, wait_s)


@overload
def adopt(
    store: Store, run_id: str, *, model: type[State] | None = None, **options: Unpack[_Worker]
) -> AbstractContextManager[Run[State]]: ...


@overload
def adopt(
    store: AsyncStore, run_id: str, *, model: type[State] | None = None, **options: Unpack[_Worker]
) -> AbstractAsyncContextManager[AsyncRun[State]]: ...


def adopt(
    store: Store | AsyncStore,
    run_id: str,
    *,
    owner: str | None = None,
    ttl_s: float = 30.0,
    wait_s: float = 0.0,
    on_success: OnSuccess = "keep",
    model: type[Any] | None = None,
    traceback: bool = False,
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
        model: as for `start`.
        traceback: as for `start`.

    Raises:
        NotFound: there is no such run.
        Conflict: a worker that is alive holds it, also after `wait_s`; or the run is not running.
    """
    _check_store(store)
    plan = replace(_plan(store, run_id, model), only=(RUNNING,))
    return hold(store, _of_worker(plan, owner, ttl_s, on_success, traceback=traceback), wait_s)


@overload
def enqueue(
    store: Store, run_id: str, *, model: type[Any] | None = None, **options: Unpack[_Given]
) -> RunInfo: ...


@overload
def enqueue(
    store: AsyncStore, run_id: str, *, model: type[Any] | None = None, **options: Unpack[_Given]
) -> Awaitable[RunInfo]: ...


def enqueue(
    store: Store | AsyncStore,
    run_id: str,
    *,
    initial: JSON = None,
    task: str | None = None,
    again: bool = False,
    labels: Mapping[str, str] | None = None,
    metadata: Mapping[str, JSON] | None = None,
    model: type[Any] | None = None,
) -> Any:
    """Let a run wait for a worker, see `work`; return its status and facts::

        runs.enqueue(store, "reports/berlin", initial={"pages": []})

    A run that failed or was aborted waits again, with its last state. One that waits already, has a
    worker, or has completed is left as it is: so this may be repeated.

    Args:
        store: where the run is. With an `AsyncStore`, await the result.
        run_id: the name of the run.
        initial: `run.state` as long as no step was saved.
        task: as for `start`.
        again: begin another round if the run has completed.
        labels: given to every snapshot of the run.
        metadata: given to every snapshot of the run.
        model: the class of `initial`, as for `start`.

    Raises:
        InvalidInput: an argument is not acceptable.
    """
    _check_store(store)
    plan = _plan(store, run_id, model, initial, task, labels, metadata, again=again)
    return store.driver.drive(queue.enqueue(store.driver.tools, plan))


@overload
def work(
    store: Store,
    *,
    prefix: str = "",
    model: type[State] | None = None,
    **options: Unpack[_Worker],
) -> Iterator[AbstractContextManager[Run[State]]]: ...


@overload
def work(
    store: AsyncStore,
    *,
    prefix: str = "",
    model: type[State] | None = None,
    **options: Unpack[_Worker],
) -> AsyncIterator[AbstractAsyncContextManager[AsyncRun[State]]]: ...


def work(
    store: Store | AsyncStore,
    *,
    prefix: str = "",
    wait_s: float = 0.0,
    owner: str | None = None,
    ttl_s: float = 30.0,
    on_success: OnSuccess = "keep",
    model: type[Any] | None = None,
    traceback: bool = False,
) -> Any:
    """Claim runs of the queue, one after the other, and yield a block for each::

        for claim in runs.work(store, prefix="reports/", wait_s=60):
            with claim as run:
                write_report(run)

    The block is that of `start`: leaving it completes the run, an exception marks it as failed, and
    the run is then not done again unless it is enqueued again. Each run has one worker at a time.
    That of a worker that died comes back, behind those that wait. The oldest come first, but not
    strictly: workers choose among the first few. A run that cannot be read is passed over.

    Enter each block before the next claim is asked for: a claim that was not entered is over, and
    its run comes back.

    Args:
        store: where the runs are. With an `AsyncStore`: `async for`, `async with`.
        prefix: only runs whose name begins with this.
        wait_s: how long to wait for a run when none waits, before the loop ends.
        owner: as for `start`.
        ttl_s: as for `start`.
        on_success: as for `start`.
        model: as for `start`.
        traceback: as for `start`.

    Raises:
        InvalidInput: an argument is not acceptable, or a block was not entered.
    """
    _check_store(store)
    plan = _of_worker(_plan(store, "any", model), owner, ttl_s, on_success, traceback=traceback)
    plan = replace(plan, only=(QUEUED, RUNNING))
    return store.driver.blocks(queue.Queue(store, plan, prefix, wait_s).claim)


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


def _plan(
    store: Store | AsyncStore,
    run_id: str,
    model: type[Any] | None,
    initial: JSON = None,
    task: str | None = None,
    labels: Mapping[str, str] | None = None,
    metadata: Mapping[str, JSON] | None = None,
    *,
    again: bool = False,
) -> Plan:
    task, tools = verbs.check_task(task), store.driver.tools
    key, _, states, _ = context_of(verbs.scope_of(run_id), tools, model)
    limit, default = tools.state_bytes_max, tools.default
    if initial is not None:
        initial = prepare.encode_state(states.dump(initial), limit, default)[0]
    if metadata is not None:  # a copy, which the caller cannot change later
        encoded = prepare.encode_metadata(check_metadata(metadata), limit, default)
        metadata = cast(Mapping[str, JSON], codec.decode(encoded))
    labels = None if labels is None else check_labels(labels, task)
    again = limits.check_flag("again", again)
    plan = Plan(key, task, labels, metadata, initial, again=again, model=states)
    check_room(tools, plan)
    return plan


def _of_worker(
    plan: Plan, owner: str | None, ttl_s: float, on_success: object, *, traceback: bool
) -> Plan:
    if on_success not in ("delete", "keep"):
        raise InvalidInput("on_success must be delete or keep")
    return replace(
        plan,
        owner=host_of_process() if owner is None else limits.check_id("owner", owner),
        ttl_s=ttl_s,
        deletes=on_success == "delete",
        traceback=limits.check_flag("traceback", traceback),
    )
