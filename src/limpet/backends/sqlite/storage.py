"""The storage in one SQLite file: the embedded default.

Tables that a person can read (`sql/`). A change is one transaction that holds the file's write lock
from its first read on. Several processes may write at once, and threads share transactions
(`joined.py`).
"""

import re
import sqlite3
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from limpet.backends.sql.reader import Head, head_of
from limpet.backends.sql.storage import SqlStorage
from limpet.backends.sql.transaction import Transaction
from limpet.backends.sqlite.check import check_file
from limpet.backends.sqlite.errors import is_full, is_no_text
from limpet.backends.sqlite.file import ReadOnlyFile, SqliteFile
from limpet.backends.sqlite.in_place import Connection
from limpet.backends.sqlite.transaction import (
    LENIENT_TEXT,
    READ,
    STATEMENTS,
    WRITE,
    SqliteTransaction,
)
from limpet.backends.support.polling import Poller
from limpet.core import matching
from limpet.core.encryption import NO_KEYS, Ciphers
from limpet.core.limits import LOCK_WAIT_S_MAX
from limpet.errors import Corrupt, Unavailable
from limpet.model import Finding, ScopeKey
from limpet.protocol import Clock, NoteQuery
from limpet.storage import Change, Reader, StateReader, Taken

T = TypeVar("T")

_HEAD, _MOVE_SCOPE, _ADD_SNAPSHOT, _PUT_TAIL, _ADD_LABEL, _ADD_NOTE = map(
    STATEMENTS.__getitem__,
    ("head", "move_scope", "add_snapshot", "put_tail", "add_label", "add_note"),
)
_PLAIN = re.compile(r"[\w -]+", re.ASCII)  # needs no escaping in JSON, nor in a path of SQLite's

_POLL_S = 0.02  # after a change
_IDLE_POLL_S = 0.035
_FULL_POLL_S = 5.0  # everything is reported as changed this often, whatever the version says
_REST = 4  # times as long as the caller took to react: a busy file must not keep it busy


