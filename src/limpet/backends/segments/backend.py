"""The engine over buckets: directories and object stores.

One object for each scope, the head, is its only authority: replacing it by compare-and-set is the
commit of every write. It carries the last deltas; now and then a save moves them into an immutable
segment (docs/format.md).
"""

import heapq
from collections.abc import Callable, Sequence
from itertools import groupby, islice
from typing import Final

from limpet.backends.buckets.protocol import Bucket
from limpet.backends.segments import keys
from limpet.backends.segments.check import Checker
from limpet.backends.segments.commit import Saver
from limpet.backends.segments.delete import Deleter
from limpet.backends.segments.leases import Leases
from limpet.backends.segments.listen import ObjectListener, Revisions
from limpet.backends.segments.notes import Notes
from limpet.backends.segments.objects import Head
from limpet.backends.segments.queries import Queries
from limpet.backends.segments.scopes import Listing, Scopes
from limpet.backends.segments.storage import Held, Storage, walk
from limpet.backends.segments.writer import Writer
from limpet.core.rows import info_of
from limpet.errors import Corrupt, InvalidInput
from limpet.model import (
    ANY,
    Expect,
    Finding,
    Note,
    Pruned,
    ScopeInfo,
    ScopeKey,
    SnapshotInfo,
    SnapshotRef,
    Stats,
)
from limpet.protocol import Claim, Clock, Commit, Found, Hold, NoteWrite, Query, Stamp, Target

POLL_S: Final = 1.0


