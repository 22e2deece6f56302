"""What a run is, and how its facts are stored in the metadata of its snapshots."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from limpet.core import limits
from limpet.errors import Conflict
from limpet.model import JSON, SnapshotInfo

QUEUED = "queued"
RUNNING = "running"
COMPLETED = "completed"
FAILED = "failed"
ABORTED = "aborted"
EXPIRED = "expired"  # never stored: a running run whose worker has lost its lease
STATUSES = (QUEUED, RUNNING, COMPLETED, FAILED, ABORTED, EXPIRED)

SCOPE_ID = "main"
KIND = "run"
TASK_LABEL = "task_name"
FACTS = "run"  # the key in metadata
MESSAGE_CHARS_MAX = 500  # metadata is read with every listing
TRACEBACK_CHARS_MAX = 4_000
_TYPE_CHARS_MAX = 200
# What the facts may grow by: a character takes up to 6 bytes in JSON.
ROOM_BYTES = 6 * (MESSAGE_CHARS_MAX + _TYPE_CHARS_MAX + limits.ID_CHARS_MAX) + 1_000


class Aborted(Conflict):
    """The run was aborted. Stop working on it: nothing was stored, and it stays aborted."""


@dataclass(frozen=True, slots=True)
class RunError:
    """Why a run failed: the exception's class name, and the beginning of its message.

    `traceback` is the end of its traceback, if the worker asked for that.
    """

    type: str
    message: str
    traceback: str | None = None

    def to_json(self) -> dict[str, JSON]:
        facts: dict[str, JSON] = {"type": self.type, "message": self.message}
        return facts if self.traceback is None else {**facts, "traceback": self.traceback}


@dataclass(frozen=True, slots=True)
class RunInfo:
    """Everything about a run except its state.

    `status` is `queued`, `running`, `completed`, `failed`, `aborted`, or `expired`: stored as
    running, but its worker does not renew its lease, or its process on this host is dead. `attempt`
    counts its workers, `steps` their saves. `started_at` is when the first worker began, of a
    queued run when it was enqueued. `info` is the snapshot::

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
    host: str | None = None
    began_at: datetime | None = None  # of this attempt
    ttl_s: float | None = None  # of the lease of this attempt
    enqueued: bool = False  # workers of the queue may resume it

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
        more: dict[str, JSON] = {
            "error": self.error and self.error.to_json(),
            "labels": dict(self.labels),
            "metadata": dict(self.metadata),
            "initial": self.has_initial,
            "host": self.host,
            "began_at": self.began_at and self.began_at.isoformat(),
            "ttl_s": self.ttl_s,
            "enqueued": self.enqueued,
        }
        return facts | {key: value for key, value in more.items() if value}


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
        attempt=1 if (attempt := _count(facts.get("attempt"))) is None else attempt,
        steps=steps,
        started_at=_time(facts.get("started_at")) or info.created_at,
        labels={k: v for k, v in _mapping(facts.get("labels")).items() if isinstance(v, str)},
        metadata=_mapping(facts.get("metadata")),
        error=RunError(
            _text(error.get("type")) or "",
            _text(error.get("message")) or "",
            _text(error.get("traceback")),
        )
        if error
        else None,
        has_initial=facts.get("initial") is True,
        host=_text(facts.get("host")),
        began_at=_time(facts.get("began_at")),
        ttl_s=ttl_s if isinstance(ttl_s := facts.get("ttl_s"), int | float) else None,
        enqueued=facts.get("enqueued") is True,
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


def error_of(error: BaseException, *, traceback: bool = False) -> RunError:
    """Return the stored form of an exception, always valid UTF-8."""
    try:
        message = str(error)
    except Exception:  # a bug in the exception's own `__str__` must not hide the failure
        message = ""
    name, message = type(error).__name__[:_TYPE_CHARS_MAX], message[:MESSAGE_CHARS_MAX]
    return RunError(_utf8(name), _utf8(message), _traceback(error) if traceback else None)


def _traceback(error: BaseException) -> str:
    from traceback import format_exception  # most runs do not fail

    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith("limpet."):
        trace = trace.tb_next  # where it passed through us says nothing
    whole = "".join(format_exception(type(error), error, trace)).rstrip()
    if len(whole) <= TRACEBACK_CHARS_MAX:
        return _utf8(whole)
    end = whole[1 - TRACEBACK_CHARS_MAX :]
    return _utf8("…" + end[end.find("\n") if "\n" in end else 0 :])


def _utf8(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


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
