"""One note, as a row of SQL engines and as a document of object stores."""

import heapq
from collections.abc import Iterable
from typing import Any, NamedTuple

import orjson

from limpet.core import codec, matching, times
from limpet.core.codec import decode
from limpet.core.encryption import PLAIN, Cipher
from limpet.core.rows import Place
from limpet.errors import Conflict, Corrupt
from limpet.model import ANY, Note, ScopeKey
from limpet.protocol import FoundNote, NoteChange, NoteQuery, NoteWrite

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
    return NoteRow(write.on or "", write.name, rev, nonce, now, _with_kept(write, existing))


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


def _with_kept(write: NoteWrite, existing: NoteRow | None) -> bytes:
    """Return the value of a note that is written, with the member that is kept."""
    if write.keep is None:
        return write.value
    key, kept = write.keep
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


def newest_first(found: Iterable[FoundNote], query: NoteQuery, limit: int) -> list[FoundNote]:
    """Return those of all notes of some scopes that a query finds."""
    if query.where is not None:
        is_match = matching.matcher(query.where)
        found = (each for each in found if is_match(each.value))
    return heapq.nsmallest(limit, found, key=lambda each: (-each.updated_at, each.scope, each.name))


# The document of a note in directories and object stores:
#
#     {"limpet":{"sum":<hex>,"name":…,"rev":…,"nonce":…,"updated_at":…,…},"value":<value>}
#
# `sum` covers everything after it. A value with integers beyond 64 bits keeps its leading space
# (see `codec`). `trail` has the nonces of the last writes, and the ids are set if the key has them
# clipped, as in a snapshot's document.

_SPLIT = b'},"value":'


class NoteFile(NamedTuple):
    row: NoteRow
    trail: tuple[str, ...] = ()
    session_id: str | None = None
    scope_id: str | None = None


def write(file: NoteFile) -> bytes:
    row = file.row
    facts: dict[str, Any] = {
        "name": row.name,
        "on": row.on or None,
        "rev": row.rev,
        "nonce": row.nonce,
        "updated_at": row.updated_at,
        "trail": file.trail or None,
        "session_id": file.session_id,
        "scope_id": file.scope_id,
    }
    given = orjson.dumps({key: value for key, value in facts.items() if value is not None})
    return codec.write_summed(b"%s%s%s}" % (given[1:-1], _SPLIT, row.value))


def read(stored: bytes) -> NoteFile:
    # Inside a text the quotes of the split would be escaped, so its first occurrence is the split.
    given, _, value = codec.read_summed(stored, what="note")[:-1].partition(_SPLIT)
    try:
        facts = orjson.loads(b"{%s}" % given)
        row = NoteRow(
            facts.get("on") or "",
            facts["name"],
            facts["rev"],
            facts["nonce"],
            facts["updated_at"],
            value,
        )
        texts = (row.on, row.name, row.nonce, *facts.get("trail", ()))
        if not all(isinstance(text, str) for text in texts) or type(row.rev) is not int:
            raise TypeError
        times.from_us(row.updated_at)
        codec.decode(value)
    except (KeyError, TypeError, orjson.JSONDecodeError) as cause:
        raise Corrupt(f"a note has an unknown form. bytes=`{len(stored)}`") from cause
    trail = tuple(facts.get("trail", ()))
    return NoteFile(row, trail, facts.get("session_id"), facts.get("scope_id"))
