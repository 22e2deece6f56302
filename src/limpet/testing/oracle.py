"""The oracle: the shortest correct engine, which shares no mechanism with the one that is tested.

States are whole, in dictionaries. One lock makes each call one step.
"""

import heapq
import threading
import weakref
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

from limpet.backends.memory import MemoryListener
from limpet.core import commits, ids
from limpet.core.commits import LeaseRow, ScopeState, claimed, renewed
from limpet.core.notes import (
    NoteRow,
    check_expect,
    found_note,
    newest_first,
    note_of,
    written_note,
)
from limpet.core.rows import Row, info_of, newest_page
from limpet.errors import CLOSED, InvalidInput
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
from limpet.protocol import (
    Append,
    Claim,
    Commit,
    Copy,
    Found,
    FoundNote,
    Hold,
    NoteChange,
    NoteDelete,
    NoteQuery,
    NoteWrite,
    Query,
    SessionAge,
    Target,
)


class OracleScope:
    """One scope: snapshots by seq, seqs by id, and notes by address."""

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}
        self.bodies: dict[int, bytes] = {}
        self.order: list[int] = []
        self.seqs: dict[str, int] = {}
        self.notes: dict[tuple[str, str], NoteRow] = {}
        self.head: int | None = None
        self.last = 0  # the greatest seq given out
        self.floor = ""
        self.lease: LeaseRow | None = None

    @property
    def fence(self) -> str | None:
        return None if self.lease is None else self.lease.key

    @property
    def head_row(self) -> Row | None:
        return None if self.head is None else self.rows[self.head]

    def row(self, snapshot_id: str | None) -> Row | None:
        """Return a snapshot by its id; None asks for the head."""
        seq = self.head if snapshot_id is None else self.seqs.get(snapshot_id)
        return None if seq is None else self.rows[seq]

    def newest_kept(self) -> Row | None:
        return next((self.rows[p] for p in reversed(self.order) if self.rows[p].kept), None)

    def put(self, row: Row, body: bytes) -> None:
        """Add a snapshot, or another version of one."""
        if row.seq not in self.rows:
            insort(self.order, row.seq)
        self.rows[row.seq] = row
        self.bodies[row.seq] = body
        self.seqs[row.id] = row.seq

    def drop(self, row: Row) -> None:
        del self.rows[row.seq], self.bodies[row.seq], self.seqs[row.id]
        del self.order[bisect_left(self.order, row.seq)]

    def remove(self, snapshot_id: str, *, spare_head: bool) -> Row | None:
        """Remove a snapshot with the notes on its id; the newest kept one becomes the head."""
        row = self.row(snapshot_id)
        if row is not None and row.seq == self.head and spare_head:
            return None
        for at in [at for at in self.notes if at[0] == snapshot_id]:
            del self.notes[at]
        if row is not None:
            self.drop(row)
            if self.head == row.seq:
                newest = self.newest_kept()
                self.head = None if newest is None else newest.seq
        return row

    def newest_first(self, after: int | None) -> Iterator[Row]:
        """Yield snapshots, the last saved first, those before a seq."""
        end = len(self.order) if after is None else bisect_left(self.order, after)
        return (self.rows[self.order[at]] for at in range(end - 1, -1, -1))

    def holds_anything(self) -> bool:
        """Tell whether it holds a snapshot, a note or a lease."""
        return bool(self.rows or self.notes or self.lease)


