"""Stored and received bytes that unpack to far more than they are, with the right checksums."""

import sqlite3
from pathlib import Path

import pytest
import zstandard

import limpet
from limpet import Corrupt
from limpet.backends.objects import objects
from limpet.core import codec
from limpet.core.deltas import chain, delta
from limpet.core.deltas.delta import Delta
from limpet.core.encryption import PLAIN
from limpet.core.limits import STORED_BYTES_MAX
from limpet.core.notes import unsqueezed
from tests.security import hostile

HUGE = 1 << 42


def frame_of(size: int) -> bytes:
    """Return a valid beginning of a frame that says to be so large, followed by one repeated byte.

    Each block is 4 bytes and says that it unpacks to 128 KB.
    """
    head = b"\x28\xb5\x2f\xfd\xe0" + size.to_bytes(8, "little")
    block = ((128 * 1024) << 3 | 1 << 1).to_bytes(3, "little") + b" "
    return head + block * 100


LYING = {
    "huge": frame_of(HUGE),
    "more than it has": frame_of(100 * 1024 * 1024),
    "no size": zstandard.ZstdCompressor(write_content_size=False).compress(b" " * 10_000_000),
    "no frame": b"\x28\xb5\x2f\xfd",
}


@pytest.mark.parametrize("frame", LYING.values(), ids=LYING)
def test_a_frame_that_lies_is_corrupt(frame: bytes) -> None:
    with pytest.raises(Corrupt):
        codec.decompress(frame, what="body")
    with pytest.raises(Corrupt):
        unsqueezed(frame)
    with pytest.raises(Corrupt):
        chain.read_chain([chain.body_row(1, None, (codec.WHOLE + codec.ZSTD, frame), PLAIN, ())])
    head = objects._pack("head", {}, [objects.Frame(frame, objects._sum(frame))], compress=True)
    with pytest.raises(Corrupt):
        objects.parse_head(head)


def test_of_many_frames_in_a_row_only_the_first_is_read() -> None:
    frame = zstandard.ZstdCompressor().compress(b"[1]")
    assert codec.decompress(frame * 10_000, what="body") == b"[1]"


def bomb_rows(copies: int, levels: int) -> list[chain.BodyRow]:
    """Return a chain in which each delta copies the text before it again and again."""
    text = b"[" + b" " * 998 + b"]"
    rows, size = [chain.body_row(1, None, (codec.WHOLE, text), PLAIN, ())], len(text)
    for seq in range(2, levels + 2):
        step = Delta([0, size, 0] * copies, b"")
        rows.append(chain.body_row(seq, seq - 1, (codec.DELTA, delta.dump(step)), PLAIN, ()))
        size *= copies
    return rows[::-1]


@pytest.mark.parametrize(("copies", "levels"), [(10, 12), (2, 40)])
def test_a_delta_that_copies_the_same_again_and_again_is_corrupt(copies: int, levels: int) -> None:
    with pytest.raises(Corrupt):
        chain.read_chain(bomb_rows(copies, levels), 64)


@pytest.mark.slow
def test_copies_take_no_more_memory_than_a_state_may() -> None:
    hostile.run(
        """
        from tests.security.test_hostile_frames import bomb_rows, chain
        for copies, levels in ((10, 12), (2, 40), (1000, 4)):
            rows = bomb_rows(copies, levels)
            refused(limpet.Corrupt, lambda: chain.read_chain(rows))
        """,
        seconds=60,
        bytes_max=4 * 2**30,
    )


@pytest.mark.slow
def test_a_text_in_many_slices_does_not_multiply() -> None:
    """A small range that consists of many slices, and is copied many times."""
    hostile.run(
        """
        from limpet.core import codec
        from limpet.core.deltas import chain, delta
        from limpet.core.encryption import PLAIN
        text = b"[" + b" " * 60_000_000 + b"]"
        rows = [chain.body_row(1, None, (codec.WHOLE, text), PLAIN, ())]
        steps = [at * 2 for at in range(2000)]
        ops = [n for at in steps for n in (at, 1, 0)]
        rows.append(chain.body_row(2, 1, (codec.DELTA, delta.dump(delta.Delta(
            [*ops, 4000, 59_000_000, 0], b""))), PLAIN, ()))
        size = 59_002_000
        for seq, width in ((3, 2000), (4, 2000 * 2000)):
            count = min(2000, 100_000_000 // width)
            ops = [0, width, 0] * count
            rows.append(chain.body_row(seq, seq - 1, (codec.DELTA, delta.dump(delta.Delta(
                [*ops, 0, 59_000_000, 0], b""))), PLAIN, ()))
        state = chain.read_chain(rows[::-1]).state
        assert len(state) == 59_000_000 + 4_000_000 * 25
        """,
        seconds=30,
    )


def test_a_state_that_says_to_be_larger_than_memory_is_corrupt_in_an_object() -> None:
    line = b'{"id":"a","seq":"1","nonce":"n","size":%d}' % (STORED_BYTES_MAX + 1)
    with pytest.raises(Corrupt):
        objects.parsed(lambda: objects.parse_fact(line))


def test_a_bomb_in_a_real_file_stops_only_its_own_snapshot(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with limpet.open(f"sqlite:///{path}") as store:
        store.scope("good").save({"n": 1})
        store.scope("bad").save({"text": "x" * 100_000})
    with sqlite3.connect(path) as db:
        (seq,) = db.execute("select max(seq) from bodies").fetchone()
        row = chain.body_row(seq, None, (codec.WHOLE + codec.ZSTD, frame_of(HUGE)), PLAIN, ())
        db.execute(
            "update bodies set encoding = ?, body = ?, checksum = ? where seq = ?",
            (row.encoding, row.body, row.checksum, seq),
        )
    db.close()
    with limpet.open(f"sqlite:///{path}") as store:
        good = store.scope("good").load()
        assert good is not None
        assert good.state == {"n": 1}
        with pytest.raises(Corrupt, match="too large"):
            store.scope("bad").load()
        assert list(store.check())