class SqliteStorage(SqlStorage):
    """Implements `storage.Storage` over one file."""

    def __init__(
        self,
        path: str,
        *,
        clock: Clock,
        states: Callable[[Reader], StateReader],
        ciphers: Ciphers = NO_KEYS,
        lock_wait_s: float = LOCK_WAIT_S_MAX,
        synchronous: str = "full",
        mode: str = "rw",
    ) -> None:
        """Open the file, creating it or bringing its tables up to date; with `ro` only read it."""
        super().__init__(ciphers, states)
        self._clock = clock
        file = ReadOnlyFile if mode == "ro" else SqliteFile
        self._file = file(path, clock=clock, lock_wait_s=lock_wait_s, synchronous=synchronous)
        self._bind_keys()

    def close(self) -> None:
        self._file.close()

    def _read(self, action: Callable[[Transaction], T]) -> T:
        return self._run(READ, action)

    def _query(self, action: Callable[[Transaction], T]) -> T:
        return self._run(None, action)

    def _run(
        self, begin: str | None, action: Callable[[Transaction], T], text: Callable[..., str] = str
    ) -> T:
        def run(conn: Connection, _: None) -> T:
            conn.text_factory = text
            if begin == WRITE:
                self._file.check_version(conn)  # under the write lock, so that it stays true
            try:
                return action(SqliteTransaction(conn))
            except sqlite3.IntegrityError as cause:
                raise Taken from cause

        try:
            return self._file.run(begin, run, None)
        except Corrupt as error:
            if text is LENIENT_TEXT or not is_no_text(error.__cause__):
                raise
        # Such text must fail the checksum of its own row, and not the whole listing.
        return self._run(begin, action, LENIENT_TEXT)

    def read_head(self, key: ScopeKey) -> Head | None:
        try:
            found = self._file.one(_HEAD, (key.session_id, key.kind, key.scope_id))
        except Corrupt:
            return super().read_head(key)  # text that is no UTF-8 is read there
        return None if found is None else head_of(found, key, self.ciphers)

    def write(self, change: Change) -> bool:
        values = self._save_of(change)
        if values is None:
            return super().write(change)
        return self._file.run(WRITE, self._save, values)

    def _save(self, conn: Connection, values: Any) -> bool:
        """Store a save if its scope is as it was known."""
        self._file.check_version(conn)
        scope, snapshot, tail, labels, notes = values
        if conn.execute(_MOVE_SCOPE, scope).rowcount != 1:
            return False
        try:
            conn.execute(_ADD_SNAPSHOT, snapshot)
            conn.execute(_PUT_TAIL, tail)
            if notes:
                conn.executemany(_ADD_NOTE, notes)
        except sqlite3.IntegrityError as cause:
            raise Taken from cause
        if labels:
            conn.executemany(_ADD_LABEL, labels)
        return True

    def _write(self, action: Callable[[Transaction], T]) -> T:
        try:
            return self._run(WRITE, action)
        except Unavailable as error:
            if not is_full(error):
                raise
        # To delete, too, SQLite needs a few pages for its log: so that is emptied first.
        self._file.empty_log()
        return self._run(WRITE, action)

    def _note_rows(self, transaction: Transaction, asked: dict[str, Any]) -> list[Any]:
        try:
            return super()._note_rows(transaction, asked)
        except sqlite3.OperationalError:
            if asked["test"] is None:
                raise
            # A value is no JSON: damage.
            return super()._note_rows(transaction, {**asked, "test": None})

    def _bound(self, query: NoteQuery) -> dict[str, Any]:
        bound = matching.bound_of(query.where)
        if bound is None or not all(map(_PLAIN.fullmatch, bound.path)):
            return {"test": None, "path": None, "bound": None}
        test, value = bound.order, bound.value
        if isinstance(value, str):
            if bound.path and test == "eq" and _PLAIN.fullmatch(value):
                # As it is encoded; to search for that is much faster than to parse.
                text = f'"{bound.path[-1]}":"{value}"'.encode()
                return {"test": "contains", "path": None, "bound": text}
        elif test != "eq":
            test += " number"
        path = "".join(f'."{key}"' for key in bound.path)
        return {"test": test, "path": f"${path}", "bound": value}

    def listen(self) -> "SqliteListener":
        return SqliteListener(self._file, self._clock)

    def check(self, after: str, *, repair: bool, limit: int) -> tuple[list[Finding], str | None]:
        def run(conn: Connection, _: None) -> tuple[list[Finding], str | None]:
            conn.text_factory = LENIENT_TEXT  # names may have become bytes that are no text
            walk = partial(self._check, SqliteTransaction(conn), repair=repair, limit=limit)
            return check_file(conn, walk, after, repair=repair)

        return self._file.run_apart(run, None) if repair else self._file.run(READ, run, None)

    def compact(self) -> int:
        return self._file.compact()


class SqliteListener(Poller):
    """Reports everything as changed when the file has another version, a number from SQLite.

    A poll takes some microseconds, however many topics are watched.
    """

    def __init__(self, file: SqliteFile, clock: Clock) -> None:
        super().__init__(first_s=_POLL_S, poll_s=_IDLE_POLL_S, clock=clock)
        self._file = file
        self._version = file.version()
        self._reported_s: float | None = None
        self._full_poll_at = clock.monotonic() + _FULL_POLL_S

    def wait(self, *, active: bool) -> frozenset[str] | None:
        if self._reported_s is not None:
            took_s = self._clock.monotonic() - self._reported_s
            self._reported_s = None
            if self.pause(active=active, at_least_s=_REST * took_s):
                return frozenset()
            if self.has_changed():
                return None
        return super().wait(active=active)

    def has_changed(self) -> bool:
        now_s, version = self._clock.monotonic(), self._file.version()
        if version == self._version and now_s < self._full_poll_at:
            return False
        self._version, self._full_poll_at = version, now_s + _FULL_POLL_S
        self._reported_s = now_s
        return True
