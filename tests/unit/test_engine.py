"""The engine over a storage in memory: damage, states that were put back, shared forks, rolls."""

import os
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
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
from limpet.protocol import Append, Commit, Copy, NoteWrite
from limpet.storage import DAMAGED, SHARED, Change, Reader, ScopeRecord, SegmentRow, TailRow

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


class _Damaged:
    """A reader that finds a row, a tail row or a segment damaged, as a storage with checksums."""

    def __init__(self, reader: Any, kind: str, seq: int) -> None:
        self._reader, self._kind, self._seq = reader, kind, seq

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def row_at(self, seq: int) -> Any:
        if self._kind == "row" and seq == self._seq:
            raise Corrupt("the row of a snapshot fails its checksum")
        return self._reader.row_at(seq)

    def rows(self, ids: Sequence[str]) -> Any:
        return [self.row_at(row.seq) for row in self._reader.rows(ids)]

    def tail_row(self, seq: int) -> TailRow | None:
        return self.tail().get(seq)

    def tail(self) -> dict[int, TailRow]:
        rows = dict(self._reader.tail())
        if self._kind == "tail" and self._seq in rows:
            rows[self._seq] = TailRow(self._seq, None, DAMAGED, b"")
        return rows

    def segment(self, seq: int | None) -> SegmentRow | None:
        found: SegmentRow | None = self._reader.segment(seq)
        if found is None or not found.first <= self._seq <= found.last:
            return found
        if self._kind == "segment":
            raise Corrupt("a segment fails its checksum")
        return found._replace(blob=b"", nonces={}) if self._kind == "blob" else found

    def notes(self, on: Collection[str], names: Collection[str] | None = None) -> Any:
        if self._kind == "note":
            raise Corrupt("a note fails its checksum")
        return self._reader.notes(on, names)


class DamagedStorage(MemoryStorage):
    """A storage in memory of which something is damaged once `damage` is set."""

    damage: tuple[str, int] | None = None

    def _seen(self, reader: Reader) -> Any:
        return reader if self.damage is None else _Damaged(reader, *self.damage)

    def read(self, key: ScopeKey, use: Callable[[Reader], T], seen: ScopeRecord | None = None) -> T:
        return super().read(key, lambda reader: use(self._seen(reader)), seen)

    def read_head(self, key: ScopeKey) -> tuple[ScopeRecord, Any, TailRow | None] | None:
        def use(reader: Reader) -> tuple[ScopeRecord, Any, TailRow | None] | None:
            record = reader.record
            if record is None or record.head is None:
                return None
            return record, reader.row_at(record.head), reader.tail_row(record.head)

        return self.read(key, use)

    def transact(self, key: ScopeKey, decide: Callable[[Reader], tuple[Change | None, T]]) -> T:
        return super().transact(key, lambda reader: decide(self._seen(reader)))


def engine_of(storage: MemoryStorage, **options: Any) -> Engine:
    return Engine(storage, clock=opening.CLOCK, draw=opening.draw, **options)


@pytest.fixture(params=["row", "tail", "segment", "blob", "head row", "head state"])
def hit(request: pytest.FixtureRequest) -> tuple[Engine, str]:
    """Six snapshots, the first four in a segment, and the id of one that is damaged."""
    storage = DamagedStorage()
    engine = engine_of(storage, tails=Limits(snapshots=4))
    for number, id in enumerate(IDS):
        save(engine, KEY, text_of(number), id=id)
    scope = storage.at(KEY)
    assert len(scope.tail_rows) == 2
    kind, id = {
        "row": ("row", IDS[1]),
        "tail": ("tail", IDS[4]),
        "segment": ("segment", IDS[1]),
        "blob": ("blob", IDS[1]),
        "head row": ("row", IDS[5]),
        "head state": ("tail", IDS[5]),
    }[request.param]
    storage.damage = kind, scope.seqs[id]
    engine.distrust(KEY)
    return engine, id


