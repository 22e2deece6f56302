"""One stored body, and how a chain of bodies is read: from deltas down to a whole state."""

from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

import zstandard

from limpet.core import codec
from limpet.core.deltas import delta
from limpet.core.deltas.splices import Splices
from limpet.errors import Corrupt

# Splices save copying the whole text for each row, but each step of a delta costs more with them:
# about as much, per number of the step, as copying so many bytes.
_STEP_BYTES = 8 * 1024
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


def body_row(seq: int, base: int | None, squeezed: tuple[int, bytes]) -> BodyRow:
    return BodyRow(seq, base, *codec.address_body(*squeezed, address=_address(seq, base)))


def payload_of(row: BodyRow, unzip: zstandard.ZstdDecompressor | None = None) -> bytes:
    """Return what `codec.squeeze` was given for a row, or raise Corrupt."""
    packed = codec.Packed(*row[2:])
    return codec.unpack(packed, address=_address(row.seq, row.base), unzip=unzip)


def check_row(row: BodyRow) -> None:
    codec.check_body(codec.Packed(row.encoding, row.body, row.checksum), _address(*row[:2]))


def read_chain(rows: Sequence[BodyRow]) -> tuple[bytes, list[tuple[int, int]]]:
    """Return the state at the top of a chain, and the sizes of its rows, stored and unpacked.

    The first row is the one asked for; each row is followed by its base.

    Raises:
        Corrupt: a row fails its checksum, or the chain does not end in a whole state.
    """
    chains = Chains()
    return chains.read(rows), chains.sizes


class _Text(NamedTuple):
    text: Splices
    below: Splices | None  # the text of its base


class Chains:
    """Reads states one after the other; a base that several of them share is unpacked once.

    For rows that do not change meanwhile, as in one read-only transaction.
    """

    def __init__(self) -> None:
        self._unzip = zstandard.ZstdDecompressor()
        self._known: dict[int, _Text] = {}
        self._sources: list[bytes] = []
        self.sizes: list[tuple[int, int]] = []

    def __contains__(self, seq: int | None) -> bool:
        return seq in self._known

    def read(self, rows: Sequence[BodyRow]) -> bytes:
        """Return the state at the top of a chain, which may end at a row that was read before.

        Raises:
            Corrupt: a row fails its checksum, or the chain does not end in a whole state.
        """
        fresh = list(takewhile(lambda row: row.seq not in self, rows))
        bottom = fresh[-1].base if fresh else rows[0].seq if rows else None
        below = bottom if bottom in self else None
        for row in reversed(fresh):
            payload = payload_of(row, self._unzip)
            self.sizes.append((len(row.body), len(payload)))
            if row.base != below or (row.form == codec.WHOLE) != (below is None):
                raise Corrupt(f"the base of a state is missing. seq=`{row.seq}`")
            self._known[row.seq] = self._text(row, payload)
            below = row.seq
        if below is None:
            raise Corrupt("the state of a snapshot is missing")
        state = self._known[below].text.joined(self._sources)
        # At the end: the caller chose the rows by what was known before.
        if sum(map(len, self._sources)) > _SHARED_BYTES_MAX:
            self._known, self._sources = {}, []
        return state

    def _text(self, row: BodyRow, payload: bytes) -> _Text:
        number = len(self._sources)
        if row.base is None:
            self._sources.append(payload)
            return _Text(Splices.whole(number, len(payload)), None)
        base = self._known[row.base]
        ops, at = delta.parse_ops(payload)
        further = base.below if row.form == codec.SEALED else None
        if len(ops) * _STEP_BYTES > len(base.text):
            text = base.text.joined(self._sources)
            if further is not None:
                text += further.joined(self._sources)
            self._sources.append(delta.apply(text, delta.Delta(ops, payload[at:])))
            return _Text(Splices.whole(number, len(self._sources[-1])), base.text)
        self._sources.append(payload)
        return _Text(base.text.changed(ops, number, at, behind=further), base.text)


def _address(seq: int, base: int | None) -> bytes:
    return f"{seq}:{'' if base is None else base}:".encode()
