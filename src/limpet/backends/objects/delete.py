"""Deleting snapshots, scopes and sessions.

A deleted head becomes void, then its copy a tombstone, which keeps a delayed writer from bringing
it back. Of a scope or a session the heads are deleted first: without its head no copy counts.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice

from limpet.backends.buckets.protocol import Listed, Moved
from limpet.backends.objects.documents import (
    PAGE,
    Beaten,
    Doc,
    DocumentAddress,
    Found,
    Grave,
    unknown,
    walk,
)
from limpet.backends.objects.heads import Head
from limpet.backends.objects.leases import Leases
from limpet.backends.objects.notes import Notes
from limpet.backends.objects.roll_forward import Writer, is_done
from limpet.core import commits, document, ids
from limpet.core.document import TOMBSTONE_BYTES_MAX, Tombstone
from limpet.core.layout import File
from limpet.errors import Corrupt, Unavailable
from limpet.model import ANY, Expect, Pruned, ScopeKey

_CHUNK = 64  # copies read at a time
_PASSES_MAX = 100  # over a session that other writers keep writing to
_POINTERS_MAX = 10_000  # removed with a session; the rest is left to `repair`
_RESENDS_MAX = 8
_NOTES_MAX = 10_000  # of a deleted scope; with more, new ones are deleted too


class Deleter:
    def __init__(self, writer: Writer, notes: Notes, leases: Leases) -> None:
        self._writer = writer
        self._notes = notes
        self._leases = leases
        self._files = writer.files
        self._heads = writer.heads
        self._history = writer.history

    # Snapshots

    def delete_snapshots(
        self, scope: ScopeKey, names: Sequence[str], *, spare_head: bool, fence: str | None
    ) -> Pruned:
        wanted = list(dict.fromkeys(names))
        sizes, gone = list[int](), list[str]()
        try:
            self._delete_all(scope, wanted, spare_head, fence, sizes, gone)
            self._notes.clear(scope, gone)
        except Unavailable as error:
            if not sizes:
                raise
            raise Unavailable("not all of it was deleted", outcome_known=False) from error
        return Pruned(len(sizes), sum(sizes))

    def _delete_all(
        self,
        scope: ScopeKey,
        wanted: Sequence[str],
        spare_head: bool,
        fence: str | None,
        sizes: list[int],
        gone: list[str],
    ) -> None:
        for start in range(0, len(wanted), _CHUNK):
            chunk = wanted[start : start + _CHUNK]
            # The copies before the head: if the head is none of them then, it cannot become one.
            copies = self._files.read(
                [self._files.copy_place(scope, id) for id in chunk], versions=True
            )
            head = self._heads.read(scope, versions=True)
            commits.check_fence(fence, head.fence, scope)
            for id, copy in zip(chunk, copies, strict=True):
                size = self._delete(scope, id, head, copy, spare_head, fence)
                if size is None or size >= 0:
                    gone.append(id)
                if size is not None and size >= 0:
                    sizes.append(size)

    def _delete(
        self,
        scope: ScopeKey,
        id: str,
        head: Head,
        copy: Found,
        spare_head: bool,
        fence: str | None,
    ) -> int | None:
        """Delete one snapshot; return its size, None if there is none, -1 if it is spared."""
        try:
            if head.is_void or (head.shown is not None and head.shown.header.id == id):
                raise Beaten  # this changes the head, so it is read again each time
            return self._bury(scope, id, head, copy)
        except Beaten:
            return self._writer.contend(
                scope, lambda: self._delete_one(scope, id, spare_head, fence)
            )

    def _delete_one(
        self, scope: ScopeKey, id: str, spare_head: bool, fence: str | None
    ) -> int | None:
        copy = self._files.read_one(self._files.copy_place(scope, id), versions=True)
        head = self._heads.read(scope, versions=True)
        commits.check_fence(fence, head.fence, scope)
        if spare_head:
            shown = self._history.shown(scope, head)
            if shown is not None and shown.header.id == id:
                return -1
        if head.shown is not None and head.shown.header.id == id:
            return self._delete_head(scope, head, head.shown, copy)
        if head.is_void:
            shown = self._history.newest(scope, head)
            shows = shown is not None and shown.header.id == id
            self._writer.bump(scope, head, until=self._now() if shows else 0)
        return self._bury(scope, id, head, copy)

    def _delete_head(self, scope: ScopeKey, head: Head, shown: Doc, copy: Found) -> int | None:
        """Make the head void, then its copy a tombstone.

        The copy was read before: a writer that restores the void head has to write the copy first,
        and then its tombstone is refused.
        """
        header = shown.header
        if header.kept and not isinstance(copy, Corrupt) and not is_done(header, copy):
            self._writer.roll_forward(scope, head)
            raise Beaten  # begin again, with a copy
        self._void(scope, head, None)
        return self._bury(scope, header.id, head, copy) if header.kept else header.size

    def _now(self) -> int:
        return ids.place_at(self._writer.draw().now)

    def _void(self, scope: ScopeKey, head: Head, line: str | None) -> None:
        """Replace a head by one that shows nothing; with another line, if one is given."""
        life = self._writer.life(scope, head, self._writer.draw().now)
        if head.header is None:
            return
        void = replace(
            self._writer.void(head.header),
            line=line or life.line,
            last=max(life.last, self._now()),
            mixed=life.mixed or line is not None,
            foreign=life.foreign,
            floor=life.floor,
            fence=life.fence if line is None else None,
        )
        self._writer.swap_head(scope, head, void, b"{}")
        self._heads.remember(scope, None, floor=life.floor, last=life.last)

    def _bury(self, scope: ScopeKey, id: str, head: Head, copy: Found) -> int | None:
        """Replace a copy by a tombstone; return the size of the state, None if there was none."""
        place = self._files.copy_place(scope, id)
        if isinstance(copy, Corrupt):
            (stored,) = self._files.bucket.get([place.key])
            if stored is not None:
                self._entomb(place, Tombstone(None, 0, ""), stored.version)
                return 0
            return None
        if not isinstance(copy, Doc) or not head.counts(copy.header):
            if self._history.copies(scope, head, [id]):
                raise Beaten  # it was the head, and has been copied since
            return None
        header = copy.header
        if copy.foreign:
            # No delayed writer of ours can bring it back, and other tools know no tombstones.
            self._files.bucket.delete([place.key])
        else:
            self._entomb(place, Tombstone(header.line, header.seq, header.born), copy.version)
        with suppress(Unavailable):  # a dangling pointer is harmless
            self._writer.index.unpoint(scope, header)
        return header.size

    def _entomb(self, place: DocumentAddress, tombstone: Tombstone, expect: str | None) -> None:
        stored, lost = document.write_tombstone(tombstone), False
        for _ in range(_RESENDS_MAX):
            try:
                self._files.bucket.put(place.key, stored, expect=expect)
                return
            except Moved:
                if not lost:
                    raise Beaten from None
            except Unavailable as error:
                if error.outcome_known:
                    raise
                lost = True
            try:
                found = self._files.read_one(place, versions=True)
            except Unavailable as error:
                raise unknown(place.key) from error
            if isinstance(found, Grave) and found.tombstone == tombstone:
                return
            if not isinstance(found, Doc | Corrupt) or (
                isinstance(found, Doc) and found.version != expect
            ):
                raise Beaten
        raise Unavailable(f"a tombstone cannot be written. key=`{place.key}`", outcome_known=False)

    # Scopes and sessions

    def delete_scope(self, scope: ScopeKey, *, expect: Expect, fence: str | None) -> int:
        if expect is ANY and fence is None:
            return self._erase(scope.session_id, scope)

        def attempt() -> None:
            head = self._heads.read(scope, versions=True)
            commits.check_fence(fence, head.fence, scope)
            if head.is_void and expect is not ANY:
                self._writer.restore(scope, head)
            shown = self._history.shown(scope, head)
            commits.check_expect(expect, None if shown is None else shown.row, scope)
            if head.doc is not None:
                # This is the commit: with another line no copy of the old one counts.
                stamp = self._writer.draw()
                self._void(scope, head, self._writer.new_line(stamp.now))

        counted = self._count(scope)
        lease, notes = self._leases.key_of(scope), self._noted(scope)
        pointers = self._writer.index.keys_of_session(scope.session_id, scope, _POINTERS_MAX)
        self._writer.contend(scope, attempt)
        try:
            if lease is not None:
                self._leases.drop(scope, lease)
            self._erase_past(scope, notes)
            self._files.bucket.delete(pointers)
        except Unavailable as error:
            raise Unavailable("not all of it was deleted", outcome_known=False) from error
        return counted

    def _noted(self, scope: ScopeKey) -> frozenset[str] | None:
        """Return the keys of the notes of a scope; None if they are too many to remember."""
        layout = self._files.layout
        listed = walk(self._files.bucket, f"{layout.scope_prefix(scope)}notes/")
        keys = frozenset(each.key for each in islice(listed, _NOTES_MAX))
        return None if len(keys) == _NOTES_MAX else keys | {layout.manifest_key(scope)}

    def _erase_past(self, scope: ScopeKey, notes: frozenset[str] | None) -> None:
        """Delete what does not belong to the present line of the head, until nothing is left.

        Notes are deleted only if they existed before: newer ones may belong to a new life of the
        scope. So may a lease, and the old one was released.
        """
        layout, bucket = self._files.layout, self._files.bucket
        for _ in range(_PASSES_MAX):
            removed = 0
            listed = walk(bucket, layout.scope_prefix(scope))
            while chunk := list(islice(listed, _CHUNK)):
                spared = {layout.head_key(scope), layout.lease_key(scope)}
                spared.update(self._present(scope, chunk))
                if notes is not None:
                    spared.update(each.key for each in chunk if self._is_newer(each.key, notes))
                past = [each.key for each in chunk if each.key not in spared]
                bucket.delete(past)
                removed += len(past)
            if not removed:
                return
        raise _still_written(scope.session_id)

    def _is_newer(self, key: str, notes: frozenset[str]) -> bool:
        at = self._files.layout.parse(key)
        return at is not None and at.file in (File.NOTE, File.MANIFEST) and key not in notes

    def _present(self, scope: ScopeKey, listed: Sequence[Listed]) -> Iterator[str]:
        """Yield the keys of the copies that belong to the present line of the head."""
        keys = ((each.key, self._files.layout.parse(each.key)) for each in listed)
        places = [DocumentAddress(key, at.id) for key, at in keys if at and at.file is File.COPY]
        found = self._files.read(places)
        line = self._heads.read(scope).line
        for place, doc in zip(places, found, strict=True):
            if line is not None and isinstance(doc, Doc) and doc.header.line == line:
                yield place.key

    def delete_session(self, session_id: str) -> int:
        return self._erase(session_id, None)

    def _count(self, scope: ScopeKey) -> int:
        head = self._heads.read(scope)
        draft = head.shown is not None and not head.shown.header.kept
        return draft + sum(1 for _ in self._history.scan(scope, head))

    def _erase(self, session_id: str, scope: ScopeKey | None) -> int:
        """Delete heads, then the rest, until a listing is empty."""
        layout, bucket = self._files.layout, self._files.bucket
        prefix = layout.session_prefix(session_id) if scope is None else layout.scope_prefix(scope)
        pointers = self._writer.index.keys_of_session(session_id, scope, _POINTERS_MAX)
        count = 0
        try:
            for removed in self._passes(session_id, prefix):
                count += removed
        except Unavailable as error:
            if not count:
                raise
            raise Unavailable("not all of it was deleted", outcome_known=False) from error
        self._heads.forget(session_id)
        with suppress(Unavailable):  # dangling pointers are harmless
            bucket.delete(pointers)
        return count

    def _passes(self, session_id: str, prefix: str) -> Iterator[int]:
        bucket, passes = self._files.bucket, 0
        while True:
            page = bucket.list(prefix, limit=PAGE)
            if not page:
                return
            heads = sorted({key for each in page if (key := head_key_of(each.key))})
            yield self._count_page(page, heads)
            bucket.delete(heads)
            bucket.delete([each.key for each in page if each.key not in heads])
            passes += len(page) < PAGE
            if passes > _PASSES_MAX:
                raise _still_written(session_id)

    def _count_page(self, page: Sequence[Listed], heads: Sequence[str]) -> int:
        places = []
        count = 0
        for each in page:
            key = self._files.layout.parse(each.key)
            if key is None or key.file is not File.COPY:
                continue
            if each.size > TOMBSTONE_BYTES_MAX:
                count += 1
            else:
                places.append(DocumentAddress(each.key, key.id))
        count += sum(isinstance(found, Doc) for found in self._files.read(places))
        for head, found in zip(
            heads, self._files.read([DocumentAddress(k) for k in heads]), strict=True
        ):
            if isinstance(found, Doc) and not found.header.void:
                count += not found.header.kept or not self._has_copy(head, found)
        return count

    def _has_copy(self, head_key: str, head: Doc) -> bool:
        key = self._files.layout.beside_head(head_key, head.header.id)
        (stored,) = self._files.bucket.get([key], first=1)
        return stored is not None and stored.size > TOMBSTONE_BYTES_MAX


def head_key_of(key: str) -> str | None:
    """Return the key of the head of the scope that a document belongs to."""
    folder, found, _ = key.partition("/snapshots/")
    return f"{folder}/snapshots/snapshot_latest.json" if found else None


def _still_written(session_id: str) -> Unavailable:
    return Unavailable(
        f"other writers keep writing to what is deleted: stop them first. session=`{session_id}`"
    )
