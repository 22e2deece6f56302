"""What of a scope is so damaged that listings leave it out."""

from collections.abc import Iterator
from itertools import islice

from limpet.backends._bucket.protocol import Listed
from limpet.backends._objects.files import Files, Place, walk
from limpet.backends._objects.notes import parse_note
from limpet.core import findings
from limpet.core.layout import File
from limpet.errors import Corrupt
from limpet.model import Finding, ScopeKey

_CHUNK = 64


def damage_of(files: Files, scope: ScopeKey) -> list[Finding]:
    """Return a finding for each copy and each note that cannot be read."""
    return [*_copies(files, scope), *_notes(files, scope)]


def _copies(files: Files, scope: ScopeKey) -> Iterator[Finding]:
    listed = walk(files.bucket, files.layout.history_prefix(scope))
    while chunk := list(islice(listed, _CHUNK)):
        places = [place for each in chunk if (place := _place(files, each)) is not None]
        for place, found in zip(places, files.read(places), strict=True):
            if isinstance(found, Corrupt):
                id = place.id if isinstance(place.id, str) else None
                fact = "a document fails its check"
                yield findings.finding("error", "snapshot_damaged", fact, scope=scope, id=id)


def _place(files: Files, listed: Listed) -> Place | None:
    key = files.layout.parse(listed.key)
    return Place(listed.key, key.id) if key is not None and key.file is File.COPY else None


def _notes(files: Files, scope: ScopeKey) -> Iterator[Finding]:
    listed = walk(files.bucket, files.layout.all_notes_prefix(scope))
    while keys := [each.key for each in islice(listed, _CHUNK)]:
        for key, stored in zip(keys, files.bucket.get(keys), strict=True):
            try:
                if stored is not None and files.layout.parse(key) is not None:
                    parse_note(files.layout, key, stored.data, 0)
            except Corrupt:
                fact = "a note fails its check"
                yield findings.finding("error", "note_damaged", fact, scope=scope, key=key)
