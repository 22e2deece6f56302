"""A storage of scopes in memory: every call is a step of the scheduler and may go wrong.

Some runs have a storage that locks a scope while a change is decided, as SQL does; others one that
reads, decides and compares-and-sets, again and again, as object stores do.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

from limpet.backends.memory import MemoryStorage
from limpet.core.rows import Row
from limpet.engine import Engine
from limpet.engine.rolling import Limits
from limpet.errors import Unavailable
from limpet.model import ScopeKey
from limpet.protocol import Clock, Stamp
from limpet.storage import NAME_BYTES, SHARED, Change, LostAnswer, Reader, ScopeRecord, Taken
from simulation.bucket import START_US, Late, SimulatedBucket
from simulation.engine import Inspected, in_segment
from simulation.faults import Crash, Fault

T = TypeVar("T")

_TRIES_MAX = 50


class _Timed:
    """A reader with the clock of the server; it notes which other scopes were read."""

    def __init__(self, reader: Reader, now_us: int) -> None:
        self._reader = reader
        self._now_us = now_us
        self.others: dict[ScopeKey, ScopeRecord | None] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def now(self, here: int, *, hint: bool = False) -> int:
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

    def read(self, key: ScopeKey, use: Callable[[Reader], T], seen: ScopeRecord | None = None) -> T:
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
        is_conditional = not self._locks and change.after is not None
        return self._faulty(what, execute, is_conditional=is_conditional, step=step)

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


class InspectedScopes(Inspected):
    """The engine over a storage of scopes."""

    def moment(self, scope: ScopeKey) -> tuple[Reader, Iterable[Row]]:
        scopes: MemoryStorage = self.storage._scopes  # type: ignore[attr-defined]
        found = scopes.at(scope)
        return found, found.snapshots.values()

    def texts(self, scope: ScopeKey, before: set[str]) -> Iterator[bytes]:
        found: Any = self.moment(scope)[0]
        yield from (note.value for note in found.note_rows.values())
        for row in found.segments.values():
            yield from in_segment(row.blob)


def open_scopes(bucket: Any, clock: Clock, draw: Callable[[], Stamp]) -> Engine:
    """Open the engine over a storage of scopes, whose tails are rolled after two snapshots."""
    storage = SimulatedScopes(bucket)
    return InspectedScopes(storage, clock=clock, draw=draw, tails=Limits(snapshots=2))
