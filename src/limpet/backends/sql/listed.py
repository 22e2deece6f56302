"""What the rows of listings hold."""

from contextlib import suppress
from typing import Any

from limpet.backends.sql.tables import SNAPSHOT_COLUMNS, is_text, listed_scope, verified
from limpet.core.rows import info_of, is_session_sound
from limpet.errors import Corrupt
from limpet.model import ScopeInfo, ScopeKey, SnapshotInfo, SnapshotRef
from limpet.protocol import SessionAge


def name_of(found: Any) -> str | None:
    (name,) = found
    return name if is_text(name) else None


def session_of(found: Any) -> str | None:
    session_id, pk, checksum = found
    is_sound = is_session_sound(session_id, pk, checksum) and is_text(session_id)
    return session_id if is_sound else None


def ref_of(found: Any) -> SnapshotRef | None:
    id, *columns = found
    key = listed_scope(tuple(columns))
    return None if key is None or not is_text(id) else SnapshotRef(key, id)


def scope_info_of(columns: Any) -> ScopeInfo | None:
    key = scope_key_of(columns)
    if key is None:
        return None
    head = None
    if columns[0] is not None:
        with suppress(Corrupt):
            head = info_of(key, verified(columns))
    return ScopeInfo(key, head)


def head_of(columns: Any) -> SnapshotInfo | None:
    found = scope_info_of(columns)
    return None if found is None else found.head


def scope_key_of(columns: Any) -> ScopeKey | None:
    return listed_scope(columns[SNAPSHOT_COLUMNS:])


def age_of(found: Any) -> SessionAge | None:
    session_id, created_at, *rest = found
    if session_of((session_id, *rest)) is None:
        return None
    return SessionAge(session_id, created_at if isinstance(created_at, int) else None)
