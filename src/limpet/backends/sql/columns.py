"""Scopes, snapshots, states and notes as rows of tables: summed, and encrypted if there are keys.

Each function that ends in `_values` returns what a statement stores, each that begins with `read_`
returns what was given to it, or raises Corrupt. A checksum covers all columns of its row, and the
key of the scope that owns it, so a row that a damaged index leads to fails as well.

What is encrypted is bound to its place and to all that is stored with it without being
encrypted. A state remembers by which write it was made, and which state it builds on (`TailRow`).
The keys are derived for each session of each store (`core.encryption`).
"""

from collections.abc import Callable
from typing import Any

import orjson
import xxhash

from limpet.core import codec
from limpet.core.encryption import MARK, PLAIN, PLAIN_NONCE, Cipher, is_encrypted
from limpet.core.ids import PLACE_BITS
from limpet.core.notes import NoteRow, decrypted_note, encrypted_note
from limpet.core.rows import EMPTY, Row, decrypted, encrypted
from limpet.core.segments import Segment
from limpet.errors import Corrupt
from limpet.model import ScopeKey
from limpet.storage import DAMAGED, NAME_BYTES, SHARED, ScopeRecord, SegmentRow, SharedRow, TailRow

# In the order of the statements: <scope s> in a statement stands for s.pk, s.session_id, …
COLUMNS = {
    "scope": "pk session_id scope_id kind version head tip last floor fence owner until notes "
    "tail_count tail_bytes offsets trail epoch checksum",
    "row": "seq id rev nonce kept parent_id forked_from status labels metadata created_at "
    "updated_at size checksum scope_pk",
    "tail": "seq base encoding body checksum",
    "segment": "first_seq last_seq body checksum",
    "note": "on_id name rev nonce updated_at value checksum",
    "shared": "name session_id body checksum",
}
SCOPE_COLUMNS, ROW_COLUMNS, TAIL_COLUMNS, SEGMENT_COLUMNS, NOTE_COLUMNS, SHARED_COLUMNS = (
    len(each.split()) for each in COLUMNS.values()
)
_FIELDS = ScopeRecord._fields
FACTS = slice(_FIELDS.index("pk"), _FIELDS.index("offsets"))  # of a record: its pk, version, …
_NONCE_BYTES = 8
_SEQ_BYTES = 8
_HALF = 2**63  # an integer column has a sign
_sum = xxhash.xxh3_64_intdigest
_new = tuple.__new__


# The columns of a scope begin with its key and its address, and end with what `offsets` has been
# sealed with: the facts. So with keys nothing of a scope can be changed without them.


def scope_values(record: ScopeRecord, cipher: Cipher) -> tuple[Any, ...]:
    """Return the columns of a scope from `version` on."""
    its_facts: Any = record[FACTS]
    facts = orjson.dumps((*record.key, *its_facts, record.epoch)) + record.trail
    offsets = record.offsets
    if cipher is not PLAIN:
        offsets = cipher.encrypt(offsets or b"", b"scope " + facts)
    checksum = _sum(facts + (offsets or b"")) - _HALF
    return (*its_facts[1:], offsets, record.trail, record.epoch, checksum)


def read_scope(columns: Any, cipher: Cipher | None) -> ScopeRecord:
    """Return a scope; without a cipher its `offsets` are as they are stored."""
    pk, session_id, scope_id, kind = columns[:4]
    offsets, trail, epoch, checksum = columns[15:]
    key = _new(ScopeKey, (session_id, scope_id, kind))
    try:
        facts = orjson.dumps((*key, pk, *columns[4:15], epoch)) + trail
        is_sound = _sum(facts + (offsets or b"")) - _HALF == checksum
    except TypeError:  # a value has another type, or text that is not UTF-8
        is_sound = False
    if not is_sound:
        raise Corrupt(f"the row of a scope fails its checksum. pk=`{pk}`")
    if cipher is PLAIN:
        if offsets is not None and offsets[:1] == MARK:
            cipher.plain(offsets)  # raises WrongKeys
    elif cipher is not None:
        offsets = cipher.decrypt(offsets or b"", b"scope " + facts) or None
    return _new(ScopeRecord, (key, pk, *columns[4:15], offsets, trail, epoch))


