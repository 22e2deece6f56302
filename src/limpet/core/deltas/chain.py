"""Bodies as a chain of deltas: how one is read, and what a scope remembers to store the next.

A body is stored as a delta against the one before it, its *base*. To keep reads cheap, up to 32
deltas form a group that begins at an *anchor*. The body that ends a group becomes the next anchor:
a *pack*, one delta against the previous anchor that holds everything the group added, compressed
together. The members of the group are then *sealed*: rewritten as deltas against the pack, which
already holds most of their content. When the packs outgrow the state, the next anchor is whole.

A state of up to 2 KB is written whole, which is cheap, and so is reading it. Eight such states are
then *folded* together into deltas, each on the state saved after it: the newest stays whole.

`ChainState` describes the newest end of that chain. It holds no content, so appending reads neither
the state nor any row. It is stored with the nonce of the write that made it: what a process has
cached is valid only while that nonce is still the scope's.
"""

from collections.abc import Sequence
from itertools import pairwise, takewhile
from typing import NamedTuple, TypeAlias

import orjson
import zstandard

from limpet.core import codec
from limpet.core.codec import checksum_of
from limpet.core.deltas import delta
from limpet.core.deltas.delta import Delta
from limpet.core.deltas.splices import SLICES_MAX, Splices
from limpet.core.encryption import ENCRYPTED_BYTES, PLAIN, PLAIN_NONCE, Cipher, is_encrypted
from limpet.core.limits import STORED_BYTES_MAX
from limpet.errors import Corrupt
from limpet.protocol import Append, AppendOffsets

# Splices save copying the whole text for each row, but each step of a delta costs more with them:
# about as much, per number of the step, as copying so many bytes.
_STEP_BYTES = 8 * 1024
# Of the rows of one state, unpacked. Honest chains take at most three times the largest state, and
# its size is at most half of STORED_BYTES_MAX.
_READ_BYTES_MAX = 2 * STORED_BYTES_MAX
_SHARED_BYTES_MAX = 32 * 1024 * 1024  # kept, because the next state may have the same base


class BodyRow(NamedTuple):
    """One row of `bodies`: its key, its base, its encoding, its bytes and their checksum."""

    seq: int
    base: int | None
    encoding: int
    body: bytes
    checksum: int

    @property
    def form(self) -> int:
        return codec.form_of(self.encoding)


Nonces: TypeAlias = tuple[str, ...]
"""The nonces of the writes of a body's state, of its base's, and, if it is sealed, of the state
below that. Empty where nothing is encrypted.

An encrypted body begins with them. A state may be stored again in another way, on another base, but
keeps its nonce until it is replaced. So rows of several times make a state that was saved, or none.
"""
_NONCE_BYTES = 8
_NONCES = {codec.WHOLE: 1, codec.DELTA: 2, codec.SEALED: 3}


def body_row(
    seq: int, base: int | None, squeezed: tuple[int, bytes], cipher: Cipher, nonces: Nonces
) -> BodyRow:
    encoding, body = squeezed
    address = _address(seq, base)
    if cipher is not PLAIN:
        body = cipher.encrypt(bytes.fromhex("".join(nonces)) + body, _about(address, encoding))
    return BodyRow(seq, base, *codec.address_body(encoding, body, address=address))


def payload_of(
    row: BodyRow, cipher: Cipher, unzip: zstandard.ZstdDecompressor | None = None
) -> tuple[bytes, Nonces]:
    """Return what `codec.squeeze` was given for a row, and its nonces, or raise Corrupt."""
    squeezed, nonces = squeezed_of(row, cipher)
    return codec.unsqueeze(*squeezed, unzip), nonces


def squeezed_of(row: BodyRow, cipher: Cipher) -> tuple[tuple[int, bytes], Nonces]:
    """Return what `body_row` was given, or raise Corrupt."""
    check_row(row)
    if cipher is PLAIN:
        return (row.encoding, cipher.decrypt(row.body, b"")), ()
    data = cipher.decrypt(row.body, _about(_address(row.seq, row.base), row.encoding))
    count = _NONCES[row.form]
    if not is_encrypted(row.body):
        return (row.encoding, data), (PLAIN_NONCE,) * count
    text, end = data[: _NONCE_BYTES * count].hex(), 2 * _NONCE_BYTES
    nonces = tuple(text[at : at + end] for at in range(0, len(text), end))
    return (row.encoding, data[_NONCE_BYTES * count :]), nonces


def added_bytes(row: BodyRow) -> int:
    """Return how many bytes of a row encryption has added."""
    return ENCRYPTED_BYTES + _NONCE_BYTES * _NONCES[row.form] if is_encrypted(row.body) else 0


