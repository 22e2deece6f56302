"""The engine over a storage in memory: damage, states that were put back, shared forks, rolls."""

import os
import threading
from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

import pytest

from limpet import opening
from limpet.backends.memory import MemoryStorage
from limpet.core import codec
from limpet.engine import Engine
from limpet.engine.rolling import Limits
from limpet.errors import Corrupt
from limpet.model import ScopeKey, SnapshotInfo, SnapshotRef
from limpet.protocol import Append, Commit, Copy
from limpet.storage import SHARED, Reader, ScopeRecord

T = TypeVar("T")

KEY = ScopeKey("s", "main")
IDS = [f"id-{n}" for n in range(6)]


def text_of(number: int, size: int = 6_000) -> bytes:
    """Return a state that is stored as a delta; much of it is the same for all."""
    return codec.encode({"n": number, "text": "a line that all of them have. " * (size // 30)})


def save(engine: Engine, scope: ScopeKey, body: Any, **options: Any) -> SnapshotInfo:
    return engine.commit(Commit(scope, body, None, b"{}", b"{}", opening.draw(), **options))


def fork(engine: Engine, source: ScopeKey, to: str) -> ScopeKey:
    found, _ = engine.read_snapshots(source, [None])[0]
    scope = ScopeKey(source.session_id, to)
    ref = SnapshotRef(source, found.id)
    save(engine, scope, Copy(), forked_from=ref, source=found.revision, new_scope=True)
    return scope


def engine_of(storage: MemoryStorage, **options: Any) -> Engine:
    return Engine(storage, clock=opening.CLOCK, draw=opening.draw, **options)


def test_an_older_state_does_not_take_the_place_of_another() -> None:
    storage = MemoryStorage()
    engine = engine_of(storage)
    for number, id in enumerate(IDS):
        save(engine, KEY, text_of(number), id=id)
    scope = storage.at(KEY)
    old = dict(scope.tail_rows)
    save(engine, KEY, text_of(0, 9_000), id=IDS[0], overwrite=True)
    scope.tail_rows[scope.seqs[IDS[0]]] = old[scope.seqs[IDS[0]]]
    for id in IDS[:2]:  # itself, and what builds on it
        with pytest.raises(Corrupt, match="put back"):
            engine.read_snapshots(KEY, [id])


def test_an_older_segment_does_not_take_the_place_of_another() -> None:
    storage = MemoryStorage()
    engine = engine_of(storage, tails=Limits(snapshots=4))
    for number, id in enumerate(IDS):
        save(engine, KEY, text_of(number), id=id)
    scope = storage.at(KEY)
    old = dict(scope.segments)
    save(engine, KEY, text_of(0, 9_000), id=IDS[0], overwrite=True)
    assert [body for _, body in engine.read_snapshots(KEY, IDS[:2])] == [
        text_of(0, 9_000),
        text_of(1),
    ]
    scope.segments.update(old)
    assert engine.read_snapshots(KEY, [IDS[1]])[0][1] == text_of(1)
    with pytest.raises(Corrupt, match="put back"):
        engine.read_snapshots(KEY, [IDS[0]])


def test_an_old_state_that_another_process_has_replaced_is_seen() -> None:
    """Each process remembers the segments that it has read, but not by their place alone."""
    storage = MemoryStorage()
    options: Any = {"clock": opening.CLOCK, "draw": opening.draw, "tails": Limits(snapshots=3)}
    here, there = (opening.store_over(Engine(storage, **options)).scope("s") for _ in range(2))
    for number in range(10):
        there.save({"n": number}, id=f"id-{number}")
    for state in ({"n": 0}, {"n": 7}):
        there.save(state, id="id-0", overwrite=True)
        found = here.load("id-0")
        assert found is not None
        assert found.state == state


def test_an_update_of_labels_leaves_the_state_alone() -> None:
    storage = MemoryStorage()
    engine = engine_of(storage, tails=Limits(snapshots=4))
    for number, id in enumerate(IDS):
        save(engine, KEY, text_of(number), id=id)
    stored = storage.stored_bytes("s")
    for number, id in enumerate(IDS):
        commit = Commit(KEY, text_of(number), None, b'{"l":"1"}', b"{}", opening.draw(), id=id)
        engine.commit(commit._replace(overwrite=True))
    assert storage.stored_bytes("s") == stored
    save(engine, KEY, text_of(9))
    assert [body for _, body in engine.read_snapshots(KEY, IDS)] == [*map(text_of, range(6))]


def test_forks_share_a_state_by_name() -> None:
    storage = MemoryStorage()
    engine = engine_of(storage)
    state = codec.encode({"text": os.urandom(40_000).hex()})
    save(engine, KEY, state, id="a")
    alone = storage.stored_bytes("s")
    forks = [fork(engine, KEY, f"fork-{n}") for n in range(5)]
    assert storage.stored_bytes("s") < 2.2 * alone
    assert len(storage.shared) == 1
    save(engine, KEY, text_of(1), id="a", overwrite=True)  # another name from now on
    forks.append(fork(engine, KEY, "later"))
    assert len(storage.shared) == 2
    engine.delete_snapshots(KEY, ["a"])
    found = [engine.read_snapshots(each, [None])[0][1] for each in forks]
    assert found == [state] * 5 + [text_of(1)]
    for each in forks[:4]:
        engine.delete_scope(each)
    assert len(storage.shared) == 2
    save(engine, forks[5], Append("list", b"[1]", 10**6))
    engine.delete_session("s")
    assert storage.shared == {}
    assert storage.stored_bytes(None) == 0


def test_a_fork_is_rolled_once_it_weighs_what_it_shares() -> None:
    storage = MemoryStorage()
    engine = engine_of(storage, tails=Limits(snapshots=4))
    save(engine, KEY, codec.encode({"text": os.urandom(20_000).hex(), "list": []}))
    scope = storage.at(fork(engine, KEY, "fork"))
    key = ScopeKey("s", "fork")
    saved = list[SnapshotInfo]()
    while not scope.segments:
        more = codec.encode([os.urandom(900).hex()])
        saved.append(save(engine, key, Append("list", more, 10**7)))
        assert len(saved) < 100
    assert len(saved) > 10
    assert storage.shared == {}
    assert SHARED not in {row.encoding for row in scope.tail_rows.values()}
    sizes = [len(engine.read_snapshots(key, [info.id])[0][1]) for info in saved]
    assert sizes == [info.size for info in saved]


class SlowStorage(MemoryStorage):
    """A storage whose reads wait in the thread of the rolls, until `gate` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()

    def read(self, key: ScopeKey, use: Callable[[Reader], T], seen: ScopeRecord | None = None) -> T:
        if threading.current_thread().name == "limpet-rolls":
            self.gate.wait()
        return super().read(key, use, seen)


def test_a_writer_that_outruns_the_rolls_rolls_itself() -> None:
    storage = SlowStorage()
    engine = engine_of(storage, tails=Limits(snapshots=4), rolls="background")
    for number in range(100):
        save(engine, KEY, text_of(number))
        assert len(storage.at(KEY).tail_rows) <= 4 * 4
    storage.gate.set()
    engine.close()


def test_parsed_segments_are_kept_up_to_a_limit() -> None:
    engine = engine_of(MemoryStorage(), tails=Limits(snapshots=4))
    for number, id in enumerate(IDS):
        save(engine, KEY, text_of(number), id=id)
    for _ in range(2):
        assert engine.read_snapshots(KEY, [IDS[0]])[0][1] == text_of(0)
    assert len(engine._segments._values) == 1
    assert engine._segments.cost_held > len(text_of(0))  # what was decompressed counts


def test_a_forked_child_rolls_without_the_thread() -> None:
    engine = engine_of(MemoryStorage(), tails=Limits(snapshots=4), rolls="background")
    save(engine, KEY, text_of(0))
    if (child := os.fork()) == 0:
        for number in range(8):
            save(engine, KEY, text_of(number))
        os._exit(0 if engine.storage.at(KEY).segments else 1)  # type: ignore[attr-defined]
    assert os.waitpid(child, 0)[1] == 0


def test_states_of_two_branches_build_on_their_own() -> None:
    """Saved in turns, each on its own parent, neither is stored whole again and again."""
    engine = Engine(MemoryStorage(), clock=opening.CLOCK, draw=opening.draw)
    dice, heads, size = Random(1), list[str](), 0
    branches = [[dice.randbytes(60).hex() for _ in range(200)] for _ in range(2)]
    for turn in range(60):
        for at, branch in enumerate(branches):
            branch.append(f"{at} {turn}")
            parent = heads[at] if turn else None
            info = save(engine, KEY, codec.encode(branch), parent=parent)
            heads[at:] = [info.id, *heads[at + 1 :]]
            size += info.size

    assert engine.storage.stored_bytes(None) < size / 10
    for at, branch in enumerate(branches):
        assert engine.read_snapshots(KEY, [heads[at]])[0][1] == codec.encode(branch)
