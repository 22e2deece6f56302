"""Notes: one document each, written by compare-and-set.

Where Strands tools expect it (kinds `agent` and `multiAgent`), the scope's note `manifest` is the
file `manifest.json`. It holds the value alone, so its revision is the hash of the bytes.
"""

from collections.abc import Sequence
from hashlib import blake2b

from limpet.backends.buckets.protocol import Stored
from limpet.backends.objects.documents import PAGE, TRAIL_MAX, walk
from limpet.backends.objects.roll_forward import Writer
from limpet.core import codec, notes
from limpet.core.commits import check_fence
from limpet.core.layout import Clipped, Layout, Name, clipped_ids
from limpet.core.notes import NoteFile, NoteRow, note_of, written_note
from limpet.errors import Corrupt, InvalidInput
from limpet.model import Note, ScopeKey
from limpet.protocol import NoteWrite

_MANIFEST = "manifest"
_MANIFEST_KINDS = frozenset({"agent", "multiAgent"})


class Notes:
    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._bucket = writer.files.bucket
        self._layout = writer.files.layout

    def read(
        self,
        scope: ScopeKey,
        *,
        on: Sequence[str | None],
        name: str | None,
        after: str,
        limit: int,
    ) -> list[Note]:
        if name is not None:
            wanted = [each for at, each in enumerate(on) if at > 0 or name > after]
            keys = [self._key(scope, name, each) for each in wanted][:limit]
            found = self._bucket.get(keys)
            rows = [self._parse(k, s) for k, s in zip(keys, found, strict=True) if s is not None]
            return [note_of(row.row) for row in rows]
        page: list[Note] = []
        for at, each in enumerate(on):
            if len(page) >= limit:
                break
            page += self._page(scope, each, after if at == 0 else "", limit - len(page))
        return page

    def _page(self, scope: ScopeKey, on: str | None, after: str, limit: int) -> list[Note]:
        prefix = self._layout.notes_prefix(scope, on)
        start = self._layout.note_key(scope, after, on) if after else ""
        found: dict[str, Note] = {}
        while len(found) < limit:
            listed = self._bucket.list(prefix, after=start, limit=limit)
            keys = [each.key for each in listed]
            for key, stored in zip(keys, self._bucket.get(keys), strict=True):
                row = self._own(key, stored)
                if row is not None:
                    found[key] = note_of(row)
            if len(listed) < limit:
                break
            start = keys[-1]
        if on is None and scope.kind in _MANIFEST_KINDS:
            self._add_manifest(scope, after, found)
        return [found[key] for key in sorted(found)][:limit]

    def _own(self, key: str, stored: Stored | None) -> NoteRow | None:
        try:
            return None if stored is None else self._parse(key, stored).row
        except Corrupt:
            return None  # `check` reports it

    def _add_manifest(self, scope: ScopeKey, after: str, found: dict[str, Note]) -> None:
        # It sorts as if it were among the others.
        at = self._layout.note_key(scope, _MANIFEST)
        found.pop(at, None)
        if after and at <= self._layout.note_key(scope, after):
            return
        key = self._layout.manifest_key(scope)
        (stored,) = self._bucket.get([key])
        try:
            if stored is not None:
                found[at] = note_of(self._parse(key, stored).row)
        except Corrupt:
            return

    def list_noted(self, scope: ScopeKey, after: str, limit: int) -> list[str]:
        """As `Backend.list_noted`, from a listing of keys. Only clipped ids are read."""
        start = self._layout.noted_end(scope, after) if after else ""
        found: dict[str, None] = {}
        for each in walk(self._bucket, self._layout.noted_prefix(scope), start, PAGE):
            key = self._layout.parse(each.key)
            on = None if key is None else key.id
            if isinstance(on, Clipped):
                row = self._own(each.key, self._bucket.get([each.key])[0])
                on = None if row is None else row.on
            if on:
                found[on] = None
            if len(found) > limit:
                break
        return list(found)[:limit]

    def write(self, write: NoteWrite) -> Note:
        key = self._key(write.scope, write.name, write.on)
        is_manifest = key == self._layout.manifest_key(write.scope)
        nonce = write.stamp.nonce

        def attempt() -> Note:
            (stored,) = self._bucket.get([key])
            existing = None if stored is None else self._parse(key, stored)
            if existing is not None and nonce in (existing.row.nonce, *existing.trail):
                return note_of(existing.row)  # an answer was lost
            self._check_fence(write.scope, write.fence)
            row = written_note(write, None if existing is None else existing.row)
            if is_manifest:
                row = row._replace(rev=0, nonce=_digest(write.value))
            trail = () if existing is None else (existing.row.nonce, *existing.trail)
            file = NoteFile(row, trail[:TRAIL_MAX], *clipped_ids(write.scope))
            self._writer.files.swap(
                key,
                write.value if is_manifest else notes.write(file),
                expect=None if stored is None else stored.version,
                nonce=row.nonce,
                base="" if existing is None else existing.row.nonce,
                nonces_of=lambda data: self._nonces(key, data),
            )
            return note_of(row)

        return self._writer.contend(write.scope, attempt)

    def delete(self, scope: ScopeKey, name: str, *, on: str | None, fence: str | None) -> int:
        key = self._key(scope, name, on)
        found = self._bucket.get([key], first=1)
        self._check_fence(scope, fence)
        if found == [None]:
            return 0
        self._bucket.delete([key])
        return 1

    def _check_fence(self, scope: ScopeKey, fence: str | None) -> None:
        """Check the lease just before a write. It may still be lost in between."""
        if fence is not None:
            check_fence(fence, self._writer.heads.read(scope).fence, scope)

    def clear(self, scope: ScopeKey, ids: Sequence[str]) -> None:
        # One listing shows that no snapshot has notes, which is the common case.
        if not self._bucket.list(f"{self._layout.scope_prefix(scope)}notes/on/", limit=1):
            return
        for id in ids:
            while page := self._bucket.list(self._layout.notes_prefix(scope, id), limit=PAGE):
                self._bucket.delete([each.key for each in page])

    def _key(self, scope: ScopeKey, name: str, on: str | None) -> str:
        if on is None and name == _MANIFEST and scope.kind in _MANIFEST_KINDS:
            return self._layout.manifest_key(scope)
        return self._layout.note_key(scope, name, on)

    def _parse(self, key: str, stored: Stored) -> NoteFile:
        return parse_note(self._layout, key, stored.data, stored.modified)

    def _nonces(self, key: str, data: bytes) -> tuple[str, ...]:
        file = parse_note(self._layout, key, data, 0)
        return (file.row.nonce, *file.trail)


def parse_note(layout: Layout, key: str, data: bytes, modified: int) -> NoteFile:
    if not key.endswith("/snapshots/manifest.json"):
        file, parsed = notes.read(data), layout.parse(key)
        if parsed is None or not (
            _bears(parsed.note, file.row.name) and _bears(parsed.id, file.row.on)
        ):
            raise Corrupt(f"a note is stored under the key of another. key=`{key}`")
        return file
    try:
        value = codec.encode(codec.decode(data))
    except (InvalidInput, RecursionError) as cause:
        raise Corrupt(f"a manifest is not valid JSON. key=`{key}`") from cause
    return NoteFile(NoteRow("", _MANIFEST, 0, _digest(data), modified, value))


def _bears(name: Name | None, id: str) -> bool:
    return name.matches(id) if isinstance(name, Clipped) else (name or "") == id


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=8).hexdigest()