def check_row(row: BodyRow) -> None:
    codec.check_body(codec.Packed(row.encoding, row.body, row.checksum), _address(*row[:2]))


def check_written_by(seq: int, nonces: Nonces, expected: Nonces) -> None:
    """Raise Corrupt unless a state, if it is encrypted, is the one that is expected here."""
    if nonces and nonces[: len(expected)] != expected:
        raise Corrupt(f"a state is not the one that belongs here: it was put back. seq=`{seq}`")


class ReadState(NamedTuple):
    """A state, the sizes of the rows of its chain, stored and unpacked, and its nonce, if any."""

    state: bytes
    sizes: list[tuple[int, int]]
    nonce: str


def read_chain(
    rows: Sequence[BodyRow],
    size: int | None = None,
    cipher: Cipher = PLAIN,
    written_by: str | None = None,
) -> ReadState:
    """Return the state at the top of a chain.

    The first row is the one asked for; each row is followed by its base.

    Raises:
        Corrupt: a row fails its checksum, the chain does not end in a whole state, or its rows do
            not belong together.
    """
    chains = Chains(cipher)
    return ReadState(chains.read(rows, size, written_by), chains.sizes, chains.nonce)


class _Text(NamedTuple):
    text: Splices
    below: Splices | None  # the text of its base
    nonces: Nonces  # of itself and of its base


class Chains:
    """Reads states one after the other; a base that several of them share is unpacked once.

    For rows that do not change meanwhile, as in one read-only transaction.
    """

    def __init__(self, cipher: Cipher = PLAIN) -> None:
        self._cipher = cipher
        self._unzip = zstandard.ZstdDecompressor()
        self._known: dict[int, _Text] = {}
        self._sources: list[bytes] = []
        self._left = _READ_BYTES_MAX
        self.sizes: list[tuple[int, int]] = []
        self.nonce = ""  # of the last state

    def __contains__(self, seq: int | None) -> bool:
        return seq in self._known

    def _take(self, size: int) -> None:
        """Raise Corrupt if one state needs too much: a delta may copy the same bytes for ever."""
        self._left -= size
        if self._left < 0:
            raise Corrupt(f"a state takes too much memory to be read. max=`{_READ_BYTES_MAX}`")

    def read(
        self, rows: Sequence[BodyRow], size: int | None = None, written_by: str | None = None
    ) -> bytes:
        """Return the state at the top of a chain, which may end at a row that was read before.

        Raises:
            Corrupt: a row fails its checksum, the chain does not end in a whole state, the state
                has another size, or rows, if they are encrypted, do not belong together.
        """
        self._left = _READ_BYTES_MAX
        fresh = list(takewhile(lambda row: row.seq not in self, rows))
        bottom = fresh[-1].base if fresh else rows[0].seq if rows else None
        below = bottom if bottom in self else None
        for row in reversed(fresh):
            payload, nonces = payload_of(row, self._cipher, self._unzip)
            self._take(len(payload))
            self.sizes.append((len(row.body), len(payload)))
            if row.base != below or (row.form == codec.WHOLE) != (below is None):
                raise Corrupt(f"the base of a state is missing. seq=`{row.seq}`")
            if below is not None:
                check_written_by(below, self._known[below].nonces, nonces[1:])
            text, further = self._text(row, payload)
            self._known[row.seq] = _Text(text, further, nonces[:2])
            below = row.seq
        if below is None:
            raise Corrupt("the state of a snapshot is missing")
        top, _, nonces = self._known[below]
        if nonces:
            self.nonce = nonces[0]
            check_written_by(below, nonces, (written_by or self.nonce,))
        if len(top) > STORED_BYTES_MAX or size not in (None, len(top)):
            raise Corrupt(f"a state has another size. seq=`{rows[0].seq}`")
        state = top.joined(self._sources)
        # At the end: the caller chose the rows by what was known before.
        if sum(map(len, self._sources)) > _SHARED_BYTES_MAX:
            self._known, self._sources = {}, []
        return state

    def _text(self, row: BodyRow, payload: bytes) -> tuple[Splices, Splices | None]:
        number = len(self._sources)
        if row.base is None:
            self._sources.append(payload)
            return Splices.whole(number, len(payload)), None
        base = self._known[row.base]
        ops, at = delta.parse_ops(payload)
        further = base.below if row.form == codec.SEALED else None
        slices = len(base.text.ends) + (len(further.ends) if further is not None else 0)
        if len(ops) * _STEP_BYTES > len(base.text) or len(ops) * slices > SLICES_MAX:
            self._take(sum(ops[1::3]))
            text = base.text.joined(self._sources)
            if further is not None:
                text += further.joined(self._sources)
            made = delta.apply(text, delta.Delta(ops, payload[at:]))
            below = base.text
            if sum(map(len, self._sources)) > _SHARED_BYTES_MAX:
                # Hundreds of rows may each make the whole text again: only the last ones are kept.
                self._known, self._sources = {}, [text]
                self._left = _READ_BYTES_MAX - len(text) - len(made)
                number, below = 1, Splices.whole(0, len(below))
            self._sources.append(made)
            return Splices.whole(number, len(made)), below
        self._sources.append(payload)
        return base.text.changed(ops, number, at, behind=further), base.text


