"""The storage in memory: the shortest one, and the model for the others.

Everything lives as long as the store. One lock makes each call one step.
"""

import heapq
import os
import threading
import weakref
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from queue import Empty, SimpleQueue
from typing import TypeVar

from limpet.backends.support.forks import renew_after_fork
from limpet.core.codec import decode
from limpet.core.notes import NoteRow, last_written
from limpet.core.rows import Row, newest_page
from limpet.model import Finding, ScopeKey, SnapshotRef
from limpet.protocol import NoteQuery, Query, SessionAge, Target, Topic
from limpet.storage import (
    NAME_BYTES,
    SHARED,
    Change,
    Reader,
    ScopeQuery,
    ScopeRecord,
    SegmentRow,
    SharedRow,
    TailRow,
    Taken,
    is_at,
)

T = TypeVar("T")


class _Scope:
    """Everything of one scope, and one moment of it: it is read and changed under the lock."""

    def __init__(self, storage: "MemoryStorage") -> None:
        self._storage = storage
        self.record: ScopeRecord | None = None
        self.snapshots: dict[int, Row] = {}
        self.seqs: dict[str, int] = {}
        self.tail_rows: dict[int, TailRow] = {}
        self.segments: dict[int, SegmentRow] = {}
        self.note_rows: dict[tuple[str, str], NoteRow] = {}

    def apply(self, change: Change, record: ScopeRecord) -> None:
        self.record = record
        for seq in change.rows_gone:
            del self.seqs[self.snapshots.pop(seq).id]
        for row in change.rows:
            self.snapshots[row.seq], self.seqs[row.id] = row, row.seq
        for seq in change.tail_gone:
            self.tail_rows.pop(seq, None)
        for entry in change.tail:
            self.tail_rows[entry.seq] = entry
        for last in change.segments_gone:
            del self.segments[last]
        for segment in change.segments:
            self.segments[segment.last] = segment
        for address in change.notes_gone:
            self.note_rows.pop(address, None)
        for note in change.notes:
            self.note_rows[note.on, note.name] = note

    def names(self) -> set[bytes]:
        """Return the names of the states that it shares."""
        return {row.body[:NAME_BYTES] for row in self.tail_rows.values() if row.encoding == SHARED}

    def row_at(self, seq: int) -> Row | None:
        return self.snapshots.get(seq)

    def rows(self, ids: Sequence[str]) -> list[Row]:
        return [self.snapshots[self.seqs[id]] for id in ids if id in self.seqs]

    def row_by_nonce(self, nonce: str) -> Row | None:
        return next((row for row in self.snapshots.values() if row.nonce == nonce), None)

    def rows_between(self, first: int, last: int) -> list[Row]:
        return [row for seq, row in sorted(self.snapshots.items()) if first <= seq <= last]

    def seqs_and_sizes(self, ids: Sequence[str]) -> list[tuple[int, int]]:
        return [(row.seq, row.size) for row in self.rows(ids)]

    def newest_kept(self, without: Collection[int]) -> int | None:
        kept = (seq for seq, row in self.snapshots.items() if row.kept and seq not in without)
        return max(kept, default=None)

    def tail_row(self, seq: int) -> TailRow | None:
        return self.tail_rows.get(seq)

    def tail(self) -> dict[int, TailRow]:
        return dict(sorted(self.tail_rows.items()))

    def segment(self, seq: int | None) -> SegmentRow | None:
        ends = sorted(self.segments)
        at = len(ends) - 1 if seq is None else bisect_left(ends, seq)
        return self.segments[ends[at]] if 0 <= at < len(ends) else None

    def shared(self, name: bytes) -> SharedRow | None:
        return self._storage.shared.get(name)

    def has_shared(self, name: bytes) -> bool:
        return name in self._storage.shared

    def notes(self, on: Collection[str], names: Collection[str] | None = None) -> list[NoteRow]:
        wanted = (row for row in self.note_rows.values() if row.on in on)
        return [row for row in wanted if names is None or row.name in names]

    def note_page(self, on: str, after: str, limit: int) -> list[NoteRow]:
        rows = (row for row in self.notes([on]) if row.name > after)
        return heapq.nsmallest(limit, rows, key=lambda row: row.name)

    def note_addresses(self, on: Collection[str]) -> list[tuple[str, str]]:
        return [address for address in self.note_rows if address[0] in on]

    def noted(self, after: str, limit: int) -> list[str]:
        return heapq.nsmallest(limit, {on for on, _ in self.note_rows if on > after})

    def count(self) -> int:
        return len(self.snapshots)

    def now(self, here: int, *, hint: bool = False) -> int:
        return here

    def other(self, key: ScopeKey) -> Reader:
        return self._storage.at(key)


