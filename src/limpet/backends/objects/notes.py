"""Notes: one document each, written by compare-and-set."""

from collections.abc import Iterator, Sequence
from itertools import islice

from limpet.backends.buckets.protocol import Stored
from limpet.backends.objects import keys
from limpet.backends.objects.objects import TRAIL_MAX
from limpet.backends.objects.scopes import parse_note
from limpet.backends.objects.storage import PAGE, walk
from limpet.backends.objects.writer import Part
from limpet.core import notes
from limpet.core.commits import check_fence
from limpet.core.names import Clipped, clipped_ids
from limpet.core.notes import (
    NoteFile,
    NoteRow,
    check_expect,
    found_note,
    newest_first,
    note_of,
    written_note,
)
from limpet.errors import Corrupt
from limpet.model import ANY, Note, ScopeKey
from limpet.protocol import FoundNote, NoteChange, NoteQuery, NoteWrite


class Notes(Part):
    def list_notes(
        self,
        scope: ScopeKey,
        *,
        on: Sequence[str | None],
        name: str | None,
        after: str,
        limit: int,
    ) -> list[Note]:
        page: list[Note] = []
        if name is not None:
            wanted = [each for at, each in enumerate(on) if at > 0 or name > after]
            paths = [keys.note_key(scope, name, each) for each in wanted][:limit]
            found = zip(paths, self._bucket.get(paths), strict=True)
            page += [note_of(parse_note(k, each.data).row) for k, each in found if each is not None]
        else:
            for at, each in enumerate(on):
                count = limit - len(page)
                rows = self._rows(scope, each, "" if at else after, count) if count else iter(())
                page += map(note_of, islice(rows, count))
        if not page:
            self._storage.check_ours()
        return page

    def _rows(
        self, scope: ScopeKey, on: str | None, after: str, count: int = PAGE
    ) -> Iterator[NoteRow]:
        """Yield the notes that can be read, in the order of names; `count` are read together."""
        start = keys.note_key(scope, after, on) if after else ""
        listed = walk(self._bucket, keys.notes_prefix(scope, on), start)
        while page := list(islice(listed, count)):
            paths = [each.key for each in page]
            for row in map(_readable, paths, self._bucket.get(paths)):
                if row is not None:
                    yield row

    def read_notes(self, scope: ScopeKey, names: Sequence[str]) -> list[FoundNote]:
        paths = [keys.note_key(scope, name, None) for name in names]
        found = list(zip(paths, self._bucket.get(paths), strict=True))
        if all(each is None for _, each in found):
            self._storage.check_ours()
        return [found_note(scope, parse_note(path, each.data).row) for path, each in found if each]

    def find_notes(self, query: NoteQuery, *, limit: int) -> list[FoundNote]:
        """Reads all notes of the scopes: nothing is ordered by time in a bucket."""
        walked = self._scopes.walk(prefix=query.under)
        scopes = (each.scope for each in walked if query.covers(each.scope))
        found = (
            found_note(scope, row, value=query.values)
            for scope in scopes
            for row in self._rows(scope, None, "")
        )
        return newest_first(found, query, limit)

    def list_noted(self, scope: ScopeKey, *, after: str, limit: int) -> list[str]:
        start = keys.noted_end(scope, after) if after else ""
        found: dict[str, None] = {}
        for each in walk(self._bucket, keys.noted_prefix(scope), start):
            key = keys.parse(each.key)
            on = None if key is None else key.on
            if isinstance(on, Clipped):
                row = _readable(each.key, self._bucket.get([each.key])[0])
                on = None if row is None else row.on
            if on:
                found[on] = None
            if len(found) > limit:
                break
        return list(found)[:limit]

    def write_note(self, write: NoteWrite) -> Note:
        key = keys.note_key(write.scope, write.name, write.on)
        nonce = write.stamp.nonce

        def attempt() -> Note:
            (stored,) = self._bucket.get([key])
            if stored is None:
                self._storage.check_ours()
            existing = None if stored is None else parse_note(key, stored.data)
            if existing is not None and nonce in _nonces(existing):
                # An answer was lost. If the note was changed since, that is not for this caller.
                own = existing.row.nonce == nonce
                return note_of(existing.row if own else written_note(write, None))
            self._check_fence(write.scope, write.fence)
            row = written_note(write, None if existing is None else existing.row)
            trail = () if existing is None else _nonces(existing)
            file = NoteFile(row, trail[:TRAIL_MAX], *clipped_ids(write.scope))
            self._storage.swap(
                key,
                notes.write(file),
                expect=None if stored is None else stored.version,
                nonce=row.nonce,
                base="" if existing is None else existing.row.nonce,
                nonces_of=lambda data: _nonces(parse_note(key, data)),
            )
            return note_of(row)

        return self._storage.contend(write.scope, attempt)

    def write_notes(self, changes: Sequence[NoteChange]) -> None:
        for each in changes:
            if isinstance(each, NoteWrite):
                self.write_note(each)
            else:
                if each.expect is not ANY:  # it may still be changed in between
                    key = keys.note_key(each.scope, each.name, each.on)
                    (stored,) = self._bucket.get([key])
                    check_expect(each, None if stored is None else parse_note(key, stored.data).row)
                self.delete_note(each.scope, each.name, on=each.on, fence=each.fence)

    def delete_note(
        self, scope: ScopeKey, name: str, *, on: str | None, fence: str | None = None
    ) -> int:
        key = keys.note_key(scope, name, on)
        found = self._bucket.get([key], first=1)
        self._check_fence(scope, fence)
        if found == [None]:
            self._storage.check_ours()
            return 0
        self._bucket.delete([key])
        return 1

    def _check_fence(self, scope: ScopeKey, fence: str | None) -> None:
        """Check the lease just before a write. It may still be lost in between."""
        if fence is not None:
            head = self._storage.read_head(scope).head
            check_fence(fence, None if head is None else head.fence, scope)

    def _note_keys(self, scope: ScopeKey) -> list[str]:
        return [each.key for each in walk(self._bucket, keys.all_notes_prefix(scope))]

    def _clear_notes(self, scope: ScopeKey, on: Sequence[str]) -> None:
        """Delete the notes on some ids."""
        # The key that follows shows that no snapshot has notes, which is the common case.
        below, noted = keys.scope_prefix(scope), keys.noted_prefix(scope)
        following = self._bucket.list(below, after=noted, limit=1)
        if not any(each.key.startswith(noted) for each in following):
            return
        for id in on:
            while page := self._bucket.list(keys.notes_prefix(scope, id), limit=PAGE):
                self._bucket.delete([each.key for each in page])


def _readable(path: str, stored: Stored | None) -> NoteRow | None:
    try:
        return None if stored is None else parse_note(path, stored.data).row
    except Corrupt:
        return None  # `check` reports it


def _nonces(file: NoteFile) -> tuple[str, ...]:
    return (file.row.nonce, *file.trail)