def row_values(row: Row, pk: int, key: ScopeKey, cipher: Cipher) -> tuple[Any, ...]:
    stored = row if cipher is PLAIN else encrypted(row, (*key, pk), cipher)
    columns = (*stored[:4], int(stored[4]), *stored[5:12], stored[13])
    return (*columns, _row_sum(columns, pk), pk)


def _row_sum(columns: Any, pk: int) -> int:
    seq, id, rev, nonce, kept, parent_id, ref, status, labels, metadata, created, updated, size = (
        columns
    )
    forked_from = None if ref is None else ref.decode()
    facts = (pk, seq, id, rev, nonce, kept, parent_id, forked_from, status, created, updated, size)
    return _sum(b"%b%d:%b%b" % (orjson.dumps(facts), len(labels), labels, metadata)) - _HALF


def read_row(columns: Any, key: ScopeKey, cipher: Cipher) -> Row:
    """Return a snapshot of the scope with this key, whose own key is the last column."""
    row = verified_row(columns)
    return (
        row
        if cipher is PLAIN and row.metadata[:1] != MARK
        else decrypted(row, (*key, columns[14]), cipher)
    )


def verified_row(columns: Any) -> Row:
    """Return a snapshot as it is stored."""
    try:
        is_sound = _row_sum(columns[:13], columns[14]) == columns[13]
    except (AttributeError, TypeError, ValueError):
        is_sound = False  # a value has another type, or text that is not UTF-8
    if not is_sound:
        raise Corrupt(f"the row of a snapshot fails its checksum. seq=`{columns[0]}`")
    seq = columns[0]
    kept, saved_at = columns[4] == 1, seq >> PLACE_BITS
    return _new(Row, (*columns[:4], kept, *columns[5:12], saved_at, columns[12], ""))


def label_values(row: Row, cipher: Cipher) -> list[tuple[str, str, int]]:
    if row.labels == EMPTY:
        return []
    labels = codec.decode(row.labels).items()
    return [(*cipher.label(name, value), row.seq) for name, value in labels]


def tail_values(row: TailRow, pk: int, key: ScopeKey, cipher: Cipher) -> tuple[Any, ...]:
    seq, base, encoding, body, nonce, base_nonce = row
    if cipher is not PLAIN:
        nonces = bytes.fromhex(nonce + (base_nonce if base is not None else ""))
        at = NAME_BYTES if encoding == SHARED else 0  # the name is found by an index
        about = _about("tail", key, pk, seq, base, body[:at].hex() or encoding)
        body = body[:at] + cipher.encrypt(nonces + body[at:], about)
    return seq, base, encoding, body, _tail_sum(pk, seq, base, encoding, body)


def read_tail(columns: Any, pk: int, key: ScopeKey, cipher: Cipher) -> TailRow:
    """Return a state of the tail; a damaged one as DAMAGED.

    Raises:
        WrongKeys: it is not damaged, but cannot be decrypted.
    """
    seq, base, encoding, body, checksum = columns
    try:
        is_sound = _tail_sum(pk, seq, base, encoding, body) == checksum
    except TypeError:
        is_sound = False
    if not is_sound:
        return TailRow(seq, base, DAMAGED, b"")
    if cipher is PLAIN and encoding != SHARED:
        if body[:1] == MARK:
            cipher.plain(body)  # raises WrongKeys
        return _new(TailRow, (seq, base, encoding, body, "", ""))
    at = NAME_BYTES if encoding == SHARED else 0
    name, rest = body[:at], body[at:]
    if cipher is PLAIN or not is_encrypted(rest):
        cipher.plain(rest)
        nonce = "" if cipher is PLAIN else PLAIN_NONCE
        return TailRow(seq, base, encoding, body, nonce, nonce)
    data = cipher.decrypt(rest, _about("tail", key, pk, seq, base, name.hex() or encoding))
    nonce, at = data[:_NONCE_BYTES].hex(), _NONCE_BYTES
    if base is None:
        return TailRow(seq, base, encoding, name + data[at:], nonce)
    base_nonce, at = data[at : 2 * at].hex(), 2 * at
    return TailRow(seq, base, encoding, name + data[at:], nonce, base_nonce)


