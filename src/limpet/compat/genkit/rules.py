"""What holds for snapshots of sessions wherever they are kept. Pure; times are microseconds.

A snapshot is `pending` while a detached run works on it, `aborting` once it was told to stop, and
then `completed`, `failed` or `aborted` for good. `expired` is what a reader sees of a pending one
whose run has not been heard of for a minute; it is never stored, and the run may still come back.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias

from limpet.compat.genkit.records import S, SessionSnapshot
from limpet.compat.wire import shown, wire_time
from limpet.core import times
from limpet.errors import Conflict, InvalidInput

PENDING: Final = "pending"
ABORTING: Final = "aborting"
COMPLETED: Final = "completed"
ABORTED: Final = "aborted"
FAILED: Final = "failed"
EXPIRED: Final = "expired"

TERMINAL: Final = frozenset({COMPLETED, ABORTED, FAILED})
STORED: Final = TERMINAL | {PENDING, ABORTING}
HEARTBEAT_AGE_S_MAX: Final = 60

Latest: TypeAlias = Literal["leaf", "newest"]
POLICIES: Final = ("leaf", "newest")

Row: TypeAlias = SessionSnapshot[Any]


def session_of(row: Row) -> str | None:
    """Return the session that a row says it is of: in its state, if nowhere else."""
    if row.session_id:
        return row.session_id
    inside = row.state.get("sessionId") if isinstance(row.state, dict) else None
    return inside if isinstance(inside, str) and inside else None


def repaired(row: SessionSnapshot[S]) -> SessionSnapshot[S]:
    """Return a row without a parent that is itself: what came before it is then not known."""
    if row.parent_id and row.parent_id != row.snapshot_id:
        return row
    return row if row.parent_id is None else replace(row, parent_id=None)


def expired(row: Row, now: int) -> bool:
    """Tell whether a pending row has not been heard of for a minute.

    One that never was, or not at a moment that can be read, is not expired.
    """
    heard = moment_of(row.heartbeat_at)
    if row.status != PENDING or heard is None:
        return False
    return now - heard > HEARTBEAT_AGE_S_MAX * 1_000_000


def as_read(row: SessionSnapshot[S], now: int) -> SessionSnapshot[S]:
    """Return a stored row as a reader sees it."""
    row = repaired(row)
    return replace(row, status=EXPIRED) if expired(row, now) else row


def next_row(
    snapshot_id: str, before: Row | None, after: SessionSnapshot[S], now: int
) -> SessionSnapshot[S]:
    """Return what is stored when `after` was given for a row that is `before` (None: a new one).

    What `after` does not say of session, parent and status stays as it was; `created_at` always
    does. A parent that is the row itself says nothing. A new row is completed and made now, unless
    it says otherwise.

    Raises:
        InvalidInput, Conflict: see `check_change`.
    """
    after = repaired(replace(after, snapshot_id=snapshot_id))
    if before is None:
        row = replace(
            after,
            session_id=session_of(after),
            created_at=after.created_at or wire_time(times.from_us(now)),
            status=after.status or COMPLETED,
        )
    else:
        before = repaired(before)
        row = replace(
            after,
            session_id=after.session_id or before.session_id,
            parent_id=after.parent_id or before.parent_id,
            created_at=before.created_at or after.created_at,
            status=after.status or before.status,
        )
    check_change(before, row)
    return row


def check_change(before: Row | None, after: Row) -> None:
    """Raise unless a row may become another; None stands for none yet.

    Raises:
        InvalidInput: it has no session, another session or parent than before, a status that is
            not stored, or, as a new one, was not made at a moment that can be read.
        Conflict: it has ended, or is about to, and would go on or end otherwise.
    """
    id, session_id = after.snapshot_id, session_of(after)
    if not session_id or not session_id.strip():
        raise InvalidInput(f"a snapshot must have a session. snapshot_id=`{id}`")
    was = None if before is None else before.status
    if after.status not in STORED and after.status != was:
        raise InvalidInput(
            f"that is no status to store. snapshot_id=`{id}` status=`{shown(after.status)}`"
        )
    if before is None:
        if moment_of(after.created_at) is None:
            raise InvalidInput(f"created_at must be a time in ISO 8601. snapshot_id=`{id}`")
        return
    if session_id != session_of(before):
        raise InvalidInput(f"a snapshot stays in its session. snapshot_id=`{id}`")
    if after.parent_id != repaired(before).parent_id:
        raise InvalidInput(f"a snapshot keeps its parent. snapshot_id=`{id}`")
    has_ended = was in TERMINAL and after.status != was
    if has_ended or (was == ABORTING and after.status == PENDING):
        raise Conflict(
            f"the snapshot is {was} and stays so. snapshot_id=`{id}` status=`{after.status}`"
        )


def latest(
    rows: Iterable[SessionSnapshot[S]],
    session_id: str,
    *,
    policy: Latest = "leaf",
    reject_branching: bool = False,
) -> SessionSnapshot[S] | None:
    """Return the latest of the rows of a session, whatever its status; None if there are none.

    `leaf`: that which no other follows; of several the one made last. `newest`: the one made last,
    whatever follows it. Of those made at one moment it is the one with the greater id.
    With `reject_branching` several leaves are refused. One that failed or was aborted is then no
    branch beside others: it was tried again.

    Raises:
        Conflict: it branches and that is refused, or there is no leaf, since the parents go round
            in a circle. A snapshot can then be read by its id.
    """
    owned = [repaired(each) for each in rows if session_of(each) == session_id]
    if not owned:
        return None
    parents = {each.parent_id for each in owned}
    leaves = [each for each in owned if each.snapshot_id not in parents]
    if reject_branching:
        live = [each for each in leaves if each.status not in (FAILED, ABORTED)]
        if len(live) > 1:
            raise Conflict(
                "the session has several branches, so none is the latest: ask by snapshot_id. "
                f"session_id=`{shown(session_id)}` leaves=`{len(live)}`"
            )
        leaves = live or leaves
    if policy == "newest":
        return max(owned, key=_age)
    if not leaves:
        raise Conflict(
            "the parents in the session go round in a circle, so none is the latest: ask by "
            f"snapshot_id. session_id=`{shown(session_id)}`"
        )
    return max(leaves, key=_age)


def _age(row: Row) -> tuple[int, str]:
    made = moment_of(row.created_at)
    return (-(2**63) if made is None else made), row.snapshot_id or ""


def moment_of(text: str | None) -> int | None:
    """Return a moment in ISO 8601 as microseconds, None if it cannot be read as such."""
    try:
        moment = datetime.fromisoformat(text or "")
        aware = moment if moment.utcoffset() is not None else moment.replace(tzinfo=UTC)
        return times.to_us("moment", aware)
    except (ValueError, OverflowError, InvalidInput):
        return None
