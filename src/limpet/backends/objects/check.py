"""Checks a bucket document by document, and repairs what can be repaired without a loss.

Copies are read before the head that they are compared with: lines never return, so a line that the
later head does not have is over. What was written within the grace time may belong to a running
writer, and is left alone. Nothing is deleted that cannot be explained.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, islice
from typing import Final, NamedTuple

from limpet.backends.buckets.protocol import Listed, Moved, Sweepable
from limpet.backends.objects.documents import PAGE, Doc, DocumentAddress, Files, Found, Grave, walk
from limpet.backends.objects.heads import Head
from limpet.backends.objects.index import Pointed, keys_of
from limpet.backends.objects.leases import is_damaged
from limpet.backends.objects.notes import parse_note
from limpet.backends.objects.roll_forward import Writer, is_done
from limpet.backends.objects.scopes import Places
from limpet.core import document, findings, layout, leases
from limpet.core.document import TOMBSTONE_BYTES_MAX, Tombstone
from limpet.core.layout import INDEX, File
from limpet.core.leases import LeaseFile
from limpet.errors import Corrupt
from limpet.model import Finding, ScopeKey

SEVERITIES: Final = {
    "copy_missing": "warning",
    "foreign_file": "info",
    "head_damaged": "error",
    "head_missing": "warning",
    "lease_damaged": "error",
    "line_over": "warning",
    "note_damaged": "error",
    "pointer_dangling": "info",
    "pointer_missing": "warning",
    "snapshot_damaged": "error",
    "temporary_left": "info",
}
GRACE_US: Final = 24 * 3600 * 1_000_000
_READS = 4  # before a copy is reported as missing
_PAUSE_S = 0.1
_CHUNK = 16  # whole documents in memory
_LEFTOVERS_MAX = 10_000
_OURS = ".limpet/"


class _Entry(NamedTuple):
    listed: Listed
    file: File | None
    place: DocumentAddress
    folder: str


class Checker:
    def __init__(self, writer: Writer, places: Places, *, grace_us: int) -> None:
        self._writer = writer
        self._files = writer.files
        self._bucket = writer.files.bucket
        self._places = places
        self._grace_us = grace_us

    def check(self, after: str, *, repair: bool, limit: int) -> tuple[list[Finding], str | None]:
        """As `Backend.check`: documents, then pointers, then leftovers."""
        part, _, key = after.partition(":")
        steps: dict[str, Callable[[str, bool, int], tuple[list[Finding], str | None]]] = {
            "": self._documents,
            "pointers": self._pointers,
            "leftovers": self._leftovers,
        }
        found, last = steps[part](key, repair, limit)
        if last is not None:
            return found, f"{part}:{last}"
        names = list(steps)
        following = names.index(part) + 1
        return found, f"{names[following]}:" if following < len(names) else None

    # Documents

    def _documents(self, after: str, repair: bool, limit: int) -> tuple[list[Finding], str | None]:
        page = self._bucket.list(self._files.layout.root, after=after, limit=limit)
        entries = [self._entry(each) for each in page if not each.key.startswith(_OURS)]
        found: list[Finding] = []
        for start in range(0, len(entries), _CHUNK):
            found += self._chunk(entries[start : start + _CHUNK], repair)
        return found, page[-1].key if len(page) == limit else None

    def _entry(self, listed: Listed) -> _Entry:
        key = self._files.layout.parse(listed.key)
        folder = f"{listed.key.partition('/snapshots/')[0]}/snapshots/"
        if key is None:
            return _Entry(listed, None, DocumentAddress(listed.key), folder)
        return _Entry(listed, key.file, DocumentAddress(listed.key, key.id), folder)

    def _chunk(self, entries: Sequence[_Entry], repair: bool) -> Iterator[Finding]:
        snapshots = [each for each in entries if each.file in (File.HEAD, File.COPY)]
        docs = self._files.read([each.place for each in snapshots], whole=True)
        found = dict(zip(snapshots, docs, strict=True))
        folders = sorted({each.folder for each in snapshots})
        heads = dict(zip(folders, self._read_heads(folders), strict=True))
        for entry in entries:
            if entry.file is None:
                yield _finding("foreign_file", "a file that is not ours", key=entry.place.key)
            elif entry in found:
                yield from self._snapshot(entry, found[entry], heads[entry.folder], repair)
            elif entry.file is File.LEASE:
                yield from self._lease(entry, repair)
            else:
                yield from self._note(entry)

    def _read_heads(self, folders: Sequence[str]) -> list[Head]:
        places = [DocumentAddress(f"{folder}snapshot_latest.json") for folder in folders]
        return [self._writer.heads.found(found) for found in self._files.read(places)]

    def _note(self, entry: _Entry) -> Iterator[Finding]:
        (stored,) = self._bucket.get([entry.place.key])
        try:
            if stored is not None:
                parse_note(self._files.layout, entry.place.key, stored.data, 0)
        except Corrupt:
            yield _finding("note_damaged", "a note fails its check", key=entry.place.key)

    def _lease(self, entry: _Entry, repair: bool) -> Iterator[Finding]:
        """Report a damaged lease, which could be neither claimed nor renewed.

        It is released if the head has no lease, or if it is so old that its holder must be gone.
        Writes of that holder are refused once another process has claimed the scope.
        """
        key = entry.place.key
        (stored,) = self._bucket.get([key])
        if stored is None or not is_damaged(stored):
            return
        (head,) = self._read_heads([entry.folder])
        over = head.damage is None and (head.fence is None or self._is_old(entry.listed.modified))
        mended = repair and over and self._freed(key, stored.version)
        scope = self._places.named(entry.listed)
        yield _finding(
            "lease_damaged", "a lease fails its check", scope=scope, repaired=mended, key=key
        )

    def _freed(self, key: str, version: str | None) -> bool:
        stamp = self._writer.draw()
        free = LeaseFile(0, None, "", 0, stamp.now, stamp.nonce)
        try:
            self._bucket.put(key, leases.write(free), expect=version)
        except Moved:
            return False  # it has changed meanwhile
        return True

    def _snapshot(self, entry: _Entry, found: Found, head: Head, repair: bool) -> Iterator[Finding]:
        key, is_head = entry.place.key, entry.file is File.HEAD
        scope = self._places.named(entry.listed)
        if isinstance(found, Corrupt):
            code = "head_damaged" if is_head else "snapshot_damaged"
            id = entry.place.id if isinstance(entry.place.id, str) else None
            yield _finding(code, "a document fails its check", scope=scope, id=id, key=key)
        elif isinstance(found, Doc) and scope is not None:
            if is_head:
                yield from self._head(entry, scope, head, repair)
            else:
                yield from self._copy(entry, scope, found, head, repair)

    def _head(self, entry: _Entry, scope: ScopeKey, head: Head, repair: bool) -> Iterator[Finding]:
        """Report a kept head that is not in history: its writer may have died."""
        shown = head.shown
        if shown is None or shown.foreign or not shown.header.kept:
            return
        for _ in range(_READS):
            found = self._files.read_one(self._files.copy_place(scope, shown.header.id))
            if isinstance(found, Corrupt) or is_done(shown.header, found):
                return  # a damaged copy is reported separately
            self._writer.pause(_PAUSE_S)  # its writer may be about to copy it
            if not self._is_there(entry.place, shown):
                return
        mended = repair and self._mended(scope, lambda: self._roll_forward(scope))
        fact = "the head is not in history yet, or not as it is now"
        yield _finding("copy_missing", fact, scope=scope, id=shown.header.id, repaired=mended)

    def _roll_forward(self, scope: ScopeKey) -> None:
        self._writer.roll_forward(scope, self._writer.heads.read(scope, versions=True))

    def _copy(
        self, entry: _Entry, scope: ScopeKey, doc: Doc, head: Head, repair: bool
    ) -> Iterator[Finding]:
        id, key = doc.header.id, entry.place.key
        if head.counts(doc.header):
            yield from self._indexed(entry.place, scope, doc, repair)
        elif not self._is_there(entry.place, doc):
            return  # it has just been deleted
        elif head.doc is None:
            fact = "a snapshot without a head: the rest of a deletion, or the head is lost"
            yield _finding("head_missing", fact, scope=scope, id=id, key=key)
        elif self._is_old(entry.listed.modified):
            mended = repair and self._mended(scope, lambda: self._bury(entry.place, doc))
            fact = "a snapshot of an earlier life of its scope"
            yield _finding("line_over", fact, scope=scope, id=id, repaired=mended, key=key)

    def _bury(self, place: DocumentAddress, doc: Doc) -> None:
        header = doc.header
        tombstone = document.write_tombstone(Tombstone(header.line, header.seq, header.born))
        self._bucket.put(place.key, tombstone, expect=doc.version)

    def _indexed(
        self, place: DocumentAddress, scope: ScopeKey, doc: Doc, repair: bool
    ) -> Iterator[Finding]:
        if not self._writer.index.enabled:
            return
        keys = keys_of(scope, doc.header)
        missing = [
            key for key, at in zip(keys, self._bucket.get(keys, first=1), strict=True) if at is None
        ]
        if missing and self._is_there(place, doc):
            mended = repair and self._mended(
                scope, lambda: self._writer.index.point(scope, doc.header)
            )
            fact = "a snapshot that the index does not point to"
            yield _finding("pointer_missing", fact, scope=scope, id=doc.header.id, repaired=mended)

    def _is_there(self, place: DocumentAddress, doc: Doc) -> bool:
        """Return whether a document is still the one that was read."""
        found = self._files.read_one(place)
        return isinstance(found, Doc) and found.header.w == doc.header.w

    def _mended(self, scope: ScopeKey, mend: Callable[[], None]) -> bool:
        try:
            self._writer.contend(scope, mend)
        except (Moved, Corrupt):
            return False  # it has changed meanwhile
        return True

    # Pointers

    def _pointers(self, after: str, repair: bool, limit: int) -> tuple[list[Finding], str | None]:
        if not self._writer.index.enabled:
            return [], None
        page = self._bucket.list(INDEX, after=after, limit=limit)
        old = [each for each in page if self._is_old(each.modified)]
        dangling = self._dangling(old)
        mended = bool(repair and dangling)
        if mended:
            self._bucket.delete([key for key, _ in dangling])
        found = [
            _finding(
                "pointer_dangling",
                "a pointer that leads nowhere",
                scope=scope,
                repaired=mended,
                key=key,
            )
            for key, scope in dangling
        ]
        found += [
            _finding("foreign_file", "a file that is not ours", key=each.key)
            for each in page
            if layout.parse_pointer(each.key) is None
        ]
        return found, page[-1].key if len(page) == limit else None

    def _dangling(self, page: Sequence[Listed]) -> list[tuple[str, ScopeKey]]:
        pointers = list(self._writer.index.followed(page))
        scopes = list(dict.fromkeys(each.ref.scope for each in pointers))
        copies = self._files.read([self._files.copy_place(*each.ref) for each in pointers])
        docs = self._files.read([self._files.head_place(scope) for scope in scopes])
        heads = {
            scope: self._writer.heads.found(doc) for scope, doc in zip(scopes, docs, strict=True)
        }
        dangling: list[tuple[str, ScopeKey]] = []
        for pointer, copy in zip(pointers, copies, strict=True):
            head = heads[pointer.ref.scope]
            if head.damage is not None or isinstance(copy, Corrupt):
                continue  # not known
            if head.doc is None and isinstance(copy, Doc):
                continue  # the head may be lost, and restored later
            if not self._leads(pointer, copy, head):
                dangling.append((pointer.key, pointer.ref.scope))
        return dangling

    def _leads(self, pointer: Pointed, copy: Found, head: Head) -> bool:
        docs = [copy] if isinstance(copy, Doc) and head.counts(copy.header) else []
        if head.shown is not None and head.shown.header.id == pointer.ref.id:
            docs.append(head.shown)
        return any(pointer.key in keys_of(pointer.ref.scope, doc.header) for doc in docs)

    # Leftovers

    def _leftovers(self, after: str, repair: bool, limit: int) -> tuple[list[Finding], str | None]:
        if not isinstance(self._bucket, Sweepable):
            return [], None
        left = self._bucket.leftovers(limit=_LEFTOVERS_MAX)
        mended = bool(repair and left and self._bucket.sweep())
        return [
            _finding("temporary_left", each.reason, repaired=mended, key=each.key)
            if each.stale
            else _finding("foreign_file", each.reason, key=each.key)
            for each in left
        ], None

    def _is_old(self, modified: int) -> bool:
        return modified < self._writer.draw().now - self._grace_us

    # What no listing shows

    def unlisted(self) -> list[Finding]:
        """Return a finding for each scope whose head is lost, and for each link."""
        entries = map(self._entry, walk(self._bucket, self._files.layout.root))
        copies = (each for each in entries if each.file is File.COPY)
        found: list[Finding] = []
        for folder, group in groupby(copies, key=lambda each: each.folder):
            if self._bucket.get([f"{folder}snapshot_latest.json"], first=1) == [None]:
                found += islice(self._lost(group), 1)
        if isinstance(self._bucket, Sweepable):
            for left in self._bucket.leftovers(limit=_LEFTOVERS_MAX):
                if not left.stale:
                    scope = self._places.named(Listed(left.key, 0, 0))
                    fact = f"it is not read: {left.reason}"
                    found.append(
                        findings.finding("error", "link_skipped", fact, scope=scope, key=left.key)
                    )
        return found

    def _lost(self, copies: Iterator[_Entry]) -> Iterator[Finding]:
        """Yield the copies in a scope without a head that would count below it."""
        while chunk := list(islice(copies, _DAMAGE_CHUNK)):
            for entry, doc in zip(chunk, self._files.read([e.place for e in chunk]), strict=True):
                if isinstance(doc, Doc) and doc.header.line is not None:
                    fact = "its snapshots have no head: the rest of a deletion, or the head is lost"
                    scope = self._places.named(entry.listed)
                    yield findings.finding("error", "head_missing", fact, scope=scope)

    # Space

    def compact(self) -> int:
        """Remove tombstones that are too old to be needed; return their bytes."""
        freed, after = 0, ""
        while True:
            page = self._bucket.list(self._files.layout.root, after=after, limit=PAGE)
            small = [
                entry
                for each in page
                if each.size <= TOMBSTONE_BYTES_MAX
                and self._is_old(each.modified)
                and (entry := self._entry(each)).file is File.COPY
            ]
            found = self._files.read([entry.place for entry in small])
            graves = [
                entry.listed
                for entry, each in zip(small, found, strict=True)
                if isinstance(each, Grave)
            ]
            self._bucket.delete([each.key for each in graves])
            freed += sum(each.size for each in graves)
            if len(page) < PAGE:
                return freed
            after = page[-1].key


def _finding(code: str, fact: str, **values: object) -> Finding:
    return findings.finding(SEVERITIES[code], code, fact, **values)  # type: ignore[arg-type]


_DAMAGE_CHUNK = 64


def damage_of(files: Files, scope: ScopeKey) -> list[Finding]:
    """Return a finding for each copy and note that listings skip because it cannot be read."""
    return [*_copies(files, scope), *_notes(files, scope)]


def _copies(files: Files, scope: ScopeKey) -> Iterator[Finding]:
    listed = walk(files.bucket, files.layout.history_prefix(scope))
    while chunk := list(islice(listed, _DAMAGE_CHUNK)):
        places = [place for each in chunk if (place := _place(files, each)) is not None]
        for place, found in zip(places, files.read(places), strict=True):
            if isinstance(found, Corrupt):
                id = place.id if isinstance(place.id, str) else None
                fact = "a document fails its check"
                yield findings.finding("error", "snapshot_damaged", fact, scope=scope, id=id)


def _place(files: Files, listed: Listed) -> DocumentAddress | None:
    key = files.layout.parse(listed.key)
    return (
        DocumentAddress(listed.key, key.id) if key is not None and key.file is File.COPY else None
    )


def _notes(files: Files, scope: ScopeKey) -> Iterator[Finding]:
    listed = walk(files.bucket, files.layout.all_notes_prefix(scope))
    while keys := [each.key for each in islice(listed, _DAMAGE_CHUNK)]:
        for key, stored in zip(keys, files.bucket.get(keys), strict=True):
            try:
                if stored is not None and files.layout.parse(key) is not None:
                    parse_note(files.layout, key, stored.data, 0)
            except Corrupt:
                fact = "a note fails its check"
                yield findings.finding("error", "note_damaged", fact, scope=scope, key=key)
