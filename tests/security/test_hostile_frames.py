"""Stored and received bytes that unpack to far more than they are, with the right checksums."""

import sqlite3
from pathlib import Path

import pytest
import zstandard

import limpet
from limpet import Corrupt, ScopeKey
from limpet.backends.objects import format, heads
from limpet.backends.sql.columns import tail_values
from limpet.core import codec, segments
from limpet.core.deltas.delta import Delta
from limpet.core.encryption import PLAIN
from limpet.core.limits import STORED_BYTES_MAX
from limpet.core.notes import unsqueezed
from limpet.engine.states import payload_of
from limpet.storage import ZSTD, TailRow
from tests.cases import for_each
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


@for_each("frame", LYING.values())
def test_a_frame_that_lies_is_corrupt(frame: bytes) -> None:
    with pytest.raises(Corrupt):
        codec.decompress(frame, what="body")
    with pytest.raises(Corrupt):
        unsqueezed(frame)
    with pytest.raises(Corrupt):
        payload_of(TailRow(1, None, ZSTD, frame))


def packed(kind: str, first: bytes, rest: bytes = b"") -> bytes:
    """Return an object with frames that are what they are, and their checksum."""
    about = {"limpet": kind, "v": format.VERSION, "name": "n", "scope": ["s", "main", "agent"]}
    about |= {"zstd": True, "frames": [len(first), len(rest)]}
    return format.describe(about, first) + first + rest


NOTE = b'["","n",0,"0123456789abcdef",0,1,"0123456789abcdef"]\n'


@for_each("frame", [*LYING.values(), codec.compress(b"\n" * 10_000_000, 3)])
def test_an_object_with_a_frame_that_lies_is_corrupt(frame: bytes) -> None:
    """Also one that unpacks to nothing but lines."""
    with pytest.raises(Corrupt):
        heads.parse_head(packed("head", frame))
    with pytest.raises(Corrupt):
        format.StoredSegment("n", packed("segment", frame)).facts  # noqa: B018
    for page in (packed("notes", frame), packed("notes", codec.compress(NOTE, 3), frame[:-1])):
        with pytest.raises(Corrupt):
            format.parse_page("n", page)


def test_sizes_that_go_back_do_not_multiply() -> None:
    """Of a note and of a state: else few bytes become many slices of the same."""
    back = NOTE.replace(b",1,", b",-4,")
    with pytest.raises(Corrupt):
        format.parse_page(
            "n", packed("notes", codec.compress(NOTE + back, 3), codec.compress(b"1\n", 3))
        )
    facts = b'{"id":"a","seq":"1","nonce":"n","size":1}'
    for size in (b"-4", b"1.5", b"null", b'"1"'):
        about = b'{"scope":["s","main","agent"],"w":"%s","states":[[1,null,0,41,%b,"x"]]}' % (
            b"0" * 16,
            size,
        )
        data, _ = format.pack("head", [about, facts], [b"1\n"])
        with pytest.raises(Corrupt):
            heads.parse_head(data)


def test_of_many_frames_in_a_row_only_the_first_is_read() -> None:
    frame = zstandard.ZstdCompressor().compress(b"[1]")
    assert codec.decompress(frame * 10_000, what="body") == b"[1]"


def bomb(copies: int, levels: int) -> tuple[bytes, list[Delta]]:
    """Return a text, and deltas of which each copies the text before it again and again."""
    text = b"[" + b" " * 998 + b"]"
    sizes = [len(text) * copies**level for level in range(levels)]
    return text, [Delta([0, size, 0] * copies, b"") for size in sizes]


@for_each(("copies", "levels"), [(10, 12), (2, 40)])
def test_a_delta_that_copies_the_same_again_and_again_is_corrupt(copies: int, levels: int) -> None:
    with pytest.raises(Corrupt):
        segments.apply_all(*bomb(copies, levels))


@pytest.mark.slow
def test_copies_take_no_more_memory_than_a_state_may() -> None:
    hostile.run(
        """
        from tests.security.test_hostile_frames import bomb, segments
        for copies, levels in ((10, 12), (2, 40), (1000, 4)):
            refused(limpet.Corrupt, lambda: segments.apply_all(*bomb(copies, levels)))
        """,
        seconds=60,
        bytes_max=4 * 2**30,
    )


@pytest.mark.slow
def test_a_text_in_many_slices_does_not_multiply() -> None:
    """A small range that consists of many slices, and is copied many times."""
    hostile.run(
        """
        from limpet.core import segments
        from limpet.core.deltas.delta import Delta
        text = b"[" + b" " * 60_000_000 + b"]"
        ops = [n for at in range(2000) for n in (at * 2, 1, 0)]
        steps = [Delta([*ops, 4000, 59_000_000, 0], b"")]
        for width in (2000, 2000 * 2000):
            count = min(2000, 100_000_000 // width)
            steps.append(Delta([*[0, width, 0] * count, 0, 59_000_000, 0], b""))
        state = segments.apply_all(text, steps)
        assert len(state) == 59_000_000 + 4_000_000 * 25
        """,
        seconds=30,
    )


def test_a_state_that_says_to_be_larger_than_memory_is_corrupt_in_an_object() -> None:
    line = b'{"id":"a","seq":"1","nonce":"n","size":%d}' % (STORED_BYTES_MAX + 1)
    with pytest.raises(Corrupt):
        format.parsed(lambda: format.parse_fact(line))


def test_a_bomb_in_a_real_file_stops_only_its_own_snapshot(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with limpet.open(f"sqlite:///{path}") as store:
        store.scope("good").save({"n": 1})
        store.scope("bad").save({"text": "x" * 100_000})
    with sqlite3.connect(path) as db:
        key, seq = ScopeKey("bad"), db.execute("select max(seq) from tails").fetchone()[0]
        (pk,) = db.execute("select scope_pk from snapshots where seq = ?", (seq,)).fetchone()
        values = tail_values(TailRow(seq, None, ZSTD, frame_of(HUGE)), pk, key, PLAIN)
        db.execute("replace into tails values (?, ?, ?, ?, ?)", values)
    db.close()
    with limpet.open(f"sqlite:///{path}") as store:
        good = store.scope("good").load()
        assert good is not None
        assert good.state == {"n": 1}
        with pytest.raises(Corrupt, match="too large"):
            store.scope("bad").load()
        assert list(store.check())
