"""What a run is, and how its facts are stored in the metadata of its snapshots."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
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
_ATTEMPTS_MAX = 5  # of those that ended
_NAME_CHARS_MAX = 60  # of their owners and errors
ROOM_BYTES = 6 * (  # what the facts may grow by; a character takes up to 6 bytes in JSON
    MESSAGE_CHARS_MAX
    + _TYPE_CHARS_MAX
    + limits.ID_CHARS_MAX  # of the next owner
    + _ATTEMPTS_MAX * (3 * _NAME_CHARS_MAX + 30)  # with numbers and times
)


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
class RunAttempt:
    """One worker's time with a run.

    `status` is how it ended: `failed`, `aborted`, `completed`, or `running` if the worker died; of
    the newest attempt it is that of the run. `error` is the class name of the exception. `ended_at`
    is the last write of the worker, None while it may go on.
    """

    number: int
    owner: str | None
    status: str
    began_at: datetime
    ended_at: datetime | None
    steps: int
    error: str | None

    def to_json(self) -> dict[str, JSON]:
        return {
            "attempt": self.number,
            "owner": self.owner and self.owner[:_NAME_CHARS_MAX],
            "status": self.status[:_NAME_CHARS_MAX],
            "began_at": self.began_at.isoformat(),
            "ended_at": self.ended_at and self.ended_at.isoformat(),
            "steps": self.steps,
            "error": self.error and self.error[:_NAME_CHARS_MAX],
        }


@dataclass(frozen=True, slots=True)
class RunInfo:
    """Everything about a run except its state.

    `status` is `queued`, `running`, `completed`, `failed`, `aborted`, or `expired`: stored as
    running, but its worker does not renew its lease, or its process on this host is dead. `attempt`
    counts its workers, `steps` their saves. `started_at` is when the first worker began, of a
    queued run when it was enqueued. `info` is the snapshot. `host` is where the last worker runs,
    with its process; `attempts` are the last ones, the newest last::

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
    host: str | None
    attempts: tuple[RunAttempt, ...]


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
    ended: tuple[RunAttempt, ...] = ()  # earlier attempts

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
            facts["error"] = self.error.to_json()
        if self.labels:
            facts["labels"] = dict(self.labels)
        if self.metadata:
            facts["metadata"] = dict(self.metadata)
        if self.has_initial:
            facts["initial"] = True
        if self.host is not None:
            facts["host"] = self.host
        if self.began_at is not None:
            facts["began_at"] = self.began_at.isoformat()
        if self.ttl_s is not None:
            facts["ttl_s"] = self.ttl_s
        if self.enqueued:
            facts["enqueued"] = True
        if self.ended:
            facts["attempts"] = [each.to_json() for each in self.ended[-_ATTEMPTS_MAX:]]
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
        ended=tuple(_attempts(facts.get("attempts"))),
    )


def ended_attempts(info: SnapshotInfo) -> tuple[RunAttempt, ...]:
    """Return the attempts at a run up to the one that wrote a snapshot."""
    record = read_record(info)
    if record.enqueued and record.began_at is None:  # it waits for the next one
        return record.ended
    last = RunAttempt(
        record.attempt,
        record.owner,
        info.status,
        record.began_at or record.started_at,
        info.updated_at,
        record.steps or 0,
        None if record.error is None else record.error.type,
    )
    return (*record.ended, last)


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
        host=record.host,
        attempts=_with_end(ended_attempts(info), is_held=is_held),
    )


def queued_again(info: SnapshotInfo) -> RunRecord:
    """Return the facts of a run that waits for a worker, no longer with those of the last one."""
    record = replace(read_record(info), error=None, enqueued=True, ended=ended_attempts(info))
    return replace(record, owner=None, host=None, began_at=None, ttl_s=None)


def _with_end(attempts: tuple[RunAttempt, ...], *, is_held: bool) -> tuple[RunAttempt, ...]:
    return (*attempts[:-1], replace(attempts[-1], ended_at=None)) if is_held else attempts


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


def _attempts(value: object) -> Iterator[RunAttempt]:
    for each in map(_mapping, value if isinstance(value, list) else ()):
        number, began = _count(each.get("attempt")), _time(each.get("began_at"))
        if number is not None and began is not None:
            owner, status = _text(each.get("owner")), _text(each.get("status")) or ""
            ended, steps = _time(each.get("ended_at")), _count(each.get("steps")) or 0
            yield RunAttempt(number, owner, status, began, ended, steps, _text(each.get("error")))


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