class SegmentBackend:
    """An engine whose storage is a bucket."""

    blocking = True
    capabilities = frozenset({"durable", "index"})

    def __init__(
        self,
        bucket: Bucket,
        *,
        clock: Clock,
        draw: Callable[[], Stamp],
        compress: bool = False,
        poll_s: float = POLL_S,
    ) -> None:
        """With `compress` objects are written as frames of zstd, else as lines; both are read.

        `poll_s` is the interval of polling where there are no notifications.
        """
        self._bucket = bucket
        self._clock = clock
        self._poll_s = poll_s
        self._closed = False
        self._storage = Storage(bucket, clock=clock, draw=draw, compress=compress)
        writer = Writer(self._storage)
        self._history = writer.history
        self._notes = Notes(self._storage)
        self._leases = Leases(writer)
        self._saver = Saver(writer)
        self._deleter = Deleter(writer, self._notes)
        self._scopes = Scopes(self._storage)
        self._checker = Checker(writer, self._scopes)
        self._queries = Queries(self._storage, writer.history, writer.index)
        self._revisions = Revisions(self._storage, writer.history)

    def commit(self, commit: Commit) -> SnapshotInfo:
        self._check_open()
        return self._saver.commit(commit)

    # Reading

    def read_snapshots(self, scope: ScopeKey, ids: Sequence[str | None]) -> list[Found]:
        self._check_open()

        def read(held: Held) -> list[Found]:
            if held.head is None:
                return []
            wanted = [each for each in ids if each is not None]
            found = self._history.find_all(held.head, wanted, with_states=True)
            shown = self._history.find(held.head, None) if None in ids else None
            places = [shown if each is None else found.get(each) for each in ids]
            there = [each for each in places if each is not None]
            states = self._history.states(held, there)
            return [(info_of(scope, each.row), states[each.row.seq]) for each in there]

        return self._storage.reading(scope, read)

    def read_info(self, scope: ScopeKey, snapshot_id: str | None) -> SnapshotInfo | None:
        self._check_open()

        def read(held: Held) -> SnapshotInfo | None:
            place = self._history.find(held.head, snapshot_id)
            return None if place is None else info_of(scope, place.row)

        return self._storage.reading(scope, read)

    def list_snapshots(self, query: Query, *, limit: int) -> list[SnapshotInfo]:
        self._check_open()
        return self._queries.list_snapshots(query, limit)

    def list_ids(self, scope: ScopeKey, *, after: str, limit: int) -> list[str]:
        self._check_open()
        return self._queries.list_ids(scope, after, limit)

    def find_refs(self, id_prefix: str, *, limit: int) -> list[SnapshotRef]:
        self._check_open()
        return self._queries.find_refs(id_prefix, limit)

    def list_sessions(self, *, prefix: str, after: str, limit: int) -> list[str]:
        self._check_open()
        return list(islice(self._scopes.session_ids(prefix, after), limit))

    def list_scopes(
        self,
        *,
        session_id: str | None,
        kind: str | None,
        prefix: str,
        after: ScopeKey | None,
        limit: int,
    ) -> list[ScopeInfo]:
        self._check_open()
        found = self._scopes.walk(session_id, prefix, after)
        page = islice((each for each in found if kind in (None, each.scope.kind)), limit)
        return [ScopeInfo(each.scope, self._head_info(each)) for each in page]

    def _head_info(self, listing: Listing) -> SnapshotInfo | None:
        head = listing.head
        if not isinstance(head, Head) or head.shown is None:
            return None  # `check` reports a damaged one
        for entry in head.entries:
            if entry.row.seq == head.shown[1]:
                return info_of(listing.scope, entry.row)
        try:
            return self.read_info(listing.scope, None)
        except Corrupt:
            return None

    # Deleting

    def delete_snapshots(
        self,
        scope: ScopeKey,
        ids: Sequence[str],
        *,
        spare_head: bool = False,
        fence: str | None = None,
    ) -> Pruned:
        self._check_open()
        return self._deleter.delete_snapshots(scope, ids, spare_head=spare_head, fence=fence)

    def delete_scope(
        self, scope: ScopeKey, *, expect: Expect = ANY, fence: str | None = None
    ) -> int:
        self._check_open()
        return self._deleter.delete_scope(scope, expect=expect, fence=fence)

    def delete_session(self, session_id: str) -> int:
        self._check_open()
        return self._deleter.delete_session(session_id)

    # Notes

    def list_notes(
        self,
        scope: ScopeKey,
        *,
        on: Sequence[str | None],
        name: str | None,
        after: str,
        limit: int,
    ) -> list[Note]:
        self._check_open()
        return self._notes.read(scope, on=on, name=name, after=after, limit=limit)

    def list_noted(self, scope: ScopeKey, *, after: str, limit: int) -> list[str]:
        self._check_open()
        return self._notes.list_noted(scope, after, limit)

    def list_damage(self, scope: ScopeKey) -> list[Finding]:
        self._check_open()
        return self._checker.list_damage(scope)

    def write_note(self, write: NoteWrite) -> Note:
        self._check_open()
        return self._notes.write(write)

    def delete_note(
        self, scope: ScopeKey, name: str, *, on: str | None, fence: str | None = None
    ) -> int:
        self._check_open()
        return self._notes.delete(scope, name, on=on, fence=fence)

    # Leases

    def claim(self, claim: Claim) -> Hold:
        self._check_open()
        return self._leases.claim(claim)

    def renew(self, claim: Claim) -> Hold:
        self._check_open()
        return self._leases.renew(claim)

    def release(self, claim: Claim) -> None:
        self._check_open()
        self._leases.release(claim)

    def read_lease(self, scope: ScopeKey, *, now: int) -> Hold | None:
        self._check_open()
        return self._leases.read(scope, now)

    # Watching

    def read_revisions(self, targets: Sequence[Target]) -> list[str | None]:
        self._check_open()
        return self._revisions.read(targets)

    def listen(self) -> ObjectListener:
        self._check_open()
        listener = self._bucket.listen(poll_s=self._poll_s, clock=self._clock)
        return ObjectListener(listener)

    # Upkeep

    def read_stats(self, session_id: str | None, *, limit: int) -> Stats:
        self._check_open()
        sessions = scopes = snapshots = logical = stored = 0
        largest: list[tuple[int, str]] = []
        found = self._scopes.walk(session_id)
        for name, group in groupby(found, key=lambda each: each.scope.session_id):
            sessions, size = sessions + 1, 0
            for each in group:
                scopes += 1
                if isinstance(each.head, Head):
                    snapshots, logical = snapshots + each.head.count, logical + each.head.logical
                prefix = keys.LAYOUT.scope_prefix(each.scope)
                size += sum(listed.size for listed in walk(self._bucket, prefix))
            stored += size
            largest = heapq.nlargest(limit, [*largest, (size, name)])
        named = tuple((name, size) for size, name in largest) if session_id is None else ()
        return Stats(sessions, scopes, snapshots, logical, stored, named)

    def compact(self) -> int:
        self._check_open()
        return self._checker.compact()

    def check(self, after: str, *, repair: bool, limit: int) -> tuple[list[Finding], str | None]:
        self._check_open()
        return self._checker.check(after, repair=repair, limit=limit)

    def close(self) -> None:
        self._closed = True
        self._bucket.close()

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidInput("the store is closed")
