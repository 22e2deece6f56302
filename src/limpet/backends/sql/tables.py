"""The tables inside one transaction: rows in, rows out, each verified.

A file has one writer at a time; a server has many, who lock what they change. What differs between
the two are the methods that say so, which an engine may replace.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from limpet.backends.sql.bodies import Bodies
from limpet.backends.sql.deltas import Deltas
from limpet.backends.sql.transaction import Turn
from limpet.core import codec
from limpet.core.deltas.chain_state import ChainState, parse_chain_state
from limpet.core.leases import LeaseRow
from limpet.core.notes import NoteRow, note_checksum, squeezed, unsqueezed, verify_note
from limpet.core.rows import EMPTY, Row, row_checksum, verify_row
from limpet.errors import Corrupt
from limpet.model import ScopeKey
from limpet.protocol import Commit, Stamp

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
    family: int | None = None  # of scopes that may build on each other's states
    stamps: bytes = b""  # the marks of its last changes

    @property
    def chain(self) -> ChainState | None:
        """What it remembers of the body it stored last."""
        return parse_chain_state(self.codec, self.pk)


class Tables:
    """What one transaction can do. Asking for a damaged row raises Corrupt."""

    def __init__(self, turn: Turn, bodies: Bodies | None = None) -> None:
        self.turn = turn
        self.added: Sequence[Any] = ()  # the columns of the snapshot that was added last
        self.deltas = Deltas(bodies or Bodies(turn))

    # Scopes

    def scope(self, key: ScopeKey) -> Scope | None:
        """Return a scope, or None if there is none."""
        found = self.turn.one("scope", key)
        return None if found is None else Scope._make((*found[:7], found[7:], None, (), None, b""))

    def scope_to_change(self, key: ScopeKey) -> Scope | None:
        """Return a scope that nobody else changes before this transaction ends.

        Nor does anybody change what builds on its states.
        """
        return self.scope(key)

    def scope_to_note(self, key: ScopeKey) -> Scope | None:
        """Return a scope of whose notes nobody else changes one before this transaction ends."""
        return self.scope(key)

    def scope_and_note(
        self, key: ScopeKey, on: str, name: str
    ) -> tuple[Scope | None, NoteRow | None]:
        """Return such a scope, and the note that is to be changed."""
        scope = self.scope_to_note(key)
        return scope, None if scope is None else self.note(scope, on, name)

    def scope_to_fork(self, key: ScopeKey) -> Scope | None:
        """Return a scope from which a fork may begin: its states stay until it has."""
        return self.scope(key)

    def scope_to_commit(self, commit: Commit) -> Scope | None:
        """Return a scope with what a commit needs to know beside it."""
        found = self.turn.one("scope_to_commit", commit.scope)
        if found is None:
            return None
        middle = 8 + _COLUMNS
        place, top = found[middle : middle + 2], found[middle + 2 :]
        return Scope._make((*found[:7], found[7:middle], place, top, None, b""))

    def kin_to_change(self, scope: Scope) -> None:
        """Keep others from building on the states of a scope, as its forks may."""

    def make_kin(self, scope: Scope, origin: Scope) -> Scope:
        """Remember that a scope is about to build on states of another; return it."""
        return scope

    def add_scope(self, key: ScopeKey) -> Scope:
        """Create a scope, and its session if that is missing."""
        self.turn.do("add_session", key._asdict())
        ((pk,),) = self.turn.all("add_scope", key._asdict())
        return Scope(pk, None, None, 1, "", None)

    def move_scope(self, scope: Scope) -> None:
        """Store the head, tip, next place, floor and chain of a scope."""
        self.turn.do("move_scope", (*scope[1:5], scope.codec, scope.pk))

    def forget_chains(self, pk: int) -> None:
        """Let the session of a scope forget its chains: the next saves read what they build on."""
        self.turn.do("forget_chains", (pk,))

    def is_taken(self, scope: Scope) -> bool:
        """Tell whether a scope holds a snapshot, a lease or a note."""
        held = (scope.head_seq, scope.tip_seq, scope.fence)
        if any(each is not None for each in held):
            return True
        return self.turn.one("has_notes", (scope.pk,)) is not None

    def uncover(self, scope: Scope, removed: int) -> None:
        """Set the tip, and the head if that was removed, to the newest kept snapshot."""
        self.turn.do("uncover", {"pk": scope.pk, "seq": removed})

    def part_from(self, pk: int, what: str) -> None:
        """Make sure that no state outside a `scope` or its `session` builds on one of its own."""
        (is_base,) = self.turn.one(f"{what}_is_base", {"pk": pk})
        if is_base and self.deltas.remove(seq for (seq,) in self.turn.all("seqs_of_scope", (pk,))):
            self.forget_chains(pk)

    def remove_scopes(self, pks: Sequence[int]) -> int:
        """Remove scopes with all they hold; return the number of snapshots."""
        below = {seq for pk in pks for (seq,) in self.turn.all("unlisted_bases", (pk,))}
        count = 0
        for pk in pks:
            self.turn.do("remove_scope_bodies", (pk,))
            count += self.turn.count("remove_snapshots_of", (pk,))
            self.turn.do("remove_scope", (pk,))
        self.deltas.release(below)
        return count

    def session_to_remove(self, session_id: str) -> list[int]:
        """Return the keys of a session's scopes; nobody adds one or changes one of them."""
        return [pk for (pk,) in self.turn.all("session_scopes", (session_id,))]

    def remove_empty_session(self, session_id: str) -> None:
        """Remove a session that has no scope."""
        self.turn.do("remove_empty_session", (session_id,))

    def now(self, stamp: Stamp) -> int:
        """Return the time by which leases end: that of this machine, on which the file lies."""
        return stamp.now

    def lease(self, scope: Scope) -> LeaseRow | None:
        """Return the lease that a scope carries."""
        key, owner, until = self.turn.one("lease", (scope.pk,))
        return None if key is None else LeaseRow(key, owner or "", until or 0)

    def put_lease(self, scope: Scope, lease: LeaseRow | None) -> None:
        """Let a scope carry a lease, or none."""
        self.turn.do("put_lease", (*(lease or (None, None, None)), scope.pk))

    # Snapshots

    def next_place(self, scope: Scope | None, stamp: Stamp) -> tuple[int, int]:
        """Return the place of a new snapshot, greater than all before, and its logical time."""
        known = None if scope is None else scope.place
        seq, saved_at = known or self.newest_place()
        return max(seq + 1, 0 if scope is None else scope.next_seq), saved_at + 1

    def newest_place(self) -> tuple[int, int]:
        """Return the greatest place ever given and its logical time; (0, -1) in a new store."""
        seq, saved_at = self.turn.one("newest_place")
        return seq, saved_at

    def mark_place(self) -> None:
        """Remember the greatest place ever given, before snapshots are removed."""
        self.turn.do("mark_place", self.newest_place())

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

    def existing(self, scope: Scope, snapshot_id: str) -> Row | None:
        """Return what stands under the id of a commit."""
        return self.named(scope, snapshot_id)

    def newest_kept(self, scope: Scope) -> Row | None:
        """Return the newest kept snapshot of a scope."""
        if scope.tip_seq is None:
            return None
        return self.row("snapshot_by_seq", scope, scope.tip_seq)

    def row(self, name: str, scope: Scope, value: str | int) -> Row | None:
        """Return the one row of a statement about a scope's snapshots."""
        found = self.turn.one(name, (scope.pk, value))
        return None if found is None else verified(found, scope.pk)

    def seq_and_size(self, scope: Scope, snapshot_id: str) -> tuple[int, int] | None:
        """Return the place and size of a snapshot, damaged or not."""
        found: tuple[int, int] | None = self.turn.one("seq_and_size", (scope.pk, snapshot_id))
        return found

    def insert(self, scope: Scope, row: Row, head: Row | None) -> None:
        """Add a snapshot with its labels. `head` is what the scope shows until now."""
        # With a kept head that is the newest, nothing can ever stand between it and this one.
        follows = head is not None and head.seq == scope.tip_seq and head.id == row.parent_id
        self.added = (*row, row_checksum(row, scope.pk))
        self.turn.do("add_snapshot", (*self.added, scope.pk, not follows))
        self._add_labels(row)

    def replace(self, scope: Scope, before: Row, row: Row) -> None:
        """Store another version of a snapshot in its place."""
        values = {**row._asdict(), "checksum": row_checksum(row, scope.pk)}
        self.turn.do("replace_snapshot", values)
        if row.labels != before.labels:
            self.turn.do("remove_labels", (row.seq,))
            self._add_labels(row)

    def remove(self, scope: Scope, seq: int) -> None:
        """Remove a snapshot and its labels; its body is removed apart."""
        self.turn.do("set_apart", {"pk": scope.pk, "seq": seq})
        self.turn.do("remove_snapshot", (seq,))

    def remove_bodies(self, scope: Scope, seqs: Collection[int]) -> None:
        """Remove the states of snapshots of a scope; what builds on them stays readable."""
        chain = scope.chain
        if self.deltas.remove(seqs):
            self.forget_chains(scope.pk)
        elif chain is not None and chain.seq in seqs:
            self.turn.do("forget_chain", (scope.pk,))

    def drop_unlisted(self, after: int) -> int | None:
        """Remove a state that is no snapshot's; return where to go on, None at the end."""
        found = self.turn.one("unlisted", {"after": after})
        if found is None:
            return None
        seq = int(found[0])
        above = self.turn.all("scopes_above", (seq,))
        if self.deltas.remove([seq], spare=True):
            for (pk,) in above:
                self.forget_chains(pk)
        return seq

    def body(self, row: Row) -> bytes:
        """Return the encoded state of a snapshot."""
        return of_size(row, self.deltas.read(row.seq))

    def bodies(self, rows: Sequence[Row]) -> Iterator[bytes]:
        """Yield the encoded states of snapshots, in a transaction that only reads."""
        for row, body in zip(rows, self.deltas.read_each(row.seq for row in rows), strict=True):
            yield of_size(row, body)

    def _add_labels(self, row: Row) -> None:
        if row.labels != EMPTY:
            for name, value in codec.decode(row.labels).items():
                self.turn.do("add_label", (name, value, row.seq))

    # Notes

    def note(self, scope: Scope, on: str, name: str) -> NoteRow | None:
        """Return one note."""
        found = self.turn.one("note", {"pk": scope.pk, "on": on, "name": name})
        return None if found is None else verified_note(found, scope.pk)

    def put_note(self, scope: Scope, row: NoteRow) -> None:
        """Add or replace a note."""
        stored = row._replace(value=squeezed(row.value))
        values = {"pk": scope.pk, **stored._asdict(), "checksum": note_checksum(stored, scope.pk)}
        self.turn.do("put_note", values)

    def remove_note(self, scope: Scope, on: str, name: str) -> int:
        """Remove a note; return how many there were."""
        return self.turn.count("remove_note", {"pk": scope.pk, "on": on, "name": name})

    def remove_notes_on(self, scope: Scope, on: str) -> None:
        """Remove all notes on a snapshot id."""
        self.turn.do("remove_notes_on", {"pk": scope.pk, "on": on})


def of_size(row: Row, body: bytes) -> bytes:
    """Return the encoded state of a snapshot if it is as long as it was, or raise Corrupt."""
    if len(body) != row.size:
        raise Corrupt(f"the state of a snapshot has another size. seq=`{row.seq}`")
    return body


def verified(found: Sequence[Any], pk: int) -> Row:
    """Return the row at the beginning of a result, or raise Corrupt."""
    return verify_row(Row._make(found[:_COLUMNS]), pk, found[_COLUMNS])


def verified_note(found: Sequence[Any], pk: int) -> NoteRow:
    """Return the note that a result holds, or raise Corrupt."""
    row = verify_note(NoteRow._make(found[:-1]), pk, found[-1])
    return row._replace(value=unsqueezed(row.value))


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
