"""Supervised runs: work of many steps that survives its worker.

Any worker can continue a run where it stopped::

    from limpet import runs

    with runs.start(store, "nightly-report", task="report") as run:
        done = run.state or {"pages": []}
        while len(done["pages"]) < 10:
            done["pages"].append(write_page(done))
            run.step(done)

A run is the scope `main` of kind `run` in the session of its name. The status of its head is the
status of the run.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Literal, overload

from limpet.api.opened import Tools
from limpet.api.store import AsyncStore, Store
from limpet.core import codec, prepare
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


@overload
def start(
    store: Store,
    run_id: str,
    *,
    task: str | None = None,
    owner: str | None = None,
    ttl_s: float = 30.0,
    wait_s: float = 0.0,
    on_success: OnSuccess = "delete",
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
    on_success: OnSuccess = "delete",
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
    on_success: OnSuccess = "delete",
    labels: Mapping[str, str] | None = None,
    metadata: Mapping[str, JSON] | None = None,
) -> Any:
    """Begin a run, or resume it: `with runs.start(store, "nightly-report") as run:`.

    If there is no run of this name, or it has completed, a new one begins. If its worker died, or
    it failed or was aborted, it is resumed, and `run.state` is the last saved state. The scope of
    the run is claimed for the duration of the block.

    Leaving the block ends the run: it is deleted with its history, or with `on_success="keep"`
    marked as completed. If an exception leaves the block, the run is marked as failed, with the
    error.

    `task` names the sort of run, `owner` the worker (by default its host and process). `labels` and
    `metadata` are given to every snapshot of the run.

    Raises:
        Conflict: another worker holds it, also after `wait_s`.
        Aborted: it was aborted at this moment; or, at the end of the block, meanwhile.
    """
    _check_store(store)
    task = verbs.check_task(task)
    plan = Plan(
        verbs.scope_of(run_id),
        _owner(owner),
        deletes=_deletes(on_success),
        adopts=False,
        task=task,
        labels=None if labels is None else check_labels(labels, task),
        metadata=_own(store.driver.tools, metadata),
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
    on_success: OnSuccess = "delete",
) -> AbstractContextManager[Run]: ...


@overload
def adopt(
    store: AsyncStore,
    run_id: str,
    *,
    owner: str | None = None,
    ttl_s: float = 30.0,
    wait_s: float = 0.0,
    on_success: OnSuccess = "delete",
) -> AbstractAsyncContextManager[AsyncRun]: ...


def adopt(
    store: Store | AsyncStore,
    run_id: str,
    *,
    owner: str | None = None,
    ttl_s: float = 30.0,
    wait_s: float = 0.0,
    on_success: OnSuccess = "delete",
) -> Any:
    """Take over the run of a worker that died: `with runs.adopt(store, run_id) as run:`.

    As `start`, but it never begins a run, and resumes none that failed or was aborted.

    Raises:
        NotFound: there is no such run.
        Conflict: another worker holds it, also after `wait_s`; or the run is not running.
    """
    _check_store(store)
    plan = Plan(verbs.scope_of(run_id), _owner(owner), deletes=_deletes(on_success), adopts=True)
    return hold(store, plan, ttl_s, wait_s)


@overload
def abort(store: Store, run_id: str) -> RunInfo: ...


@overload
def abort(store: AsyncStore, run_id: str) -> Awaitable[RunInfo]: ...


def abort(store: Store | AsyncStore, run_id: str) -> Any:
    """Abort a run, from any process; return its new status and facts.

    Its worker learns it by `run.aborted`, by `run.check()`, or by its next step. Once this has
    returned the run cannot complete any more. A run that is not running is left as it is.

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
    """Return the status and facts of a run, or None if there is none."""
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
    """Yield the runs whose name begins with `prefix`, in the order of their names.

    A running run whose worker does not renew its lease is `expired`, and not listed as `running`.
    That is a hint: `adopt` finds out.
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
    return f"{os.uname().nodename}:{os.getpid()}" if owner is None else owner


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
