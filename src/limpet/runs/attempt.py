"""One attempt at a run: what its worker writes, as steps that both APIs drive.

Every write compares the revision of the head with that of the last write seen, and so does an
abort. So one of the two finds that the other came first, and an aborted run is never completed.
"""

import os
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any

from limpet.api.opened import JSON_MODEL, JsonModel, ScopeContext, Tools
from limpet.api.verbs import Encode, Steps, Work, save
from limpet.core import ids, limits, prepare, times
from limpet.errors import Conflict, InvalidInput, LimpetError, NotFound
from limpet.model import JSON, ScopeKey, SnapshotInfo
from limpet.protocol import Commit, Found
from limpet.runs.model import (
    ABORTED,
    COMPLETED,
    FACTS,
    FAILED,
    ROOM_BYTES,
    RUNNING,
    TASK_LABEL,
    Aborted,
    RunError,
    RunRecord,
    error_of,
    read_record,
)
from limpet.runs.processes import host_of_process

_NONCES = 64  # of our last writes, to recognize one whose answer was lost


@dataclass(frozen=True, slots=True)
class Plan:
    """The checked options of a worker. `labels` and `metadata` None: as before.

    `only`: the run must have one of these statuses, if any is given. `initial` is the encoded state
    of a run that has none.
    """

    scope: ScopeKey
    task: str | None = None
    labels: Mapping[str, str] | None = None
    metadata: Mapping[str, JSON] | None = None
    initial: bytes | None = None
    again: bool = False
    model: JsonModel = JSON_MODEL
    owner: str = ""
    ttl_s: float = 30.0
    deletes: bool = False
    traceback: bool = False
    only: tuple[str, ...] = ()

    def body_of(self, record: RunRecord, body: Any) -> Any:
        """Return the state to go on with: `initial` if no step was done, since nothing is lost."""
        return body if record.steps != 0 or self.initial is None else self.initial

    def applied(self, record: RunRecord) -> RunRecord:
        """Return the facts of a run with what is given here."""
        return replace(
            record,
            task=record.task if self.task is None else self.task,
            labels=record.labels if self.labels is None else self.labels,
            metadata=record.metadata if self.metadata is None else self.metadata,
            has_initial=record.has_initial or self.initial is not None,
        )

    def check_status(self, head: SnapshotInfo | None) -> None:
        """Raise if the head of the run has none of the statuses that it must have."""
        if self.only and head is None:
            raise NotFound(f"there is no such run. run_id=`{self.scope.session_id}`")
        if head is not None and self.only and head.status not in self.only:
            where = f"run_id=`{self.scope.session_id}` status=`{head.status}`"
            raise Conflict(f"only a running run can be adopted. {where}")


