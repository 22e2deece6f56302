"""The storage on a PostgreSQL server: for many machines.

The same tables as SQLite's (`sql/`). A change locks the row of its scope, so what it was decided by
is still true when it is written, and writers of other scopes do not wait. The save of a process
that changed the scope last is one statement, and so is its new note; other changes are two round
trips and what has to be read. To read a state is mostly one.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import psycopg

from limpet.backends.postgres.errors import translated
from limpet.backends.postgres.listen import listen, poller
from limpet.backends.postgres.schema import check_schema, make_ready
from limpet.backends.postgres.server import PostgresServer, Settings
from limpet.backends.postgres.transaction import Answer, PostgresTransaction
from limpet.backends.sql.columns import ROW_COLUMNS, note_values, read_row, scope_values
from limpet.backends.sql.reader import SqlReader
from limpet.backends.sql.storage import SqlStorage, check_order, listed_key
from limpet.core.encryption import NO_KEYS, Ciphers
from limpet.core.ids import prefix_end
from limpet.core.limits import LOCK_WAIT_S_MAX, PAGE_STATES_MAX, RETRY_S_MAX
from limpet.core.rows import Row
from limpet.errors import Corrupt, Unavailable
from limpet.model import Finding, ScopeKey
from limpet.protocol import Clock, Listener, Topic
from limpet.storage import (
    Change,
    LostAnswer,
    Reader,
    ScopeRecord,
    SegmentRow,
    StateReader,
    TailRow,
)

T = TypeVar("T")

_CONNECTIONS = 16
_POLL_S = 1.0
_TO_CHANGE = "scope_to_change"
_NONE = "{}"  # an empty array, which costs less to send than an empty list


class PostgresReader(SqlReader):
    """What will be needed is read together with what is asked for.

    The scope is read ahead of the first question, with `reads_head` also what the state of the head
    is made of.
    """

    _transaction: PostgresTransaction

    def __init__(
        self,
        transaction: PostgresTransaction,
        key: ScopeKey,
        ciphers: Ciphers,
        statement: str = "scope",
        *,
        reads_head: bool = False,
    ) -> None:
        super().__init__(transaction, key, ciphers, statement)
        self._changes = statement == _TO_CHANGE
        self._scopes = transaction.ahead(statement, self._address)
        self._reads_head = reads_head
        self._found_with_scope: Any = None
        self._answers: list[Answer] = []
        self._more: Answer | None = None
        self._tails: dict[int, Any] = {}  # by seq
        self._is_whole = False  # they are all of the tail
        self._sought = set[int]()  # what is not in `_tails` is not in the tail

    def _scope(self) -> Any:
        if not self._scopes.is_known:
            self._with_scope()
        return self._scopes.rows[0] if self._scopes.rows else None

    @property
    def _pk(self) -> Any:
        """The key of the scope; until that is known, its address."""
        return super()._pk if self._scopes.is_known else self._key

    def _with_scope(self) -> Any:
        """Return the server's time, the head and its tail row, which are read with the scope."""
        if self._found_with_scope is None:
            if self._reads_head:
                self._send_along((), head=True)
            found = self._transaction.one("with_scope", self._address)
            tail = found[ROW_COLUMNS + 1 :]
            if tail[3] is not None:
                self._tails[tail[0]] = tail
            self._found_with_scope = found
        return self._found_with_scope

    def _send_along(self, ids: Sequence[str], *, head: bool = False) -> None:
        """Have sent, with the next question, what it takes to read or change some snapshots."""
        asked = [*ids[:PAGE_STATES_MAX]]
        values = {"pk": self._pk, "ids": asked, "head": head, "whole": self._changes}
        self._answers.append(self._transaction.also("tails_of", values))
        if self._changes or head:
            self._more = self._transaction.also("newest_segment_of", values)

    def row_at(self, seq: int) -> Row | None:
        found = self._with_scope()[1 : ROW_COLUMNS + 1]
        if found[0] == seq and found[-1] == self._pk:
            return read_row(found, self._key, self._cipher)
        return super().row_at(seq)

    def rows(self, ids: Sequence[str]) -> list[Row]:
        self._send_along(ids)
        rows = super().rows(ids)
        if len(ids) <= PAGE_STATES_MAX:
            self._sought |= {row.seq for row in rows}
        return rows

    def seqs_and_sizes(self, ids: Sequence[str]) -> list[tuple[int, int]]:
        self._send_along(ids)
        return super().seqs_and_sizes(ids)

    def _known_tails(self) -> dict[int, Any]:
        while self._answers:
            for *columns, is_whole in self._answers.pop().rows:
                self._tails[columns[0]] = columns
                self._is_whole |= is_whole == 1
        return self._tails

    def tail_row(self, seq: int) -> TailRow | None:
        found = self._known_tails().get(seq)
        if found is None and seq not in self._sought:
            return super().tail_row(seq)
        return None if found is None else self._tail(found)

    def tail(self) -> dict[int, TailRow]:
        found = self._known_tails()
        if self.record is None or not self._is_whole:
            return super().tail()
        return {seq: self._tail(found[seq]) for seq in sorted(found)}

    def segment(self, seq: int | None) -> SegmentRow | None:
        for found in () if self._more is None else self._more.rows:
            if found[1] is None:
                return None
            if seq in (None, found[1]):
                return self._segment(found)
        return super().segment(seq)

    def now(self, here: int, *, hint: bool = False) -> int:
        return int(self._with_scope()[0])

    def other(self, key: ScopeKey) -> SqlReader:
        statement = "scope_to_fork" if self._changes else self._statement
        return type(self)(self._transaction, key, self._ciphers, statement)


