"""Notes as a SQL engine stores them."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import limpet
from limpet import Corrupt
from limpet.core.notes import squeezed, unsqueezed
from tests.cases import for_each

LONG = b'{"text":"' + b"to be or not to be, " * 100 + b'"}'


@for_each("value", [b"1", b'{"a":1}', LONG, b"[" + b"1" * 2000 + b"]"])
def test_a_value_comes_back(value: bytes) -> None:
    assert unsqueezed(squeezed(value)) == value


def test_long_ones_are_compressed_and_short_ones_readable() -> None:
    assert len(squeezed(LONG)) < len(LONG) // 4
    assert squeezed(LONG[:300]) == LONG[:300]


def test_any_bit_that_flips_is_damage(tmp_path: Path) -> None:
    """Also one that makes a frame claim to be of any size: nothing is opened that fails its sum."""
    path = tmp_path / "store.db"
    with limpet.open(f"sqlite:///{path}", synchronous="off") as store:
        scope = store.scope("s")
        scope.set_note("long", LONG.decode())
        with closing(sqlite3.connect(path)) as conn:
            ((value,),) = conn.execute("SELECT value FROM notes").fetchall()
            flipped = [bytes([*value[:at], value[at] ^ 128, *value[at + 1 :]]) for at in range(20)]
            claims = b"\x28\xb5\x2f\xfd\xe0" + b"\xff" * 7 + b"\x0f"
            for bad in (*flipped, value + b"x", claims, claims + value):
                with conn:
                    conn.execute("UPDATE notes SET value = ?", (bad,))
                with pytest.raises(Corrupt):
                    scope.note("long")
                assert [finding.code for finding in store.check()] == ["note_damaged"]
    with pytest.raises(Corrupt):
        unsqueezed(claims)