class Attempt:
    """What one worker does to a run under its lease.

    `awaited` is the head of the run while another worker held it, if this one had to wait.
    """

    def __init__(
        self, tools: Tools, plan: Plan, fence: str, awaited: SnapshotInfo | None = None
    ) -> None:
        self.resumed = False
        self.completed = False  # before this worker had it: there is nothing to do
        self.aborted = False
        self.ended = False  # by the worker, which left its block
        self.superseded = False  # by another worker, which has the lease now
        self._tools = tools
        self._plan = plan
        self._fence = fence
        self._awaited = awaited
        self._last: SnapshotInfo | None = None
        self._body: bytes | None = None  # of the state that the worker begins with
        self._nonces: deque[str] = deque(maxlen=_NONCES)
        self._pid = os.getpid()

    @cached_property
    def state(self) -> Any:
        """Decoded when it is used first, so that one that does not fit the model fails the run."""
        return None if self._body is None else self._plan.model.load(self.last, self._body)

    @property
    def last(self) -> SnapshotInfo:
        if self._last is None:
            raise InvalidInput("the run has not begun")
        return self._last

    def check_not_ended(self) -> None:
        run_id = self._plan.scope.session_id
        if self.ended:
            raise Conflict(f"the run has ended: its block was left. run_id=`{run_id}`")
        if self.completed:
            raise Conflict(
                "the run has completed: leave the block if run.completed is true, or start it "
                f"with again=True. run_id=`{run_id}`"
            )

    def begin(self) -> Steps[None]:
        """Begin or resume the run, unless it has completed."""
        plan = self._plan
        found: list[Found] = yield read_head(plan.scope)
        head, body = found[0] if found else (None, b"")
        plan.check_status(head)
        # If it was running and is gone, then its worker has completed and deleted it.
        self._last = head or self._awaited
        is_completed = self._last is not None and (head is None or head.status == COMPLETED)
        self.completed = is_completed and not plan.again
        goes_on = head is not None and (self.completed or not is_completed)
        self._body = plan.initial
        if head is not None and goes_on:
            record = read_record(head)
            self.resumed = record.attempt > 0
            if record.has_state:
                self._body = plan.body_of(record, body)
        if not self.completed:
            self._last = head
            yield from self._write(self._resumption if goes_on else self._first)

    def step(
        self,
        state: JSON,
        *,
        keep: bool,
        labels: Mapping[str, str] | None,
        metadata: Mapping[str, JSON] | None,
    ) -> Steps[SnapshotInfo]:
        self.check_not_ended()
        record = read_record(self.last)
        labels = {**record.labels, **check_labels(labels)}
        metadata = {**record.metadata, **check_metadata(metadata)}
        # Encoded once. If an earlier write of ours turns out to be stored, only `steps` changes.
        plan, expect, fence = self._plan, self.last.revision, self._fence
        given: dict[str, Any] = {"keep": keep, "labels": labels, "metadata": metadata}

        def encode() -> Commit:
            dumped = plan.model.dump(state)
            return saved(self._tools, plan, dumped, record, expect=expect, fence=fence, **given)

        draft: Commit = yield Encode(state, encode)

        def make() -> Steps[Commit]:
            yield from ()
            facts = replace(record, steps=(read_record(self.last).steps or 0) + 1)
            return draft._replace(
                metadata=_encoded(self._tools, metadata, facts),
                expect=self.last.revision,
                stamp=self._tools.draw(),
            )

        return (yield from self._write(make))

    def succeed(self) -> Steps[None]:
        """End the run: delete it, or mark it as completed; Aborted if it was aborted."""
        if self.completed or self._is_forked():
            return
        if not self._plan.deletes:
            yield from self._write(lambda: self._marked(COMPLETED))
            return
        while True:
            expect = self.last.revision
            try:
                yield _delete(self._plan.scope, expect, self._fence)
            except Conflict as error:
                yield from self._recover(error, expect)
            else:
                return

    def fail(self, error: BaseException) -> Steps[None]:
        """Mark the run as failed, if it is still ours; the caller's exception comes first."""
        if not (self.aborted or self.completed or self._is_forked()):
            failure = error_of(error, traceback=self._plan.traceback)
            with suppress(LimpetError):
                try:
                    yield from self._write(lambda: self._marked(FAILED, failure))
                except InvalidInput:  # metadata leaves no room for the traceback
                    failure = replace(failure, traceback=None)
                    yield from self._write(lambda: self._marked(FAILED, failure))

    def observe(self, head: SnapshotInfo) -> None:
        """Record whether a head aborts or supersedes this attempt.

        A head older than our last write is ignored: it may be of an earlier attempt.
        """
        if _age(head) <= _age(self.last):
            return
        ours = read_record(self.last).attempt
        attempt = read_record(head).attempt if FACTS in head.metadata else ours
        self.aborted = self.aborted or (head.status == ABORTED and attempt == ours)
        self.superseded = self.superseded or attempt > ours

    def _is_forked(self) -> bool:
        # A child that was forked inside the block must not end its parent's run.
        return os.getpid() != self._pid

    # Writing

    def _write(self, make: Callable[[], Steps[Commit]]) -> Steps[SnapshotInfo]:
        while True:
            expect = None if self._last is None else self._last.revision
            try:
                commit = yield from make()
                self._nonces.append(commit.stamp.nonce)
                self._last = yield save(commit)
            except Conflict as error:
                yield from self._recover(error, expect)
            else:
                return self.last

    def _recover(self, error: Conflict, expected: str | None) -> Steps[None]:
        """Raise why a write was refused, unless the head is another write of our own.

        That happens when an answer was lost, or a task was cancelled, which does not stop its
        write. The head is then recognized by its nonce, and the run continues from there.
        """
        head: SnapshotInfo | None
        head = yield lambda backend: backend.read_info(self._plan.scope, None)
        if head is not None and self._last is not None:
            self.observe(head)
        if self.aborted:
            raise Aborted(f"the run was aborted. run_id=`{self._plan.scope.session_id}`") from error
        is_ours = head is not None and ids.nonce_of(head.revision) in self._nonces
        if head is None or not is_ours or head.revision == expected:
            raise error
        self._last = head

    def _first(self) -> Steps[Commit]:
        """Return the commit of a new run: an empty draft, which the first step replaces."""
        yield from ()
        record = self._begun(new_record(self._plan, times.from_us(self._tools.draw().now)))
        expect = None if self._last is None else self._last.revision
        return new_run(
            self._tools, self._plan, record, status=RUNNING, expect=expect, fence=self._fence
        )

    def _begun(self, before: RunRecord) -> RunRecord:
        """Return the facts of this attempt, which goes on where a record ends."""
        plan, now = self._plan, times.from_us(self._tools.draw().now)
        return replace(
            before,
            owner=plan.owner,
            host=host_of_process(),
            attempt=before.attempt + 1,
            began_at=now,
            ttl_s=plan.ttl_s,
            error=None,
            started_at=before.started_at if before.attempt else now,
        )

    def _resumption(self) -> Steps[Commit]:
        """Return the commit that resumes a run: the last snapshot, running again."""
        plan, record = self._plan, read_record(self.last)
        commit = yield from self._rewritten(RUNNING, plan.applied(self._begun(record)))
        return draft_after(commit, plan.body_of(record, commit.body))

    def _marked(self, status: str, error: RunError | None = None) -> Steps[Commit]:
        """Return the commit of the end of the attempt, which stays in history."""
        commit = yield from self._rewritten(status, replace(read_record(self.last), error=error))
        return commit._replace(keep=True)

    def _rewritten(self, status: str, record: RunRecord) -> Steps[Commit]:
        """Return the commit that changes the last snapshot in place, except its state."""
        last = self.last
        found: list[Found] = yield read_head(self._plan.scope)
        if not found or found[0][0].revision != last.revision:
            raise Conflict(f"the run has changed. run_id=`{last.session_id}`")
        metadata = {**last.metadata, FACTS: record.to_json()}
        labels = {**last.labels, **task_label(record)}
        return in_place(
            self._tools,
            *found[0],
            status=status,
            labels=labels,
            metadata=metadata,
            fence=self._fence,
        )


