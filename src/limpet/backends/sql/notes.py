"""Notes over tables: several changed in one step, and those that a query finds."""

from collections.abc import Callable, Sequence
from typing import Any

from limpet.backends.sql.tables import NOTE_COLUMNS, NotePlace, Tables, listed_scope, read_note
from limpet.core import commits, matching
from limpet.core.encryption import Cipher, Ciphers
from limpet.core.notes import NoteRow, check_expect, found_note, note_of, written_note
from limpet.errors import Corrupt
from limpet.model import Note, ScopeKey
from limpet.protocol import FoundNote, NoteChange, NoteQuery, NoteWrite


def change_notes(tables: Tables, changes: Sequence[NoteChange]) -> list[NoteRow]:
    """Make several changes of the notes of one scope; return the rows that were stored."""
    key = changes[0].scope
    places = [(each.on or "", each.name) for each in changes]
    scope, before = tables.scope_and_notes(key, places)
    rows: list[NoteRow] = []
    removed: list[NotePlace] = []
    for each, found, place in zip(changes, before, places, strict=True):
        commits.check_fence(each.fence, None if scope is None else scope.fence, key)
        if isinstance(each, NoteWrite):
            rows.append(written_note(each, found))
        else:
            check_expect(each, found)
            removed += [] if found is None else [place]
    if rows or (scope and removed):
        tables.change_notes(scope or tables.add_scope_for_notes(key), rows, removed)
    return rows


def reader_of(query: NoteQuery, ciphers: Ciphers) -> Callable[[Any], FoundNote | None]:
    """Return a function that makes a note of a row of `find_notes`; None if it does not match."""
    is_match = None if query.where is None else matching.matcher(query.where)
    scopes: dict[Any, ScopeKey | None] = {}  # most rows are of the same

    def read(columns: Any) -> FoundNote | None:
        owner = columns[NOTE_COLUMNS:]
        if owner not in scopes:
            scopes[owner] = listed_scope(owner)
        scope = scopes[owner]
        if scope is None:
            return None
        if not query.values:  # nor can the checksum be verified
            _, name, rev, nonce, updated_at, *_ = columns
            return FoundNote(scope, name, None, f"{rev:x}.{nonce}", updated_at)
        try:
            row = read_note(columns, scope, ciphers.of(scope.session_id))
            found = found_note(scope, row)
        except Corrupt:
            return None  # left out of a listing; asking for it by name raises
        return found if is_match is None or is_match(found.value) else None

    return read


def good_note(key: ScopeKey, cipher: Cipher, columns: Any) -> Note | None:
    try:
        return note_of(read_note(columns, key, cipher))
    except Corrupt:
        return None  # left out of a listing; asking for it by name raises
