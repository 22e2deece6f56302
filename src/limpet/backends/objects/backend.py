"""The engine over buckets: directories and object stores, in documents that people can read.

There is one document for the head of a scope, whose compare-and-set is the commit, one for each
kept snapshot, and an index of empty objects (docs/format.md).
"""

import heapq
from collections.abc import Callable, Sequence
from itertools import groupby, islice
from typing import Final

from limpet.backends.buckets.protocol import Bucket
from limpet.backends.objects.check import GRACE_US, Checker, damage_of
from limpet.backends.objects.commit import Saver
from limpet.backends.objects.delete import Deleter
from limpet.backends.objects.documents import Doc, Files
from limpet.backends.objects.documents import Found as Read
from limpet.backends.objects.heads import Head, Heads
from limpet.backends.objects.history import History
from limpet.backends.objects.index import Index
from limpet.backends.objects.leases import Leases
from limpet.backends.objects.listen import ObjectListener, Revisions
from limpet.backends.objects.notes import Notes
from limpet.backends.objects.queries import Queries
from limpet.backends.objects.roll_forward import Writer
from limpet.backends.objects.scopes import Places
from limpet.core import limits
from limpet.core.layout import Layout
from limpet.core.rows import info_of
from limpet.errors import CLOSED, Corrupt, InvalidInput, Unavailable
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
_READS_MAX = 8  # of a head that moves while it is read


