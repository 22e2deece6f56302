"""What the rows of listings hold."""

from contextlib import suppress
from typing import Any

from limpet.backends.sql.tables import SNAPSHOT_COLUMNS, is_text, read_row
from limpet.core.encryption import Ciphers
from limpet.core.rows import info_of
from limpet.errors import Corrupt
from limpet.model import ScopeInfo, ScopeKey, SnapshotInfo, SnapshotRef
from limpet.protocol import SessionAge


def name_of(found: Any) -> str | None:
    (name,) = found
    return name if is_text(name) else None


def ref_of(found: Any) -> SnapshotRef | None:
    id, *names = found
    return SnapshotRef(ScopeKey(*names), id) if is_text(id, *names) else None


def scope_info_of(ciphers: Ciphers, columns: Any) -> ScopeInfo | None:
    key = scope_key_of(columns)
    if key is None:
        return None
    head = None
    if columns[0] is not None:
        with suppress(Corrupt):
            head = info_of(key, read_row(columns, key, ciphers.of(key.session_id)))
    return ScopeInfo(key, head)


def head_of(ciphers: Ciphers, columns: Any) -> SnapshotInfo | None:
    found = scope_info_of(ciphers, columns)
    return None if found is None else found.head


def scope_key_of(columns: Any) -> ScopeKey | None:
    names = columns[SNAPSHOT_COLUMNS:]
    return ScopeKey._make(names) if is_text(*names) else None


def age_of(found: Any) -> SessionAge | None:
    session_id, created_at = found
    if not is_text(session_id):
        return None
    return SessionAge(session_id, created_at if isinstance(created_at, int) else None)