def _address(seq: int, base: int | None) -> bytes:
    return f"{seq}:{'' if base is None else base}:".encode()


def _about(address: bytes, encoding: int) -> bytes:
    """Return what an encrypted body is bound to, in its session."""
    return b"body %b%d" % (address, encoding)


WHOLE_BYTES_MAX = 2 * 1024
FOLDED_TOGETHER = 8
FOLDED_MAX = 32  # that build on each other
_GROUP_ROWS_MAX = 32
_GROUP_BYTES_MAX = 128 * 1024
LINK_BYTES = 1024  # the cost to a reader of one more row in the chain, in bytes of state
_SLACK_BYTES = 8 * 1024
_OFFSETS_BYTES_MAX = 2048
_SMALL_BYTES = 16 * 1024  # a state this small is always compared in size with its delta


class ChainState(NamedTuple):
    """The last body of a scope, the group it belongs to, and the chain below its anchor."""

    seq: int
    nonce: str
    size: int  # bytes of its encoding
    anchor: int
    rows: int  # in the group, without the anchor
    pending: int  # bytes of their payloads
    links: int  # rows from the anchor down to a whole body
    stored: int  # bytes of these rows and of the whole body
    raw: int  # the same before compression
    append_offsets: AppendOffsets | None  # None: not known
    state_nonce: str = ""  # of the write of the last body, if that is not `nonce`

    @property
    def written_by(self) -> str:
        """The nonce of the write that stored the last body."""
        return self.state_nonce or self.nonce

    def dump(self, owner: int, cipher: Cipher) -> bytes:
        """Encode it with a checksum that holds only for the scope with the key `owner`."""
        text = orjson.dumps(tuple(self))
        if self.append_offsets is not None and len(text) > _OFFSETS_BYTES_MAX:
            text = orjson.dumps(tuple(self._replace(append_offsets=None)))
        text = cipher.encrypt(text, b"chain %d" % owner)  # it has the keys of the state
        return text + _sum(owner, text)

    def estimate(self, size: int) -> int:
        """Estimate the compressed size of a whole state of `size` bytes."""
        return size * self.stored // max(1, self.raw)

    def is_full(self, payload_bytes: int) -> bool:
        """Return whether one more delta of this size closes the group."""
        return self.rows >= _GROUP_ROWS_MAX or self.pending + payload_bytes > _GROUP_BYTES_MAX

    def is_long(self, size: int, packed_bytes: int = 0) -> bool:
        """Return whether the chain costs more than storing a state of `size` bytes whole."""
        chain_bytes = self.stored + packed_bytes + LINK_BYTES * self.links
        return chain_bytes > 2 * self.estimate(size) + _SLACK_BYTES

    def is_too_long_to_begin(self) -> bool:
        """Return whether the chain is too long to begin a group at its end.

        It may end in a group that is not closed, whose rows do not count.
        """
        return self._replace(links=max(0, self.links - _GROUP_ROWS_MAX)).is_long(self.size)

    def after_delta(
        self, seq: int, nonce: str, size: int, payload_bytes: int, offsets: AppendOffsets | None
    ) -> "ChainState":
        return self._replace(
            seq=seq,
            nonce=nonce,
            size=size,
            rows=self.rows + 1,
            pending=self.pending + payload_bytes,
            append_offsets=offsets,
            state_nonce="",
        )

    def after_pack(
        self,
        seq: int,
        nonce: str,
        size: int,
        packed: tuple[int, int],
        offsets: AppendOffsets | None,
    ) -> "ChainState":
        """Return the state after a pack; `packed` is its size as stored and before compression."""
        return ChainState(
            seq,
            nonce,
            size,
            anchor=seq,
            rows=0,
            pending=0,
            links=self.links + 1,
            stored=self.stored + packed[0],
            raw=self.raw + packed[1],
            append_offsets=offsets,
        )


