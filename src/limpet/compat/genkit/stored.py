"""How a row stands in a store: pure.

The id, the parent, the status and the state are those of a kept snapshot; what else is in a row
is `metadata["genkit"]`, word for word.
"""

from datetime import datetime
from typing import Any

from limpet.compat.genkit.records import SessionSnapshot
from limpet.compat.genkit.rules import Row, moment_of
from limpet.compat.wire import ABSENT, wire_time
from limpet.core import times
from limpet.errors import Corrupt, InvalidInput
from limpet.model import JSON, Snapshot, SnapshotInfo

FACADE = "genkit"
_STATELESS = (
    "genkit_stateless"  # the metadata of a row without a state, which is not one that is null
)
_BORN = "genkit_born"  # tells two that are made at once under one id apart, though they be equal

_ELSEWHERE = ("snapshotId", "sessionId", "parentId", "status", "state")


def facts_of(row: Row, *, born: str) -> dict[str, Any]:
    """Return what is saved of a new row: the options of `Scope.save`."""
    return {
        "state": None if row.state is ABSENT else row.state,
        "parent": row.parent_id,
        "status": row.status,
        "metadata": {_BORN: born, **_metadata(row)},
        "created_at": _moment(row),
    }


def replaced(stored: Snapshot, row: Row) -> Snapshot:
    """Return a stored snapshot with a row in its place; what others keep beside it stays."""
    others = {k: v for k, v in stored.metadata.items() if k not in (FACADE, _STATELESS)}
    return stored.with_(
        state=None if row.state is ABSENT else row.state,
        status=row.status or stored.status,
        metadata={**others, **_metadata(row)},
    )


def row_of(info: SnapshotInfo, session_id: str) -> Row:
    """Return the row that a snapshot is, whoever saved it; without its state if it has none here.

    Raises:
        Corrupt: what stands beside the state is no such thing.
    """
    envelope = _envelope(info)
    default = {
        "createdAt": wire_time(info.created_at),
        **({} if envelope else {"updatedAt": wire_time(info.updated_at)}),
    }
    facts: dict[str, JSON] = {
        "snapshotId": info.id,
        "sessionId": session_id,
        "parentId": info.parent_id,
        "status": info.status,
    }
    if isinstance(info, Snapshot) and not (info.state is None and _STATELESS in info.metadata):
        facts["state"] = info.state
    try:
        return SessionSnapshot.from_json({**default, **envelope, **facts})
    except InvalidInput as cause:
        raise Corrupt(f"the metadata is not that of a row. snapshot_id=`{info.id}`") from cause


def sketch_of(info: SnapshotInfo, session_id: str) -> Row:
    """Return so much of a row as tells which one is the latest."""
    made = _envelope(info).get("createdAt")
    return SessionSnapshot(
        snapshot_id=info.id,
        session_id=session_id,
        parent_id=info.parent_id,
        created_at=made if isinstance(made, str) else wire_time(info.created_at),
        status=info.status,
    )


def _metadata(row: Row) -> dict[str, JSON]:
    wire = row.to_json()
    envelope = {name: value for name, value in wire.items() if name not in _ELSEWHERE}
    return {FACADE: envelope, **({_STATELESS: True} if row.state is ABSENT else {})}


def _envelope(info: SnapshotInfo) -> dict[str, JSON]:
    envelope = info.metadata.get(FACADE)
    if not isinstance(envelope, dict):
        return {}
    return {name: value for name, value in envelope.items() if name not in _ELSEWHERE}


def _moment(row: Row) -> datetime | None:
    made = moment_of(row.created_at)
    return None if made is None else times.from_us(made)
