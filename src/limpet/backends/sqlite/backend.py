"""The engine in one SQLite file: the embedded default.

Tables that a person can read (`sql/`), statements by name (`sql/queries.sql`). A
commit is one transaction that holds the file's write lock from its first read on, so what it
decides (core/commits.py) is still true when it is written. A writer that continues its own line
decides before, and verifies as it writes that nothing has changed (`sql/continuing.py`). Several
processes may write at once, and threads share transactions (`joined.py`).
"""

from __future__ import annotations  # those of inner functions are not evaluated on each call

import re
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

from limpet.backends.sql.backend import SqlBackend
from limpet.backends.sql.commit import LastBody, apply_commit
from limpet.backends.sql.continuing import Continued, KnownScope, Save, continued, known_scope
from limpet.backends.sql.notes import change_notes
from limpet.backends.sql.tables import Tables, moved_values, next_place, of_size
from limpet.backends.sqlite.check import check_some
from limpet.backends.sqlite.errors import is_full
from limpet.backends.sqlite.file import SqliteFile
from limpet.backends.sqlite.listen import SqliteListener
from limpet.backends.sqlite.read_only import FileChanged, ReadOnlyFile
from limpet.backends.sqlite.transaction import SqliteTransaction
from limpet.backends.support.located import located
from limpet.core import matching
from limpet.core.deltas.chain import check_written_by, payload_of
from limpet.core.encryption import NO_KEYS, Ciphers
from limpet.core.limits import CACHE_BYTES_MAX, LOCK_WAIT_S_MAX
from limpet.core.notes import NoteRow, written_note
from limpet.core.rows import Row, info_of
from limpet.errors import Unavailable
from limpet.model import ANY, Expect, Finding, Pruned, ScopeKey, SnapshotInfo
from limpet.protocol import Clock, Commit, Found, NoteChange, NoteQuery, NoteWrite

T = TypeVar("T")

_READS_MAX = 10
_PLAIN = re.compile(r"[\w -]+", re.ASCII)  # needs no escaping in JSON, nor in a path of SQLite's