def readable(engine: Engine) -> dict[str, bytes]:
    found = dict[str, bytes]()
    for id in IDS:
        with suppress(Corrupt):
            found |= {info.id: body for info, body in engine.read_snapshots(KEY, [id])}
    return found


def test_damage_is_raised_and_can_be_deleted(hit: tuple[Engine, str]) -> None:
    engine, id = hit
    before = readable(engine)
    with pytest.raises(Corrupt):
        engine.read_snapshots(KEY, [id])
    assert engine.delete_snapshots(KEY, [id]).count == 1
    assert engine.read_snapshots(KEY, [id]) == []
    assert readable(engine) == before


@pytest.mark.parametrize("spare_head", [False, True])
def test_others_can_be_deleted(hit: tuple[Engine, str], spare_head: bool) -> None:
    engine, id = hit
    before = readable(engine)
    others = [each for each in IDS if each != id]
    doomed = [*others[::2], IDS[5]] if spare_head else others[::2]
    gone = {each for each in doomed if not (spare_head and each == IDS[5])}
    pruned = engine.delete_snapshots(KEY, doomed, spare_head=spare_head)
    assert pruned.count == len(gone)
    left = {each: body for each, body in before.items() if each not in gone}
    assert readable(engine) == left


def test_a_save_goes_past_damage(hit: tuple[Engine, str]) -> None:
    engine, id = hit
    before = readable(engine)
    with suppress(Corrupt):  # if the head itself is not known
        save(engine, KEY, text_of(10))
    for number in range(10, 16):  # so that tails are rolled, too
        save(engine, KEY, text_of(number), past_damage=number == 10)
    assert engine.read_snapshots(KEY, [None])[0][1] == text_of(15)
    assert readable(engine) == before
    with pytest.raises(Corrupt):
        engine.read_snapshots(KEY, [id])


def test_a_damaged_state_can_be_replaced() -> None:
    for kind, id in (("tail", IDS[4]), ("segment", IDS[1]), ("blob", IDS[1])):
        storage = DamagedStorage()
        engine = engine_of(storage, tails=Limits(snapshots=4))
        for number, each in enumerate(IDS):
            save(engine, KEY, text_of(number), id=each)
        storage.damage = kind, storage.at(KEY).seqs[id]
        save(engine, KEY, text_of(77), id=id, overwrite=True)
        if kind == "tail":
            storage.damage = None  # another row is in its place
        assert engine.read_snapshots(KEY, [id])[0][1] == text_of(77)


def test_a_damaged_note_can_be_deleted() -> None:
    storage = DamagedStorage()
    engine = engine_of(storage)
    for name in ("a", "b"):
        engine.write_note(NoteWrite(KEY, name, None, b"1", opening.draw()))
    storage.damage = "note", 0
    with pytest.raises(Corrupt):
        engine.read_notes(KEY, ["a"])
    assert engine.delete_note(KEY, "a", on=None) == 1
    assert engine.delete_note(KEY, "a", on=None) == 0
    storage.damage = None
    assert [note.name for note in engine.read_notes(KEY, ["a", "b"])] == ["b"]


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


def test_rolls_in_the_background() -> None:
    storage = MemoryStorage()
    engine = engine_of(storage, tails=Limits(snapshots=8), rolls="background")
    states = [text_of(number) for number in range(100)]
    infos = [save(engine, KEY, state) for state in states]
    engine._roller.close()  # type: ignore[union-attr]
    assert storage.at(KEY).segments
    assert len(storage.at(KEY).tail_rows) < 40
    found = [engine.read_snapshots(KEY, [info.id])[0][1] for info in infos]
    assert found == states
    engine.close()
    assert "limpet-rolls" not in {each.name for each in threading.enumerate()}


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


def test_a_scope_waits_for_its_roll_once() -> None:
    storage = SlowStorage()
    engine = engine_of(storage, tails=Limits(snapshots=4), rolls="background")
    for key in (KEY, ScopeKey("s", "other")):
        for number in range(10):
            save(engine, key, text_of(number))
    assert engine._roller is not None
    assert engine._roller._queue.qsize() <= 2
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
