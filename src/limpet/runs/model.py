"""What a run is, and how its facts are stored in the metadata of its snapshots."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from limpet.errors import Conflict
from limpet.model import JSON, SnapshotInfo

RUNNING = "running"
COMPLETED = "completed"
FAILED = "failed"
ABORTED = "aborted"
EXPIRED = "expired"  # never stored: a running run whose worker has lost its lease
STATUSES = (RUNNING, COMPLETED, FAILED, ABORTED, EXPIRED)

SCOPE_ID = "main"
KIND = "run"
TASK_LABEL = "task_name"
FACTS = "run"  # the key in metadata
MESSAGE_CHARS_MAX = 500  # metadata is read with every listing


class Aborted(Conflict):
    """The run was aborted. Stop working on it: nothing was stored, and it stays aborted."""


@dataclass(frozen=True, slots=True)
class RunError:
    """Why a run failed: the exception's class name, and the beginning of its message."""

    type: str
    message: str


@dataclass(frozen=True, slots=True)
class RunInfo:
    """Everything about a run except its state.

    `status` is `running`, `completed`, `failed`, `aborted`, or `expired`: stored as running, but
    its worker does not renew its lease, or its process on this host is dead. `attempt` counts its
    workers, `steps` their saves. `started_at` is when the first worker began. `info` is the
    snapshot::

        for each in runs.list(store, status="failed"):
            print(each.run_id, each.steps, each.error.message)
    """

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # info holds dicts

    run_id: str
    task: str | None
    status: str
    owner: str | None
    attempt: int
    steps: int
    error: RunError | None
    started_at: datetime
    updated_at: datetime
    info: SnapshotInfo


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The facts of a run in its metadata.

    `labels` and `metadata` are those that the caller gave to all of its snapshots.
    """

    task: str | None
    owner: str | None
    attempt: int
    steps: int | None  # None: another program wrote it, and did not count
    started_at: datetime
    labels: Mapping[str, str]
    metadata: Mapping[str, JSON]
    error: RunError | None = None
    has_initial: bool = False  # the first draft is the state that the worker began with

    @property
    def has_state(self) -> bool:
        """Whether the snapshot has a state of the run, and not the placeholder before any step."""
        return self.steps != 0 or self.has_initial

    def to_json(self) -> dict[str, JSON]:
        facts: dict[str, JSON] = {
            "task": self.task,
            "owner": self.owner,
            "attempt": self.attempt,
            "steps": self.steps or 0,
            "started_at": self.started_at.isoformat(),
        }
        if self.error is not None:
            facts["error"] = {"type": self.error.type, "message": self.error.message}
        if self.labels:
            facts["labels"] = dict(self.labels)
        if self.metadata:
            facts["metadata"] = dict(self.metadata)
        if self.has_initial:
            facts["initial"] = True
        return facts


def read_record(info: SnapshotInfo) -> RunRecord:
    """Return the facts of a run. A snapshot of another program may lack any of them."""
    facts = _mapping(info.metadata.get(FACTS))
    error = _mapping(facts.get("error"))
    task = _text(facts.get("task"))
    steps = _count(facts.get("steps"))
    if steps is None and facts:
        steps = 0
    return RunRecord(
        task=info.labels.get(TASK_LABEL) if task is None else task,
        owner=_text(facts.get("owner")),
        attempt=_count(facts.get("attempt")) or 1,
        steps=steps,
        started_at=_time(facts.get("started_at")) or info.created_at,
        labels={k: v for k, v in _mapping(facts.get("labels")).items() if isinstance(v, str)},
        metadata=_mapping(facts.get("metadata")),
        error=RunError(_text(error.get("type")) or "", _text(error.get("message")) or "")
        if error
        else None,
        has_initial=facts.get("initial") is True,
    )


def run_info(info: SnapshotInfo, *, is_held: bool) -> RunInfo:
    """Return the public facts of a run; `is_held` says that a worker holds its lease."""
    record = read_record(info)
    return RunInfo(
        run_id=info.session_id,
        task=record.task,
        status=EXPIRED if info.status == RUNNING and not is_held else info.status,
        owner=record.owner,
        attempt=record.attempt,
        steps=record.steps or 0,
        error=record.error,
        started_at=record.started_at,
        updated_at=info.updated_at,
        info=info,
    )


def error_of(error: BaseException) -> RunError:
    """Return the stored form of an exception, always valid UTF-8."""
    try:
        message = str(error)
    except Exception:  # a bug in the exception's own `__str__` must not hide the failure
        message = ""
    message = message[:MESSAGE_CHARS_MAX].encode("utf-8", "replace").decode()
    return RunError(type(error).__name__.encode("utf-8", "replace").decode(), message)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _time(value: object) -> datetime | None:
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return found if found is not None and found.tzinfo is not None else None