class MemoryListener:
    """Reports every change, which the thread that makes it puts into a queue."""

    def __init__(self) -> None:
        # Not a condition: the garbage collector may wake it in a thread that holds its lock.
        self._reported: SimpleQueue[str | None] = SimpleQueue()

    def report(self, session_id: str) -> None:
        self._reported.put(session_id)

    def follow(self, topics: Collection[Topic]) -> None:
        pass  # every change is reported

    def wait(self, *, active: bool) -> frozenset[str] | None:
        reported = {self._reported.get()}
        with suppress(Empty):
            while True:
                reported.add(self._reported.get_nowait())
        return frozenset(each for each in reported if each is not None)

    def wake(self) -> None:
        self._reported.put(None)

    def close(self) -> None:
        pass


class MemoryStorage:
    """Scopes in a dictionary."""

    blocking = False
    capabilities = frozenset({"index", "atomic"})

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._scopes: dict[ScopeKey, _Scope] = {}
        self._seqs: set[int] = set()
        self.shared: dict[bytes, SharedRow] = {}
        self._listeners: weakref.WeakSet[MemoryListener] = weakref.WeakSet()
        _storages.add(self)
        renew_after_fork(self)

    def after_fork(self) -> None:
        self._lock = threading.RLock()
        self._listeners.clear()  # their threads are the parent's

    def at(self, key: ScopeKey) -> _Scope:
        return self._scopes.get(key) or _Scope(self)

    def read(self, key: ScopeKey, use: Callable[[Reader], T], seen: ScopeRecord | None = None) -> T:
        with self._lock:
            return use(self.at(key))

    def read_head(self, key: ScopeKey) -> tuple[ScopeRecord, Row | None, TailRow | None] | None:
        with self._lock:
            scope = self.at(key)
            record = scope.record
            if record is None:
                return None
            head = -1 if record.head is None else record.head
            return record, scope.row_at(head), scope.tail_row(head)

    def write(self, change: Change) -> bool:
        with self._lock:
            scope = self.at(change.key)
            if not is_at(scope.record, change.before):
                return False
            if change.new_note and any((n.on, n.name) in scope.note_rows for n in change.notes):
                return False
            self._check_taken(scope, change)
            if change.after is None:
                self.drop(change.key.session_id, change.key)
                return True
            self._seqs.difference_update(change.rows_gone)
            self._seqs.update(row.seq for row in change.rows)
            scope.apply(change, change.after)
            self._scopes[change.key] = scope
            for each in change.shared:
                self.shared.setdefault(each.name, each)
            if change.unshared:
                self._unshare(change.key.session_id, change.unshared)
            self._report(change.key.session_id)
            return True

    def drop(self, session_id: str, key: ScopeKey | None = None) -> int:
        with self._lock:
            keys = [it for it in self._scopes if it.session_id == session_id and key in (None, it)]
            gone = [self._scopes.pop(each) for each in keys]
            for scope in gone:
                self._seqs.difference_update(scope.snapshots)
            names = [name for scope in gone for name in scope.names()]
            if names:
                self._unshare(session_id, names)
            self._report(session_id)
            return sum(scope.count() for scope in gone)

    def _unshare(self, session_id: str, names: Collection[bytes]) -> None:
        scopes = (it for key, it in self._scopes.items() if key.session_id == session_id)
        for name in set(names).difference(*(scope.names() for scope in scopes)):
            self.shared.pop(name, None)

    def _check_taken(self, scope: _Scope, change: Change) -> None:
        if change.replace:
            return
        for row in change.rows:
            found = scope.seqs.get(row.id)
            is_taken = row.seq in self._seqs and row.seq not in change.rows_gone
            if is_taken or (found is not None and found not in change.rows_gone):
                raise Taken

    def transact(self, key: ScopeKey, decide: Callable[[Reader], tuple[Change | None, T]]) -> T:
        with self._lock:
            change, result = decide(self.at(key))
            if change is not None:
                self.write(change)
            return result

    def _report(self, session_id: str) -> None:
        # Early is as good as late: a listener reads under the lock that is held here.
        for listener in list(self._listeners):
            listener.report(session_id)

    def list_rows(self, query: Query, limit: int) -> list[tuple[ScopeKey, Row]]:
        with self._lock:
            keys = [query.scope] if query.scope is not None else list(self._scopes)
            found = (
                (key, row)
                for key in keys
                if key.session_id.startswith(query.prefix)
                for row in _matches(self.at(key), query)
            )
            return heapq.nlargest(limit, found, key=lambda pair: pair[1].seq)

    def list_ids(self, scope: ScopeKey, after: str, limit: int) -> list[str]:
        with self._lock:
            rows = self.at(scope).snapshots.values()
            return heapq.nsmallest(limit, (row.id for row in rows if row.kept and row.id > after))

    def find_refs(self, id_prefix: str, limit: int) -> list[SnapshotRef]:
        with self._lock:
            rows = ((key, row) for key, it in self._scopes.items() for row in it.snapshots.values())
            kept = (SnapshotRef(key, row.id) for key, row in rows if row.kept)
            return list(islice((ref for ref in kept if ref.id.startswith(id_prefix)), limit))

    def list_scopes(
        self, query: ScopeQuery, limit: int | None = None
    ) -> list[tuple[ScopeRecord, Row | None]]:
        with self._lock:
            found = [
                (it.record, None if it.record.head is None else it.row_at(it.record.head))
                for key, it in self._scopes.items()
                if it.record is not None
                and it.record.holds_anything
                and query.covers(key)
                and (query.after is None or _order(key) > _order(query.after))
            ]
            return sorted(found, key=lambda pair: _order(pair[0].key))[:limit]

    def list_sessions(self, prefix: str, after: str, limit: int) -> list[str]:
        names = {record.key.session_id for record, _ in self.list_scopes(ScopeQuery(prefix=prefix))}
        return heapq.nsmallest(limit, (name for name in names if name > after))

    def list_newest(self, prefix: str, after: SessionAge | None, limit: int) -> list[SessionAge]:
        scopes = self.list_scopes(ScopeQuery(prefix=prefix))
        heads = ((record.key, None if row is None else row.created_at) for record, row in scopes)
        return newest_page(((key.session_id, at) for key, at in heads), after, limit)

    def find_notes(
        self, query: NoteQuery, limit: int, take: Callable[[ScopeKey, NoteRow], T | None]
    ) -> list[T]:
        with self._lock:
            scopes = ((key, it) for key, it in self._scopes.items() if query.covers(key))
            notes = ((key, row) for key, it in scopes for row in it.notes([""]))
            return last_written(notes, limit, take)

    def revisions(self, targets: Sequence[Target]) -> list[str | None]:
        with self._lock:
            return [self._revision(key, id) for key, id in targets]

    def _revision(self, key: ScopeKey, id: str | None) -> str | None:
        scope = self.at(key)
        seq = scope.seqs.get(id) if id is not None else scope.record and scope.record.head
        return None if seq is None else scope.snapshots[seq].revision

    def sizes(self, session_id: str | None) -> list[tuple[str, int, int]]:
        with self._lock:
            return [
                (key.session_id, it.count(), sum(row.size for row in it.snapshots.values()))
                for key, it in self._scopes.items()
                if session_id in (None, key.session_id)
                and it.record is not None
                and it.record.holds_anything
            ]

    def stored_bytes(self, session_id: str | None) -> int:
        with self._lock:
            scopes = [
                it for key, it in self._scopes.items() if session_id in (None, key.session_id)
            ]
            tails = sum(len(row.body) for it in scopes for row in it.tail_rows.values())
            names = set[bytes]().union(*(it.names() for it in scopes))
            shared = sum(len(self.shared[name].body) for name in names)
            segments = sum(len(row.blob) for it in scopes for row in it.segments.values())
            return tails + shared + segments

    def list_damage(self, scope: ScopeKey | None) -> list[Finding]:
        return []

    def check(self, after: str, *, repair: bool, limit: int) -> tuple[list[Finding], str | None]:
        return [], None

    def rekey(self, after: str, *, limit: int) -> tuple[int, str | None]:
        return 0, None

    def compact(self) -> int:
        return 0

    def listen(self) -> MemoryListener:
        with self._lock:
            listener = MemoryListener()
            self._listeners.add(listener)
            return listener

    def close(self) -> None:
        with self._lock:
            self._scopes.clear()
            self.shared.clear()


def _matches(scope: _Scope, query: Query) -> Iterator[Row]:
    kept = [row for row in scope.snapshots.values() if row.kept]
    parents = {row.parent_id for row in kept} if query.leaves else set()
    for row in kept:
        if row.id in parents or query.id not in (None, row.id):
            continue
        if query.after is not None and row.seq >= query.after:
            continue
        if query.status not in (None, row.status):
            continue
        labels = decode(row.labels) if query.labels else {}
        if all(labels.get(name) == value for name, value in query.labels):
            yield row


def _order(key: ScopeKey) -> tuple[str, str, str]:
    return key.session_id, key.kind, key.scope_id


_storages: "weakref.WeakSet[MemoryStorage]" = weakref.WeakSet()


def _before_fork() -> None:
    # A child must not get a state in the middle of a change, nor a lock of a thread it lacks.
    for storage in list(_storages):
        storage._lock.acquire()


def _after_fork_in_parent() -> None:
    for storage in list(_storages):
        with suppress(RuntimeError):  # made by another thread since
            storage._lock.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent)
