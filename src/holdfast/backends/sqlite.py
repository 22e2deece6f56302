"""The engine in one SQLite file: the embedded default.

Tables that a person can read (`_sql/sqlite/`), statements by name (`_sql/queries.sqlite.sql`). A
commit is one transaction that holds the file's write lock from its first read on, so what it
decides (core/commits.py) is still true when it is written. Several processes may write at once.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import orjson

from holdfast.backends._sqlite_files import SqliteFile
from holdfast.backends._sqlite_tables import (
    Scope,
    Tables,
    is_text,
    rest_of,
    verified,
    verified_note,
)
from holdfast.core import codec, commits
from holdfast.core.commits import Line, Verdict
from holdfast.core.ids import SEQ_MAX
from holdfast.core.limits import LOCK_WAIT_S_MAX
from holdfast.core.notes import NoteRow, note_of, written_note
from holdfast.core.ranges import prefix_end
from holdfast.core.rows import Row, info_of
from holdfast.errors import Corrupt
from holdfast.model import ANY, Expect, Note, ScopeInfo, ScopeKey, SnapshotInfo
from holdfast.protocol import Append, Clock, Commit, Found, NoteWrite, Query

T = TypeVar("T")


class SqliteBackend:
    """An engine whose storage is one file."""

    blocking = True
    capabilities = frozenset({"durable", "index"})

    def __init__(
        self,
        path: str,
        *,
        clock: Clock,
        lock_wait_s: float = LOCK_WAIT_S_MAX,
        synchronous: str = "full",
    ) -> None:
        """Open the file, creating it or bringing its tables up to date."""
        self._file = SqliteFile(path, clock=clock, lock_wait_s=lock_wait_s, synchronous=synchronous)

    def close(self) -> None:
        self._file.close()

    def _read(self, action: Callable[[Tables], T]) -> T:
        return self._file.read(lambda conn: action(Tables(conn)))

    def _write(self, action: Callable[[Tables], T]) -> T:
        return self._file.write(lambda conn: action(Tables(conn)))

    # Committing

    def commit(self, commit: Commit) -> SnapshotInfo:
        # Compression needs no lock, so it is done before the turn is taken.
        squeezed = None if isinstance(commit.body, Append) else codec.squeeze(commit.body)
        row = self._write(lambda tables: _commit(tables, commit, squeezed))
        return info_of(commit.scope, row)

    # Reading

    def read_snapshots(self, scope: ScopeKey, ids: Sequence[str | None]) -> list[Found]:
        def read(tables: Tables) -> list[tuple[Row, bytes]]:
            found = tables.scope(scope)
            if found is None:
                return []
            rows = [row for each in ids if (row := tables.named(found, each)) is not None]
            return [(row, tables.body(row.seq)) for row in rows]

        return [(info_of(scope, row), body) for row, body in self._read(read)]

    def read_info(self, scope: ScopeKey, snapshot_id: str | None) -> SnapshotInfo | None:
        def read(tables: Tables) -> Row | None:
            found = tables.scope(scope)
            return None if found is None else tables.named(found, snapshot_id)

        row = self._read(read)
        return None if row is None else info_of(scope, row)

    # Listing

    def list_snapshots(self, query: Query, *, limit: int) -> list[SnapshotInfo]:
        return self._read(lambda tables: _matches(tables, query, limit))

    def list_ids(self, scope: ScopeKey, *, after: str, limit: int) -> list[str]:
        def read(tables: Tables) -> list[str]:
            found = tables.scope(scope)
            if found is None:
                return []
            return tables.page("list_ids", {"pk": found.pk, "after": after}, _name, limit)

        return self._read(read)

    def list_sessions(self, *, prefix: str, after: str, limit: int) -> list[str]:
        values = {"low": prefix, "high": prefix_end(prefix), "after": after}
        return self._read(lambda tables: tables.page("list_sessions", values, _name, limit))

    def list_scopes(
        self,
        *,
        session_id: str | None,
        kind: str | None,
        prefix: str,
        after: ScopeKey | None,
        limit: int,
    ) -> list[ScopeInfo]:
        low, high = prefix, prefix_end(prefix)
        if session_id is not None:
            if not session_id.startswith(prefix):
                return []
            low, high = session_id, session_id + "\0"  # no id holds NUL: this one alone
        start = after or ScopeKey("", "", "")
        values = {
            "low": max(low, start.session_id),
            "high": high,
            "kind": kind,
            "after_session": start.session_id,
            "after_kind": start.kind,
            "after_scope": start.scope_id,
        }
        return self._read(lambda tables: tables.page("list_scopes", values, _scope_info, limit))

    # Deleting

    def delete_snapshot(
        self, scope: ScopeKey, snapshot_id: str, *, fence: str | None = None
    ) -> int:
        def write(tables: Tables) -> int:
            found = tables.scope(scope)
            commits.check_fence(fence, None if found is None else found.fence, scope)
            if found is None:
                return 0
            tables.remove_notes_on(found, snapshot_id)
            seq = tables.seq_of(found, snapshot_id)
            if seq is None:
                return 0
            tables.remove(seq)
            tables.uncover(found, seq)
            return 1

        return self._write(write)

    def delete_scope(
        self, scope: ScopeKey, *, expect: Expect = ANY, fence: str | None = None
    ) -> int:
        def write(tables: Tables) -> int:
            found = tables.scope(scope)
            commits.check_fence(fence, None if found is None else found.fence, scope)
            if expect is not ANY:  # without, damage to the head does not matter
                commits.check_expect(expect, None if found is None else tables.head(found), scope)
            if found is None:
                return 0
            count = tables.remove_scope(found.pk)
            tables.remove_empty_session(scope.session_id)
            return count

        return self._write(write)

    def delete_session(self, session_id: str) -> int:
        def write(tables: Tables) -> int:
            scopes = tables.all("session_scopes", (session_id,))
            count = sum(tables.remove_scope(pk) for (pk,) in scopes)
            tables.remove_empty_session(session_id)
            return count

        return self._write(write)

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
        def read(tables: Tables) -> list[Note]:
            owner = tables.scope(scope)
            if owner is None:
                return []
            if name is not None:
                asked = [tables.note(owner, each or "", name) for each in on]
                return [note_of(row) for row in asked if row is not None][:limit]
            page: list[Note] = []
            behind = after
            for each in on:
                at = (owner.pk, each or "", behind)
                take = partial(_good_note, owner.pk)
                page += tables.page("list_notes", at, take, limit - len(page))
                if len(page) >= limit:
                    break
                behind = ""
            return page

        return self._read(read)

    def write_note(self, write: NoteWrite) -> Note:
        def put(tables: Tables) -> NoteRow:
            scope = tables.scope(write.scope)
            before = None if scope is None else tables.note(scope, write.on or "", write.name)
            row = written_note(write, before)
            tables.put_note(scope or tables.add_scope(write.scope), row)
            return row

        return note_of(self._write(put))

    def delete_note(self, scope: ScopeKey, name: str, *, on: str | None) -> int:
        def remove(tables: Tables) -> int:
            found = tables.scope(scope)
            return 0 if found is None else tables.remove_note(found, on or "", name)

        return self._write(remove)


def _commit(tables: Tables, commit: Commit, squeezed: tuple[int, bytes] | None) -> Row:
    scope = tables.scope(commit.scope)
    if commit.again and scope is not None:
        stored = tables.row("snapshot_by_nonce", scope, commit.stamp.nonce)
        if stored is not None:
            return stored
    line = _line(tables, scope)
    existing = None
    if commit.id is not None and scope is not None:
        existing = tables.named(scope, commit.id)
    verdict = commits.judge(
        commit,
        line,
        existing,
        lambda: existing is not None and tables.body(existing.seq) == commit.body,
    )
    if existing is not None and verdict is Verdict.UNCHANGED:
        return existing
    body = commit.body
    if isinstance(body, Append):
        body = commits.appended(body, None if line.head is None else tables.body(line.head.seq))
    if squeezed is None:
        squeezed = codec.squeeze(body)
    if scope is not None and existing is not None:
        row = commits.replaced_row(commit, existing, size=len(body))
        tables.replace(scope, existing, row, squeezed)
        if row.kept and not existing.kept:
            tables.move_scope(scope._replace(tip_seq=max(scope.tip_seq or 0, row.seq)))
        return row
    return _insert(tables, commit, line, scope, len(body), squeezed)


def _insert(
    tables: Tables,
    commit: Commit,
    line: Line,
    scope: Scope | None,
    size: int,
    squeezed: tuple[int, bytes],
) -> Row:
    """Add a new snapshot, and make the scope show it if asked; a draft that it covers goes."""
    if scope is None:
        scope = tables.add_scope(commit.scope)

    def newest_kept() -> str | None:
        row = tables.newest_kept(scope)
        return None if row is None else row.id

    row = commits.new_row(commit, line, size=size, newest_kept=newest_kept)
    tables.insert(scope, row, squeezed)
    head_seq = scope.head_seq
    if commit.head:
        head_seq = row.seq
        if line.head is not None and not line.head.kept:
            tables.remove(line.head.seq)
    tip_seq = row.seq if row.kept else scope.tip_seq
    floor = commits.floor_after(commit, line, row)
    tables.move_scope(Scope(scope.pk, head_seq, tip_seq, row.seq + 1, floor, scope.fence))
    return row


def _line(tables: Tables, scope: Scope | None) -> Line:
    last_seq, last_saved_at = tables.newest_place()
    if scope is None:
        return Line(next_seq=last_seq + 1, next_saved_at=last_saved_at + 1)
    next_seq = max(last_seq + 1, scope.next_seq)
    return Line(tables.head(scope), scope.floor, scope.fence, next_seq, last_saved_at + 1)


def _matches(tables: Tables, query: Query, limit: int) -> list[SnapshotInfo]:
    values: dict[str, Any] = {
        "before": SEQ_MAX if query.after is None else query.after,
        "status": query.status,
        "id": query.id,
        "labels": orjson.dumps(dict(query.labels)).decode(),
        "low": query.prefix,
        "high": prefix_end(query.prefix),
    }
    if query.scope is not None:
        scope = tables.scope(query.scope)
        if scope is None or not query.scope.session_id.startswith(query.prefix):
            return []
        name = "history_of_scope"
        values |= {"pk": scope.pk, **query.scope._asdict()}
    elif query.id is not None:
        name = "find"
    elif query.labels:
        name = "history_by_label"
        values["name"], values["value"] = query.labels[0]
    else:
        name = "history_of_sessions"

    def take(found: Any) -> SnapshotInfo | None:
        pk, *names = rest_of(found)
        if not is_text(*names):
            return None
        try:
            info = info_of(ScopeKey(*names), verified(found, pk))
        except Corrupt:
            return None  # left out of a listing; asking for it by id raises
        # The table of labels is an index: the snapshot itself is the authority.
        matches = all(info.labels.get(name) == value for name, value in query.labels)
        return info if matches else None

    return tables.page(name, values, take, limit)


def _name(found: Any) -> str | None:
    (name,) = found
    return name if is_text(name) else None


def _good_note(pk: int, found: Any) -> Note | None:
    try:
        return note_of(verified_note(found, pk))
    except Corrupt:
        return None  # left out of a listing; asking for it by name raises


def _scope_info(found: Any) -> ScopeInfo | None:
    pk, *names = rest_of(found)
    if not is_text(*names):
        return None
    key = ScopeKey(*names)
    head = None
    if found[0] is not None:
        with suppress(Corrupt):
            head = info_of(key, verified(found, pk))
    return ScopeInfo(key, head)
