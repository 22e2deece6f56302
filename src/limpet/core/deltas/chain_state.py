"""What a scope remembers of the body it stored last, and what that means for the next one.

A body is stored as a delta against the one before it, its *base*. So that reading stays cheap, up
to 32 deltas form a group that begins at an *anchor*. The body that ends a group becomes the next
anchor: a *pack*, one delta against the anchor before, which holds all that the group has added,
compressed together. The members of the group are then *sealed*: written anew against the pack,
where most of what they hold stands already. When the packs outgrow the state, the next anchor is
stored whole.

A trail is the head of that chain. It holds no content, so that appending needs neither the state
nor any row of it, and it is remembered under the nonce of the write that made it: whatever a
process has cached counts only as long as that nonce is still the scope's.
"""

from collections.abc import Sequence
from typing import NamedTuple

import orjson

from limpet.core.codec import checksum_of
from limpet.protocol import Tails

_GROUP_ROWS_MAX = 32
_GROUP_BYTES_MAX = 128 * 1024
LINK_BYTES = 1024  # what one more row on the way to the state costs a reader, in bytes of state
_SLACK_BYTES = 8 * 1024
_TAILS_BYTES_MAX = 2048
SMALL_BYTES = 16 * 1024  # a state that is compared with its delta as it is


class Trail(NamedTuple):
    """The last body of a scope, the group it stands in, and the chain below the anchor."""

    seq: int
    nonce: str
    size: int  # bytes of its encoding
    anchor: int
    rows: int  # of the group, without the anchor
    pending: int  # bytes of their payloads
    links: int  # rows from the anchor down to a whole body
    stored: int  # bytes of these rows and of the whole body
    raw: int  # the same before compression
    tails: Tails | None  # None: not known

    def dump(self, owner: int) -> bytes:
        """Return it as bytes that hold for one scope."""
        text = orjson.dumps(tuple(self))
        if self.tails is not None and len(text) > _TAILS_BYTES_MAX:
            text = orjson.dumps(tuple(self._replace(tails=None)))
        return text + _sum(owner, text)

    def estimate(self, size: int) -> int:
        """Return how many bytes a whole state of some size may take when it is compressed."""
        return size * self.stored // max(1, self.raw)

    def is_full(self, payload_bytes: int) -> bool:
        """Tell whether a group is closed by one more delta."""
        return self.rows >= _GROUP_ROWS_MAX or self.pending + payload_bytes > _GROUP_BYTES_MAX

    def is_long(self, size: int, packed_bytes: int = 0) -> bool:
        """Tell whether the chain has outgrown a state of some size, better stored whole then."""
        chain = self.stored + packed_bytes + LINK_BYTES * self.links
        return chain > 2 * self.estimate(size) + _SLACK_BYTES

    def is_too_long_to_begin(self) -> bool:
        """Tell whether a chain is too long to begin a group at its end.

        It may end in a group that is not closed, whose rows do not count.
        """
        return self._replace(links=max(0, self.links - _GROUP_ROWS_MAX)).is_long(self.size)

    def after_delta(
        self, seq: int, nonce: str, size: int, payload_bytes: int, tails: Tails | None
    ) -> "Trail":
        """Return the trail behind one more delta of the group."""
        rows, pending = self.rows + 1, self.pending + payload_bytes
        return self._replace(
            seq=seq, nonce=nonce, size=size, rows=rows, pending=pending, tails=tails
        )

    def after_pack(
        self, seq: int, nonce: str, size: int, packed: tuple[int, int], tails: Tails | None
    ) -> "Trail":
        """Return the trail that begins at a pack of so many bytes, stored and before."""
        return Trail(
            seq,
            nonce,
            size,
            anchor=seq,
            rows=0,
            pending=0,
            links=self.links + 1,
            stored=self.stored + packed[0],
            raw=self.raw + packed[1],
            tails=tails,
        )


def trail_of(
    seq: int, nonce: str, size: int, chain: Sequence[tuple[int, int]], tails: Tails | None
) -> Trail:
    """Return a trail that begins at a body, from the bytes of its chain: stored and before."""
    stored, raw = (sum(column) for column in zip(*chain, strict=True))
    return Trail(seq, nonce, size, seq, 0, 0, len(chain) - 1, stored, raw, tails)


def parse_trail(packed: bytes | None, owner: int) -> Trail | None:
    """Return the trail of a scope, or None if there is none that can be trusted."""
    if packed is None or _sum(owner, packed[:-8]) != packed[-8:]:
        return None
    facts = orjson.loads(packed[:-8])
    if len(facts) != len(Trail._fields):
        return None  # of another version
    trail = Trail._make(facts)
    if trail.tails is None:
        return trail
    pairs = trail.tails.items()
    return trail._replace(
        tails={key: None if each is None else (each[0], each[1]) for key, each in pairs}
    )


def _sum(owner: int, text: bytes) -> bytes:
    return checksum_of(b"%d:" % owner, text).to_bytes(8, signed=True)
