"""A storage of scopes in memory: every call is a step of the scheduler and may go wrong.

Some runs have a storage that locks a scope while a change is decided, as SQL does; others one that
reads, decides and compares-and-sets, again and again, as object stores do.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

from limpet.backends.memory import MemoryStorage
from limpet.core import codec, segments
from limpet.core.segments import Segment
from limpet.engine import Engine, rolling, saving, states
from limpet.engine.rolling import Limits
from limpet.engine.states import States
from limpet.errors import Unavailable
from limpet.model import Pruned, ScopeKey
from limpet.protocol import Clock, Stamp
from limpet.storage import NAME_BYTES, SHARED, Change, LostAnswer, Reader, ScopeRecord, Taken
from simulation.bucket import START_US, Late, SimulatedBucket
from simulation.faults import Crash, Fault

T = TypeVar("T")

# So that most states are deltas, many are compressed, and forks share them.
_SMALLER = {"SMALL_BYTES": 24, "_WHOLE_ZSTD_MIN": 96, "_DELTA_ZSTD_MIN": 48, "_SHARED_MIN": 8}
_TRIES_MAX = 50


@contextmanager
def small_states() -> Iterator[None]:
    """Let states be large sooner, in this block alone: the process may have other stores."""
    modules = [vars(each) for each in (segments, states, saving, rolling)]
    before = [{name: each[name] for name in _SMALLER if name in each} for each in modules]
    try:
        for module, values in zip(modules, before, strict=True):
            module.update({name: _SMALLER[name] for name in values})
        yield
    finally:
        for module, values in zip(modules, before, strict=True):
            module.update(values)


class _Timed:
    """A reader with the clock of the server; it notes which other scopes were read."""

    def __init__(self, reader: Reader, now_us: int) -> None:
        self._reader = reader
        self._now_us = now_us
        self.others: dict[ScopeKey, ScopeRecord | None] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def now(self, here: int) -> int:
        return self._now_us

    def other(self, key: ScopeKey) -> Reader:
        found = self._reader.other(key)
        self.others[key] = found.record
        return found


class SimulatedScopes:
    """The storage as one process sees it."""

    blocking = True
    capabilities = frozenset({"durable", "index", "atomic"})

    def __init__(self, bucket: SimulatedBucket) -> None:
        self._storage = bucket._storage
        self._actor = bucket._actor
        self._scopes: MemoryStorage = self._storage.scopes
        self._locks = self._storage.by_names  # a throw of the dice for each run

    def __getattr__(self, name: str) -> Any:
        """Listings and the like are one step."""
        call = getattr(self._scopes, name)

        def one_step(*arguments: Any, **options: Any) -> Any:
            self._begin_read(name)
            return call(*arguments, **options)

        return one_step

    def read(self, key: ScopeKey, use: Callable[[Reader], T]) -> T:
        self._begin_read("read")
        return self._scopes.read(key, lambda reader: use(self._timed(reader)))

    def write(self, change: Change) -> bool:
        return self._write(change)

    def transact(self, key: ScopeKey, decide: Callable[[Reader], tuple[Change | None, T]]) -> T:
        for attempt in range(_TRIES_MAX):
            try:
                self._begin_read("transact")
            except Unavailable:
                if attempt:
                    raise LostAnswer from None  # the refusal before may have been false
                raise
            reader = self._timed(self._scopes.at(key))
            change, result = decide(reader)
            if change is None or self._write(change, step=not self._locks, others=reader.others):
                return result
        raise Unavailable("the simulated storage is too busy")

    def drop(self, session_id: str, key: ScopeKey | None = None) -> int:
        drop = partial(self._drop, session_id, key)
        return self._faulty(f"drop {session_id}", drop, is_conditional=False)

    def _drop(self, session_id: str, key: ScopeKey | None) -> int:
        count = self._scopes.drop(session_id, key)
        self._check_shared()
        return count

    def close(self) -> None:
        """The others go on with it."""

    def _timed(self, reader: Any) -> Any:
        return _Timed(reader, START_US + self._storage.scheduler.now_us)

    def _note(self, what: str, said: str) -> None:
        self._storage.scheduler.note(self._actor, what, "", said)

    def _begin_read(self, what: str) -> None:
        self._storage.step()
        if self._storage.faults.of_read() is not None:
            self._note(what, "no answer")
            raise Unavailable("the simulated storage did not answer")
        self._note(what, "")

    def _write(
        self,
        change: Change,
        *,
        step: bool = True,
        others: Mapping[ScopeKey, ScopeRecord | None] = MappingProxyType({}),
    ) -> bool:
        version = 0 if change.after is None else change.after.version
        what = f"write {version % 2**24:06x}"
        execute = partial(self._execute, change, others)
        return self._faulty(what, execute, is_conditional=not self._locks, step=step)

    def _faulty(
        self, what: str, execute: Callable[[], T], *, is_conditional: bool, step: bool = True
    ) -> T:
        """Execute a write, unless something goes wrong; a false refusal is False."""
        if step:
            self._storage.step()
        fault = self._storage.faults.of_write(in_time=False, is_conditional=is_conditional)
        if fault is None:
            done = execute()
            self._note(what, f"{done}")
            return done
        self._note(what, fault.value)
        if fault is Fault.LATE:
            self._storage.send_late(Late(self._actor, what, "", lambda: _outcome(execute)))
            raise LostAnswer
        if fault in (Fault.CRASH_AFTER, Fault.LOST_AFTER, Fault.FALSE_REFUSAL):
            _outcome(execute)
        if fault is Fault.FALSE_REFUSAL:
            return False  # type: ignore[return-value]
        if fault in (Fault.CRASH_BEFORE, Fault.CRASH_AFTER):
            raise Crash
        if fault is Fault.REFUSED:
            raise Unavailable("the simulated storage refused")
        raise LostAnswer

    def _execute(self, change: Change, others: Mapping[ScopeKey, ScopeRecord | None]) -> bool:
        # What was decided with has to be so still: other scopes, and states that are shared.
        is_same = all(self._scopes.at(key).record == record for key, record in others.items())
        shared = self._scopes.shared.keys() | {row.name for row in change.shared}
        names = {row.body[:NAME_BYTES] for row in change.tail if row.encoding == SHARED}
        is_same &= names <= shared
        done = is_same and self._scopes.write(change)
        self._check_shared()
        if done and not change.apart:
            self._check_follows(change)
        return done

    def _check_follows(self, change: Change) -> None:
        scope = self._scopes.at(change.key)
        before = max(seq for seq in scope.snapshots if seq != change.rows[0].seq)
        assert scope.snapshots[before].id == change.rows[0].parent_id, "its parent is another"

    def _check_shared(self) -> None:
        used = set[bytes]().union(*(each.names() for each in self._scopes._scopes.values()))
        assert used == self._scopes.shared.keys(), "a shared state is missing, or nobody's"


def _outcome(execute: Callable[[], object]) -> str:
    try:
        return f"{execute()}"
    except Taken:
        return "taken"


class InspectedEngine(Engine):
    """The engine; after a deletion the storage itself is searched for what was deleted."""

    def delete_snapshots(
        self, scope: ScopeKey, ids: Sequence[str], *, spare_head: bool = False, **options: Any
    ) -> Pruned:
        scopes: MemoryStorage = self.storage._scopes  # type: ignore[attr-defined]
        before = scopes.read(scope, _tags)
        answer = super().delete_snapshots(scope, ids, spare_head=spare_head, **options)
        after = scopes.read(scope, _tags)
        gone = set().union(*(tags for id, tags in before.items() if id in ids))
        left = set().union(*after.values())
        stored = scopes.read(scope, _stored)
        for tag in gone - left:
            assert codec.encode(tag) not in stored, f"{tag} was deleted and is still stored"
        return answer


def _tags(reader: Reader) -> dict[str, set[str]]:
    """Return what the states of a scope hold, by id."""
    rows = list(reader.snapshots.values())  # type: ignore[attr-defined]
    logs = {row.id: codec.decode(States(reader).get(row.seq)) for row in rows}
    return {id: set(log.get("log", ())) for id, log in logs.items() if isinstance(log, dict)}


def _stored(reader: Reader) -> bytes:
    """Return all bytes of the states of a scope, decompressed."""
    parts = [States(reader).payload(row) for row in reader.tail().values()]
    for row in reader.segments.values():  # type: ignore[attr-defined]
        segment = Segment.parse(row.blob)
        parts += [codec.decompress(frame.data, what="frame") for frame in segment.frames]
    return b"\n".join(parts)


def open_engine(bucket: Any, clock: Clock, draw: Callable[[], Stamp]) -> InspectedEngine:
    """Open the engine over a storage of scopes, whose tails are rolled after two snapshots."""
    storage = SimulatedScopes(bucket)
    return InspectedEngine(storage, clock=clock, draw=draw, tails=Limits(snapshots=2))
