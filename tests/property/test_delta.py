"""The delta codec: exact for any two byte strings, never much larger, quick on hostile input.

And what a store that uses it gives back: space, and the time that a read takes.
"""

import base64
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from limpet import ScopeKey
from limpet.core.deltas.delta import Delta, apply, diff, dump, parse, size_of
from limpet.errors import Corrupt
from tests.cases import for_each
from tests.effort import slowly, times
from tests.property.trees import BASE, KINDS, Forest, evolve, grow, message, text_of

MAIN = ScopeKey("s")
KIB = 1024
# Far more than it takes, so that only what grows out of all proportion fails on a busy machine.
CPU_S_MAX = 15

thorough = settings(
    max_examples=times(100, full=300),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
alphabets = st.sampled_from([b"a", b"ab", b"\0", b'{"[],:0123456789', bytes(range(256))])


@st.composite
def strings(draw: st.DrawFn, size_max: int = 3_000) -> bytes:
    """Bytes that Hypothesis would take long to come up with: of any length, and repetitive."""
    chance = random.Random(draw(st.integers(0, 2**32)))
    alphabet = draw(alphabets)
    size = draw(st.sampled_from([0, 1, 23, 24, 31, 32, 33, 63, 64, 65, 300, size_max]))
    made = bytes(chance.choices(alphabet, k=size))
    return made * draw(st.sampled_from([1, 1, 1, 2, 7]))


@st.composite
def edited(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """Two strings of which one was made of the other by inserts, cuts, moves and repetitions."""
    old = draw(strings() | st.binary(max_size=200))
    chance = random.Random(draw(st.integers(0, 2**32)))
    new = old
    for _ in range(draw(st.sampled_from([0, 1, 2, 5, 40]))):
        i, j, k = sorted(chance.randrange(len(new) + 1) for _ in range(3))
        match chance.randrange(6):
            case 0:
                new = new[:i] + chance.randbytes(chance.choice((1, 8, 100))) + new[i:]
            case 1:
                new = new[:i] + new[j:]
            case 2:
                new = new[:i] + new[j:k] + new[i:j] + new[k:]
            case 3:
                new = (new[:i] + new[i:j] * 2 + new[j:])[:20_000]
            case 4:
                new = new[:i] + bytes(byte ^ 1 for byte in new[i : i + 3]) + new[i + 3 :]
            case _:
                new = new[:i] + old[j:k] + new[i:]
    return (old, new) if draw(st.booleans()) else (new, old)


pairs = edited() | st.tuples(strings(), strings()) | st.tuples(st.binary(), st.binary())


def check_pair(old: bytes, new: bytes) -> Delta:
    """See that a delta is exact, survives being bytes, and is not much larger than the new one."""
    delta = diff(old, new)
    assert apply(old, delta) == new
    payload = dump(delta)
    assert parse(payload) == delta
    assert size_of(delta) == len(new)
    assert len(payload) <= len(new) + 64
    end = payload.index(b"]") + 1
    assert (orjson.loads(payload[:end]), payload[end:]) == (delta.ops, delta.literal)
    assert len(delta.ops) % 3 == 0
    assert sum(delta.ops[2::3]) == len(delta.literal)
    return delta


@given(pairs)
@thorough
def test_a_delta_is_exact_and_not_much_larger(pair: tuple[bytes, bytes]) -> None:
    check_pair(*pair)


@given(st.lists(strings(size_max=400), min_size=2, max_size=8))
@settings(thorough, max_examples=60)
def test_a_chain_of_deltas_is_exact(versions: list[bytes]) -> None:
    """Each made against what the ones before it decode to."""
    current = b""
    for new in versions:
        current = apply(current, parse(dump(diff(current, new))))
        assert current == new


@for_each("size", [1, 31, 32, 33, 100, 64 * KIB, 64 * KIB + 1, 300_000])
def test_what_did_not_change_costs_nothing(size: int) -> None:
    same = random.Random(size).randbytes(size)
    assert len(dump(check_pair(same, same))) <= 64
    if size >= 100:
        assert len(dump(check_pair(same, b"x" + same + b"y"))) <= 96
        assert len(dump(check_pair(same, same[5:-5]))) <= 64


# Bounded time.


def _noise(seed: int, size: int, alphabet: bytes = bytes(range(256))) -> bytes:
    return bytes(random.Random(seed).choices(alphabet, k=size))


def _shuffled(text: bytes, size: int) -> bytes:
    blocks = [text[at : at + size] for at in range(0, len(text), size)]
    random.Random(1).shuffle(blocks)
    return b"".join(blocks)


def _spoilt(text: bytes, size: int) -> bytes:
    return b"".join(text[at : at + size - 1] + b"x" for at in range(0, len(text), size))


HOSTILE: dict[str, Callable[[], tuple[bytes, bytes]]] = {
    "one letter, one other": lambda: (b"a" * 300_000, b"a" * 150_000 + b"b" + b"a" * 149_999),
    "runs": lambda: (b"".join(b"a" * k + b"b" for k in range(700)),
                     b"".join(b"a" * k + b"b" for k in reversed(range(700)))),
    "almost a match": lambda: ((b"a" * 31 + b"b") * 9_000, (b"a" * 30 + b"cb") * 9_000),
    "two letters, one edit": lambda: (_noise(1, 300_000, b"ab"),
                                      _noise(1, 150_000, b"ab") + b"c" + _noise(3, 150_000, b"ab")),
    "noise": lambda: (_noise(1, 1_000_000), _noise(2, 1_000_000)),
    "shuffled blocks": lambda: (_noise(1, 512 * KIB), _shuffled(_noise(1, 512 * KIB), 40)),
    "an edit every 40 bytes": lambda: (_noise(1, 400_000), _spoilt(_noise(1, 400_000), 40)),
    "the first sample everywhere": lambda: (b"0123456789abcdefghijklmn" * 12_000,
                                            (b"0123456789abcdefghijklmn" + b"!" * 9) * 9_000),
}  # fmt: skip


@for_each("name", HOSTILE)
def test_hostile_input_takes_bounded_time(name: str) -> None:
    old, new = HOSTILE[name]()
    begin = time.process_time()
    delta = diff(old, new)
    made = apply(old, parse(dump(delta)))
    took_s = time.process_time() - begin
    assert made == new
    assert len(dump(delta)) <= len(new) + 64
    assert took_s < CPU_S_MAX


# Small for what agents do.


@for_each("kind", KINDS)
def test_the_traces_of_agents_are_small(kind: str) -> None:
    """On the mean: at most twice what is new, and what it takes to say where that goes."""
    chance = random.Random(kind)
    state = {**BASE, "messages": [message(chance) for _ in range(30)]}
    allowed = taken = whole = 0
    for _ in range(200):
        step = KINDS[kind](chance, state)
        old, new = text_of(state), text_of(step.state)
        taken += len(dump(check_pair(old, new)))
        allowed += 2 * step.changed + 80 * step.places
        whole += len(new)
        state = step.state
    assert taken <= allowed
    assert taken < 0.2 * whole


def test_opaque_text_is_small_when_it_grows() -> None:
    """Base64 of a blob to which something is added, or whose end changes."""
    blob = _noise(7, 90_000)
    old = orjson.dumps({"n": 1, "blob": base64.b64encode(blob).decode(), "after": [1]})
    for other in (blob + _noise(8, 300), blob[:-300] + _noise(8, 300), blob[3_000:]):
        new = orjson.dumps({"n": 2, "blob": base64.b64encode(other).decode(), "after": [1, 2]})
        assert len(dump(check_pair(old, new))) <= 800


# Deltas that are none.

numbers = st.integers(0, 50) | st.sampled_from([2**31, 2**62, 2**63, 10**30])


@given(st.binary(max_size=60), st.lists(st.tuples(numbers, numbers, st.integers(0, 9)), max_size=6))
@thorough
def test_a_delta_fits_its_base_or_is_refused(
    base: bytes, steps: list[tuple[int, int, int]]
) -> None:
    """Never an error of another class, and never less than it says."""
    ops = [number for step in steps for number in step]
    literal = bytes(range(sum(ops[2::3])))
    delta = Delta(ops, literal)
    expected, at = b"", 0
    for start, count, fresh in steps:
        if start + count > len(base):
            with pytest.raises(Corrupt):
                apply(base, delta)
            return
        expected += base[start : start + count] + literal[at : at + fresh]
        at += fresh
    assert apply(base, delta) == expected
    assert size_of(delta) == len(expected)


@for_each("payload", [
        b"", b"]", b"[", b"{}", b"[]x", b"null]", b"1,2,3]", b"0", b"[0,0,0", b"[0,0]", b"[0]",
        b"[0,0,1]", b"[0,0,1]ab", b"[0,0,0]a", b"[0,0,2]a", b"[-1,1,0]", b"[0,-1,0]", b"[0,0,-1]",
        b"[0,0,-1,0,0,1]", b"[0,0,-1,0,0,2]a", b"[0,1.0,0]", b"[0,1e1,0]", b"[true,true,false]",
        b"[0,true,0]", b"[0,null,0]", b'["0","1","0"]', b"[[0],1,0]", b"[0,1,[0]]", b"{[0,0,0]}",
        b"[0,0,0]]", b"[0,99999999999999999999,0]", b"[0,0,99999999999999999999]", b"[0,0,0,]",
        b"[NaN,0,0]", b"\xff[0,0,0]", b"x[0,0,0]", b"[0,0,1]\n\n", b'["]",0,0]', b"[0,1,0\0]",
        b"[0 0 0]", b"[00,0,0]", b"[+1,0,0]", b'{"a":[0,0,0]', b"[0,0,0,0]", b"[0,0,0,0,0]",
        b"[9223372036854775807,9223372036854775807,1]", b"[0,0,18446744073709551615]a",
    ])  # fmt: skip
def test_what_is_no_delta_is_refused(payload: bytes) -> None:
    with pytest.raises(Corrupt):
        parse(payload)


@given(pairs, st.integers(0, 2**32))
@thorough
def test_a_damaged_delta_is_refused_or_makes_what_it_says(
    pair: tuple[bytes, bytes], seed: int
) -> None:
    """Bytes changed, lost or added at any place: there is one class of error."""
    chance = random.Random(seed)
    payload = bytearray(dump(diff(*pair)))
    for _ in range(chance.choice((1, 1, 3))):
        at = chance.randrange(min(len(payload), 40))
        payload[at : at + chance.randrange(2)] = chance.choice(
            (b"", b"]", b",", b"-", b"9", b"1e5", b"[", b"\0", b" ", b".0", b"\xff")
        )
    try:
        delta = parse(bytes(payload))
        made = apply(pair[0], delta)
    except Corrupt:
        return
    assert len(made) == size_of(delta)


# In a store: space and time.


@pytest.fixture
def forest(tmp_path: Path) -> Iterator[Forest]:
    forest = Forest(tmp_path / "store.db")
    yield forest
    forest.close()


def file_bytes(forest: Forest) -> int:
    forest.store.compact()
    forest.reopen()
    return sum(each.stat().st_size for each in forest.path.parent.iterdir())


@pytest.mark.parametrize(("kind", "share"), [("append", 1.0), ("sliding", 0.5)])
def test_a_prune_gives_space_back(forest: Forest, kind: str, share: float) -> None:
    grow(forest, MAIN, kind, 300)
    before = file_bytes(forest)
    forest.do(MAIN, "prune", keep_last=10)
    forest.verify()
    assert file_bytes(forest) < share * before
    grow(forest, MAIN, kind, 40, seed="more")
    forest.verify()
    forest.verify_empty()


@pytest.mark.parametrize("kind", ["append", "middle"])
def test_replaced_drafts_leave_nothing(forest: Forest, kind: str) -> None:
    for number in range(80):
        grow(forest, MAIN, kind, 1, seed=number, keep=number % 10 == 0)
    with closing(sqlite3.connect(forest.path)) as conn:
        statement = "SELECT count(*) FROM tails WHERE seq NOT IN (SELECT seq FROM snapshots)"
        assert conn.execute(statement).fetchone() == (0,)
        (count,) = conn.execute("SELECT count(*) FROM snapshots").fetchone()
    assert count == len(list(forest.store.scope(*MAIN).ids())) + 1 == 9


def load_s(forest: Forest, key: ScopeKey) -> float:
    """Return the least processor time of several loads, which a busy machine hardly changes."""
    times = []
    for _ in range(7):
        begin = time.process_time()
        forest.store.scope(*key).load()
        times.append(time.process_time() - begin)
    return min(times)


@pytest.mark.parametrize("way", slowly(("fork", "delete", "update"), but=("delete",)))
def test_a_read_costs_no_more_for_a_long_past(forest: Forest, way: str) -> None:
    """In proportion to the state, however many lines and edits lie between it and a whole one."""
    chance, key = random.Random(way), MAIN
    grow(forest, key, "append", 30)
    for number in range(90):
        head = forest.head(key)
        if way == "fork":
            key = forest.fork(key, head, scope_id=f"f{number}")
        elif way == "delete":
            forest.delete(key, head)
            grow(forest, key, "append", 1, seed=f"{number} again")
        else:
            state = evolve(chance, forest.state(key, head), "middle")
            forest.update(key, head, state)
        grow(forest, key, "append", 1, seed=number)
    forest.verify()
    whole = ScopeKey("whole")
    forest.save(whole, forest.state(key))
    assert load_s(forest, key) < 10 * load_s(forest, whole)
