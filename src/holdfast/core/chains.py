"""One stored body, and how a chain of them is read: from deltas down to a whole state."""

from collections.abc import Sequence
from typing import NamedTuple

import zstandard

from holdfast.core import codec, delta
from holdfast.core.pieces import Pieces
from holdfast.errors import Corrupt

# Pieces spare copying the whole text for each row, but each step of a delta costs more with them;
# one number of a step is worth about so many bytes copied.
_STEP_BYTES = 8 * 1024


class BodyRow(NamedTuple):
    """One row of `bodies`: its key, the body it builds on, how it is written, and its checksum."""

    seq: int
    base: int | None
    encoding: int
    body: bytes
    checksum: int

    @property
    def form(self) -> int:
        """WHOLE, DELTA or SEALED."""
        return codec.form_of(self.encoding)


def body_row(seq: int, base: int | None, squeezed: tuple[int, bytes]) -> BodyRow:
    """Return the row of a squeezed body."""
    return BodyRow(seq, base, *codec.address_body(*squeezed, address=_address(seq, base)))


def payload_of(row: BodyRow, unzip: zstandard.ZstdDecompressor | None = None) -> bytes:
    """Return what was squeezed into a row, or raise Corrupt."""
    packed = codec.Packed(*row[2:])
    return codec.unpack(packed, address=_address(row.seq, row.base), unzip=unzip)


def check_row(row: BodyRow) -> None:
    """Raise Corrupt unless a row is what was stored."""
    codec.check_body(codec.Packed(row.encoding, row.body, row.checksum), _address(*row[:2]))


def read_chain(rows: Sequence[BodyRow]) -> tuple[bytes, list[tuple[int, int]]]:
    """Return the state at the top of a chain, and the bytes of its rows, stored and before.

    The rows begin with the one asked for; each builds on the next.

    Raises:
        Corrupt: a row fails its checksum, or they are no chain down to a whole state.
    """
    unzip = zstandard.ZstdDecompressor()
    sources: list[bytes] = []
    sizes: list[tuple[int, int]] = []
    text: Pieces | None = None
    behind: Pieces | None = None
    below: int | None = None
    for row in reversed(rows):
        payload = payload_of(row, unzip)
        sizes.append((len(row.body), len(payload)))
        if row.base != below or (row.form == codec.WHOLE) != (below is None):
            raise Corrupt(f"a state builds on another one that is missing. seq=`{row.seq}`")
        below = row.seq
        number = len(sources)
        if text is None:
            sources.append(payload)
            text = Pieces.whole(number, len(payload))
            continue
        ops, at = delta.parse_ops(payload)
        further = behind if row.form == codec.SEALED else None
        if len(ops) * _STEP_BYTES > len(text):
            base = text.joined(sources) + (b"" if further is None else further.joined(sources))
            sources.append(delta.apply(base, delta.Delta(ops, payload[at:])))
            text, behind = Pieces.whole(number, len(sources[-1])), text
        else:
            sources.append(payload)
            text, behind = text.changed(ops, number, at, behind=further), text
    if text is None:
        raise Corrupt("the state of a snapshot is missing")
    return text.joined(sources), sizes


def _address(seq: int, base: int | None) -> bytes:
    return f"{seq}:{'' if base is None else base}:".encode()
