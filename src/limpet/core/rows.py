"""Snapshots without their states, as storages keep them: bytes and numbers only."""

import heapq
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

import orjson

from limpet.core import times
from limpet.core.codec import decode
from limpet.core.encryption import PLAIN, PLAIN_NONCE, Cipher, is_encrypted
from limpet.errors import Corrupt
from limpet.model import ScopeKey, SnapshotInfo, SnapshotRef
from limpet.protocol import SessionAge

EMPTY = b"{}"  # an encoded object without members
Place: TypeAlias = tuple[str | int, ...]
"""What identifies a scope: its address, and its key in the tables."""


class Row(NamedTuple):
    """One snapshot without its state. Times are microseconds; `saved_at` is the commit time.

    `state_nonce` is that of the write of its state, if that is not its last write; only what is
    encrypted stores it. It is no column.
    """

    seq: int
    id: str
    rev: int
    nonce: str
    kept: bool
    parent_id: str | None
    forked_from: bytes | None
    status: str
    labels: bytes
    metadata: bytes
    created_at: int
    updated_at: int
    saved_at: int
    size: int
    state_nonce: str = ""

    @property
    def revision(self) -> str:
        return f"{self.seq:x}.{self.rev:x}.{self.nonce}"  # as `ids.revision`

    @property
    def written_by(self) -> str:
        """The nonce of the write that stored its state."""
        return self.state_nonce or self.nonce


def _facts(row: Row, *owner: int | str) -> bytes:
    return orjson.dumps(
        (
            *owner,
            row.seq,
            row.id,
            row.rev,
            row.nonce,
            bool(row.kept),
            row.parent_id,
            None if row.forked_from is None else row.forked_from.decode("utf-8", "replace"),
            row.status,
            row.created_at,
            row.updated_at,
            row.saved_at,
            row.size,
            len(row.labels),
        )
    )


# An encrypted row has its status, labels and metadata in the column of the metadata, bound to the
# other columns and to its scope. A hash with a key stands for the status. The row says which write
# its state is from, so that an older state cannot take its place.


def encrypted(row: Row, scope: Place, cipher: Cipher) -> Row:
    """Return a row as it is stored."""
    if cipher is PLAIN:
        return row
    status = row.status.encode()
    lengths = b"%d:%d:%b:" % (len(status), len(row.labels), row.state_nonce.encode())
    data = b"%b%b%b%b" % (lengths, status, row.labels, row.metadata)
    stored = row._replace(status=stored_status(row.status, cipher), labels=EMPTY)
    return stored._replace(metadata=cipher.encrypt(data, _about(stored, scope)))


def decrypted(row: Row, scope: Place, cipher: Cipher) -> Row:
    """Return a row that was read and verified, or raise Corrupt."""
    if not is_encrypted(row.metadata):
        cipher.plain(row.metadata)
        return row if cipher is PLAIN else row._replace(state_nonce=PLAIN_NONCE)
    data = cipher.decrypt(row.metadata, _about(row, scope))
    status_bytes, labels_bytes, state_nonce, rest = data.split(b":", 3)
    start, end = int(status_bytes), int(status_bytes) + int(labels_bytes)
    return row._replace(
        status=rest[:start].decode(),
        labels=rest[start:end],
        metadata=rest[end:],
        state_nonce=state_nonce.decode(),
    )


def stored_status(status: str, cipher: Cipher) -> str:
    return cipher.label("", status)[1] if status and cipher is not PLAIN else status


def _about(row: Row, scope: Place) -> bytes:
    return b"row %b%b" % (_facts(row, *scope), row.labels)


def pack_ref(ref: SnapshotRef | None) -> bytes | None:
    """Encode the address of a snapshot: an array of session, scope, kind and id."""
    return None if ref is None else orjson.dumps((*ref.scope, ref.id))


def unpack_ref(packed: bytes | None) -> SnapshotRef | None:
    if packed is None:
        return None
    match decode(packed):
        case [str(session_id), str(scope_id), str(kind), str(snapshot_id)]:
            return SnapshotRef(ScopeKey(session_id, scope_id, kind), snapshot_id)
    raise Corrupt("the stored address of a snapshot is damaged")


def info_of(scope: ScopeKey, row: Row) -> SnapshotInfo:
    """Return the public record of a row, in containers of its own."""
    created_at = times.from_us(row.created_at)
    updated_at = created_at
    if row.updated_at != row.created_at:
        updated_at = times.from_us(row.updated_at)
    return SnapshotInfo(
        scope,
        row.id,
        row.parent_id,
        None if row.forked_from is None else unpack_ref(row.forked_from),
        row.status,
        {} if row.labels == EMPTY else decode(row.labels),
        {} if row.metadata == EMPTY else decode(row.metadata),
        created_at,
        updated_at,
        f"{row.seq:x}.{row.rev:x}.{row.nonce}",
        bool(row.kept),
        row.size,
    )


def newest_page(
    heads: Iterable[tuple[str, int | None]], after: SessionAge | None, limit: int
) -> list[SessionAge]:
    """Return a page as `Backend.list_newest` has it.

    `heads` are the scopes that hold anything: their session, and when the head was created.
    """
    found: dict[str, int | None] = {}
    for session_id, created_at in heads:
        known = found.get(session_id)
        is_newer = known is None or (created_at is not None and created_at > known)
        found[session_id] = created_at if is_newer else known
    ages = map(SessionAge._make, found.items())
    rest = ages if after is None else (each for each in ages if _order(each) > _order(after))
    return heapq.nsmallest(limit, rest, key=_order)


def _order(age: SessionAge) -> tuple[bool, int, str]:
    return age.created_at is None, -(age.created_at or 0), age.session_id
