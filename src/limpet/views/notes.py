"""The notes of a scope as people look at them: memories of LangGraph's store are notes, too."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import chain

from limpet.api.scope import Scope
from limpet.errors import Corrupt
from limpet.model import JSON, Note, ScopeKey

ITEMS = "items"
"""The kind of scopes whose notes are items of LangGraph's store: `value` has what people wrote."""

VECTORS = "vectors"
"""The id on which the embeddings of an item are, under its name."""


def notes_of(scope: Scope, name: str | None = None, on: str | None = None) -> Iterator[Note]:
    """Yield the notes of a scope, then those on its snapshots; or those of a name, or on one."""
    for id in chain([None], scope.noted_ids()) if on is None else [on]:
        if scope.kind == ITEMS and id == VECTORS:
            continue
        if name is None:
            yield from scope.notes(on=id)
        elif (note := scope.note(name, on=id)) is not None:
            yield note


def notes_with(scope: Scope, id: str) -> Iterator[Note]:
    """Yield the notes on a snapshot; if it is the head, those of its scope first."""
    with suppress(Corrupt):  # the head; the snapshot may be well
        head = scope.info()
        if head is not None and head.id == id:
            yield from scope.notes()
    yield from scope.notes(on=id)


def note_value(key: ScopeKey, note: Note) -> JSON:
    """Return what a note says; of an item of LangGraph's store, the item."""
    is_item = key.kind == ITEMS and isinstance(note.value, dict) and "value" in note.value
    return note.value["value"] if is_item else note.value
