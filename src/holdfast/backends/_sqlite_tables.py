"""The tables of a SQLite file inside one transaction: rows in, rows out, each verified."""

import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple, TypeVar

from holdfast.backends import _sql
from holdfast.backends._deltas import Deltas
from holdfast.backends._sqlite_bodies import SqliteBodies
from holdfast.core import codec
from holdfast.core.notes import NoteRow, note_checksum, verify_note
from holdfast.core.rows import EMPTY, Row, row_checksum, verify_row
from holdfast.core.trail import Trail, parse_trail
from holdfast.errors import Corrupt
from holdfast.model import ScopeKey

T = TypeVar("T")

_STATEMENTS = _sql.load_queries("queries.sqlite.sql")
_COLUMNS = len(Row._fields)


class Scope(NamedTuple):
    """A row of `scopes`, and the raw columns of the snapshot it shows, not verified yet."""

    pk: int
    head_seq: int | None
    tip_seq: int | None
    next_seq: int
    floor: str
    fence: str | None
    codec: bytes | None = None
    shown: Sequence[Any] = ()
    place: tuple[int, int] | None = None  # the last one given in the store, and its logical time
    top: Sequence[Any] = ()  # the columns of the body that it shows, which may be large: then None

    @property
    def trail(self) -> Trail | None:
        """What it remembers of the body it stored last."""
        return parse_trail(self.codec, self.pk)


