"""The rules of session snapshots, whatever stores them. Pure; times are microseconds.

A snapshot is `pending` while a detached run works on it, `aborting` once the run was asked to stop,
and finally `completed`, `failed` or `aborted`. A reader sees a pending one as `expired` when its
run sent no heartbeat for a minute; that is never stored, and the run may still come back.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, TypeAlias, get_args

from limpet.api.integrations import times
from limpet.compat.genkit.records import COMPLETED, Row, S, SessionSnapshot
from limpet.compat.wire import moment_of, shown, wire_time
from limpet.errors import Conflict, InvalidInput

PENDING: Final = "pending"
ABORTING: Final = "aborting"
ABORTED: Final = "aborted"
FAILED: Final = "failed"
EXPIRED: Final = "expired"

TERMINAL: Final = frozenset({COMPLETED, ABORTED, FAILED})
STORED: Final = TERMINAL | {PENDING, ABORTING}
HEARTBEAT_AGE_MAX: Final = timedelta(seconds=60)

LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)  # the age of a row without a time

Latest: TypeAlias = Literal["leaf", "newest"]


def check_policy(latest: Latest) -> Latest:
    if latest not in get_args(Latest):
        raise InvalidInput(f"latest must be leaf or newest. latest=`{shown(latest)}`")
    return latest


def session_of(row: Row) -> str | None:
    """Return the session that a row names, if need be inside its state."""
    if row.session_id:
        return row.session_id
    inside = row.state.get("sessionId") if isinstance(row.state, dict) else None
    return inside if isinstance(inside, str) and inside else None


def repaired(row: SessionSnapshot[S]) -> SessionSnapshot[S]:
    """Return a row that is not its own parent: such a parent is unknown."""
    if row.parent_id is None or (row.parent_id and row.parent_id != row.snapshot_id):
        return row
    return replace(row, parent_id=None)


def expired(row: Row, now: int) -> bool:
    """A pending row whose last heartbeat is older than a minute; without one it never expires."""
    heard = moment_of(row.heartbeat_at)
    if row.status != PENDING or heard is None:
        return False
    return times.from_us(now) - heard > HEARTBEAT_AGE_MAX


def as_read(row: SessionSnapshot[S], now: int) -> SessionSnapshot[S]:
    row = repaired(row)
    return replace(row, status=EXPIRED) if expired(row, now) else row


def next_row(
    snapshot_id: str, before: Row | None, after: SessionSnapshot[S], now: int
) -> SessionSnapshot[S]:
    """Return what is stored when `after` is given for the row `before` (None: a new row).

    Session, parent and status that `after` leaves out stay as they were; `created_at` never
    changes. A row that names itself as parent names none. A new row is completed and created now,
    unless it says otherwise.

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
    """Raise unless the row `before` (None: a new row) may become `after`.

    Raises:
        InvalidInput: it has no session, another session or parent than before, a status that is
            not stored, or, as a new one, a `created_at` that cannot be read.
        Conflict: it has ended, or is aborting, and would get another status.
    """
    id, session_id = after.snapshot_id, session_of(after)
    if not session_id or not session_id.strip():
        raise InvalidInput(f"a snapshot must have a session. snapshot_id=`{id}`")
    was = None if before is None else before.status
    if after.status not in STORED and after.status != was:
        raise InvalidInput(
            f"this status cannot be stored. snapshot_id=`{id}` status=`{shown(after.status)}`"
        )
    if before is None:
        if moment_of(after.created_at) is None:
            raise InvalidInput(f"created_at must be a time in ISO 8601. snapshot_id=`{id}`")
        return
    if session_id != session_of(before):
        raise InvalidInput(f"a snapshot cannot move to another session. snapshot_id=`{id}`")
    if after.parent_id != repaired(before).parent_id:
        raise InvalidInput(f"the parent of a snapshot cannot change. snapshot_id=`{id}`")
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
    """Return the latest row of a session, whatever its status; None if there is none.

    `leaf`: the row without children; of several the one created last. `newest`: the one created
    last, with or without children. Equal times are decided by the greater id. With
    `reject_branching` several leaves are refused; a failed or aborted one does not count as a
    branch, because it was tried again.

    Raises:
        Conflict: it branches and that is refused, or the parents form a circle, so that there is no
            leaf. Read a snapshot by its id then.
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
            "the parents in the session form a circle, so none is the latest: ask by "
            f"snapshot_id. session_id=`{shown(session_id)}`"
        )
    return max(leaves, key=_age)


def _age(row: Row) -> tuple[datetime, str]:
    return moment_of(row.created_at) or LONG_AGO, row.snapshot_id or ""