class PostgresStorage(SqlStorage):
    """Implements `storage.Storage` over a schema of a database."""

    _locks_scopes = True

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
        self._next = threading.local()
        self._server = PostgresServer(conninfo, settings, clock)
        try:
            with self._server.connect() as conn:
                make_ready(conn, schema, setup=setup, advisory_locks=advisory_locks, clock=clock)
        except psycopg.Error as cause:
            raise translated(cause) from cause
        self._bind_keys()

    def close(self) -> None:
        self._server.close()

    def _read(self, action: Callable[[PostgresTransaction], T]) -> T:
        return self._server.read(action)

    def _query(self, action: Callable[[PostgresTransaction], T]) -> T:
        return self._server.query(action)

    def _write(self, action: Callable[[PostgresTransaction], T]) -> T:
        return self._server.write(action)

    # One scope

    def reader(self, transaction: Any, key: ScopeKey, *given: Any, **options: Any) -> SqlReader:
        reads_head = getattr(self._next, "reads_head_of", None) == key
        self._next.reads_head_of = None
        return PostgresReader(transaction, key, *given, **options, reads_head=reads_head)

    def read(self, key: ScopeKey, use: Callable[[Reader], T], seen: ScopeRecord | None = None) -> T:
        def run(transaction: PostgresTransaction) -> T:
            return use(self.reader(transaction, key, self.ciphers))

        self._next.reads_head_of = None if seen is None else key
        return self._server.read(run, apart=True)

    def write(self, change: Change) -> bool:
        if change.new_note and not change.rows:
            return self._server.once("save_note", self._note_of(change))
        found = self._save_of(change)
        if found is None:
            return super().write(change)
        scope, snapshot, tail, labels, notes = found
        names = [name for name, _, _ in labels] if labels else _NONE
        values = [value for _, value, _ in labels] if labels else _NONE
        sent = (*scope, *snapshot, *tail, names, values, *map(list, zip(*notes, strict=True)))
        name = "save_with_notes" if notes else "save"
        is_stored = self._server.once(name, sent, change.key.session_id)
        if not is_stored:
            self._next.reads_head_of = change.key  # to save behind it
        return is_stored

    def _note_of(self, change: Change) -> tuple[Any, ...]:
        """Return the columns of a new note and of its scope."""
        key, before, after = change.key, change.before, change.after
        if before is None or after is None:
            raise Corrupt("a new note is written without a scope")
        cipher = self.ciphers.of(key.session_id)
        note = note_values(change.notes[0], after.pk, key, cipher)
        return (*scope_values(after, cipher), after.pk, before.version, *note)

    def _apply(self, transaction: Any, change: Change) -> bool:
        transaction.is_locked = True
        # Listeners are for snapshots: a note or a lease must not wake them.
        is_removed = change.after is None and change.before is not None and change.before.last
        if change.rows or change.rows_gone or is_removed:
            transaction.changed = change.key.session_id
        return super()._apply(transaction, change)

    def _drop_shared(self, transaction: Any, name: bytes) -> None:
        transaction.do("lock_shared", (name,))
        transaction.do("drop_shared", (name,))

    def drop(self, session_id: str, key: ScopeKey | None = None) -> int:
        gone, count = set[int](), 0  # by an attempt whose answer was lost

        def run(transaction: PostgresTransaction) -> int:
            nonlocal gone, count
            name = "pks_of_session" if key is None else "pks_of_scope"
            values = {"session_id": session_id} if key is None else key._asdict()
            # Again: a fork that was waited for may have added one.
            found = transaction.also(name, values)
            transaction.all(name, values)
            pks = {pk for (pk,) in found.rows}
            if not pks or (gone and not gone & pks):
                return count  # what is there now came after it
            transaction.changed = session_id
            gone, count = pks, self._drop(transaction, pks)
            return count

        try:
            return self._write(run)
        except LostAnswer:
            pass
        try:
            return self._write(run)
        except Unavailable as cause:
            raise LostAnswer from cause

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
        def check_part(transaction: PostgresTransaction) -> tuple[list[Finding], str | None]:
            if after == "":
                return check_schema(transaction, self._schema)
            if repair:
                transaction.do("lock_everybody_out")
            return self._check(transaction, after, repair=repair, limit=limit)

        return self._write(check_part) if repair else self._read(check_part)

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
