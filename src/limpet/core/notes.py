"""One note: its row, and what a storage makes of it."""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import NamedTuple, TypeVar

import orjson

from limpet.core import codec, times
from limpet.core.codec import decode
from limpet.core.encryption import PLAIN, Cipher
from limpet.core.rows import Place
from limpet.errors import Conflict
from limpet.model import ANY, Note, ScopeKey
from limpet.protocol import FoundNote, NoteChange, NoteWrite

T = TypeVar("T")

# Smaller values stay readable in any SQL shell, and would gain little.
_SQUEEZED_MIN = 512
_FRAME = b"\x28\xb5\x2f\xfd"  # begins a zstd frame, and never JSON


class NoteRow(NamedTuple):
    """One note. `on` is the snapshot it is attached to, "" for a note of the scope itself."""

    on: str
    name: str
    rev: int
    nonce: str
    updated_at: int
    value: bytes

    @property
    def revision(self) -> str:
        return f"{self.rev:x}.{self.nonce}"


def squeezed(value: bytes) -> bytes:
    """Return the value of a note as a SQL engine stores it: compressed if that is shorter."""
    if len(value) < _SQUEEZED_MIN:
        return value
    frame = codec.compress(value, level=1)
    return frame if len(frame) < len(value) else value


def unsqueezed(stored: bytes) -> bytes:
    """Undo `squeezed`, or raise Corrupt."""
    return codec.decompress(stored, what="note") if stored.startswith(_FRAME) else stored


def encrypted_note(row: NoteRow, scope: Place, cipher: Cipher) -> NoteRow:
    """Return a note as a SQL engine stores it: compressed if that is shorter, and encrypted."""
    value = squeezed(row.value)
    if cipher is not PLAIN:
        value = cipher.encrypt(value, _about(row, scope))
    return row if value is row.value else row._replace(value=value)


def decrypted_note(row: NoteRow, scope: Place, cipher: Cipher) -> NoteRow:
    """Undo `encrypted_note`, or raise Corrupt."""
    value = unsqueezed(cipher.decrypt(row.value, b"" if cipher is PLAIN else _about(row, scope)))
    return row if value is row.value else row._replace(value=value)


def _about(row: NoteRow, scope: Place) -> bytes:
    return b"note %b" % orjson.dumps((*scope, *row[:-1]))


def written_note(write: NoteWrite, existing: NoteRow | None) -> NoteRow:
    """Return the row after a write, or raise Conflict if the note is not at `expect`."""
    check_expect(write, existing)
    rev = 0 if existing is None else existing.rev + 1
    now, nonce, _ = write.stamp
    value = write.value if write.keep is None else _with_kept(write, *write.keep, existing)
    return NoteRow(write.on or "", write.name, rev, nonce, now, value)


def check_expect(change: NoteChange, existing: NoteRow | None) -> None:
    """Raise Conflict if a note is not at `expect`."""
    if change.expect is ANY:
        return
    found = None if existing is None else existing.revision
    if change.expect != found:
        on = "" if change.on is None else f" on=`{change.on}`"
        raise Conflict(
            f"the note has changed. name=`{change.name}`{on} found=`{found}`",
            scope=change.scope,
            id=change.on,
            expected=change.expect,
            found=found,
        )


def _with_kept(write: NoteWrite, key: str, kept: bytes, existing: NoteRow | None) -> bytes:
    """Return the value of a note that is written, with the member that is kept."""
    before = None if existing is None else decode(existing.value)
    if isinstance(before, dict) and key in before:
        old = before[key]
        kept = orjson.dumps(old) if type(old) is int and old < 2**63 else codec.encode(old)
    is_wide = write.value.startswith(b" ") or kept.startswith(b" ")
    members = write.value.lstrip()[1:]
    comma = b"" if members == b"}" else b","
    parts = (orjson.dumps(key), b":", kept.lstrip(), comma, members)
    return b"".join((b" {" if is_wide else b"{", *parts))


def note_of(row: NoteRow) -> Note:
    return Note(
        name=row.name,
        value=decode(row.value),
        revision=row.revision,
        updated_at=times.from_us(row.updated_at),
        snapshot_id=row.on or None,
    )


def found_note(scope: ScopeKey, row: NoteRow, *, value: bool = True) -> FoundNote:
    decoded = decode(row.value) if value else None
    return FoundNote(scope, row.name, decoded, row.revision, row.updated_at)


def last_written(
    found: Iterable[tuple[ScopeKey, NoteRow]],
    limit: int,
    take: Callable[[ScopeKey, NoteRow], T | None],
) -> list[T]:
    """Return what `take` makes of notes of some scopes, as `Storage.find_notes` does."""
    notes = sorted(found, key=lambda pair: (-pair[1].updated_at, pair[0], pair[1].name))
    taken = (take(key, row) for key, row in notes)
    return list(islice((each for each in taken if each is not None), limit))
