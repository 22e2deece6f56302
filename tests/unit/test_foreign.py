"""Documents of other tools: where they stand in history, and what is told of them."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limpet.core import codec, document, ids, times
from limpet.core import document as foreign
from limpet.core.document import Header

UNHURRIED = settings(deadline=None)  # a busy machine is no failure

MODIFIED = 1_800_000_000_123_456
DIGEST = "0123456789abcdef"
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
NEW_YEAR_US = 1_767_225_600_000_000

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
MOMENTS = st.datetimes(
    datetime(1970, 1, 1), datetime(2222, 1, 1), timezones=st.just(UTC)
)  # what a place can hold


def seen(envelope: dict[str, Any], id: str | None = "a", *, digest: str = DIGEST) -> Header:
    """Return the header of what another tool wrote."""
    stored = json.dumps({**envelope, "data": {"x": 1}}).encode()
    return foreign.header_of(document.read(stored), id=id, digest=digest, modified=MODIFIED)


def at(moment: datetime, id: str | None = "a") -> Header:
    return seen({"createdAt": moment.isoformat(timespec="microseconds")}, id)


def test_a_copy_is_kept_and_a_head_is_a_draft() -> None:
    envelope = {"scope": "agent", "schemaVersion": "1.0", "createdAt": "2026-01-01T00:00:00.5Z"}
    copy, head = seen(envelope), seen(envelope, None)
    for header in (copy, head):
        assert (header.line, header.rev, header.void, header.fence) == (None, 0, False, None)
        assert header.created_at == header.updated_at == NEW_YEAR_US + 500_000
        assert header.size == len(b'{"x":1}')
        assert header.last == header.seq
        assert header.at == ids.place_us(header.seq) // 1000
        assert codec.decode(header.metadata) == {"strands": envelope}
        assert (header.labels, header.status) == (b"{}", "")
    assert (copy.id, copy.kept) == ("a", True)
    assert (head.id, head.kept) == (f"latest-{DIGEST}", False)


def test_the_revision_is_the_hash_of_the_bytes() -> None:
    """Any change that another tool makes is another revision, so that nothing is overwritten."""
    one, same, other = (seen({}, "a", digest=each * 16) for each in "aab")
    assert one.revision == same.revision != other.revision
    assert one.seq == other.seq  # the place does not move
    heads = [seen({}, None, digest=each * 16) for each in "ab"]
    assert heads[0].id != heads[1].id


@pytest.mark.parametrize(
    "envelope",
    [
        {"createdAt": "2026-01-01T00:00:00.000Z"},  # TypeScript
        {"createdAt": "2026-01-01T01:30:00+01:30"},
        {"createdAt": "2026-01-01T00:00:00"},  # without a zone it is UTC
        {"created_at": "2026-01-01T00:00:00+00:00"},  # Python
        {"createdAt": "2026-01-01T00:00:00Z", "created_at": "2025-01-01T00:00:00Z"},
    ],
)
def test_both_spellings_of_a_time(envelope: dict[str, str]) -> None:
    assert seen(envelope).created_at == NEW_YEAR_US


@pytest.mark.parametrize(
    "said",
    [
        None, 5, 1.5, True, [], {}, "", "yesterday", "2026-13-01T00:00:00Z",
        "2026-01-01T25:00:00Z", "0000-01-01T00:00:00Z", "10000-01-01T00:00:00Z",
        "2026-01-01T00:00:00+99:00", "9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00",
        "\0", "٢٠٢٦-01-01T00:00:00Z", "x" * 5000,
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["createdAt", "created_at"])
def test_what_is_no_time_counts_as_when_it_was_stored(said: Any, name: str) -> None:
    header = seen({name: said})
    assert header.created_at == MODIFIED
    assert ids.place_us(header.seq) == MODIFIED


def test_without_a_time_it_is_the_files() -> None:
    assert seen({}).created_at == MODIFIED


@pytest.mark.parametrize("year", [1, 1969, 1970, 2223, 2224, 9999])
def test_times_beyond_the_range_are_at_its_end(year: int) -> None:
    """What lies outside the places there are stands at their end, and can be written again."""
    moment = datetime(year, 7, 1, 12, tzinfo=UTC)
    header = at(moment)
    assert header.created_at == times.to_us("", moment)
    assert 0 < header.seq < ids.SEQ_MAX
    assert ids.place(MODIFIED, header.last, 0) > header.seq
    stored = document.write(header, "agent", b"{}")
    assert document.read(stored).header == header
    assert json.loads(stored)["createdAt"].startswith(f"{year:04}-07-01T12:00:00")


def test_the_first_and_the_last_moment() -> None:
    for text in ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999Z"):
        header = seen({"createdAt": text})
        assert times.from_us(header.created_at).replace(microsecond=0) == datetime.fromisoformat(
            text
        ).replace(microsecond=0)


@UNHURRIED
@given(one=MOMENTS, other=MOMENTS, first=TEXT, second=TEXT)
def test_history_is_in_the_order_of_their_times(
    one: datetime, other: datetime, first: str, second: str
) -> None:
    early, late = sorted((one, other))
    if late - early >= timedelta(milliseconds=1):
        assert at(early, first).seq < at(late, second).seq
    assert ids.place_us(at(early, first).seq) // 1000 == max(1, early_us(early)) // 1000


def early_us(moment: datetime) -> int:
    return times.to_us("", moment)


@UNHURRIED
@given(parts=st.lists(st.integers(0, 4095), min_size=2, max_size=2), rest=st.integers(0, 2**62 - 1))
def test_a_millisecond_is_put_in_order_by_uuids(parts: list[int], rest: int) -> None:
    """They say milliseconds, in which a tool may save twice. Its ids go on within them."""
    low, high = sorted(parts)
    ms = NEW_YEAR_US // 1000
    uuids = [ids.mint(NEW_YEAR_US, (part << 62) | rest, "") for part in (low, high)]
    early, late = (at(NEW_YEAR, id) for id in uuids)
    assert [ids.time_ms_of(id) for id in uuids] == [ms, ms]
    assert ids.place_us(early.seq) <= ids.place_us(late.seq)
    if high - low >= 5:  # a step of 4,096 in a thousand
        assert early.seq < late.seq
    for header in (early, late):
        assert 0 <= ids.place_us(header.seq) - NEW_YEAR_US < 1000
        assert header.created_at == NEW_YEAR_US


def test_other_ids_are_kept_apart_within_a_millisecond() -> None:
    seqs = {at(NEW_YEAR, f"snapshot-{number}").seq for number in range(100)}
    assert len(seqs) == 100
    assert {ids.place_us(seq) // 1000 for seq in seqs} == {NEW_YEAR_US // 1000}


@UNHURRIED
@given(micros=st.integers(1, 999), id=TEXT)
def test_a_time_in_microseconds_is_taken_as_it_is(micros: int, id: str) -> None:
    header = at(NEW_YEAR + timedelta(microseconds=micros), id)
    assert ids.place_us(header.seq) == NEW_YEAR_US + micros


@UNHURRIED
@given(envelope=st.dictionaries(TEXT.filter(lambda key: key != "data"), TEXT | st.integers()))
def test_what_stood_around_the_state_is_kept(envelope: dict[str, Any]) -> None:
    if envelope.get("appData") is None:
        header = seen(envelope)
        assert codec.decode(header.metadata) == {"strands": envelope}
        assert header == seen(envelope)
