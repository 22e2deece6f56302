"""Heads and segments as values: what is written is read back, and edits change nothing else."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limpet.backends.objects import edits
from limpet.backends.objects.chain import Chain, composed, link
from limpet.backends.objects.objects import (
    Entry,
    Fact,
    Head,
    HeadLease,
    Segment,
    dump_fact,
    dump_head,
    dump_segment,
    parse_fact,
    parse_head,
    parse_segment,
    unpack,
)
from limpet.core import codec
from limpet.core.deltas import delta
from limpet.core.rows import EMPTY, Row, pack_ref
from limpet.errors import Corrupt, Unsupported
from limpet.model import ScopeKey, SnapshotRef

SCOPE = ScopeKey("s", "main", "agent")


def row_of(seq: int, size: int = 0, **changes: object) -> Row:
    row = Row(
        seq, f"id-{seq}", 0, f"{seq:016x}", True, None, None, "", EMPTY, EMPTY, 0, 0, seq, size
    )
    return row._replace(**changes)  # type: ignore[arg-type]


def fact_of(seq: int, body: bytes, **changes: object) -> Fact:
    return Fact(row_of(seq, len(body), **changes), f"{seq:016x}")


def grown(seed: int, count: int) -> list[bytes]:
    """Return states of a chat that grows and is edited, with characters of all lengths."""
    chance = random.Random(seed)
    turns: list[str] = []
    states = []
    for n in range(count):
        turns.append("".join(chance.choice("aé語🦀 xyz") for _ in range(chance.randrange(5, 90))))
        if chance.random() < 0.2:
            turns[chance.randrange(len(turns))] = f"edit ü{n}"
        if chance.random() < 0.1:
            del turns[0]
        states.append(codec.encode({"n": n, "turns": turns}))
    return states


def chain_of(states: list[bytes]) -> Chain:
    return Chain(states[0], tuple(link(a, b) for a, b in pairwise(states)))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 14), st.data())
def test_a_chain_relinked_has_the_wanted_texts(seed: int, count: int, data: st.DataObject) -> None:
    states = grown(seed, count)
    chain = chain_of(states)
    assert [chain.text(n) for n in range(count)] == states
    assert all(each.literal.decode() is not None for each in chain.deltas)

    back = chain.reversed()
    assert [back.text(n) for n in range(count)] == states[::-1]
    assert all(each.literal.decode() is not None for each in back.deltas)

    numbers = data.draw(st.lists(st.integers(0, count - 1), min_size=1, unique=True))
    wanted: list[int | bytes] = [n if n % 3 else states[n] for n in numbers]
    for source, texts in ((chain, states), (back, states[::-1])):
        mixed = [
            n if isinstance(w, int) else texts[n] for n, w in zip(numbers, wanted, strict=True)
        ]
        found = source.relinked(mixed)
        assert [found.text(n) for n in range(len(numbers))] == [texts[n] for n in numbers]
        assert all(each.literal.decode() is not None for each in found.deltas)


def test_what_was_changed_once_costs_nothing_in_the_deltas_before() -> None:
    """Small changes of earlier saves are copied with what is around them, not written again."""
    chance, tasks = random.Random(3), [f"{n}:{'note ' * 20}" for n in range(30)]
    states = []
    for turn in range(20):
        tasks[chance.randrange(30)] = f"{turn}:{'note ' * 20}"
        states.append(codec.encode(tasks))
    backward = chain_of(states).reversed()
    assert max(len(each.ops) for each in backward.deltas) <= 3 * 4


def test_composed_deltas_need_no_text() -> None:
    states = grown(7, 6)
    chain = chain_of(states)
    assert delta.apply(states[0], composed(len(states[0]), chain.deltas)) == states[-1]


@pytest.mark.parametrize(
    "fact",
    [
        fact_of(5, b"x"),
        fact_of(5, b"x", labels=b'{"a":"1"}')._replace(pointers=(5,)),
        fact_of(5, b"x", labels=b'{"a":"1","b":""}')._replace(pointers=(5, 4), own=True),
        fact_of(5, b"x", kept=False, rev=3, nonce="ff", status="s", parent_id="p"),
        fact_of(5, b"x", metadata=codec.encode({"big": 2**70, "t": "é"})),
        fact_of(5, b"x", metadata=codec.encode({"f": 1.0, "z": [None, -0.0]}), created_at=-5),
        fact_of(5, b"x", forked_from=pack_ref(SnapshotRef(SCOPE, "a")), updated_at=9, id="\0é"),
    ],
)
def test_a_fact_is_read_back(fact: Fact) -> None:
    line = dump_fact(fact)
    assert line.count(b"\n") == 1
    assert parse_fact(line) == fact


def head_of(states: list[bytes], *, draft: bool = False) -> Head:
    head = Head(SCOPE, "line", "w", last=len(states))
    base = b""
    for n, state in enumerate(states, 1):
        kept = not (draft and n == len(states))
        fact = fact_of(n, state, kept=kept)
        head = edits.added(head, base, fact, state, is_shown=True, offsets=None)
        base = head.base or b""
    return head


def texts_of(head: Head, base: bytes) -> dict[int, bytes]:
    chain = edits.chain_of(head, base)
    return {f.row.seq: chain.text(n) for f, n in edits.numbered(head) if isinstance(n, int)}


def segment_texts(segment: Segment) -> dict[int, bytes]:
    rows = [fact.row.seq for fact in reversed(segment.facts)]
    return {seq: segment.chain.text(n) for n, seq in enumerate(rows)}


@pytest.mark.parametrize("compress", [False, True])
def test_a_head_is_read_back(compress: bool) -> None:
    states = grown(3, 9)
    head = replace(
        head_of(states, draft=True),
        trail=("a", "b"),
        floor="f",
        lease=HeadLease("k", "o", 5, 6, "w"),
        pending="line-2",
        paid=77,
        offsets={"turns": (2, True), "n": None},
    )
    data, stored = dump_head(head, compress=compress)
    found = parse_head(data).whole()
    assert replace(found, base_frame=None) == replace(stored, base_frame=None)
    assert texts_of(found, found.base or b"") == dict(enumerate(states, 1))
    assert found.draft is not None
    with pytest.raises(Unsupported):
        parse_head(data.replace(b'"v":2', b'"v":3', 1))


@pytest.mark.parametrize("compress", [False, True])
def test_any_damage_of_an_object_is_noticed(compress: bool) -> None:
    data, _ = dump_head(head_of(grown(3, 4)), compress=compress)
    for at in range(0, len(data), 7):
        spoiled = data[:at] + bytes([data[at] ^ 0x20]) + data[at + 1 :]
        try:
            whole = parse_head(spoiled).whole()
        except (Corrupt, Unsupported):
            continue
        assert replace(whole, base_frame=None) == replace(parse_head(data).whole(), base_frame=None)
    for size in range(0, len(data), 11):
        with pytest.raises(Corrupt):
            parse_head(data[:size]).whole()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 12), st.booleans(), st.data())
def test_flushing_and_editing_change_no_other_state(
    seed: int, count: int, draft: bool, data: st.DataObject
) -> None:
    """Flush some, save more, flush again with absorption or without; then delete and change."""
    states = grown(seed, 2 * count + 1)
    head = head_of(states[:count], draft=draft)
    old, first = (
        edits.flushed(head, head.base or b"", None) if edits.flushable(head) else (None, head)
    )
    base, segments = first.base or b"", [old] if old else []
    if old:
        _, named, _ = dump_segment("one", old, compress=False)
        first = replace(first, segments=(named,))
    for n, state in enumerate(states[count:], count + 1):
        fact = fact_of(n, state)
        first = edits.added(first, base, fact, state, is_shown=True, offsets=None)
        base = first.base or base
    absorb: bool = data.draw(st.booleans())
    last = segments.pop() if segments and absorb else None
    new, final = edits.flushed(first, base, last)
    segments.append(new)
    packed, named, _ = dump_segment("two", new, compress=data.draw(st.booleans()))
    assert parse_segment(unpack("segment", packed)) == new

    expected = dict(enumerate(states, 1))
    if draft:
        del expected[count]
    found = {seq: text for each in segments for seq, text in segment_texts(each).items()}
    assert found | texts_of(final, final.base or b"") == expected

    doomed = set(data.draw(st.lists(st.sampled_from(sorted(expected)), unique=True)))
    changed = {
        fact.row.seq: (fact._replace(row=fact.row._replace(rev=1, size=7)), b'"other"'[:7])
        for each in segments
        for fact in each.facts
        if fact.row.seq % 3 == 0
    }
    changed = {
        seq: (fact._replace(row=fact.row._replace(size=7)), body)
        for seq, (fact, body) in changed.items()
    }
    some = [each for each in segments if {fact.row.seq for fact in each.facts} - doomed]
    left = [edits.edited(each, doomed, changed) for each in some]
    newest = max((f.row.seq for each in segments for f in each.facts), default=0)
    gone = newest in doomed or newest in changed
    final = edits.without(final, final.base or b"", doomed, base_is_gone=gone)
    for seq in changed:
        expected[seq] = changed[seq][1] or b""
    expected = {seq: text for seq, text in expected.items() if seq not in doomed}
    found = {seq: text for each in left for seq, text in segment_texts(each).items()}
    assert found | texts_of(final, final.base or b"") == expected


def test_a_draft_that_becomes_kept_takes_its_place() -> None:
    head = head_of([b"1", b"2"], draft=True)
    aside = fact_of(3, b"33")
    head = edits.added(head, head.base or b"", aside, b"33", is_shown=False, offsets=None)
    assert [entry.row.seq for entry in head.entries] == [1, 3, 2]
    promoted = fact_of(2, b"2", rev=1)
    head = edits.replaced(head, head.base or b"", {2: (promoted, None)})
    assert [entry.row.seq for entry in head.entries] == [1, 2, 3]
    assert texts_of(head, head.base or b"") == {1: b"1", 2: b"2", 3: b"33"}
    assert isinstance(head.entries[0], Entry)
