"""Segments: every state reads back, also after any edit, and nothing of a dropped state is left."""

import random
from itertools import pairwise

from limpet.core import codec, segments
from limpet.core.deltas import delta
from limpet.core.segments import Segment
from limpet.errors import Corrupt
from tests.cases import for_each
from tests.effort import times


def words(dice: random.Random, count: int) -> bytes:
    return b" ".join(b"word%d" % dice.randrange(300) for _ in range(count))


def history(dice: random.Random) -> dict[int, bytes]:
    """Return states by seq, the newest first: they grow, shrink, and compress well or badly."""
    state, found, seq = words(dice, 3), dict[int, bytes](), dice.randrange(1, 2**62)
    for _ in range(dice.randrange(1, 50)):
        kind = dice.random()
        if kind < 0.5:
            state += b" " + words(dice, dice.choice((1, 40)))
        elif kind < 0.7:
            cut = dice.randrange(len(state) + 1)
            state = state[:cut] + words(dice, 5) + state[cut + dice.randrange(90) :]
        elif kind < 0.8:
            state = words(dice, dice.choice((2, 30, 900)))
        elif kind < 0.9:
            state = dice.choice((b"x", b"yz")) * 20_000  # from 20 KB to a few bytes
        seq += dice.randrange(1, 5000)
        found[seq] = state
    return dict(reversed(found.items()))


def made_of(states: dict[int, bytes], older: Segment | None = None) -> Segment:
    items = list(states.items())
    if max(map(len, states.values())) <= segments.SMALL_BYTES:
        return segments.pack(items, older)
    if older is not None:
        items.append((older.newest_seq, older.newest()))
    steps = [(seq, delta.diff(newer, state)) for (_, newer), (seq, state) in pairwise(items)]
    return segments.chain(items[0], steps, older)


def all_of(segment: Segment) -> dict[int, bytes]:
    """Return all states, in the order of the frames."""
    again = Segment.parse(segment.dump())
    seqs = [seq for at in range(len(again.frames)) for seq in again._open(at).seqs]
    assert sorted(seqs, reverse=True) == seqs
    assert (again.newest_seq, again.oldest_seq, again.count) == (seqs[0], seqs[-1], len(seqs))
    together = again.states(set(seqs))
    assert together == {seq: Segment.parse(segment.dump()).state(seq) for seq in seqs}
    return together


def test_a_state_that_is_not_there_takes_no_other_with_it() -> None:
    segment = segments.pack([(9, b"nine"), (3, b"three")])
    edited = segments.edit(segment, {5, 9}, {})
    assert edited is not None
    assert all_of(edited) == {3: b"three"}


@for_each("seed", range(times(6, full=60)))
def test_states_read_back_after_any_edit(seed: int) -> None:
    dice = random.Random(seed)
    states = history(dice)
    segment = made_of(states)
    if dice.random() < 0.6:
        more = {seq + max(states): state for seq, state in history(dice).items()}
        segment, states = made_of(more, segment), {**more, **states}
    assert all_of(segment) == states
    while states:
        some = dice.sample([*states], dice.randrange(1, 1 + len(states)))
        half = len(some) // 2 if dice.random() < 0.7 else 0
        replaced = {seq: words(dice, dice.choice((1, 60, 900))) + b"!" for seq in some[:half]}
        edited = segments.edit(segment, some[half:], replaced)
        for seq in some[half:]:
            del states[seq]
        states |= replaced
        assert (edited is None) == (not states)
        if edited is not None:
            segment = edited
            assert all_of(segment) == states


def test_nothing_is_left_of_a_dropped_state() -> None:
    secrets = [random.Random(at).randbytes(40).hex().encode() for at in range(40)]
    states = {40 - at: b"text " * 2000 + each for at, each in enumerate(secrets)}
    edited = segments.edit(made_of(states), [40 - at for at in range(0, 40, 3)], {})
    assert edited is not None
    raw = b"".join(codec.decompress(frame.data, what="frame") for frame in edited.frames)
    assert not [at for at in range(0, 40, 3) if secrets[at] in raw]
    assert [at for at in range(40) if secrets[at] in raw]


def test_a_delta_turned_round_leads_back() -> None:
    dice = random.Random(1)
    for _ in range(times(100, full=1000)):
        old, new = dice.choices([*history(dice).values()], k=2)
        step = delta.diff(old, new)
        assert delta.apply(new, segments.inverse(old, step)) == old


def test_what_is_malformed_is_corrupt() -> None:
    """Whichever bit is changed and wherever it is cut: it reads as something, or is Corrupt."""
    states = {9: b"b" * 5000, 5: b"b" * 5000 + b"c", 2: b"a" * 50}
    blob = made_of(states).dump()
    damaged = [blob[:at] for at in range(len(blob))]
    damaged += [
        blob[:at] + bytes([blob[at] ^ 1 << bit]) + blob[at + 1 :]
        for at in range(len(blob))
        for bit in range(8)
    ]
    for each in damaged:
        try:
            Segment.parse(each).states(states.keys())
        except Corrupt:
            continue
