"""Heads, segments and pages as values: what is written is read back, and damage is noticed."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limpet.backends.objects.format import (
    Fact,
    Named,
    NamedPage,
    StoredNote,
    StoredSegment,
    dump_fact,
    dump_page,
    dump_segment,
    facts_end,
    parse_fact,
    parse_page,
    sum_of,
)
from limpet.backends.objects.heads import Entry, Head, dump_head, parse_head
from limpet.backends.objects.keys import part_name
from limpet.core import codec, ids
from limpet.core.notes import NoteRow
from limpet.core.rows import EMPTY, Row, pack_ref
from limpet.errors import Corrupt, Unsupported
from limpet.model import ScopeKey, SnapshotRef
from limpet.storage import DAMAGED, WHOLE, ZSTD, ScopeRecord, TailRow
from tests.cases import for_each

SCOPE = ScopeKey("s", "main", "agent")
UNHURRIED = settings(deadline=None)  # a busy machine is no failure
FIRST = 1 << 60


def row_of(seq: int, size: int = 0, **changes: object) -> Row:
    at = ids.place_us(seq)
    return Row(
        seq, f"id-{seq}", 0, f"{seq:016x}", True, None, None, "", EMPTY, EMPTY, at, at, at, size
    )._replace(**changes)  # type: ignore[arg-type]


def fact_of(seq: int, **changes: Any) -> Fact:
    return Fact(row_of(seq, **changes))


@for_each(
    "fact",
    [
        fact_of(FIRST),
        fact_of(FIRST, labels=b'{"a":"1"}')._replace(pointers=(FIRST,)),
        fact_of(FIRST, labels=b'{"a":"1","b":""}')._replace(pointers=(FIRST, 4), own=True),
        fact_of(FIRST, labels=b'{"a":"1"}', kept=False, rev=3, nonce="ff", parent_id="p"),
        fact_of(FIRST, metadata=codec.encode({"big": 2**70, "t": "é"}), status="s"),
        fact_of(FIRST, metadata=codec.encode({"f": 1.0, "z": [None, -0.0]}), created_at=-5),
        fact_of(FIRST, forked_from=pack_ref(SnapshotRef(SCOPE, "a")), updated_at=9, id="\0é"),
        fact_of(FIRST, size=9, created_at=7, updated_at=7),
    ],
)
def test_a_fact_is_read_back(fact: Fact) -> None:
    line = dump_fact(fact)
    assert b"\n" not in line
    assert parse_fact(line) == fact


# Heads

SEQS = st.lists(st.integers(FIRST, FIRST + 10**6), unique=True, max_size=8).map(sorted)
BODIES = st.binary(max_size=60)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=9)
NONCES = st.integers(-(2**63), 2**63 - 1)
NOTES = st.builds(
    NoteRow, TEXTS, TEXTS, st.integers(0, 99), TEXTS, st.integers(0, 10**15), st.binary(max_size=60)
)
PARTS = st.sampled_from([part_name(n, "a" * 16, "b" * n) for n in range(3)])
NAMED = st.builds(Named, PARTS, *[st.integers(0, 2**62)] * 6)
PAGES = st.builds(
    NamedPage, PARTS, st.tuples(TEXTS, TEXTS), st.tuples(TEXTS, TEXTS), *[st.integers(0, 99)] * 2
)


@st.composite
def heads(draw: st.DrawFn) -> Head:
    w = draw(NONCES)
    record = ScopeRecord(
        SCOPE,
        pk=draw(st.integers(1, 2**62)),
        version=w,
        head=draw(st.none() | st.integers(1, 2**62)),
        last=draw(st.integers(0, 2**62)),
        floor=draw(TEXTS),
        fence=draw(st.none() | TEXTS.filter(bool)),
        until=draw(st.none() | st.integers(1, 10**16)),
        notes=draw(st.integers(0, 9)),
        tail_count=draw(st.integers(0, 9)),
        offsets=draw(st.sampled_from([None, b"{}", b'{"turns":[2,true],"n":null}'])),
        trail=draw(st.binary(max_size=16)),
        epoch=draw(NONCES),
    )
    nonce, unswept = w.to_bytes(8, signed=True).hex(), draw(st.booleans())
    if draw(st.integers(0, 9)) == 0:
        return Head(SCOPE, None, nonce, unswept=unswept)
    bodies = st.tuples(st.sampled_from([WHOLE, ZSTD]), BODIES)
    entries = {
        seq: Entry.of(fact_of(seq, rev=n), TailRow(seq, None, *draw(bodies)))
        for n, seq in enumerate(draw(SEQS))
    }
    notes = [StoredNote.of(row) for row in draw(st.lists(NOTES, max_size=5))]
    return Head(
        SCOPE,
        record,
        nonce,
        entries,
        tuple(draw(st.lists(NAMED, max_size=2))),
        tuple(draw(st.lists(PAGES, max_size=2))),
        {note.address: note for note in notes},
        draw(st.integers(0, 10**9)),
        draw(st.none() | st.just((ScopeKey("other"), 7))),
        unswept,
    )


def shown(head: Head) -> tuple[Any, ...]:
    tails = [(entry.fact, entry.tail) for entry in head.entries.values()]
    notes = [note.row() for note in head.notes.values()]
    return (*head._replace(entries={}, notes={}), tails, notes)


@UNHURRIED
@given(heads())
def test_a_head_is_read_back(head: Head) -> None:
    data = dump_head(head)
    found = parse_head(data)
    assert shown(found) == shown(head)
    assert dump_head(found) == data
    for version in (b'"v":2', b'"v":4'):
        with pytest.raises(Unsupported):
            parse_head(data.replace(b'"v":3', version, 1))


@UNHURRIED
@given(heads())
def test_the_first_bytes_of_a_head_have_its_facts(head: Head) -> None:
    data = dump_head(head)
    found = parse_head(data[: facts_end(data)])
    assert (found.record, found.segments, found.pages) == (head.record, head.segments, head.pages)
    assert [entry.fact for entry in found.entries.values()] == [
        entry.fact for entry in head.entries.values()
    ]
    assert all(not e.body and (e.tail.encoding == DAMAGED or not head.entries[s].body)
               for s, e in found.entries.items())  # fmt: skip
    with pytest.raises(Corrupt):
        parse_head(data[: facts_end(data) - 1])


@UNHURRIED
@given(heads(), st.data())
def test_damage_of_a_head_is_noticed_and_hides_nothing_else(
    head: Head, data: st.DataObject
) -> None:
    """Facts are all there, or the head is Corrupt; a state or a note is whole, or is itself."""
    whole = dump_head(head)
    at, bit = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 7))
    spoiled = whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :]
    try:
        found = parse_head(spoiled)
    except (Corrupt, Unsupported):
        assert at < facts_end(whole)
        return
    if at < facts_end(whole):  # in the description: what it says may only make bodies damaged
        assert at < whole.index(b"\n")
    expected = head._replace(entries={}, notes={})
    assert found._replace(entries={}, notes={}) == expected
    assert [e.fact for e in found.entries.values()] == [e.fact for e in head.entries.values()]
    wrong = 0
    for seq, entry in found.entries.items():
        if entry.tail != head.entries[seq].tail:
            assert entry.tail.encoding == DAMAGED
            wrong += 1
    for address, note in found.notes.items():
        try:
            assert note.row() == head.notes[address].row()
        except Corrupt:
            wrong += 1
    assert at < facts_end(whole) or wrong <= 1


@UNHURRIED
@given(st.binary(max_size=80), st.sampled_from([b"", b"{}", b'{"limpet":"head","v":3}']))
def test_what_is_no_object_is_refused(junk: bytes, first: bytes) -> None:
    for parse in (
        parse_head,
        lambda data: parse_page("n", data),
        lambda data: StoredSegment("n", data).facts,
    ):
        with pytest.raises((Corrupt, Unsupported)):
            parse(first + b"\n" + junk)


# Segments and pages

NAME = part_name(1, "a" * 16, "")
RECORD = ScopeRecord(SCOPE, pk=255, version=1)


@UNHURRIED
@given(SEQS.filter(bool), st.binary(max_size=99), st.booleans(), st.data())
def test_a_segment_is_read_back_or_its_damage_is_noticed(
    seqs: list[int], states: bytes, compress: bool, data: st.DataObject
) -> None:
    facts, ends = tuple(fact_of(seq, size=seq % 9) for seq in seqs), (seqs[0], seqs[-1])
    blob = states, sum_of(states)
    stored, named = dump_segment(RECORD, NAME, ends, facts, blob, compress=compress)
    found = StoredSegment(NAME, stored)
    assert (found.facts, found.states) == (facts, states)
    assert (found.scope, found.line, found.named(NAME)) == (SCOPE, f"{255:016x}", named)
    first = StoredSegment(NAME, stored[: named.facts_bytes])
    assert first.facts == facts
    assert first.is_whole == (not states)
    with pytest.raises(Corrupt):
        StoredSegment("other", stored)

    at = data.draw(st.integers(0, len(stored) - 1))
    spoiled = stored[:at] + bytes([stored[at] ^ 0x20]) + stored[at + 1 :]
    try:
        other = StoredSegment(NAME, spoiled)
        assert other.facts == facts
        assert other.states in (states, b"")
    except (Corrupt, Unsupported):
        assert at < named.facts_bytes


@UNHURRIED
@given(st.lists(NOTES, min_size=1, max_size=9), st.booleans(), st.data())
def test_a_page_of_notes_is_read_back_or_its_damage_is_noticed(
    rows: list[NoteRow], compress: bool, data: st.DataObject
) -> None:
    rows = sorted({(row.on, row.name): row for row in rows}.values())
    notes = [StoredNote.of(row) for row in rows]
    stored, named = dump_page(SCOPE, NAME, notes, compress=compress)
    assert parse_page(NAME, stored) == notes
    ends = (rows[0].on, rows[0].name), (rows[-1].on, rows[-1].name)
    assert named == NamedPage(NAME, *ends, len(rows), len(stored))
    with pytest.raises(Corrupt):
        parse_page("other", stored)

    at = data.draw(st.integers(0, len(stored) - 1))
    spoiled = stored[:at] + bytes([stored[at] ^ 0x20]) + stored[at + 1 :]
    try:
        found = parse_page(NAME, spoiled)
    except (Corrupt, Unsupported):
        return
    for note, row in zip(found, rows, strict=True):
        try:
            assert note.row() == row
        except Corrupt:
            continue
