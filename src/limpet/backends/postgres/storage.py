"""The storage on a PostgreSQL server: for many machines.

The same tables as SQLite's (`sql/`). A change locks the row of its scope, so what it was decided by
is still true when it is written, and writers of other scopes do not wait. The save of a process
that changed the scope last is one statement; other changes are two round trips and what has to be
read. To load a head is one.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import psycopg

from limpet.backends.postgres.check import check_schema
from limpet.backends.postgres.errors import translated
from limpet.backends.postgres.listen import listen, poller
from limpet.backends.postgres.schema import make_ready
from limpet.backends.postgres.server import PostgresServer, Settings
from limpet.backends.postgres.transaction import PostgresTransaction
from limpet.backends.sql.columns import (
    ROW_COLUMNS,
    read_row,
)
from limpet.backends.sql.reader import SqlReader, record_of
from limpet.backends.sql.storage import SqlStorage, check_order, listed_key
from limpet.core.encryption import NO_KEYS, Ciphers
from limpet.core.ids import prefix_end
from limpet.core.limits import LOCK_WAIT_S_MAX, PAGE_STATES_MAX, RETRY_S_MAX
from limpet.core.rows import Row
from limpet.errors import Corrupt, Unavailable
from limpet.model import Finding, ScopeKey
from limpet.protocol import Clock, Listener, Topic
from limpet.storage import Change, LostAnswer, Reader, ScopeRecord, StateReader, TailRow

T = TypeVar("T")

_CONNECTIONS = 16
_POLL_S = 1.0
_NONE = "{}"  # an empty array, which costs less to send than an empty list


class PostgresReader(SqlReader):
    """What a scope is mostly asked for is read together with it."""

    _transaction: PostgresTransaction

    def __init__(
        self,
        transaction: PostgresTransaction,
        key: ScopeKey,
        ciphers: Ciphers,
        *,
        locks: bool = False,
    ) -> None:
        beside = transaction.also("beside_scope", (key.session_id, key.kind, key.scope_id))
        super().__init__(transaction, key, ciphers, locks=locks)
        (found,) = beside.rows
        self._now: int = found[0]
        self._row_of_head, tail = found[1 : ROW_COLUMNS + 1], found[ROW_COLUMNS + 1 :]
        self._tails = {} if tail[3] is None else {tail[0]: tail}

    def row_at(self, seq: int) -> Row | None:
        found = self._row_of_head
        if found[0] == seq and found[-1] == self._pk:
            return read_row(found, self._key, self._cipher)
        return super().row_at(seq)

    def rows(self, ids: Sequence[str]) -> list[Row]:
        values = {"pk": self._pk, "ids": [*ids]}
        tails = None
        if not self._locks and len(ids) <= PAGE_STATES_MAX:
            tails = self._transaction.also("tails_by_ids", values)
        found = self._transaction.all("rows_by_ids", values)
        if tails is not None:
            self._tails |= {columns[0]: columns for columns in tails.rows}
        rows = {columns[1]: read_row(columns, self._key, self._cipher) for columns in found}
        if not rows.keys() <= {*ids}:
            raise Corrupt("an index leads to another snapshot")
        return [rows[id] for id in ids if id in rows]

    def tail_row(self, seq: int) -> TailRow | None:
        found = self._tails.get(seq)
        return super().tail_row(seq) if found is None else self._tail(found)

    def now(self, here: int, *, hint: bool = False) -> int:
        return self._now

    def other(self, key: ScopeKey) -> SqlReader:
        return _SourceReader(self._transaction, key, self._ciphers, locks=self._locks)


class _SourceReader(PostgresReader):
    lock = "scope_to_fork"


class _Dropped(NamedTuple):
    """What a deletion removed."""

    pks: set[int]
    snapshots: int


class PostgresStorage(SqlStorage):
    """Implements `storage.Storage` over a schema of a database."""

    reader = PostgresReader

    def __init__(
        self,
        conninfo: str,
        *,
        clock: Clock,
        states: Callable[[Reader], StateReader],
        schema: str = "limpet",
        setup: bool = True,
        connections: int = _CONNECTIONS,
        lock_wait_s: float = LOCK_WAIT_S_MAX,
        retry_s: float = RETRY_S_MAX,
        pooler: bool = False,
        advisory_locks: bool = True,
        notify: bool = True,
        poll_s: float = _POLL_S,
        ciphers: Ciphers = NO_KEYS,
    ) -> None:
        """Open a schema, creating its tables or bringing them up to date."""
        super().__init__(ciphers, states)
        notifies = notify and advisory_locks
        settings = Settings(schema, connections, lock_wait_s, retry_s, pooler, notifies)
        self._listens = notifies and not pooler
        self._poll_s = poll_s
        self._clock = clock
        self._schema = schema
        self._server = PostgresServer(conninfo, settings, clock)
        try:
            with self._server.connect() as conn:
                make_ready(conn, schema, setup=setup, advisory_locks=advisory_locks, clock=clock)
        except psycopg.Error as cause:
            raise translated(cause) from cause
        if ciphers.encrypts:
            (store_id,) = self._query(lambda transaction: transaction.one("store_id"))
            ciphers.bind(store_id)

    def close(self) -> None:
        self._server.close()

    def _read(self, action: Callable[[PostgresTransaction], T]) -> T:
        return self._server.read(action)

    def _query(self, action: Callable[[PostgresTransaction], T]) -> T:
        return self._server.query(action)

    def _write(self, action: Callable[[PostgresTransaction], T]) -> T:
        return self._server.write(action)

    # One scope

    def write(self, change: Change) -> bool:
        found = self._save_of(change)
        if found is None:
            return self._write(lambda transaction: self._apply_at(transaction, change))
        scope, snapshot, tail, labels = found
        names = [name for name, _, _ in labels] if labels else _NONE
        values = [value for _, value, _ in labels] if labels else _NONE
        sent = (*scope, *snapshot, *tail, names, values)
        return self._server.once("save", sent, change.key.session_id)

    def _apply_at(self, transaction: PostgresTransaction, change: Change) -> bool:
        """Make a change if its scope, which is locked here, is at the version it was made for."""
        key, before = change.key, change.before
        found = transaction.one("scope_to_change", (key.session_id, key.kind, key.scope_id))
        version = (
            None
            if found is None
            else record_of(found, key, self.ciphers.of(key.session_id)).version
        )
        if version != (None if before is None else before.version):
            return False
        return self._apply(transaction, change)

    def _apply(self, transaction: Any, change: Change) -> bool:
        transaction.is_locked = True
        # Listeners look at snapshots: notes and leases would wake them in vain.
        is_removed = change.after is None and change.before is not None and change.before.last
        if change.rows or change.rows_gone or is_removed:
            transaction.changed = change.key.session_id
        return super()._apply(transaction, change)

    def _drop_shared(self, transaction: Any, name: bytes) -> None:
        transaction.do("lock_shared", (name,))
        transaction.do("drop_shared", (name,))

    def _remove(self, transaction: Any, record: ScopeRecord) -> bool:
        self._drop(transaction, record.pk)  # it is locked, at this version
        return True

    def drop(self, session_id: str, key: ScopeKey | None = None) -> int:
        before: _Dropped | None = None  # by an attempt whose answer was lost

        def run(transaction: PostgresTransaction) -> int:
            nonlocal before
            name = "pks_of_session" if key is None else "pks_of_scope"
            values = {"session_id": session_id} if key is None else key._asdict()
            # Again: a fork that was waited for may have added one.
            found = transaction.also(name, values)
            transaction.all(name, values)
            pks = [pk for (pk,) in found.rows]
            if before is not None and not before.pks & {*pks}:
                return before.snapshots  # what is there now came after it
            if not pks:
                return 0
            transaction.changed = session_id
            count = self._drop(transaction, *pks)
            before = _Dropped({*pks}, count)
            return count

        try:
            return self._write(run)
        except LostAnswer:
            pass
        try:
            return self._write(run)
        except Unavailable as cause:
            raise LostAnswer from cause

    def _drop(self, transaction: Any, pk: int, *others: int) -> int:
        values = (transaction.many([pk, *others]),)
        shared = transaction.all("shared_of_scopes", values)
        for what in ("labels", "tails", "segments", "notes"):
            transaction.do(f"remove_scope_{what}", values)
        for (name,) in shared:
            self._drop_shared(transaction, name)
        transaction.do("remove_scope", values)
        count: int = transaction.count("remove_scope_snapshots", values)
        return count

    # Listings

    def list_sessions(self, prefix: str, after: str, limit: int) -> list[str]:
        def take(columns: Any) -> str | None:
            key = listed_key(columns)
            return None if key is None else key.session_id

        values = {"low": prefix, "high": prefix_end(prefix), "after": after}
        found = self._query(lambda each: each.page("list_sessions", values, take, limit))
        check_order([after, *found], "sessions")
        return found

    def check(self, after: str, *, repair: bool, limit: int) -> tuple[list[Finding], str | None]:
        def look(transaction: PostgresTransaction) -> tuple[list[Finding], str | None]:
            if after == "":
                return check_schema(transaction, self._schema)
            if repair:
                transaction.do("lock_everybody_out")
            return self._check(transaction, after, repair=repair, limit=limit)

        return self._write(look) if repair else self._read(look)

    def compact(self) -> int:
        return 0  # what is free is used again; to shrink the files is the server's own business

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