def saved(
    tools: Tools,
    plan: Plan,
    state: JSON,
    record: RunRecord,
    *,
    expect: str | None,
    status: str = RUNNING,
    keep: bool = False,
    labels: Mapping[str, str] | None = None,
    metadata: Mapping[str, JSON] | None = None,
    fence: str | None = None,
) -> Commit:
    """Return the commit of a state; `labels` and `metadata` by default those of the run."""
    labels = record.labels if labels is None else labels
    metadata = record.metadata if metadata is None else metadata
    commit = prepare.save(
        plan.scope,
        state,
        keep=keep,
        status=status,
        labels={**labels, **task_label(record)},
        expect=expect,
        **ScopeContext(plan.scope, tools, fence=fence).of_write(),
    )
    return commit._replace(metadata=_encode_with_room(tools, metadata, record))


def new_run(
    tools: Tools,
    plan: Plan,
    record: RunRecord,
    *,
    status: str,
    expect: str | None = None,
    fence: str | None = None,
) -> Commit:
    """Return the commit of a new run: a draft, which the first step replaces."""
    first = saved(tools, plan, {}, record, status=status, expect=expect, fence=fence)
    return first if plan.initial is None else first._replace(body=plan.initial)


def new_record(plan: Plan, now: datetime) -> RunRecord:
    """Return the facts of a run that no worker had yet."""
    return RunRecord(
        task=plan.task,
        owner=None,
        attempt=0,
        steps=0,
        started_at=now,
        labels=plan.labels or {},
        metadata=plan.metadata or {},
        has_initial=plan.initial is not None,
    )