class ObjectBackend:
    """An engine whose storage is a bucket."""

    blocking = True

    def __init__(
        self,
        bucket: Bucket,
        *,
        layout: Layout,
        index: bool,
        clock: Clock,
        draw: Callable[[], Stamp],
        grace_us: int = GRACE_US,
        poll_s: float = POLL_S,
    ) -> None:
        """With `index` snapshots are found across scopes; other tools do not write one.

        `grace_us` is how long a writer may be stalled before `check` treats its work as abandoned.
        `poll_s` is the interval of polling where there are no notifications.
        """
        self.capabilities = frozenset({"durable", "index"} if index else {"durable"})
        self._bucket = bucket
        self._clock = clock
        self._poll_s = poll_s
        self._closed = False
        self._files = Files(bucket, layout)
        self._heads = Heads(self._files)
        pointers = Index(bucket, enabled=index)
        self._history = History(self._files, pointers, self._heads)
        writer = Writer(self._files, pointers, self._heads, self._history, clock=clock, draw=draw)
        self._notes = Notes(writer)
        self._leases = Leases(writer)
        self._revisions = Revisions(self._files, self._heads, self._history)
        self._saver = Saver(writer)
        self._deleter = Deleter(writer, self._notes, self._leases)
        self._places = Places(self._files, self._heads)
        self._checker = Checker(writer, self._places, grace_us=grace_us)
        self._queries = Queries(self._files, pointers, self._heads, self._history)

    def commit(self, commit: Commit) -> SnapshotInfo:
        self._check_open()
        return self._saver.commit(commit)

    # Reading

    def read_snapshots(self, scope: ScopeKey, ids: Sequence[str | None]) -> list[Found]:
        self._check_open()
        head = self._heads.look(scope, whole=None in ids)
        if head.damage is not None and None in ids:
            raise head.damage
        wanted = [each for each in ids if each is not None and not _shows(head, each)]
        places = [self._files.copy_place(scope, each) for each in wanted]
        copies = dict(zip(wanted, self._files.read(places, whole=True), strict=True))
        found: list[Found] = []
        for each in ids:
            if each is None or _shows(head, each):
                doc = self._read_shown(scope, head, each)
            else:
                copy = copies[each]
                if isinstance(copy, Corrupt):
                    raise copy
                doc = copy if isinstance(copy, Doc) and head.counts(copy.header) else None
            if doc is not None:
                found.append((info_of(scope, doc.row), doc.body))
        return found

    def _read_shown(self, scope: ScopeKey, head: Head, id: str | None) -> Doc | None:
        for _ in range(_READS_MAX):
            shown = self._history.shown(scope, head)
            if shown is None or shown.stored is not None:
                return shown
            if head.is_void or (id is not None and shown.header.id != id):
                place = self._files.copy_place(scope, id or shown.header.id)
                copy = self._files.read_one(place, whole=True)
                if isinstance(copy, Corrupt):
                    raise copy
                if isinstance(copy, Doc) and head.counts(copy.header):
                    return copy
                if id is not None:
                    return None
            head = self._heads.read(scope, whole=True)
        raise Unavailable(f"the head keeps changing: try again. session=`{scope.session_id}`")

    def read_info(self, scope: ScopeKey, snapshot_id: str | None) -> SnapshotInfo | None:
        self._check_open()
        head = self._heads.look(scope)
        if head.damage is not None and snapshot_id is None:
            raise head.damage
        doc: Doc | None
        if snapshot_id is None or _shows(head, snapshot_id):
            doc = self._history.shown(scope, head)
        else:
            copy = self._files.read_one(self._files.copy_place(scope, snapshot_id))
            if isinstance(copy, Corrupt):
                raise copy
            doc = copy if isinstance(copy, Doc) and head.counts(copy.header) else None
        return None if doc is None else info_of(scope, doc.row)

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
        start = self._places.behind_session(after) if after else ""
        below = self._files.layout.sessions_prefix(prefix)
        scopes = self._places.scopes(below, start, one_each=True)
        return list(
            islice((s.session_id for s in scopes if s.session_id.startswith(prefix)), limit)
        )

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
        layout = self._files.layout
        below = layout.sessions_prefix(prefix)
        if session_id is not None:
            below = layout.session_prefix(session_id)
        start = "" if after is None else self._places.behind_scope(after)
        scopes = (
            scope
            for scope in self._places.scopes(below, start)
            if kind in (None, scope.kind) and scope.session_id.startswith(prefix)
        )
        page = list(islice(scopes, limit))
        docs = self._files.read([self._files.head_place(scope) for scope in page])
        return [
            ScopeInfo(scope, self._head_info(scope, doc))
            for scope, doc in zip(page, docs, strict=True)
        ]

    def _head_info(self, scope: ScopeKey, found: Read) -> SnapshotInfo | None:
        if not isinstance(found, Doc):
            return None  # `check` reports a damaged one
        shown = self._history.shown(scope, self._heads.resolved(found))
        return None if shown is None else info_of(scope, shown.row)

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
        return damage_of(self._files, scope)

    def list_unlisted(self) -> list[Finding]:
        self._check_open()
        return self._checker.unlisted()

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
        return ObjectListener(listener, self._files.layout)

    # Upkeep

    def list_largest_heads(self, session_id: str, *, limit: int) -> list[SnapshotInfo]:
        largest: list[SnapshotInfo] = []
        after: ScopeKey | None = None
        while page := self.list_scopes(
            session_id=session_id, kind=None, prefix="", after=after, limit=limits.PAGE_ITEMS_MAX
        ):
            heads = [scope.head for scope in page if scope.head is not None]
            largest = heapq.nlargest(limit, largest + heads, key=lambda head: head.size)
            after = page[-1].key
        return largest

    def read_stats(self, session_id: str | None, *, limit: int) -> Stats:
        self._check_open()
        layout = self._files.layout
        below = layout.root if session_id is None else layout.session_prefix(session_id)
        sessions = scopes = snapshots = logical = stored = 0
        largest: list[tuple[int, str]] = []
        for name, group in groupby(self._places.scopes(below, ""), key=lambda s: s.session_id):
            sessions, size = sessions + 1, 0
            for scope in group:
                scopes += 1
                sizes = self._history.sizes(scope, self._heads.look(scope))
                snapshots, logical = snapshots + len(sizes), logical + sum(sizes)
                size += self._files.stored_bytes(scope)
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
            raise InvalidInput(CLOSED)


def _shows(head: Head, id: str) -> bool:
    return head.shown is not None and head.shown.header.id == id