@located
class SqliteBackend(SqlBackend):
    """An engine whose storage is one file."""

    blocking = True
    capabilities = frozenset({"durable", "index", "atomic"})

    def __init__(
        self,
        path: str,
        *,
        clock: Clock,
        lock_wait_s: float = LOCK_WAIT_S_MAX,
        synchronous: str = "full",
        cache_bytes_max: int = CACHE_BYTES_MAX,
        mode: str = "rw",
        ciphers: Ciphers = NO_KEYS,
    ) -> None:
        """Open the file, creating it or bringing its tables up to date; with `ro` only read it."""
        super().__init__(cache_bytes_max, ciphers)
        self._clock = clock
        file = ReadOnlyFile if mode == "ro" else SqliteFile
        self._file = file(path, clock=clock, lock_wait_s=lock_wait_s, synchronous=synchronous)
        self._last = (0, -1)  # the place and the time of the last commit of this process

    def close(self) -> None:
        self._file.close()
        self._forget()

    def _read(self, action: Callable[[Tables], T]) -> T:
        for _ in range(_READS_MAX - 1):
            with suppress(FileChanged), self._file.transaction() as transaction:
                return action(Tables(transaction, self._ciphers))
        with self._file.transaction() as transaction:
            return action(Tables(transaction, self._ciphers))

    def _one_by_one(self, action: Callable[[Tables], T]) -> T:
        if isinstance(self._file, ReadOnlyFile):
            return self._read(action)
        with self._file.transaction(several=False) as transaction:
            return action(Tables(transaction, self._ciphers))

    def _first_row(self, name: str, values: Any) -> Any:
        if isinstance(self._file, ReadOnlyFile):
            return super()._first_row(name, values)
        return self._file.one(name, values)

    def _note_rows(self, tables: Tables, asked: dict[str, Any]) -> list[Any]:
        try:
            return super()._note_rows(tables, asked)
        except sqlite3.OperationalError:
            if asked["test"] is None:
                raise
            return super()._note_rows(tables, {**asked, "test": None})  # a value is no JSON: damage

    def _change_notes(self, changes: Sequence[NoteChange]) -> list[NoteRow]:
        first, known = changes[0], self._known(changes[0].scope)
        is_new = isinstance(first, NoteWrite) and first.expect is None and first.fence is None
        if known is None or len(changes) > 1 or not isinstance(first, NoteWrite) or not is_new:
            return super()._change_notes(changes)
        row = written_note(first, None)

        def add(tables: Tables) -> list[NoteRow]:
            is_added = tables.add_note(known.scope, first.scope, row)
            return [row] if is_added else change_notes(tables, changes)

        return self._write(add)

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

    def _write(self, action: Callable[[Tables], T]) -> T:
        with self._file.transaction(write=True) as transaction:
            return action(self._tables_to_write(transaction))

    def _tables_to_write(self, transaction: SqliteTransaction) -> Tables:
        self._file.check_version(transaction.conn)  # under the write lock, so that it stays true
        return Tables(transaction, self._ciphers)

    def commit(self, commit: Commit) -> SnapshotInfo:
        known = self._known(commit.scope)
        prepared = self._prepare(commit, known)
        plan = None if known is None else continued(known, commit, prepared)
        last = self._last
        save = None if plan is None else plan.at(*next_place(plan.known.scope, *last))

        def write(tables: Tables) -> _Written:
            if plan is not None and save is not None:
                done = _continue(tables, plan, save, last[0])
                if done is not None:
                    return _Written(done.row, plan.body, done.known, plan)
            row, body = apply_commit(tables, commit, prepared)
            return _Written(row, body, known_scope(tables.moved, body, tables.bodies.added))

        def write_again(tables: Tables) -> _Written:
            return _Written(*apply_commit(tables, commit._replace(again=True), prepared))

        row, body, left, continued_by = self._file.joined.run(
            lambda transaction: write(self._tables_to_write(transaction)),
            lambda: self._write(write_again),
        )
        self._last = max(last, (row.seq, row.saved_at))
        if left is not None and left.chain.seq != left.scope.head_seq:
            left = None  # the head could be updated without a trace in what is compared
        return self._remember(commit, row, body, left, continued_by)

    def read_snapshots(self, scope: ScopeKey, ids: Sequence[str | None]) -> list[Found]:
        known = self._cache.get(scope) if list(ids) == [None] else None
        found = None if known is None else self._head_in_one(scope, known)
        return super().read_snapshots(scope, ids) if found is None else found

    def _head_in_one(self, scope: ScopeKey, known: LastBody) -> list[Found] | None:
        """Return the head with one statement if its body is short, and whole or known; else None.

        `known` is the state that this process saved or read last. If it is that of the head, only
        the newest body is verified, and not those below it.
        """
        if isinstance(self._file, ReadOnlyFile):
            return None
        with self._file.transaction(several=False) as transaction:
            tables = Tables(transaction, self._ciphers)
            found = tables.scope_and_head(scope)
            row = None if found is None else tables.head(found)
        if found is None or row is None:
            return []
        top = found.top
        if top is None or top.body is None:
            return None
        body, nonces = payload_of(top, found.cipher)
        check_written_by(top.seq, nonces, (row.written_by,))
        if top.base is not None:
            if known.nonce != row.nonce:
                return None
            body = known.body
        body = of_size(row, body)
        self._cache.put(scope, LastBody(row.nonce, body))  # the next save probably builds on it
        return [(info_of(scope, row), body)]

    # On a full disk SQLite still needs a few pages for its log. So the log is emptied first, and as
    # little as possible is deleted at a time.

    def delete_snapshots(
        self,
        scope: ScopeKey,
        ids: Sequence[str],
        *,
        spare_head: bool = False,
        fence: str | None = None,
    ) -> Pruned:
        delete = partial(super().delete_snapshots, scope, spare_head=spare_head, fence=fence)
        try:
            return delete(ids)
        except Unavailable as error:
            if not is_full(error):
                raise
        count = size = 0
        if not ids:
            self._file.empty_log()
            return delete(ids)
        for each in ids:
            self._file.empty_log()
            done = delete([each])
            count, size = count + done.count, size + done.bytes
        return Pruned(count, size)

    def delete_scope(
        self, scope: ScopeKey, *, expect: Expect = ANY, fence: str | None = None
    ) -> int:
        delete = partial(super().delete_scope, scope, expect=expect, fence=fence)
        return self._with_empty_log(delete)

    def delete_session(self, session_id: str) -> int:
        return self._with_empty_log(partial(super().delete_session, session_id))

    def _with_empty_log(self, delete: Callable[[], int]) -> int:
        try:
            return delete()
        except Unavailable as error:
            if not is_full(error):
                raise
            self._file.empty_log()
            return delete()

    def listen(self) -> SqliteListener:
        return SqliteListener(self._file, self._clock)

    def _give_back(self) -> int:
        return self._file.compact()

    def check(self, after: str, *, repair: bool, limit: int) -> tuple[list[Finding], str | None]:
        with self._file.transaction(write=repair) as transaction:
            return check_some(transaction, self._ciphers, after, repair=repair, limit=limit)


class _Written(NamedTuple):
    """What a commit left: the row, its state if known, the scope, and the plan that it followed."""

    row: Row
    body: bytes | None
    known: KnownScope | None = None
    plan: Continued | None = None


def _continue(tables: Tables, plan: Continued, save: Save, last_seq: int) -> Save | None:
    """Store a save if its scope is as it was known, else nothing, and return None.

    `save` is right if `last_seq` is still the last of the whole store.
    """
    transaction, known = tables.transaction, plan.known.scope
    if plan.folded and not tables.bodies.are_unchanged(plan.known.unfolded):
        return None
    before = moved_values(known)
    *changes, _ = moved_values(save.known.scope)
    if not transaction.count("continue_scope", (*changes, *before, last_seq)):
        found = transaction.one("scope_to_continue", before)
        if found is None:
            return None
        # Other scopes of the file were written to: only the place is another.
        save = plan.at(*next_place(known, *found))
        tables.move_scope(save.known.scope)
    try:
        transaction.do("add_snapshot", save.snapshot)
    except sqlite3.IntegrityError:  # the id exists
        tables.move_scope(known)
        return None
    if plan.folded:
        tables.bodies.delete_rows([row.seq for row in plan.folded])
        tables.bodies.insert_rows(plan.folded)
    transaction.do("bodies.add", save.stored)
    if save.labels:
        transaction.do_many("add_label", save.labels)
    return save