def chain_state_of(
    seq: int,
    nonce: str,
    size: int,
    chain: Sequence[tuple[int, int]],
    offsets: AppendOffsets | None,
) -> ChainState:
    """Return the state of a group that begins at a body.

    `chain` has the sizes of the rows below it, as stored and before compression.
    """
    stored, raw = (sum(column) for column in zip(*chain, strict=True))
    return ChainState(seq, nonce, size, seq, 0, 0, len(chain) - 1, stored, raw, offsets)


def is_whole_at_first(chain: ChainState | None, size: int) -> bool:
    """Return whether a state is so small that it is written whole, and folded later."""
    return size <= WHOLE_BYTES_MAX and (chain is None or not chain.rows)


class Unfolded(NamedTuple):
    """A small state that is stored whole: not encrypted, with the checksum of what is stored."""

    seq: int
    body: bytes
    checksum: int
    nonce: str


def folded(states: Sequence[Unfolded], cipher: Cipher) -> list[BodyRow]:
    """Return small states that were written whole, but the last, as deltas.

    Each is one on the state saved after it. One that would gain nothing, or has little in common
    with that, is left out.
    """
    found = []
    for each, later in pairwise(states):
        step = delta.diff(later.body, each.body)
        squeezed = codec.squeeze(delta.dump(step), codec.DELTA)
        if len(squeezed[1]) < len(each.body) and not delta.is_poor(step):
            nonces = (each.nonce, later.nonce)
            found.append(body_row(each.seq, later.seq, squeezed, cipher, nonces))
    return found


def next_form(
    chain: ChainState, size: int, body: bytes | None, step: Delta
) -> tuple[int, tuple[int, bytes] | None, int]:
    """Return how to store the body that follows a chain, given the step from its last body.

    That is whole or as a delta, squeezed, and with the bytes of the delta. Not squeezed: the delta
    would be too much for its group, which a pack closes. `body` is None after an append to a state
    that was not read.
    """
    if body is not None and delta.is_poor(step):
        return codec.WHOLE, codec.squeeze(body), 0
    payload = delta.dump(step)
    squeezed = codec.squeeze(payload, codec.DELTA)
    stored = len(squeezed[1])
    if body is not None and (size <= _SMALL_BYTES or stored > chain.estimate(size) // 2):
        whole = codec.squeeze(body)
        if len(whole[1]) <= stored:
            return codec.WHOLE, whole, 0
    is_full = chain.is_full(len(payload))
    return codec.DELTA, None if is_full else squeezed, len(payload)


def parse_chain_state(packed: bytes | None, owner: int, cipher: Cipher) -> ChainState | None:
    """Decode what `dump` returned; None if it is missing, damaged or of another version."""
    if packed is None or _sum(owner, packed[:-8]) != packed[-8:]:
        return None
    try:
        fields = orjson.loads(cipher.decrypt(packed[:-8], b"chain %d" % owner))
    except Corrupt:
        return None
    if len(fields) != len(ChainState._fields):
        return None
    state = ChainState._make(fields)
    if cipher is not PLAIN and not is_encrypted(packed):
        state = state._replace(state_nonce=PLAIN_NONCE)
    if state.append_offsets is None:
        return state
    offsets = {
        key: None if each is None else (each[0], each[1])
        for key, each in state.append_offsets.items()
    }
    return state._replace(append_offsets=offsets)


def _sum(owner: int, text: bytes) -> bytes:
    return checksum_of(b"%d:" % owner, text).to_bytes(8, signed=True)


# Appending to a list inside an encoded object without its bytes.
#
# It is enough to know where each top-level list ends, counted from the end of the encoding: the new
# items go before the `]`.

_EMPTY = b"[]"
_WIDE = b" "  # marks an encoding that holds integers beyond 64 bits: core/codec.py


def extended(
    offsets: AppendOffsets, size: int, append: Append
) -> tuple[Delta, AppendOffsets] | None:
    """Return the delta that appends to an encoding of `size` bytes, and the offsets after it.

    None if the state itself is needed: the value is not a list, or the items hold wide integers.
    """
    if append.items.startswith(_WIDE):
        return None
    if append.key in offsets:
        found = offsets[append.key]
        if found is None:
            return None
        at, nonempty = found
        fresh = append.items[1:-1]
        if fresh and nonempty:
            fresh = b"," + fresh
        entry = (at, nonempty or bool(fresh))
    else:
        at = 1  # a new member goes before the `}`
        comma = b"," if offsets else b""
        fresh = comma + orjson.dumps(append.key) + b":" + append.items
        entry = (2, append.items != _EMPTY)
    moved = {
        key: (each[0] + len(fresh), each[1]) if each is not None and each[0] > at else each
        for key, each in offsets.items()
    }
    moved[append.key] = entry
    return Delta([0, size - at, len(fresh), size - at, at, 0], fresh), moved
