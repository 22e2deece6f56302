"""Listing sessions and scopes by their keys, without reading every document.

A listing skips the rest of a folder once it has seen enough of it. A scope with a small head is
read, since that head may be void.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from typing import NamedTuple

from limpet.backends.buckets.protocol import Listed
from limpet.backends.objects.documents import PAGE, Doc, DocumentAddress, Files, Found
from limpet.backends.objects.heads import Heads
from limpet.backends.objects.leases import is_held
from limpet.backends.objects.notes import parse_note
from limpet.core import leases
from limpet.core.layout import Clipped, DocumentKey, File
from limpet.errors import Corrupt
from limpet.model import ScopeKey

_CHUNK = 32  # scopes read together
VOID_BYTES_MAX = 8 * 1024  # a void head has no state and no metadata


class _Entry(NamedTuple):
    listed: Listed
    key: DocumentKey
    folder: str


class Places:
    def __init__(self, files: Files, heads: Heads) -> None:
        self._files = files
        self._heads = heads

    def scopes(self, prefix: str, after: str, *, one_each: bool = False) -> Iterator[ScopeKey]:
        """Yield the scopes below a prefix that are not empty; with `one_each` one per session.

        `after` is a key from `behind_scope` or `behind_session`.
        """
        done = ""  # keys with this prefix are skipped
        while True:
            page = self._files.bucket.list(prefix, after=after, limit=PAGE)
            groups = groupby(self._entries(page), key=lambda each: each.folder)
            listed = ((folder, list(entries)) for folder, entries in groups)
            while chunk := list(islice(listed, _CHUNK)):
                for folder, scope in self._holding(chunk):
                    if scope is not None and not (done and folder.startswith(done)):
                        yield scope
                        done = self._session_folder(folder) if one_each else folder
            if len(page) < PAGE:
                return
            last = page[-1].key
            # Names that sort after `~` are foreign: then nothing is skipped.
            jump = f"{done}~"
            after = jump if done and last.startswith(done) and last < jump else last

    def behind_scope(self, scope: ScopeKey) -> str:
        """Return a text after all keys of a scope."""
        return f"{self._files.layout.scope_prefix(scope)}~"

    def behind_session(self, session_id: str) -> str:
        """Return a text after all keys of a session."""
        return f"{self._files.layout.session_prefix(session_id)}~"

    def named(self, listed: Listed) -> ScopeKey | None:
        """Return the scope that a document belongs to, if that is known."""
        return next((self._named(entry) for entry in self._entries([listed])), None)

    def _entries(self, page: Sequence[Listed]) -> Iterator[_Entry]:
        for listed in page:
            key = self._files.layout.parse(listed.key)
            if key is not None:
                folder = listed.key.partition("/snapshots/")[0]
                yield _Entry(listed, key, f"{folder}/snapshots/")

    def _session_folder(self, folder: str) -> str:
        root = self._files.layout.root
        return f"{root}{folder[len(root) :].partition('/')[0]}/"

    def _holding(
        self, groups: Sequence[tuple[str, list[_Entry]]]
    ) -> Iterator[tuple[str, ScopeKey | None]]:
        """Return folders with their scopes; None for an empty scope."""
        unclear = [folder for folder, entries in groups if _evidence(entries) is None]
        places = [DocumentAddress(f"{folder}snapshot_latest.json") for folder in unclear]
        heads = dict(zip(unclear, self._files.read(places), strict=True))
        for folder, entries in groups:
            entry = _evidence(entries)
            if entry is None:
                entry = self._shown(entries, heads[folder])
            yield folder, None if entry is None else self._first_named(folder, entries)

    def _first_named(self, folder: str, entries: Sequence[_Entry]) -> ScopeKey | None:
        """Return the scope. If its names are clipped, its documents are read for them, head first.

        Tombstones and manifests do not have them.
        """
        key = entries[0].key._replace(file=File.HEAD, id=None, note=None)
        head = _Entry(Listed(f"{folder}snapshot_latest.json", 0, 0), key, folder)
        named = (self._named(entry) for entry in (head, *entries))
        return next((scope for scope in named if scope is not None), None)

    def _shown(self, entries: Sequence[_Entry], found: Found) -> _Entry | None:
        """Read documents until one shows that the scope is not empty."""
        if isinstance(found, Corrupt):
            return entries[0]
        head = self._heads.resolved(found if isinstance(found, Doc) else None)
        if head.shown is not None:
            return entries[0]
        for entry in entries:
            if entry.key.file is File.LEASE:
                (stored,) = self._files.bucket.get([entry.listed.key])
                if is_held(stored):
                    return entry
        copies = [entry for entry in entries if entry.key.file is File.COPY]
        for start in range(0, len(copies), _CHUNK):
            some = copies[start : start + _CHUNK]
            docs = self._files.read(
                [DocumentAddress(each.listed.key, each.key.id) for each in some]
            )
            for entry, doc in zip(some, docs, strict=True):
                if isinstance(doc, Corrupt) or (isinstance(doc, Doc) and head.counts(doc.header)):
                    return entry
        return None

    def _named(self, entry: _Entry) -> ScopeKey | None:
        """Return the scope; clipped names are read from the document."""
        session_id, scope_id = entry.key.session_id, entry.key.scope_id
        if isinstance(session_id, Clipped) or isinstance(scope_id, Clipped):
            full = self._full_names(entry)
            session_id = _full(session_id, full[0])
            scope_id = _full(scope_id, full[1])
        if isinstance(session_id, Clipped) or isinstance(scope_id, Clipped):
            return None
        return ScopeKey(session_id, scope_id, entry.key.kind)

    def _full_names(self, entry: _Entry) -> tuple[str | None, str | None]:
        key, file = entry.listed.key, entry.key.file
        if file not in (File.NOTE, File.LEASE):
            found = self._files.read_one(DocumentAddress(key, entry.key.id))
            return _names_in(found) if isinstance(found, Doc) else (None, None)
        (stored,) = self._files.bucket.get([key])
        if stored is None:
            return None, None
        try:
            if file is File.LEASE:
                lease = leases.read(stored.data)
                return lease.session_id, lease.scope_id
            note = parse_note(self._files.layout, key, stored.data, 0)
            return note.session_id, note.scope_id
        except Corrupt:
            return None, None


def _evidence(entries: Sequence[_Entry]) -> _Entry | None:
    """Return a document whose key and size show that the scope is not empty."""
    for entry in entries:
        if entry.key.file in (File.NOTE, File.MANIFEST):
            return entry
        if entry.key.file is File.HEAD and entry.listed.size > VOID_BYTES_MAX:
            return entry
    return None


def _names_in(doc: Doc) -> tuple[str | None, str | None]:
    return doc.header.session_id, doc.header.scope_id


def _full(name: str | Clipped, known: str | None) -> str | Clipped:
    if isinstance(name, Clipped) and known is not None and name.matches(known):
        return known
    return name
