"""A storage over tables: what those over SQL have in common.

Below it, an engine's folder has the statements (`sql/*.sql`, by name) and the transactions.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import orjson

from limpet.backends.sql import checking, rekeying
from limpet.backends.sql.checking import Position
from limpet.backends.sql.columns import (
    NOTE_COLUMNS,
    ROW_COLUMNS,
    label_values,
    note_values,
    read_note,
    read_row,
    read_scope,
    row_values,
    scope_values,
    segment_values,
    shared_values,
    tail_values,
)
from limpet.backends.sql.reader import Head, SqlReader, head_of, name_of, record_of
from limpet.backends.sql.transaction import Transaction
from limpet.core.codec import decode
from limpet.core.encryption import Ciphers
from limpet.core.ids import SEQ_MAX, prefix_end, revision
from limpet.core.limits import is_text
from limpet.core.notes import NoteRow
from limpet.core.rows import EMPTY, Row
from limpet.errors import Corrupt, InvalidInput
from limpet.model import Finding, ScopeKey, SnapshotRef
from limpet.protocol import NoteQuery, Query, SessionAge, Target
from limpet.storage import Change, Reader, ScopeQuery, ScopeRecord, StateReader, is_at

T = TypeVar("T")

_TIMES_MORE_NOTES = 8  # times as many notes are read if too few of those that were read match


class SqlStorage:
    """Implements most of `storage.Storage`. An engine says how transactions are run."""

    capabilities = frozenset({"durable", "index", "atomic"})
    blocking = True
    reader: Callable[..., SqlReader] = SqlReader
    _locks_scopes = False  # before they are changed, so that the version is certain

    def __init__(self, ciphers: Ciphers, states: Callable[[Reader], StateReader]) -> None:
        self.ciphers = ciphers
        self._states = states

    def _read(self, action: Callable[[Transaction], T]) -> T:
        """Run an action that sees one moment of the store."""
        raise NotImplementedError

    def _query(self, action: Callable[[Transaction], T]) -> T:
        """Run an action whose statements need not see the same moment of the store."""
        return self._read(action)

    def _write(self, action: Callable[[Transaction], T]) -> T:
        """Run an action as one step, durable when this returns, or not at all.

        Raises:
            Taken, LostAnswer: as `storage.Storage.write`.
        """
        raise NotImplementedError

    def _bind_keys(self) -> None:
        if self.ciphers.encrypts:
            (store_id,) = self._query(lambda transaction: transaction.one("store_id"))
            self.ciphers.bind(store_id)

    # One scope

    def _save_of(self, change: Change) -> tuple[Any, ...] | None:
        """Return the columns of scope, snapshot, tail, labels and new notes if it is a save."""
        key, before, after = change.key, change.before, change.after
        rows, tail = change.rows, change.tail
        is_replaced = change.replace or change.rows_gone or change.tail_gone
        is_roll = change.segments or change.segments_gone or change.shared or change.unshared
        is_noted = change.notes_gone or (change.notes and not change.new_note)
        is_more = is_replaced or is_roll or is_noted
        if before is None or after is None or is_more or not len(rows) == 1 == len(tail):
            return None
        row, pk, cipher = rows[0], after.pk, self.ciphers.of(key.session_id)
        return (
            (*scope_values(after, cipher), pk, before.version),
            (*row_values(row, pk, key, cipher), change.apart),
            tail_values(tail[0], pk, key, cipher),
            () if row.labels == EMPTY else label_values(row, cipher),
            [note_values(note, pk, key, cipher) for note in change.notes] if change.notes else (),
        )

    def read(self, key: ScopeKey, use: Callable[[Reader], T], seen: ScopeRecord | None = None) -> T:
        return self._read(lambda transaction: use(self.reader(transaction, key, self.ciphers)))

    def read_head(self, key: ScopeKey) -> Head | None:
        asked = (key.session_id, key.kind, key.scope_id)
        found = self._query(lambda transaction: transaction.one("head", asked))
        return None if found is None else head_of(found, key, self.ciphers)

    def write(self, change: Change) -> bool:
        def run(transaction: Transaction) -> bool:
            # What moves a scope compares its version, what removes it does not.
            is_compared = change.after is not None and not self._locks_scopes
            if not is_compared:
                found = self._record(transaction, change.key, "scope_to_change")
                if not is_at(found, change.before):
                    return False
            return self._apply(transaction, change)

        return self._write(run)

    def transact(self, key: ScopeKey, decide: Callable[[Reader], tuple[Change | None, T]]) -> T:
        def run(transaction: Transaction) -> T:
            change, result = decide(self.reader(transaction, key, self.ciphers, "scope_to_change"))
            if change is not None and not self._apply(transaction, change):
                raise Corrupt("a scope changed inside a transaction")
            return result

        return self._write(run)

    def _apply(self, transaction: Transaction, change: Change) -> bool:
        """Make a change, unless its scope moves and is at another version."""
        key, before, after = change.key, change.before, change.after
        do, many, cipher = transaction.do, transaction.many, self.ciphers.of(key.session_id)
        if after is None:
            if before is not None:
                self._drop(transaction, [before.pk])
            return True
        pk, values = after.pk, scope_values(after, cipher)
        if before is None:
            address = (pk, key.session_id, key.kind, key.scope_id)
            if not transaction.count("add_scope", (*values, *address)):
                return False
        elif not transaction.count("move_scope", (*values, pk, before.version)):
            return False
        if change.rows_gone:
            gone = {"pk": pk, "seqs": many(change.rows_gone)}
            for statement in ("set_apart", "remove_labels", "remove_snapshots"):
                do(statement, gone)
        for row in change.rows:
            columns = row_values(row, pk, key, cipher)
            if change.replace:
                do("replace_snapshot", (*columns[1:-1], row.seq, pk))
                do("remove_labels", {"seqs": many([row.seq])})
            else:
                do("add_snapshot", (*columns, change.apart))
            if labels := label_values(row, cipher):
                transaction.do_many("add_label", labels)
        for tail in change.tail:
            do("put_tail", tail_values(tail, pk, key, cipher))
        if change.tail_gone:
            do("remove_tails", {"pk": pk, "seqs": many(change.tail_gone)})
        if change.segments_gone:
            do("remove_segments", {"pk": pk, "seqs": many(change.segments_gone)})
        for segment in change.segments:
            do("put_segment", segment_values(segment, pk, key, cipher))
        if change.notes_gone:
            transaction.do_many("remove_note", [(pk, *place) for place in change.notes_gone])
        if change.notes:
            rows = [note_values(note, pk, key, cipher) for note in change.notes]
            transaction.do_many("add_note" if change.new_note else "put_note", rows)
        for shared in change.shared:
            do("add_shared", shared_values(shared, key.session_id, cipher))
        for name in change.unshared:
            self._drop_shared(transaction, name)
        return True

    def drop(self, session_id: str, key: ScopeKey | None = None) -> int:
        def run(transaction: Transaction) -> int:
            name = "pks_of_session" if key is None else "pks_of_scope"
            values = {"session_id": session_id} if key is None else key._asdict()
            return self._drop(transaction, [pk for (pk,) in transaction.all(name, values)])

        return self._write(run)

    def _drop(self, transaction: Transaction, pks: Collection[int]) -> int:
        """Remove scopes with all that they hold; return the number of snapshots."""
        values = (transaction.many(pks),)
        shared = transaction.all("shared_of_scopes", values)
        for what in ("labels", "tails", "segments", "notes"):
            transaction.do(f"remove_all_{what}", values)
        for (name,) in shared:
            self._drop_shared(transaction, name)
        transaction.do("remove_scopes", values)
        return transaction.count("remove_all_snapshots", values)

    def _drop_shared(self, transaction: Transaction, name: bytes) -> None:
        """Remove a shared state unless a tail has it."""
        transaction.do("drop_shared", (name,))

    # Listings

    def list_rows(self, query: Query, limit: int) -> list[tuple[ScopeKey, Row]]:
        return self._query(lambda transaction: self._matches(transaction, query, limit))

    def _matches(
        self, transaction: Transaction, query: Query, limit: int
    ) -> list[tuple[ScopeKey, Row]]:
        # A label or a status may be stored in several ways; with one, the statement tests it.
        labels = [self._stored_ways(query, *label) for label in query.labels]
        status: list[tuple[str, str | None]] = [("", query.status)]
        if query.status:
            status = [*self._stored_ways(query, "", query.status)]
        values: dict[str, Any] = {
            "before": SEQ_MAX if query.after is None else query.after,
            "status": status[0][1] if len(status) == 1 else None,
            "id": query.id,
            "leaves": query.leaves,
            "labels": orjson.dumps(dict(ways[0] for ways in labels if len(ways) == 1)).decode(),
            "low": query.prefix,
            "high": prefix_end(query.prefix),
        }
        if query.scope is not None:
            record = self._record(transaction, query.scope)
            if record is None or not query.scope.session_id.startswith(query.prefix):
                return []
            name, values["pk"] = "history_of_scope", record.pk
        elif query.id is not None:
            name = "find"
        else:
            name = "history_by_label" if query.labels else "history_of_sessions"
        if name == "history_by_label":
            asked = [{**values, "name": label, "value": value} for label, value in labels[0]]
        else:
            asked = [values]
        take = self._taker(query)
        found = [each for one in asked for each in transaction.page(name, one, take, limit)]
        if len(asked) > 1:
            found = sorted(found, key=lambda pair: -pair[1].seq)[:limit]
        check_order([*(row.seq for _, row in reversed(found)), values["before"]], "snapshots")
        return found

    def _taker(self, query: Query) -> Callable[[Any], tuple[ScopeKey, Row] | None]:
        scopes: dict[Any, ScopeKey | None] = {}  # many rows are of the same

        def take(columns: Any) -> tuple[ScopeKey, Row] | None:
            key = query.scope
            if key is None:
                owner = columns[ROW_COLUMNS:]
                if owner not in scopes:
                    scopes[owner] = listed_key(owner)
                key = scopes[owner]
            if key is None:
                return None
            try:
                row = read_row(columns[:ROW_COLUMNS], key, self.ciphers.of(key.session_id))
            except Corrupt:
                return None  # left out of a listing; asking for it by id raises
            # The table of labels is an index: the snapshot itself is the authority.
            found = decode(row.labels) if query.labels else {}
            is_match = all(found.get(name) == value for name, value in query.labels)
            return (key, row) if is_match and query.status in (None, row.status) else None

        return take

    def _stored_ways(self, query: Query, name: str, value: str) -> list[tuple[str, str]]:
        prefix = query.prefix if query.scope is None else query.scope.session_id
        return self.ciphers.labels(prefix, name, value)

    def _record(
        self, transaction: Transaction, key: ScopeKey, statement: str = "scope"
    ) -> ScopeRecord | None:
        found = transaction.one(statement, (key.session_id, key.kind, key.scope_id))
        return None if found is None else record_of(found, key, self.ciphers.of(key.session_id))

    def list_ids(self, scope: ScopeKey, after: str, limit: int) -> list[str]:
        def run(transaction: Transaction) -> list[str]:
            reader = self.reader(transaction, scope, self.ciphers)
            if reader.record is None:
                return []
            damaged = _damaged_head(transaction, reader)
            values = {"pk": reader.record.pk, "after": after}
            names = transaction.page("list_ids", values, name_of, limit + 1)
            check_order([after, *names], "ids")
            return [name for name in names if name != damaged][:limit]

        return self._query(run)

    def find_refs(self, id_prefix: str, limit: int) -> list[SnapshotRef]:
        def take(columns: Any) -> SnapshotRef | None:
            id, *owner = columns
            key = listed_key(owner)
            return None if key is None or not is_text(id) else SnapshotRef(key, id)

        values = {"low": id_prefix, "high": prefix_end(id_prefix)}
        return self._query(lambda found: found.page("find_refs", values, take, limit))

    def list_sessions(self, prefix: str, after: str, limit: int) -> list[str]:
        values = {"low": prefix, "high": prefix_end(prefix), "after": after}

        def run(transaction: Transaction) -> list[str]:
            last = after

            def take(columns: Any) -> str | None:
                nonlocal last
                key = listed_key(columns)
                if key is None or key.session_id == last:
                    return None
                last = key.session_id
                return last

            return transaction.page("list_sessions", values, take, limit)

        found = self._query(run)
        check_order([after, *found], "sessions")
        return found

    def list_newest(self, prefix: str, after: SessionAge | None, limit: int) -> list[SessionAge]:
        def take(columns: Any) -> SessionAge | None:
            session_id, created_at = columns
            if not is_text(session_id):
                return None
            return SessionAge(session_id, created_at if isinstance(created_at, int) else None)

        values: dict[str, Any] = {"low": prefix, "high": prefix_end(prefix), "first": not after}
        values["after"], values["newest"] = after or ("", None)
        return self._query(lambda found: found.page("list_newest", values, take, limit))

    def list_scopes(
        self, query: ScopeQuery, limit: int | None = None
    ) -> list[tuple[ScopeRecord, Row | None]]:
        low, high, after = query.prefix, prefix_end(query.prefix), query.after
        if query.session_id is not None:
            if not query.session_id.startswith(query.prefix):
                return []
            low, high = query.session_id, query.session_id + "\x01"  # no id holds NUL: it alone
        # SQLite begins to read at one of the two lower bounds, so both are the greater one.
        start = ScopeKey(low, "", "") if after is None or after.session_id < low else after
        values = {
            "low": start.session_id,
            "high": high,
            "kind": query.kind,
            "after_session": start.session_id,
            "after_kind": start.kind,
            "after_scope": start.scope_id,
        }
        count = SEQ_MAX if limit is None else limit
        found = self._query(lambda each: each.page("list_scopes", values, self._listed, count))
        keys = (record.key for record, _ in found)
        check_order([(key.session_id, key.kind, key.scope_id) for key in keys], "scopes")
        return found

    def _listed(self, columns: Any) -> tuple[ScopeRecord, Row | None] | None:
        """Return a scope with its head; without it if that is damaged or has another key."""
        owner, head = columns[ROW_COLUMNS:], None
        try:
            record = read_scope(owner, None)
        except Corrupt:
            return None
        if not is_text(*record.key):
            return None
        with suppress(Corrupt):
            cipher = self.ciphers.of(record.key.session_id)
            record = read_scope(owner, cipher)
            if columns[0] is not None:
                head = read_row(columns[:ROW_COLUMNS], record.key, cipher)
        return record, head

    def find_notes(
        self, query: NoteQuery, limit: int, take: Callable[[ScopeKey, NoteRow], T | None]
    ) -> list[T]:
        below = f"{query.under}/" if query.under else ""
        asked: dict[str, Any] = {"scope_id": query.scope_id, "kind": query.kind}
        asked["under"] = query.under
        # What is encrypted is not for the statement to test.
        bound = self._bound(query._replace(where=None) if self.ciphers.encrypts else query)
        asked |= {"low": below, "high": prefix_end(below), **bound}
        scopes: dict[Any, ScopeRecord | None] = {}  # most rows are of the same

        def read(columns: Any) -> T | None:
            owner = columns[NOTE_COLUMNS:]
            if owner not in scopes:
                scopes[owner] = listed_scope(owner)
            scope = scopes[owner]
            if scope is None:
                return None
            cipher = self.ciphers.of(scope.key.session_id)
            try:
                row = read_note(columns[:NOTE_COLUMNS], scope.pk, scope.key, cipher)
            except Corrupt:
                return None  # left out of a listing; asking for it by name raises
            return take(scope.key, row)

        def find(transaction: Transaction) -> list[T]:
            count = limit
            while True:
                rows = self._note_rows(transaction, {**asked, "limit": count})
                found = [each for row in rows if (each := read(row)) is not None]
                if len(found) >= limit or len(rows) < count:
                    if len({(row[1], row[NOTE_COLUMNS]) for row in rows}) < len(rows):
                        raise Corrupt("the index of notes leads to some twice")
                    return found[:limit]
                count *= _TIMES_MORE_NOTES

        return self._query(find)

    def _note_rows(self, transaction: Transaction, asked: dict[str, Any]) -> list[Any]:
        """Return the rows of the statement `find_notes`."""
        return transaction.all("find_notes", asked)

    def _bound(self, query: NoteQuery) -> dict[str, Any]:
        """Return what the statement `find_notes` tests in the values, if it tests anything."""
        return {}

    def revisions(self, targets: Sequence[Target]) -> list[str | None]:
        asked = orjson.dumps([[*key, id] for key, id in targets]).decode()
        revisions: list[str | None] = [None] * len(targets)
        for at, seq, rev, nonce in self._query(lambda found: found.all("revisions", (asked,))):
            # Of a damaged row any revision will do: reading the snapshot raises Corrupt.
            is_sound = type(rev) is int and is_text(nonce)
            revisions[at] = revision(seq, rev, nonce) if is_sound else f"{seq:x}.damaged"
        return revisions

    def sizes(self, session_id: str | None) -> list[tuple[str, int, int]]:
        asked = {"session_id": session_id}
        found = self._query(lambda transaction: transaction.all("sizes", asked))
        return [(name, count, int(size)) for name, count, size in found if is_text(name)]

    def stored_bytes(self, session_id: str | None) -> int:
        if session_id is None:
            (found,) = self._query(lambda transaction: transaction.one("stored_bytes"))
        else:
            asked = {"session_id": session_id}
            (found,) = self._query(lambda each: each.one("stored_bytes_of_session", asked))
        return int(found)

    # Upkeep

    def list_damage(self, scope: ScopeKey | None) -> list[Finding]:
        def run(transaction: Transaction) -> list[Finding]:
            if scope is None:
                return list(checking.unlisted_scopes(transaction))
            record = self._record(transaction, scope)
            rows = self._inspector(transaction, repair=False)
            found = () if record is None else checking.damage_of(rows, transaction, record.pk)
            return list(found)

        return self._read(run)

    def check(self, after: str, *, repair: bool, limit: int) -> tuple[list[Finding], str | None]:
        run = self._write if repair else self._read
        return run(partial(self._check, after=after, repair=repair, limit=limit))

    def _check(
        self,
        transaction: Transaction,
        after: str,
        *,
        repair: bool,
        limit: int,
        survive: checking.Survive | None = None,
    ) -> tuple[list[Finding], str | None]:
        """Inspect a part of the tables."""
        position = Position.parse(after) if after else Position()
        rows = self._inspector(transaction, repair=repair and position.mends)
        found, following = checking.check_some(rows, transaction, position, limit, survive)
        return found, None if following is None else str(following)

    def _inspector(self, transaction: Transaction, *, repair: bool) -> checking.Inspector:
        def states(key: ScopeKey) -> StateReader:
            reader = self.reader(transaction, key, self.ciphers)
            _ = reader.record  # raises Corrupt if it is damaged
            return self._states(reader)

        return checking.Inspector(transaction, self.ciphers, states, repair=repair)

    def rekey(self, after: str, *, limit: int) -> tuple[int, str | None]:
        if not self.ciphers.encrypts:
            raise InvalidInput("the store was opened without keys: give keys= or keys_file=")
        position, count = Position.parse(after) if after else Position(), 0
        ask = partial(rekeying.outdated, ciphers=self.ciphers, position=position, limit=limit)
        found, following = self._query(ask)
        for key, keys in found.items():
            again = partial(rekeying.encrypt_again, ciphers=self.ciphers, table=position.table)
            count += self._write(partial(again, key=key, keys=keys))
        return count, None if following is None else str(following)


def listed_scope(columns: Any) -> ScopeRecord | None:
    """Return the scope in a listing; None if it is damaged. With keys, it is not yet decrypted."""
    try:
        record = read_scope(columns, None)
    except Corrupt:
        return None
    return record if is_text(*record.key) else None


def listed_key(columns: Any) -> ScopeKey | None:
    record = listed_scope(columns)
    return None if record is None else record.key


def check_order(keys: Sequence[Any], what: str) -> None:
    """Raise Corrupt unless each key is greater than the last: a damaged index repeats some."""
    if not all(one < following for one, following in pairwise(keys)):
        raise Corrupt(f"the index of {what} leads to others")


def _damaged_head(transaction: Transaction, reader: SqlReader) -> str | None:
    """Return the id of a head that may be a draft, whatever its row says. No other row can be."""
    record = reader.record
    if record is None or record.head is None:
        return None
    try:
        reader.row_at(record.head)
    except Corrupt:
        found = transaction.one("row_at", {"pk": record.pk, "value": record.head})
        return found[1] if isinstance(found[1], str) else None
    return None
