"""Listings, and what their rows hold."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import orjson

from limpet.backends.sql.tables import (
    SNAPSHOT_COLUMNS,
    Tables,
    check_scope,
    is_text,
    listed_scope,
    read_row,
)
from limpet.core.encryption import PLAIN, Ciphers
from limpet.core.ids import SEQ_MAX, prefix_end, seq_of
from limpet.core.rows import info_of, is_session_sound
from limpet.errors import Corrupt
from limpet.model import ScopeInfo, ScopeKey, SnapshotInfo, SnapshotRef
from limpet.protocol import Query, SessionAge


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


def scope_info_of(ciphers: Ciphers, columns: Any) -> ScopeInfo | None:
    key = scope_key_of(columns)
    if key is None:
        return None
    head, cipher = None, ciphers.of(key.session_id)
    if columns[0] is not None:
        with suppress(Corrupt):
            if cipher is not PLAIN:  # else `scope_key_of` has asked everything
                check_scope(key, columns[SNAPSHOT_COLUMNS + len(key) :], cipher)
            head = info_of(key, read_row(columns, key, cipher))
    return ScopeInfo(key, head)


def head_of(ciphers: Ciphers, columns: Any) -> SnapshotInfo | None:
    found = scope_info_of(ciphers, columns)
    return None if found is None else found.head


def scope_key_of(columns: Any) -> ScopeKey | None:
    return listed_scope(columns[SNAPSHOT_COLUMNS:])


def age_of(found: Any) -> SessionAge | None:
    session_id, created_at, *rest = found
    if session_of((session_id, *rest)) is None:
        return None
    return SessionAge(session_id, created_at if isinstance(created_at, int) else None)


def matches(tables: Tables, query: Query, limit: int) -> list[SnapshotInfo]:
    """Return the snapshots that a query asks for, newest first."""
    # A label or a status may be stored in several ways: with one, the statement looks for it.
    labels = [_stored_ways(tables.ciphers, query, *label) for label in query.labels]
    status: list[tuple[str, str | None]] = [("", query.status)]
    if query.status:
        status = [*_stored_ways(tables.ciphers, query, "", query.status)]
    values: dict[str, Any] = {
        "before": SEQ_MAX if query.after is None else query.after,
        "status": status[0][1] if len(status) == 1 else None,
        "id": query.id,
        "leaves": query.leaves,
        "labels": orjson.dumps(dict(ways[0] for ways in labels if len(ways) == 1)).decode(),
        "low": query.prefix,
        "high": prefix_end(query.prefix),
    }
    if query.scope is not None:
        scope = tables.scope(query.scope)
        if scope is None or not query.scope.session_id.startswith(query.prefix):
            return []
        name = "history_of_scope"
        values |= {"pk": scope.pk, **query.scope._asdict()}
    elif query.id is not None:
        name = "find"
    elif query.labels:
        name = "history_by_label"
    else:
        name = "history_of_sessions"

    scopes: dict[Any, ScopeKey | None] = {}  # many rows are of the same

    def take(columns: Any) -> SnapshotInfo | None:
        owner = columns[SNAPSHOT_COLUMNS:]
        if owner not in scopes:
            scopes[owner] = query.scope or listed_scope(owner)
        key = scopes[owner]
        if key is None:
            return None
        try:
            info = info_of(key, read_row(columns, key, tables.ciphers.of(key.session_id)))
        except Corrupt:
            return None  # left out of a listing; asking for it by id raises
        # The table of labels is an index: the snapshot itself is the authority.
        is_match = all(info.labels.get(name) == value for name, value in query.labels)
        return info if is_match and query.status in (None, info.status) else None

    if name == "history_by_label":
        asked = [{**values, "name": label, "value": value} for label, value in labels[0]]
    else:
        asked = [values]
    found = [info for each in asked for info in tables.transaction.page(name, each, take, limit)]
    if len(asked) > 1:
        found = sorted(found, key=lambda info: -seq_of(info.revision))[:limit]
    places = [seq_of(info.revision) for info in reversed(found)]
    check_order([*places, values["before"]], "snapshots")
    return found


def _stored_ways(ciphers: Ciphers, query: Query, name: str, value: str) -> list[tuple[str, str]]:
    prefix = query.prefix if query.scope is None else query.scope.session_id
    return ciphers.labels(prefix, name, value)


def check_order(keys: Sequence[Any], what: str) -> None:
    """Raise Corrupt unless each key is greater than the last: a damaged index repeats some."""
    if not all(one < following for one, following in pairwise(keys)):
        raise Corrupt(f"the index of {what} leads to others")
