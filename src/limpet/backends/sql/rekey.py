"""Encrypting again what is not encrypted with the current key of its session.

Tables are walked without locks, by the beginnings of what is stored; what is outdated is then
encrypted again scope by scope, under the locks that writers take. What cannot be decrypted stays.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from limpet.backends.sql.tables import NOTE_COLUMNS, ScopeRow, Tables, read_note
from limpet.core.deltas.chain import body_row, squeezed_of
from limpet.core.limits import MIB
from limpet.core.rows import scope_checksum
from limpet.errors import Corrupt, InvalidInput
from limpet.model import ScopeKey

_TABLES = ("snapshots", "bodies", "notes", "scopes")
_BYTES_MAX = 8 * MIB  # in one transaction, unless one row has more


class Outdated(NamedTuple):
    """Rows of a table, by their keys, that belong to a scope and are outdated."""

    table: str
    scope: ScopeKey
    keys: list[int]


def outdated(tables: Tables, after: str, limit: int) -> tuple[list[Outdated], str | None]:
    """Return what is outdated in a part of a table, and where to go on, None at the end."""
    table, _, start = (after or f"{_TABLES[0]}:0").partition(":")
    if table not in _TABLES or not start.isdecimal():
        raise InvalidInput("the position does not come from an earlier call of rekey")
    asked = {"start": int(start), "limit": limit}
    rows = tables.transaction.all(f"beginnings_of_{table}", asked)
    found = list(_outdated(tables, table, rows))
    if len(rows) == limit:
        return found, f"{table}:{rows[-1][0] + 1}"
    following = _TABLES[_TABLES.index(table) + 1 :]
    return found, f"{following[0]}:0" if following else None


def _outdated(tables: Tables, table: str, rows: list[Any]) -> Iterator[Outdated]:
    groups: dict[ScopeKey, tuple[Outdated, int]] = {}
    for key, session_id, scope_id, kind, beginning, count, *summed in rows:
        names = (session_id, scope_id, kind)
        if session_id is None:
            names = _names_above(tables, key)
        if names is None or _is_current(tables, ScopeKey._make(names), beginning, summed):
            continue
        scope = ScopeKey._make(names)
        group, total = groups.get(scope, (Outdated(table, scope, []), 0))
        count = count or 0
        if group.keys and total + count > _BYTES_MAX:
            yield group
            group, total = Outdated(table, scope, []), 0
        group.keys.append(key)
        groups[scope] = group, total + count
    yield from (group for group, _ in groups.values())


def _is_current(tables: Tables, key: ScopeKey, beginning: Any, summed: list[Any]) -> bool:
    cipher = tables.ciphers.of(key.session_id)
    if beginning is not None and not cipher.is_current(bytes(beginning)):
        return False
    *columns, checksum = summed or (None,)
    if not columns:
        return True
    with suppress(InvalidInput):  # there is no key for it
        return checksum == scope_checksum(key, tuple(columns), cipher)
    return True


def _names_above(tables: Tables, seq: int) -> Any:
    """Return the address of a scope with a state that builds on one that is no snapshot's."""
    for (pk,) in tables.transaction.all("scopes_above", (seq,))[:1]:
        return tables.transaction.one("check.address_of_scope", (pk,))
    return None


def encrypt_again(tables: Tables, what: Outdated) -> int:
    """Encrypt rows with the current key; return how many."""
    try:
        scope = tables.scope_to_change(what.scope)
    except Corrupt:
        return 0
    if scope is None:
        return 0
    again = {"snapshots": _snapshot, "bodies": _body, "notes": _note, "scopes": _scope}[what.table]
    count = 0
    for key in what.keys:
        with suppress(Corrupt):
            count += again(tables, scope, key)
    return count


def _snapshot(tables: Tables, scope: ScopeRow, seq: int) -> bool:
    row = tables.row("snapshot_by_seq", scope, seq)
    if row is not None:
        tables.replace(scope, None, row)
    return row is not None


def _body(tables: Tables, scope: ScopeRow, seq: int) -> bool:
    row = tables.bodies.row(seq)
    if row is not None:
        squeezed, nonces = squeezed_of(row, scope.cipher)
        again = body_row(seq, row.base, squeezed, scope.cipher, nonces)
        tables.bodies.delete_rows([seq])
        tables.bodies.insert_rows([again])
    return row is not None


def _note(tables: Tables, scope: ScopeRow, pk: int) -> bool:
    found = tables.transaction.one("check.note", (pk,))
    if found is None or found[NOTE_COLUMNS - 1] != scope.pk:
        return False
    tables.change_notes(scope, [read_note(found, scope.key, scope.cipher)], [])
    return True


def _scope(tables: Tables, scope: ScopeRow, pk: int) -> bool:
    tables.move_scope(scope._replace(codec=scope.dumped(scope.chain)))
    return True
