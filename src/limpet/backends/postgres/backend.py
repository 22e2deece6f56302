"""The engine on a PostgreSQL server: for many machines.

The same tables as SQLite's (`sql/`), statements by name (`sql/queries.sql`). A
commit locks the row of its scope, so what it decides (core/commits.py) is still true when it is
written, and writers of other scopes do not wait. A save is one round trip for the process that
changed the scope last and two for others; a load is one.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import psycopg

from limpet.backends.postgres.bodies import ReadSnapshots
from limpet.backends.postgres.check import check_some
from limpet.backends.postgres.errors import translated
from limpet.backends.postgres.listen import listen, poller
from limpet.backends.postgres.lost_answers import STAMPS_BYTES, StampTrace
from limpet.backends.postgres.one_statement import as_one_statement
from limpet.backends.postgres.schema import make_ready
from limpet.backends.postgres.server import Lost, NoAnswer, PostgresServer, Settings, check_url
from limpet.backends.postgres.tables import PostgresTables
from limpet.backends.sql.backend import SqlBackend
from limpet.backends.sql.commit import LastBody, PreparedDelta, apply_commit
from limpet.backends.sql.continuing import KnownScope, known_scope
from limpet.backends.sql.notes import good_note
from limpet.backends.sql.tables import (
    NOTE_COLUMNS,
    SNAPSHOT_COLUMNS,
    ScopeRow,
    Tables,
    check_scope,
    note_of_scope,
    read_row,
)
from limpet.backends.support.located import located
from limpet.core import commits
from limpet.core.deltas.chain import ChainState
from limpet.core.encryption import NO_KEYS, Ciphers
from limpet.core.limits import CACHE_BYTES_MAX, LOCK_WAIT_S_MAX, RETRY_S_MAX
from limpet.core.notes import note_of
from limpet.core.rows import Row, info_of
from limpet.errors import Unavailable
from limpet.model import Finding, Note, ScopeKey, SnapshotInfo, Stats
from limpet.protocol import Clock, Commit, Found, Listener, Stamp, Topic

__all__ = ["PostgresBackend", "check_url"]

T = TypeVar("T")

_CONNECTIONS = 16
_POLL_S = 1.0
_IDS_MAX = 256  # whose notes are listed by one statement, which reads all of them


@located
class PostgresBackend(SqlBackend):
    """An engine whose storage is a schema of a PostgreSQL database."""

    blocking = True
    capabilities = frozenset({"durable", "index", "atomic"})

    def __init__(
        self,
        conninfo: str,
        *,
        clock: Clock,
        draw: Callable[[], Stamp],
        schema: str = "limpet",
        setup: bool = True,
        connections: int = _CONNECTIONS,
        lock_wait_s: float = LOCK_WAIT_S_MAX,
        retry_s: float = RETRY_S_MAX,
        pooler: bool = False,
        advisory_locks: bool = True,
        notify: bool = True,
        poll_s: float = _POLL_S,
        cache_bytes_max: int = CACHE_BYTES_MAX,
        ciphers: Ciphers = NO_KEYS,
    ) -> None:
        """Open a store in a database, creating its tables or bringing them up to date."""
        super().__init__(cache_bytes_max, ciphers)
        notifies = notify and advisory_locks
        settings = Settings(schema, connections, lock_wait_s, retry_s, pooler, notifies)
        self._listens = notifies and not pooler
        self._poll_s = poll_s
        self._clock = clock
        self._schema = schema
        self._server = PostgresServer(conninfo, settings, clock, draw, ciphers)
        try:
            with self._server.connect() as conn:
                make_ready(conn, schema, setup=setup, advisory_locks=advisory_locks, clock=clock)
        except psycopg.Error as cause:
            raise translated(cause) from cause

    def close(self) -> None:
        self._server.close()
        self._forget()

    def _read(self, action: Callable[[Tables], T]) -> T:
        return self._server.read(action)

    def _query(self, action: Callable[[Tables], T]) -> T:
        return self._server.query(action)

    def _write(self, action: Callable[[Tables], T]) -> T:
        return self._server.write(action)

    def _write_note(
        self, scope: ScopeKey, action: Callable[[PostgresTables], T], lost: Lost[T] | None = None
    ) -> T:
        def write(tables: PostgresTables) -> tuple[T, ScopeRow | None, ScopeRow | None]:
            return action(tables), tables.found, tables.left

        def write_and_remember() -> T:
            before: Lost[tuple[T, ScopeRow | None, ScopeRow | None]] | None = None
            if lost is not None:
                before = Lost(lost.trace, (lost.result, None, None))
            result, found, left = self._server.write(write, before)
            if found is not None and left is not None:
                self._remember_stamps(scope, found, left)
            return result

        return self._server.queued(scope, write_and_remember)

    def _remember_stamps(self, scope: ScopeKey, before: ScopeRow, left: ScopeRow) -> None:
        """Remember a change of our own, so that the next save of this process is one statement."""
        known = self._known(scope)
        found = (before.stamps, before.checksum)
        if known is not None and (known.scope.stamps, known.scope.checksum) == found:
            moved = known.scope._replace(
                lease_owner=left.lease_owner,
                lease_until=left.lease_until,
                checksum=left.checksum,
                stamps=left.stamps,
            )
            self._known_scopes.put(scope, known._replace(scope=moved))

    def _write_lease(self, scope: ScopeKey, action: Callable[[Tables], T]) -> T:
        # Not as a note is: what is remembered of the scope must not outlive another lease.
        self._known_scopes.pop(scope)
        try:
            return self._server.write(action)
        finally:
            self._known_scopes.pop(scope)

    def _give_back(self) -> int:
        return 0  # what is free is used again; to shrink the files is the server's own business

    # Committing

    def commit(self, commit: Commit) -> SnapshotInfo:
        return self._server.queued(commit.scope, partial(self._commit, commit))

    def _commit(self, commit: Commit) -> SnapshotInfo:
        known = self._known(commit.scope)
        prepared = self._prepare(commit, known)
        one = None if known is None else as_one_statement(known, commit, prepared)
        if one is None:
            done = self._save(commit, prepared, known, None)
        else:
            done = _Saved(one.row, one.body, one.left)
            try:
                if self._server.once(one.name, one.values, commit.scope.session_id) is None:
                    done = self._save(commit, prepared, known, None)
            except NoAnswer:
                trace = StampTrace(commit.scope, one.stamp, one.known)
                done = self._save(commit, prepared, known, Lost(trace, done._replace(left=None)))
        return self._remember(commit, *done)

    def _save(
        self,
        commit: Commit,
        prepared: PreparedDelta | None,
        known: KnownScope | None,
        lost: "Lost[_Saved] | None",
    ) -> "_Saved":
        def write(tables: PostgresTables) -> _Saved:
            tables.is_new = known is None or not known.alone
            # A writer alone that cannot do without asking mostly has a group to close.
            tables.full = None if known is None or tables.is_new else _kept_chain(known)
            tables.last = None if prepared is None else prepared.known
            row, body = apply_commit(tables, commit, prepared)
            # Among several writers one statement would mostly be in vain: it is for one alone.
            found = tables.found
            alone = known is None or found is None or found.stamps == known.scope.stamps
            left = known_scope(tables.moved, body, tables.bodies.added, alone=alone)
            return _Saved(row, body, left)

        return self._server.write(write, lost)

    # Notes

    def delete_note(
        self, scope: ScopeKey, name: str, *, on: str | None, fence: str | None = None
    ) -> int:
        def remove(tables: PostgresTables) -> int:
            found, is_there = tables.scope_and_has_note(scope, on or "", name)
            commits.check_fence(fence, None if found is None else found.fence, scope)
            return tables.remove_note(found, on or "", name) if found and is_there else 0

        def remove_in_one() -> int:
            known = self._known(scope)
            if known is None:
                return self._write_note(scope, remove)
            stamp, before = self._server.draw_stamp(), known.scope.stamps
            stamps = (stamp + before)[:STAMPS_BYTES]
            values = {"pk": known.scope.pk, "on": on or "", "name": name, "fence": fence}
            values |= {"known": before, "stamps": stamps}
            try:
                found = self._server.once("remove_note_in_one", values, scope.session_id)
            except NoAnswer:
                # It left its stamp only if it removed the note.
                return self._write_note(scope, remove, Lost(StampTrace(scope, stamp, before), 1))
            if found is None:
                return self._write_note(scope, remove)
            count = found[0]
            if count:
                left = known.scope._replace(stamps=stamps)
                self._remember_stamps(scope, known.scope, left)
            return count

        return self._server.queued(scope, remove_in_one)

    # Listening

    def listen(self) -> Listener[Topic]:
        self._server.check_open()
        if not self._listens:
            return poller(self._clock, self._poll_s)
        server = self._server
        try:
            return listen(server.connect, server.channel, clock=self._clock, poll_s=self._poll_s)
        except Unavailable:
            # There may be no connection left to listen on: then it polls.
            if not self._server.answers():
                raise
            return poller(self._clock, self._poll_s)

    # Reading

    def read_snapshots(self, scope: ScopeKey, ids: Sequence[str | None]) -> list[Found]:
        if len(ids) != 1 and None in ids:
            return super().read_snapshots(scope, ids)
        name, asked = "read_snapshots", {**scope._asdict(), "ids": list(ids)}
        if len(ids) == 1:
            name, asked = "read_snapshot", {**scope._asdict(), "id": ids[0]}
        rows = self._query(lambda tables: tables.transaction.all(name, asked))
        read = ReadSnapshots(rows, scope, self._ciphers.of(scope.session_id))
        tops = [read.head()] if ids == [None] else [read.named(each or "") for each in ids]
        found: list[Found] = []
        for top in tops:
            if top is not None:
                body = read.body(top)
                if top.seq == read.head_seq:  # the next save probably builds on it
                    self._cache.put(scope, LastBody(top.nonce, body))
                found.append((info_of(scope, top), body))
        return found

    def read_info(self, scope: ScopeKey, snapshot_id: str | None) -> SnapshotInfo | None:
        if snapshot_id is None:
            return super().read_info(scope, None)
        asked = {**scope._asdict(), "id": snapshot_id}
        found = self._query(lambda tables: tables.transaction.one("snapshot_info", asked))
        if found is None:
            return None
        cipher = self._ciphers.of(scope.session_id)
        check_scope(scope, found[SNAPSHOT_COLUMNS + len(scope) :], cipher)
        return info_of(scope, read_row(found, scope, cipher))

    def list_notes(
        self,
        scope: ScopeKey,
        *,
        on: Sequence[str | None],
        name: str | None,
        after: str,
        limit: int,
    ) -> list[Note]:
        asked = scope._asdict()
        on_ids = [each or "" for each in on]
        cipher = self._ciphers.of(scope.session_id)

        def named(tables: Tables) -> list[Note]:
            each_of = [{**asked, "on": each, "name": name} for each in on_ids]
            rows = (tables.transaction.one("note_in_scope", each) for each in each_of)
            found = [note_of_scope(scope, row, cipher) for row in rows if row is not None]
            return [note_of(row) for row in found[:limit]]

        def listed(tables: Tables) -> list[Note]:
            def take(columns: tuple[Any, ...]) -> Note | None:
                check_scope(scope, columns[NOTE_COLUMNS:], cipher)
                return good_note(scope, cipher, columns)

            page: list[Note] = []
            behind = after
            for start in range(0, len(on_ids), _IDS_MAX):
                values = {**asked, "ons": on_ids[start : start + _IDS_MAX], "after": behind}
                page += tables.transaction.page("list_notes", values, take, limit - len(page))
                if len(page) >= limit:
                    break
                behind = ""
            return page

        return self._query(listed if name is None else named)

    def read_stats(self, session_id: str | None, *, limit: int) -> Stats:
        def read(tables: Tables) -> Stats:
            totals = tables.transaction.one("totals", {"session_id": session_id})
            sessions, scopes, snapshots, logical, stored = totals
            largest: list[tuple[str, int]] = []
            if session_id is None:
                (stored,) = tables.transaction.one("stored_bytes")
                largest = tables.transaction.all("largest_sessions", (limit,))
            return Stats(sessions, scopes, snapshots, logical, stored, tuple(largest))

        return self._read(read)

    def check(self, after: str, *, repair: bool, limit: int) -> tuple[list[Finding], str | None]:
        def look(tables: PostgresTables) -> tuple[list[Finding], str | None]:
            place = (tables.transaction, self._ciphers, self._schema, after)
            return check_some(*place, repair=repair, limit=limit)

        return (self._server.write if repair else self._server.read)(look)


class _Saved(NamedTuple):
    """The result of a commit: its row, its state if known, and what is known of its scope."""

    row: Row
    body: bytes | None
    left: KnownScope | None


def _kept_chain(known: KnownScope) -> ChainState | None:
    """Return the chain of a scope, unless a draft is about to be covered."""
    head = known.scope.shown
    return known.chain if head is not None and head.kept else None