def _tail_sum(pk: int, seq: int, base: int | None, encoding: int, body: bytes) -> int:
    base = -1 if base is None else base
    return _sum(b"%d %d %d %d %b" % (pk, seq, base, encoding, body)) - _HALF


def segment_values(row: SegmentRow, pk: int, key: ScopeKey, cipher: Cipher) -> tuple[Any, ...]:
    first, last, body, nonces = row
    if cipher is not PLAIN:
        each = (seq.to_bytes(_SEQ_BYTES) + bytes.fromhex(nonce) for seq, nonce in nonces.items())
        data = b"%b%b%b" % (len(nonces).to_bytes(4), b"".join(each), body)
        body = cipher.encrypt(data, _about("segment", key, pk, first, last))
    return pk, first, last, body, _segment_sum(pk, first, last, body)


def read_segment(columns: Any, pk: int, key: ScopeKey, cipher: Cipher) -> SegmentRow:
    first, last, body, checksum = columns
    if not _is_sound(checksum, _segment_sum, pk, first, last, body):
        raise Corrupt(f"a segment fails its checksum. last=`{last}`")
    if cipher is PLAIN:
        return SegmentRow(first, last, cipher.plain(body))
    if not is_encrypted(body):
        plain = cipher.plain(body)
        return SegmentRow(first, last, plain, dict.fromkeys(Segment.parse(plain).seqs, PLAIN_NONCE))
    data = cipher.decrypt(body, _about("segment", key, pk, first, last))
    step, at = _SEQ_BYTES + _NONCE_BYTES, 4
    end = at + step * int.from_bytes(data[:at])
    nonces = {
        int.from_bytes(data[at : at + _SEQ_BYTES]): data[at + _SEQ_BYTES : at + step].hex()
        for at in range(at, end, step)
    }
    return SegmentRow(first, last, data[end:], nonces)


def _segment_sum(pk: int, first: int, last: int, body: bytes) -> int:
    return _sum(b"%d %d %d %b" % (pk, first, last, body)) - _HALF


def shared_values(row: SharedRow, session_id: str, cipher: Cipher) -> tuple[Any, ...]:
    name, body = row
    if cipher is not PLAIN:
        body = cipher.encrypt(body, b"shared %b" % name)
    return name, session_id, body, _shared_sum(name, session_id, body)


def read_shared(columns: Any, cipher: Cipher) -> SharedRow:
    name, session_id, body, checksum = columns
    if not _is_sound(checksum, _shared_sum, name, session_id, body):
        raise Corrupt("a state that forks share fails its checksum")
    return SharedRow(name, cipher.decrypt(body, b"" if cipher is PLAIN else b"shared %b" % name))


def _shared_sum(name: bytes, session_id: str, body: bytes) -> int:
    return _sum(b"%b%b\0%b" % (name, session_id.encode(), body)) - _HALF


def note_values(row: NoteRow, pk: int, key: ScopeKey, cipher: Cipher) -> tuple[Any, ...]:
    stored = encrypted_note(row, (*key, pk), cipher)
    return pk, *stored, note_sum(stored, pk)


def note_sum(row: NoteRow, pk: int) -> int:
    return _sum(orjson.dumps((pk, *row[:5])) + row.value) - _HALF


def read_note(columns: Any, pk: int, key: ScopeKey, cipher: Cipher) -> NoteRow:
    row = NoteRow._make(columns[:6])
    if not _is_sound(columns[6], note_sum, row, pk):
        raise Corrupt(f"a note fails its checksum. rev=`{row.rev}`")
    return decrypted_note(row, (*key, pk), cipher)


def _is_sound(checksum: int, sum_of: Callable[..., int], *values: Any) -> bool:
    """Return whether a checksum holds. Values may have other types, or text that is not UTF-8.

    What every load reads is compared without this, in less time.
    """
    try:
        return sum_of(*values) == checksum
    except (AttributeError, TypeError, UnicodeEncodeError):
        return False


def _about(what: str, key: ScopeKey, *place: int | str | None) -> bytes:
    return b"%b %b" % (what.encode(), orjson.dumps((*key, *place)))
