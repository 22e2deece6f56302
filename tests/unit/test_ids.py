"""Minted ids are UUIDv7 and always grow, whatever the clock does; revisions name a place."""

import contextlib
import random
import uuid

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from limpet.core.ids import mint, revision, seq_of, tag_of
from limpet.errors import Corrupt, InvalidInput, LimpetError
from tests.cases import for_each
from tests.effort import times

YEAR_US = 365 * 24 * 3600 * 1_000_000
NOW_US = 1_750_000_000_123_456
RANDOM_BITS = 74
ONES = (1 << RANDOM_BITS) - 1


def uuid7(time_ms: int, free: int) -> str:
    """Build a UUIDv7 from its parts, independently of the code under test."""
    high, low = free >> 62, free & ((1 << 62) - 1)
    return str(uuid.UUID(int=(time_ms << 80) | (7 << 76) | (high << 64) | (2 << 62) | low))


def time_of(text: str) -> int:
    return uuid.UUID(text).int >> 80


def free_of(text: str) -> int:
    whole = uuid.UUID(text).int
    return ((whole >> 64) & 0xFFF) << 62 | whole & ((1 << 62) - 1)


def assert_valid(text: str) -> None:
    parsed = uuid.UUID(text)
    assert str(parsed) == text
    assert parsed.version == 7
    assert parsed.variant == uuid.RFC_4122


# Up to the year 9999, and back to before 1970.
clocks = st.integers(-(2**50), 253_402_300_799_999_999)
bits = st.integers(0, 2**80 - 1)
floors = st.just("") | st.builds(uuid7, st.integers(0, 2**48 - 2), st.integers(0, ONES))

moderate = settings(max_examples=times(50, full=300), deadline=None)


@moderate
@given(clocks, bits)
def test_a_minted_id_is_a_uuid7_that_carries_the_time(now: int, chance: int) -> None:
    minted = mint(now, chance, "")
    assert_valid(minted)
    assert time_of(minted) == max(0, now // 1000)
    assert free_of(minted) == chance & ONES


@moderate
@given(clocks, bits, floors)
@example(NOW_US, 0, uuid7(NOW_US // 1000, 0))
@example(NOW_US, 0, uuid7(NOW_US // 1000, ONES))
@example(NOW_US, 2**80 - 1, uuid7(NOW_US // 1000, ONES))
@example(NOW_US, 2**80 - 1, uuid7(NOW_US // 1000, ONES - 1))
@example(0, 0, uuid7(0, 0))
@example(-YEAR_US, 0, uuid7(0, 0))
def test_a_minted_id_is_greater_than_the_floor(now: int, chance: int, floor: str) -> None:
    minted = mint(now, chance, floor)
    assert_valid(minted)
    assert minted > floor
    assert time_of(minted) >= max(0, now // 1000)
    if floor and time_of(minted) > time_of(floor) + 1:
        assert minted == mint(now, chance, "")


@for_each("back", [0, 1, 999, 1000, 10 * YEAR_US, NOW_US, 2 * NOW_US])
def test_a_clock_that_stops_or_steps_back_is_held(back: int) -> None:
    """Time stays where the floor is, so that ids do not run ahead of the clock."""
    floor = first = mint(NOW_US, 12345, "")
    for _ in range(1_000):
        minted = mint(NOW_US - back, 0, floor)
        assert minted > floor
        assert time_of(minted) == time_of(first)
        floor = minted
    assert time_of(mint(NOW_US + 1000, 0, floor)) == time_of(first) + 1


@for_each(
    "now, floor",
    [
        (NOW_US, uuid7(2**48 - 1, ONES)),
        (NOW_US, uuid7(2**48 - 1, ONES - 5)),
        (1000 * 2**48, ""),
        (1000 * 2**60, uuid7(0, 0)),
    ],
)
def test_at_the_end_of_time_nothing_malformed_is_minted(now: int, floor: str) -> None:
    """Such a floor or clock can only be damage; it is refused, or a valid greater id is found."""
    try:
        minted = mint(now, 2**32 - 1, floor)
    except LimpetError:
        return
    assert_valid(minted)
    assert minted > floor


@for_each(
    "floor",
    [
        "x",
        "snapshot-1",
        "018f2b6e-0000-4000-8000-000000000000",
        "018f2b6e-0000-7000-c000-000000000000",
        "018F2B6E-0000-7000-8000-00000000000A",
        "018f2b6e00007000800000000000000a",
        "018f2b6e-0000-7000-8000-000000000000\n",
    ],
)
def test_a_floor_that_was_not_minted_is_corrupt(floor: str) -> None:
    """Where the clock is behind, so that the floor must be understood to be exceeded."""
    with pytest.raises(Corrupt):
        mint(0, 0, floor)


@moderate
@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1), st.binary(min_size=8, max_size=8))
def test_a_revision_gives_its_place_back(seq: int, rev: int, nonce: bytes) -> None:
    token = revision(seq, rev, nonce.hex())
    assert seq_of(token) == seq
    assert token == f"{seq:x}.{rev:x}.{nonce.hex()}"


@for_each("token", ["", ".", ".1.a", "1", "g.0.a", "-1.0.a", "1 2.0.a", "x1.0.a"])
def test_a_token_without_a_place_is_refused(token: str) -> None:
    with pytest.raises(InvalidInput):
        seq_of(token)


@moderate
@given(st.text())
def test_any_token_has_a_place_or_is_refused(token: str) -> None:
    with contextlib.suppress(InvalidInput):
        assert seq_of(token) >= 0


@for_each("seed", range(3))
def test_a_tag_is_in_every_id_and_its_end_tells_ids_apart(seed: int) -> None:
    """Whatever the clock does, and with another tag after a scope was deleted."""
    chance, floor, now = random.Random(seed), "", 1_700_000_000_000_000
    tag, ends = 0, set[str]()
    for number in range(2_000):
        if number % 500 == 0:
            tag = chance.getrandbits(40)
        now += chance.choice((0, 100, 1_000, -5_000))
        minted = mint(now, chance.getrandbits(80), floor, tag)
        assert minted > floor
        assert tag_of(minted) == tag
        ends.add(minted[-8:])
        floor = minted
    assert len(ends) > 1_990
    last = mint(now, (1 << 80) - 1, "", 5)  # no step is left behind it
    assert mint(now, (1 << 80) - 1, last, 5) > last
