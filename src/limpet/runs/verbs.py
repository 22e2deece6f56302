"""The verbs about runs that need no lease: look at them, list them, abort them."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from limpet.api.opened import Tools
from limpet.api.verbs import Steps, Walk, Work, check_prefix, contend
from limpet.core import limits
from limpet.errors import Conflict, InvalidInput, NotFound
from limpet.model import ScopeKey, SnapshotInfo
from limpet.protocol import Backend
from limpet.runs.attempt import in_place, read_head
from limpet.runs.model import (
    ABORTED,
    EXPIRED,
    KIND,
    RUNNING,
    SCOPE_ID,
    STATUSES,
    RunInfo,
    run_info,
)


def scope_of(run_id: object) -> ScopeKey:
    """Return where a run stands, its name checked."""
    return limits.check_scope(limits.check_id("run_id", run_id), SCOPE_ID, KIND)


def get(tools: Tools, run_id: str) -> Work[RunInfo | None]:
    """Read what is known of one run."""
    scope = scope_of(run_id)

    def work(backend: Backend) -> RunInfo | None:
        head = backend.read_info(scope, None)
        return None if head is None else _told(tools, backend, head)

    return work


def _told(tools: Tools, backend: Backend, head: SnapshotInfo) -> RunInfo:
    is_held = False
    if head.status == RUNNING:
        held = backend.read_lease(head.scope, now=tools.draw().now)
        is_held = held is not None and held.left_us > 0
    return run_info(head, is_held=is_held)


def listed(tools: Tools, *, status: str | None, task: str | None, prefix: str) -> Walk[RunInfo]:
    """Walk the runs in the order of their names."""
    if status is not None and limits.check_status(status) not in STATUSES:
        known = ", ".join(STATUSES)
        raise InvalidInput(f"there is no such status. status=`{status}` known=`{known}`")
    listing = _Listing(tools, status, check_task(task), check_prefix(prefix))

    def walk() -> Walk[RunInfo]:
        while not listing.ended:
            yield listing.some

    return walk()


def check_task(task: object) -> str | None:
    """Return the name of a task, which is a label, or None."""
    if task is None:
        return None
    return limits.check_text("task", task, chars_max=limits.LABEL_CHARS_MAX, chars_min=1)


@dataclass
class _Listing:
    """A walk over the scopes that hold runs; most of a page may be left out of it."""

    tools: Tools
    status: str | None
    task: str | None
    prefix: str
    after: ScopeKey | None = None
    ended: bool = False

    def some(self, backend: Backend) -> Sequence[RunInfo]:
        """Return the next page."""
        page = backend.list_scopes(
            session_id=None,
            kind=KIND,
            prefix=self.prefix,
            after=self.after,
            limit=limits.PAGE_ITEMS_MAX,
        )
        self.ended = len(page) < limits.PAGE_ITEMS_MAX
        self.after = page[-1].key if page else None
        heads = [each.head for each in page if each.key.scope_id == SCOPE_ID]
        runs = [_told(self.tools, backend, head) for head in heads if head and self._may_be(head)]
        return [
            each
            for each in runs
            if self.status in (None, each.status) and self.task in (None, each.task)
        ]

    def _may_be(self, head: SnapshotInfo) -> bool:
        """Tell by what is stored whether a run can be wanted: to look at a lease costs more."""
        return self.status in (None, head.status, EXPIRED if head.status == RUNNING else None)


_QUICK_TRIES = 20  # of an abort, before it begins to wait


def abort(tools: Tools, run_id: str) -> Steps[RunInfo]:
    """Let a run that is running be aborted from now on; leave any other as it is."""
    scope = scope_of(run_id)

    def once(backend: Backend) -> RunInfo:
        found = read_head(scope)(backend)
        if not found:
            raise NotFound(f"there is no such run. run_id=`{run_id}`")
        head, body = found[0]
        if head.status != RUNNING:
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
        # Without a pause at first: a worker that does nothing but step leaves only moments.
        told: RunInfo
        for _ in range(_QUICK_TRIES):
            with suppress(Conflict):
                told = yield once
                return told
        told = yield once
        return told

    # There is no lease in it, so that a Conflict always means that the worker came first.
    return contend(tools, attempt, lambda backend: True)