class Tables:
    """What one transaction can do. Asking for a damaged row raises Corrupt."""

    def __init__(self, conn: sqlite3.Connection) -> None:
        self._conn = conn
        self.deltas = Deltas(SqliteBodies(conn))

    def _execute(self, name: str, values: Any) -> sqlite3.Cursor:
        return self._conn.execute(_STATEMENTS[name], values)

    def _one(self, name: str, values: Any) -> Any:
        return self._execute(name, values).fetchone()

    def all(self, name: str, values: Any) -> list[Any]:
        """Return all rows of a statement that has few."""
        return self._execute(name, values).fetchall()

    def each(self, name: str, values: Any) -> Iterator[Any]:
        """Yield the rows of a statement whose reader reads them all."""
        yield from self._execute(name, values)

    def page(self, name: str, values: Any, take: Callable[[Any], T | None], limit: int) -> list[T]:
        """Return up to `limit` of what `take` makes of the rows; it leaves out by None."""
        items: list[T] = []
        # Closed at once: an unread rest would keep the log from being emptied.
        with closing(self._execute(name, values)) as rows:
            for found in rows:
                item = take(found)
                if item is not None:
                    items.append(item)
                    if len(items) >= limit:
                        break
        return items

    # Scopes

    def scope(self, key: ScopeKey) -> Scope | None:
        """Return a scope, or None if there is none."""
        found = self._one("scope", key)
        return None if found is None else Scope._make((*found[:7], found[7:], None, ()))

    def scope_to_commit(self, key: ScopeKey) -> Scope | None:
        """Return a scope with what a commit needs to know beside it."""
        found = self._one("scope_to_commit", key)
        if found is None:
            return None
        middle = 8 + _COLUMNS
        place, top = found[middle : middle + 2], found[middle + 2 :]
        return Scope._make((*found[:7], found[7:middle], place, top))

    def add_scope(self, key: ScopeKey) -> Scope:
        """Create a scope, and its session if that is missing."""
        self._execute("add_session", key._asdict())
        # All rows are fetched, or the statement would still be running at the commit.
        ((pk,),) = self.all("add_scope", key._asdict())
        return Scope(pk, None, None, 1, "", None)

    def move_scope(self, scope: Scope) -> None:
        """Store the head, tip, next place, floor and trail of a scope."""
        self._execute("move_scope", (*scope[1:5], scope.codec, scope.pk))

    def forget_trails(self, pk: int) -> None:
        """Let the session of a scope forget its trails: the next saves read what they build on."""
        self._execute("forget_trails", (pk,))

    def is_taken(self, scope: Scope) -> bool:
        """Tell whether a scope holds a snapshot, a lease or a note."""
        held = (scope.head_seq, scope.tip_seq, scope.fence)
        return any(each is not None for each in held) or bool(self._one("has_notes", (scope.pk,)))

    def uncover(self, scope: Scope, removed: int) -> None:
        """Set the tip, and the head if that was removed, to the newest kept snapshot."""
        self._execute("uncover", {"pk": scope.pk, "seq": removed})

    def part_from(self, pk: int, what: str) -> None:
        """Make sure that no state outside a `scope` or its `session` builds on one of its own."""
        (is_base,) = self._one(f"{what}_is_base", {"pk": pk})
        if is_base and self.deltas.remove(seq for (seq,) in self.all("seqs_of_scope", (pk,))):
            self.forget_trails(pk)

    def remove_scopes(self, pks: Sequence[int]) -> int:
        """Remove scopes with all they hold; return the number of snapshots."""
        below = {seq for pk in pks for (seq,) in self.all("unlisted_bases", (pk,))}
        count = 0
        for pk in pks:
            self._execute("remove_scope_bodies", (pk,))
            count += self._execute("remove_snapshots_of", (pk,)).rowcount
            self._execute("remove_scope", (pk,))
        self.deltas.release(below)
        return count

    def remove_empty_session(self, session_id: str) -> None:
        """Remove a session that has no scope."""
        self._execute("remove_empty_session", (session_id,))

    # Snapshots

    def newest_place(self) -> tuple[int, int]:
        """Return the greatest place ever given and its logical time; (0, -1) in a new store."""
        seq, saved_at = self._one("newest_place", ())
        return seq, saved_at

    def mark_place(self) -> None:
        """Remember the greatest place ever given, before snapshots are removed."""
        self._execute("mark_place", self.newest_place())

    def head(self, scope: Scope) -> Row | None:
        """Return the snapshot that a scope shows."""
        if scope.head_seq is None:
            return None
        if scope.shown[0] is None:
            raise Corrupt(f"the head of a scope is missing. seq=`{scope.head_seq}`")
        return verified(scope.shown, scope.pk)

    def named(self, scope: Scope, snapshot_id: str | None) -> Row | None:
        """Return a snapshot by its id; None asks for the head."""
        if snapshot_id is None:
            return self.head(scope)
        return self.row("snapshot_by_id", scope, snapshot_id)

    def newest_kept(self, scope: Scope) -> Row | None:
        """Return the newest kept snapshot of a scope."""
        if scope.tip_seq is None:
            return None
        return self.row("snapshot_by_seq", scope, scope.tip_seq)

    def row(self, name: str, scope: Scope, value: str | int) -> Row | None:
        """Return the one row of a statement about a scope's snapshots."""
        found = self._one(name, (scope.pk, value))
        return None if found is None else verified(found, scope.pk)

    def seq_and_size(self, scope: Scope, snapshot_id: str) -> tuple[int, int] | None:
        """Return the place and size of a snapshot, damaged or not."""
        found: tuple[int, int] | None = self._one("seq_and_size", (scope.pk, snapshot_id))
        return found

    def insert(self, scope: Scope, row: Row, head: Row | None) -> None:
        """Add a snapshot with its labels. `head` is what the scope shows until now."""
        # With a kept head that is the newest, nothing can ever stand between it and this one.
        follows = head is not None and head.seq == scope.tip_seq and head.id == row.parent_id
        values = (*row, row_checksum(row, scope.pk), scope.pk, not follows)
        self._execute("add_snapshot", values)
        self._add_labels(row)

    def replace(self, scope: Scope, before: Row, row: Row) -> None:
        """Store another version of a snapshot in its place."""
        checksum = row_checksum(row, scope.pk)
        self._execute("replace_snapshot", (row.seq, *row[2:], checksum))
        if row.labels != before.labels:
            self._execute("remove_labels", (row.seq,))
            self._add_labels(row)

    def remove(self, scope: Scope, seq: int) -> None:
        """Remove a snapshot and its labels; its body is removed apart."""
        self._execute("set_apart", {"pk": scope.pk, "seq": seq})
        self._execute("remove_snapshot", (seq,))

    def remove_bodies(self, scope: Scope, seqs: Collection[int]) -> None:
        """Remove the states of snapshots of a scope; what builds on them stays readable."""
        trail = scope.trail
        if self.deltas.remove(seqs):
            self.forget_trails(scope.pk)
        elif trail is not None and trail.seq in seqs:
            self._execute("forget_trail", (scope.pk,))

    def drop_unlisted(self, after: int) -> int | None:
        """Remove a state that is no snapshot's; return where to go on, None at the end."""
        found = self._one("unlisted", (after,))
        if found is None:
            return None
        seq = int(found[0])
        above = self.all("scopes_above", (seq,))
        if self.deltas.remove([seq], spare=True):
            for (pk,) in above:
                self.forget_trails(pk)
        return seq

    def body(self, row: Row) -> bytes:
        """Return the encoded state of a snapshot."""
        body = self.deltas.read(row.seq)
        if len(body) != row.size:
            raise Corrupt(f"the state of a snapshot has another size. seq=`{row.seq}`")
        return body

    def _add_labels(self, row: Row) -> None:
        if row.labels != EMPTY:
            for name, value in codec.decode(row.labels).items():
                self._execute("add_label", (name, value, row.seq))

    # Notes

    def note(self, scope: Scope, on: str, name: str) -> NoteRow | None:
        """Return one note."""
        found = self._one("note", (scope.pk, on, name))
        return None if found is None else verified_note(found, scope.pk)

    def put_note(self, scope: Scope, row: NoteRow) -> None:
        """Add or replace a note."""
        self._execute("put_note", (scope.pk, *row, note_checksum(row, scope.pk)))

    def remove_note(self, scope: Scope, on: str, name: str) -> int:
        """Remove a note; return how many there were."""
        return self._execute("remove_note", (scope.pk, on, name)).rowcount

    def remove_notes_on(self, scope: Scope, on: str) -> None:
        """Remove all notes on a snapshot id."""
        self._execute("remove_notes_on", (scope.pk, on))


def verified(found: Sequence[Any], pk: int) -> Row:
    """Return the row at the beginning of a result, or raise Corrupt."""
    return verify_row(Row._make(found[:_COLUMNS]), pk, found[_COLUMNS])


def verified_note(found: Sequence[Any], pk: int) -> NoteRow:
    """Return the note that a result holds, or raise Corrupt."""
    return verify_note(NoteRow._make(found[:-1]), pk, found[-1])


def is_text(*names: str) -> bool:
    """Tell whether names are text; what is not is damage, passed through to be left out."""
    try:
        "".join(names).encode()
    except UnicodeEncodeError:
        return False
    return True


def rest_of(found: Sequence[Any]) -> Sequence[Any]:
    """Return what stands behind a snapshot's columns in a result."""
    return found[_COLUMNS + 1 :]