def check_room(tools: Tools, plan: Plan) -> None:
    """Raise InvalidInput if what is given for a whole run leaves no room for its facts."""
    record = new_record(plan, times.from_us(0))
    _encode_with_room(tools, record.metadata, record)


def _encode_with_room(tools: Tools, metadata: Mapping[str, JSON], record: RunRecord) -> bytes:
    encoded, bytes_max = _encoded(tools, metadata, record), limits.METADATA_BYTES_MAX - ROOM_BYTES
    if len(encoded) > bytes_max:
        raise InvalidInput(
            "the metadata leaves no room for the facts of the run, such as its error if it fails: "
            f"make it smaller, or put it into the state. bytes=`{len(encoded)}` max=`{bytes_max}`"
        )
    return encoded


def _encoded(tools: Tools, metadata: Mapping[str, JSON], record: RunRecord) -> bytes:
    whole = {**metadata, FACTS: record.to_json()}
    return prepare.encode_metadata(whole, tools.state_bytes_max, tools.default)


def draft_after(commit: Commit, body: Any) -> Commit:
    """Return a commit in place as one of a draft after it, so that what is kept stays as it is."""
    return commit._replace(body=body, id=None, overwrite=False, keep=False)


def read_head(scope: ScopeKey) -> Work[list[Found]]:
    return lambda backend: backend.read_snapshots(scope, [None])


def _delete(scope: ScopeKey, expect: str, fence: str) -> Work[int]:
    return lambda backend: backend.delete_scope(scope, expect=expect, fence=fence)


def in_place(
    tools: Tools,
    info: SnapshotInfo,
    body: bytes,
    *,
    status: str,
    labels: Mapping[str, str],
    metadata: Mapping[str, JSON],
    fence: str | None,
) -> Commit:
    """Return the commit that changes the facts of a head, if it still is the head when stored.

    It is an overwrite with `expect`: an update would compare only the snapshot, which may no longer
    be the head.
    """
    return Commit(
        scope=info.scope,
        body=body,
        status=status,
        labels=prepare.encode_labels(labels),
        metadata=prepare.encode_metadata(metadata, tools.state_bytes_max, tools.default),
        stamp=tools.draw(),
        id=info.id,
        keep=info.kept,
        overwrite=True,
        expect=info.revision,
        fence=fence,
    )


def check_labels(labels: Mapping[str, str] | None, task: str | None = None) -> dict[str, str]:
    """Return checked labels of the caller; with that of the task there may be too many."""
    checked = limits.check_labels(labels)
    if TASK_LABEL in checked:
        raise InvalidInput(f"this label is reserved: pass task= instead. label=`{TASK_LABEL}`")
    if task is not None:
        limits.check_labels({**checked, TASK_LABEL: task})
    return checked


def check_metadata(metadata: Mapping[str, JSON] | None) -> dict[str, JSON]:
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise InvalidInput(f"metadata must be a mapping. type=`{type(metadata).__name__}`")
    if FACTS in metadata:
        raise InvalidInput(f"this key is reserved for the facts of the run. key=`{FACTS}`")
    return dict(metadata)


def task_label(record: RunRecord) -> dict[str, str]:
    return {} if record.task is None else {TASK_LABEL: record.task}


def _age(info: SnapshotInfo) -> tuple[int, int]:
    return ids.seq_of(info.revision), ids.rev_of(info.revision)