class Oracle:
    """An engine whose storage is this object."""

    blocking = False
    capabilities = frozenset({"index", "atomic"})

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._scopes: dict[ScopeKey, OracleScope] = {}
        self._next_saved_at = 0
        self._closed = False
        self._listeners: weakref.WeakSet[MemoryListener] = weakref.WeakSet()

    def commit(self, commit: Commit) -> SnapshotInfo:
        with self._open():
            scope = self._scopes.get(commit.scope) or OracleScope()
            if commit.again:
                for row in scope.rows.values():
                    if row.nonce == commit.stamp.nonce:
                        return info_of(commit.scope, row)
            existing = None if commit.id is None else scope.row(commit.id)
            newest, bodies = scope.newest_kept(), scope.bodies
            current = ScopeState(
                scope.head_row,
                scope.floor,
                scope.fence,
                ids.place(commit.stamp.now, scope.last, commit.stamp.bits),
                self._next_saved_at,
                scope.holds_anything(),
            )
            plan = commits.decide(
                commit,
                current,
                existing,
                source=self._source(commit),
                same_body=lambda: existing is not None and bodies[existing.seq] == commit.body,
                newest_kept=lambda: None if newest is None else newest.id,
            )
            if plan.is_stored:
                return info_of(commit.scope, plan.row)
            body = self._body(commit, scope)
            row = plan.row._replace(size=len(body))
            self._tell(commit.scope)
            scope.put(row, body)
            if plan.replaces is None:
                self._scopes[commit.scope] = scope
                self._next_saved_at = row.saved_at + 1
                scope.last = row.seq
                scope.floor = plan.floor
                scope.head = row.seq if commit.head else scope.head
            if plan.covers is not None:
                scope.drop(plan.covers)
            return info_of(commit.scope, row)

    def replace_snapshots(self, changes: Sequence[Commit]) -> int:
        with self._open():
            found = [each for each in changes if self.read_info(each.scope, each.id) is not None]
            return len([self.commit(each) for each in found])

    def _body(self, commit: Commit, scope: OracleScope) -> bytes:
        body, source = commit.body, commit.forked_from
        if isinstance(body, Append):
            head = None if scope.head is None else scope.bodies[scope.head]
            encoded, _ = commits.appended(body, head)
            return encoded
        if not isinstance(body, Copy):
            return body
        if source is None:
            raise InvalidInput("a copy needs the snapshot that it is forked from")
        origin = self._scopes[source.scope]
        return origin.bodies[origin.seqs[source.id]]

    def _source(self, commit: Commit) -> Row | None:
        if commit.forked_from is None:
            return None
        source = self._scopes.get(commit.forked_from.scope) or OracleScope()
        return source.row(commit.forked_from.id)

    def read_snapshots(self, scope: ScopeKey, ids: Sequence[str | None]) -> list[Found]:
        with self._open():
            found = self._scopes.get(scope) or OracleScope()
            rows = [row for each in ids if (row := found.row(each)) is not None]
            return [(info_of(scope, row), found.bodies[row.seq]) for row in rows]

    def read_info(self, scope: ScopeKey, snapshot_id: str | None) -> SnapshotInfo | None:
        with self._open():
            row = (self._scopes.get(scope) or OracleScope()).row(snapshot_id)
            return None if row is None else info_of(scope, row)

    def list_snapshots(self, query: Query, *, limit: int) -> list[SnapshotInfo]:
        with self._open():
            keys = [query.scope] if query.scope is not None else list(self._scopes)
            found = heapq.nlargest(
                limit,
                (
                    (row.seq, info)
                    for key in keys
                    if key in self._scopes and key.session_id.startswith(query.prefix)
                    for row, info in self._matches(key, query, limit)
                ),
                key=lambda pair: pair[0],
            )
            return [info for _, info in found]

    def _matches(
        self, key: ScopeKey, query: Query, limit: int
    ) -> Iterator[tuple[Row, SnapshotInfo]]:
        rows = self._scopes[key].rows.values()
        parents = {row.parent_id for row in rows if row.kept} if query.leaves else set()
        for row in self._scopes[key].newest_first(query.after):
            if not row.kept or row.id in parents or query.id not in (None, row.id):
                continue
            info = info_of(key, row)
            wanted = all(info.labels.get(name) == value for name, value in query.labels)
            if not wanted or (query.status is not None and query.status != row.status):
                continue
            yield row, info
            limit -= 1
            if not limit:
                return

    def list_ids(self, scope: ScopeKey, *, after: str, limit: int) -> list[str]:
        with self._open():
            found = self._scopes.get(scope) or OracleScope()
            greater = (row.id for row in found.rows.values() if row.kept and row.id > after)
            return heapq.nsmallest(limit, greater)

    def find_refs(self, id_prefix: str, *, limit: int) -> list[SnapshotRef]:
        with self._open():
            rows = ((key, row) for key, each in self._scopes.items() for row in each.rows.values())
            kept = (SnapshotRef(key, row.id) for key, row in rows if row.kept)
            return list(islice((ref for ref in kept if ref.id.startswith(id_prefix)), limit))

    def list_sessions(self, *, prefix: str, after: str, limit: int) -> list[str]:
        with self._open():
            names = {
                key.session_id
                for key, scope in self._scopes.items()
                if key.session_id.startswith(prefix)
                and key.session_id > after
                and scope.holds_anything()
            }
            return heapq.nsmallest(limit, names)

    def list_newest(self, *, prefix: str, after: SessionAge | None, limit: int) -> list[SessionAge]:
        with self._open():
            heads = (
                (key.session_id, None if (row := scope.row(None)) is None else row.created_at)
                for key, scope in self._scopes.items()
                if key.session_id.startswith(prefix) and scope.holds_anything()
            )
            return newest_page(heads, after, limit)

    def list_scopes(
        self,
        *,
        session_id: str | None,
        kind: str | None,
        prefix: str,
        after: ScopeKey | None,
        limit: int,
    ) -> list[ScopeInfo]:
        with self._open():
            keys = (
                key
                for key, scope in self._scopes.items()
                if key.session_id.startswith(prefix)
                and (session_id is None or key.session_id == session_id)
                and (kind is None or key.kind == kind)
                and (after is None or _scope_order(key) > _scope_order(after))
                and scope.holds_anything()
            )
            page = heapq.nsmallest(limit, keys, key=_scope_order)
            return [ScopeInfo(key, self.read_info(key, None)) for key in page]

    def delete_snapshots(
        self,
        scope: ScopeKey,
        ids: Sequence[str],
        *,
        spare_head: bool = False,
        fence: str | None = None,
    ) -> Pruned:
        with self._open():
            found = self._scopes.get(scope) or OracleScope()
            commits.check_fence(fence, found.fence, scope)
            self._tell(scope)
            gone = [row.size for each in ids if (row := found.remove(each, spare_head=spare_head))]
            return Pruned(len(gone), sum(gone))

    def delete_scope(
        self, scope: ScopeKey, *, expect: Expect = ANY, fence: str | None = None
    ) -> int:
        with self._open():
            found = self._scopes.get(scope) or OracleScope()
            commits.check_fence(fence, found.fence, scope)
            commits.check_expect(expect, found.head_row, scope)
            self._scopes.pop(scope, None)
            self._tell(scope)
            return len(found.rows)

    def delete_session(self, session_id: str) -> int:
        with self._open():
            self._tell(ScopeKey(session_id))
            doomed = [key for key in self._scopes if key.session_id == session_id]
            return sum(len(self._scopes.pop(key).rows) for key in doomed)

    def list_notes(
        self,
        scope: ScopeKey,
        *,
        on: Sequence[str | None],
        name: str | None,
        after: str,
        limit: int,
    ) -> list[Note]:
        with self._open():
            found = self._scopes.get(scope) or OracleScope()
            order = {each or "": at for at, each in enumerate(on)}
            rows = (
                row
                for row in found.notes.values()
                if row.on in order
                and (name is None or row.name == name)
                and (order[row.on] > 0 or row.name > after)
            )
            page = heapq.nsmallest(limit, rows, key=lambda row: (order[row.on], row.name))
            return [note_of(row) for row in page]

    def read_notes(self, scope: ScopeKey, names: Sequence[str]) -> list[FoundNote]:
        with self._open():
            notes = (self._scopes.get(scope) or OracleScope()).notes
            return [found_note(scope, notes["", name]) for name in names if ("", name) in notes]

    def find_notes(self, query: NoteQuery, *, limit: int) -> list[FoundNote]:
        with self._open():
            found = (
                found_note(key, row, value=query.values)
                for key, scope in self._scopes.items()
                if query.covers(key)
                for row in scope.notes.values()
                if not row.on
            )
            return newest_first(found, query, limit)

    def list_noted(self, scope: ScopeKey, *, after: str, limit: int) -> list[str]:
        with self._open():
            found = self._scopes.get(scope) or OracleScope()
            return heapq.nsmallest(
                limit, {row.on for row in found.notes.values() if row.on > after}
            )

    def list_damage(self, scope: ScopeKey) -> list[Finding]:
        return []

    def list_unlisted(self) -> list[Finding]:
        return []

    def write_note(self, write: NoteWrite) -> Note:
        with self._open():
            scope = self._scopes.get(write.scope) or OracleScope()
            commits.check_fence(write.fence, scope.fence, write.scope)
            at = (write.on or "", write.name)
            row = written_note(write, scope.notes.get(at))
            self._scopes[write.scope] = scope
            scope.notes[at] = row
            return note_of(row)

    def write_notes(self, changes: Sequence[NoteChange]) -> None:
        with self._open():
            for each in changes:
                scope = self._scopes.get(each.scope) or OracleScope()
                commits.check_fence(each.fence, scope.fence, each.scope)
                check_expect(each, scope.notes.get((each.on or "", each.name)))
            for each in changes:
                if isinstance(each, NoteDelete):
                    self.delete_note(each.scope, each.name, on=each.on)
                else:
                    self.write_note(each)

    def delete_note(
        self, scope: ScopeKey, name: str, *, on: str | None, fence: str | None = None
    ) -> int:
        with self._open():
            found = self._scopes.get(scope) or OracleScope()
            commits.check_fence(fence, found.fence, scope)
            self._tell(scope)
            return 0 if found.notes.pop((on or "", name), None) is None else 1

    def claim(self, claim: Claim) -> Hold:
        with self._open():
            scope = self._scopes.setdefault(claim.scope, OracleScope())
            scope.lease = claimed(claim, scope.lease, claim.stamp.now)
            return scope.lease.hold(claim.stamp.now)

    def renew(self, claim: Claim) -> Hold:
        with self._open():
            scope = self._scopes.get(claim.scope) or OracleScope()
            scope.lease = renewed(claim, scope.lease, claim.stamp.now)
            return scope.lease.hold(claim.stamp.now)

    def release(self, claim: Claim) -> None:
        with self._open():
            scope = self._scopes.get(claim.scope) or OracleScope()
            if scope.fence == claim.key:
                scope.lease = None
                if not scope.floor and not scope.holds_anything():
                    del self._scopes[claim.scope]  # nothing was ever minted in it
                self._tell(claim.scope)

    def read_lease(self, scope: ScopeKey, *, now: int) -> Hold | None:
        with self._open():
            lease = (self._scopes.get(scope) or OracleScope()).lease
            return None if lease is None else lease.hold(now)

    def read_revisions(self, targets: Sequence[Target]) -> list[str | None]:
        with self._open():
            rows = [(self._scopes.get(key) or OracleScope()).row(id) for key, id in targets]
            return [None if row is None else row.revision for row in rows]

    def listen(self) -> MemoryListener:
        with self._open():
            listener = MemoryListener()
            self._listeners.add(listener)
            return listener

    def _tell(self, scope: ScopeKey) -> None:
        # Early is as good as late: a listener reads under the lock that is held here.
        for listener in list(self._listeners):
            listener.tell(scope.session_id)

    def list_largest_heads(self, session_id: str, *, limit: int) -> list[SnapshotInfo]:
        with self._open():
            keys = [key for key in self._scopes if key.session_id == session_id]
            heads = [head for key in keys if (head := self.read_info(key, None)) is not None]
            return heapq.nlargest(limit, heads, key=lambda head: head.size)

    def read_stats(self, session_id: str | None, *, limit: int) -> Stats:
        with self._open():
            found = {
                key: scope
                for key, scope in self._scopes.items()
                if session_id in (None, key.session_id) and scope.holds_anything()
            }
            sizes = Counter[str]()
            for key, scope in found.items():
                sizes[key.session_id] += sum(row.size for row in scope.rows.values())
            total = sizes.total()
            return Stats(
                sessions=len(sizes),
                scopes=len(found),
                snapshots=sum(len(scope.rows) for scope in found.values()),
                logical_bytes=total,
                stored_bytes=total,
                largest=tuple(sizes.most_common(limit)) if session_id is None else (),
            )

    def compact(self) -> int:
        with self._open():
            return 0

    def rekey(self, after: str, *, limit: int) -> tuple[int, str | None]:
        with self._open():
            return 0, None

    def check(self, after: str, *, repair: bool, limit: int) -> tuple[list[Finding], str | None]:
        with self._open():
            return [], None

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._scopes.clear()

    def _open(self) -> threading.RLock:
        # Read without the lock: a call that begins while close() runs may end as it would have.
        if self._closed:
            raise InvalidInput(CLOSED)
        return self._lock


def _scope_order(key: ScopeKey) -> tuple[str, str, str]:
    return key.session_id, key.kind, key.scope_id
