"""The notes of a scope as people look at them: memories of LangGraph's store are notes, too."""

from collections.abc import Iterator
from itertools import chain

from limpet.api.scope import Scope
from limpet.model import JSON, Note, ScopeKey

ITEMS = "items"
"""The kind of scopes whose notes are items of LangGraph's store: `value` has what people wrote."""

_VECTORS = "vectors"  # the id on which an item's embeddings are


def notes_of(scope: Scope, on: str | None = None) -> Iterator[Note]:
    """Yield the notes of a scope, then those on its snapshots, or on one of them ("": on none)."""
    ids = scope.noted_ids() if on is None else filter(None, [on])
    for note in chain(scope.notes(), *(scope.notes(on=id) for id in ids)):
        if scope.kind != ITEMS or note.snapshot_id != _VECTORS:
            yield note


def note_value(key: ScopeKey, note: Note) -> JSON:
    """Return what a note says; of an item of LangGraph's store, the item."""
    is_item = key.kind == ITEMS and isinstance(note.value, dict) and "value" in note.value
    return note.value["value"] if is_item else note.value


def delete_note(scope: Scope, name: str, on: str | None = None) -> int:
    """Delete a note; of an item of LangGraph's store, its embeddings too. Return how many."""
    if scope.kind == ITEMS and on is None:
        scope.delete_note(name, on=_VECTORS)
    return scope.delete_note(name, on=on)
