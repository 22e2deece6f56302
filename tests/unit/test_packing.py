"""The body pipeline: what is packed is unpacked, and damage is found."""

import random

import pytest
import zstandard

from limpet.core import codec
from limpet.core.codec import WHOLE, ZSTD, Packed, encode
from limpet.errors import Corrupt


def pack(encoded: bytes, *, address: bytes = b"") -> Packed:
    return codec.address_body(*codec.squeeze(encoded), address=address)


def unpack(packed: Packed, *, address: bytes = b"") -> bytes:
    codec.check_body(packed, address)
    return codec.unsqueeze(packed.encoding, packed.body)


SHORT = b'{"a":1}'
LONG = encode({"messages": [{"role": "user", "content": "hello there"}] * 2_000})
BYTES = bytes(range(256))
NOISE = random.Random(7).randbytes(len(LONG))


@pytest.mark.parametrize("encoded", [b"", b"1", SHORT, BYTES, LONG, NOISE, LONG * 100])
def test_what_is_packed_is_unpacked(encoded: bytes) -> None:
    packed = pack(encoded)
    assert unpack(packed) == encoded
    assert unpack(Packed(*packed)) == encoded
    assert -(2**63) <= packed.checksum < 2**63
    assert packed == pack(encoded)


def test_only_what_gains_is_compressed() -> None:
    assert pack(SHORT)[:2] == (WHOLE, SHORT)
    assert pack(NOISE)[:2] == (WHOLE, NOISE)
    assert pack(LONG).encoding == ZSTD
    assert len(pack(LONG).body) < len(LONG) / 10


@pytest.mark.parametrize("encoded", [b"", SHORT, BYTES, LONG])
def test_every_flipped_bit_is_corrupt(encoded: bytes) -> None:
    packed = pack(encoded)
    damaged = [packed._replace(encoding=packed.encoding ^ (1 << bit)) for bit in range(8)]
    damaged += [packed._replace(checksum=packed.checksum ^ (1 << bit)) for bit in range(63)]
    for bit in range(8 * len(packed.body)):
        body = bytearray(packed.body)
        body[bit // 8] ^= 1 << bit % 8
        damaged.append(packed._replace(body=bytes(body)))
    for each in damaged:
        with pytest.raises(Corrupt):
            unpack(each)


@pytest.mark.parametrize("encoded", [SHORT, BYTES, LONG])
def test_a_body_cut_short_or_grown_is_corrupt(encoded: bytes) -> None:
    packed = pack(encoded)
    bodies = [packed.body[:end] for end in range(len(packed.body))]
    bodies += [packed.body + b"\0", b"\0" + packed.body, packed.body * 2]
    for body in bodies:
        with pytest.raises(Corrupt):
            unpack(packed._replace(body=body))


@pytest.mark.parametrize("encoding", [-1, 6, 7, 255, 256, 2**63])
def test_an_unknown_encoding_is_corrupt(encoding: int) -> None:
    body = pack(SHORT).body
    checksum = codec.checksum_of(bytes((encoding & 0xFF,)), body)
    with pytest.raises(Corrupt, match=rf"encoding=`{encoding}`"):
        unpack(Packed(encoding, body, checksum))


@pytest.mark.parametrize("body", [b"", b"not a frame", zstandard.compress(LONG)[:-3]])
def test_what_does_not_decompress_is_corrupt(body: bytes) -> None:
    with pytest.raises(Corrupt):
        unpack(Packed(ZSTD, body, codec.checksum_of(bytes((ZSTD,)), body)))


def test_a_checksum_covers_the_parts_joined() -> None:
    assert codec.checksum_of(b"ab", b"c") == codec.checksum_of(b"abc")
    assert codec.checksum_of(b"abc") != codec.checksum_of(b"abd")
    signs = {codec.checksum_of(bytes((byte,))) < 0 for byte in range(64)}
    assert signs == {True, False}


@pytest.mark.parametrize("encoded", [b"", SHORT, LONG])
def test_a_body_counts_at_its_own_address_only(encoded: bytes) -> None:
    packed = pack(encoded, address=b"7")
    assert unpack(packed, address=b"7") == encoded
    assert packed[:2] == codec.squeeze(encoded) == pack(encoded)[:2]
    assert packed == codec.address_body(*codec.squeeze(encoded), address=b"7")
    for elsewhere in (b"", b"8", b"77"):
        with pytest.raises(Corrupt):
            unpack(packed, address=elsewhere)
