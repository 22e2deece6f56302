"""The verbs about runs that need no lease: get, list, abort."""

from collections.abc import Sequence
from contextlib import suppress

from limpet.api.opened import Tools
from limpet.api.verbs import Steps, Walk, Work, contend, converted, scopes
from limpet.core import limits
from limpet.errors import Conflict, InvalidInput, NotFound
from limpet.model import ScopeInfo, ScopeKey, SnapshotInfo
from limpet.protocol import Backend
from limpet.runs.attempt import in_place, read_head
from limpet.runs.model import (
    ABORTED,
    EXPIRED,
    KIND,
    QUEUED,
    RUNNING,
    SCOPE_ID,
    STATUSES,
    RunInfo,
    run_info,
)
from limpet.runs.processes import is_alive


def scope_of(run_id: object) -> ScopeKey:
    return limits.check_scope(limits.check_id("run_id", run_id), SCOPE_ID, KIND)


def get(tools: Tools, run_id: str) -> Work[RunInfo | None]:
    scope = scope_of(run_id)

    def work(backend: Backend) -> RunInfo | None:
        head = backend.read_info(scope, None)
        return None if head is None else _with_status(tools, backend, head)

    return work


def _with_status(tools: Tools, backend: Backend, head: SnapshotInfo) -> RunInfo:
    held = head.status == RUNNING and is_held(tools, backend, head.scope)
    return run_info(head, is_held=held)


def is_held(tools: Tools, backend: Backend, scope: ScopeKey) -> bool:
    """Return whether a worker that may be alive holds the lease of a scope."""
    held = backend.read_lease(scope, now=tools.draw().now)
    return held is not None and held.left_us > 0 and is_alive(held.owner) is not False


def listed(tools: Tools, *, status: str | None, task: str | None, prefix: str) -> Walk[RunInfo]:
    if status is not None and limits.check_status(status) not in STATUSES:
        known = ", ".join(STATUSES)
        raise InvalidInput(f"there is no such status. status=`{status}` known=`{known}`")
    task = check_task(task)

    def may_be(head: SnapshotInfo) -> bool:
        """Filter by the stored status first, because reading a lease costs more."""
        return status in (None, head.status, EXPIRED if head.status == RUNNING else None)

    def runs_of(backend: Backend, page: Sequence[ScopeInfo]) -> list[RunInfo]:
        heads = [each.head for each in page if each.key.scope_id == SCOPE_ID]
        runs = [_with_status(tools, backend, head) for head in heads if head and may_be(head)]
        return [
            each for each in runs if status in (None, each.status) and task in (None, each.task)
        ]

    return converted(scopes(None, kind=KIND, prefix=prefix), runs_of)


def check_task(task: object) -> str | None:
    """Return the name of a task, which is a label, or None."""
    if task is None:
        return None
    return limits.check_text("task", task, chars_max=limits.LABEL_CHARS_MAX, chars_min=1)


_TRIES_WITHOUT_PAUSE = 20  # of an abort


def abort(tools: Tools, run_id: str) -> Steps[RunInfo]:
    """Abort a run that is running or queued; any other is left as it is."""
    scope = scope_of(run_id)

    def once(backend: Backend) -> RunInfo:
        found = read_head(scope)(backend)
        if not found:
            raise NotFound(f"there is no such run. run_id=`{run_id}`")
        head, body = found[0]
        if head.status not in (QUEUED, RUNNING):
            return run_info(head, is_held=False)
        commit = in_place(
            tools,
            head,
            body,
            status=ABORTED,
            labels=head.labels,
            metadata=head.metadata,
            fence=None,
        )
        return run_info(backend.commit(commit), is_held=False)

    def attempt() -> Steps[RunInfo]:
        # Without a pause at first: a worker with very short steps leaves little time between them.
        aborted: RunInfo
        for _ in range(_TRIES_WITHOUT_PAUSE):
            with suppress(Conflict):
                aborted = yield once
                return aborted
        aborted = yield once
        return aborted

    # An abort needs no lease, so a Conflict always means that the worker wrote first.
    return contend(tools, attempt, lambda backend: True)
