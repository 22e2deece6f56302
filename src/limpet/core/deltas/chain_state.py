"""What a scope remembers about the body it stored last, and the rules for storing the next one.

A body is stored as a delta against the one before it, its *base*. To keep reads cheap, up to 32
deltas form a group that begins at an *anchor*. The body that ends a group becomes the next anchor:
a *pack*, one delta against the previous anchor that holds everything the group added, compressed
together. The members of the group are then *sealed*: rewritten as deltas against the pack, which
already holds most of their content. When the packs outgrow the state, the next anchor is stored
whole.

`ChainState` describes the newest end of that chain. It holds no content, so appending reads neither
the state nor any row. It is stored with the nonce of the write that made it: what a process has
cached is valid only while that nonce is still the scope's.
"""

from collections.abc import Sequence
from typing import NamedTuple

import orjson

from limpet.core.codec import checksum_of
from limpet.protocol import AppendOffsets

_GROUP_ROWS_MAX = 32
_GROUP_BYTES_MAX = 128 * 1024
LINK_BYTES = 1024  # the cost to a reader of one more row in the chain, in bytes of state
_SLACK_BYTES = 8 * 1024
_OFFSETS_BYTES_MAX = 2048
SMALL_BYTES = 16 * 1024  # a state this small is always compared in size with its delta


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

    def dump(self, owner: int) -> bytes:
        """Encode it with a checksum that holds only for the scope with the key `owner`."""
        text = orjson.dumps(tuple(self))
        if self.append_offsets is not None and len(text) > _OFFSETS_BYTES_MAX:
            text = orjson.dumps(tuple(self._replace(append_offsets=None)))
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


def parse_chain_state(packed: bytes | None, owner: int) -> ChainState | None:
    """Decode what `dump` returned; None if it is missing, damaged or of another version."""
    if packed is None or _sum(owner, packed[:-8]) != packed[-8:]:
        return None
    fields = orjson.loads(packed[:-8])
    if len(fields) != len(ChainState._fields):
        return None
    state = ChainState._make(fields)
    if state.append_offsets is None:
        return state
    offsets = {
        key: None if each is None else (each[0], each[1])
        for key, each in state.append_offsets.items()
    }
    return state._replace(append_offsets=offsets)


def _sum(owner: int, text: bytes) -> bytes:
    return checksum_of(b"%d:" % owner, text).to_bytes(8, signed=True)
