"""What a storage must do: the `Storage` protocol, and the records that it keeps.

The engine (`limpet.engine`) makes every decision; a storage applies changes and answers listings.
A change concerns one scope and is applied as a whole, or not at all, if the scope is still at the
version that the change was made for. Each docstring below is a promise that the conformance suite
and the simulation test.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from limpet.core.notes import NoteRow
from limpet.core.rows import Row
from limpet.model import Finding, ScopeKey, SnapshotRef
from limpet.protocol import Listener, NoteQuery, Query, SessionAge, Target, Topic

T = TypeVar("T")

WHOLE, ZSTD, SHARED, DAMAGED = 0, 1, 2, -1  # TailRow.encoding
VERSION_BYTES = 8
TRAIL_BYTES_MAX = 16 * VERSION_BYTES
NAME_BYTES = 16  # of a shared state


class Taken(Exception):
    """A seq or an id of the change exists already. Nothing was stored."""


class LostAnswer(Exception):
    """The storage did not answer: the change may be stored, or may still be stored later."""


class ScopeRecord(NamedTuple):
    """One scope without its snapshots. A scope that has none does not exist.

    Attributes:
        pk: the seq of its first change.
        version: the nonce of its last change, as an integer. With the pk, no two are equal.
        head: the seq of the snapshot that it shows.
        tip: the seq of its newest kept snapshot, on which the next state builds.
        last: the greatest seq given out.
        floor: the greatest id minted.
        fence, owner, until: its lease.
        notes: how many notes it has.
        tail_count, tail_bytes: what its tail holds.
        offsets: where the lists of the tip's state end, encoded; None if that is not known.
        trail: the versions of the last 16 changes, the newest first, 8 bytes each: how a lost
            answer is resolved. Notes that joined a save have one of their own, behind that of the
            save.
        epoch: the version of the last change that removed, replaced or rolled stored states. A roll
            compares it instead of the version, so that saves do not stop it.
    """

    key: ScopeKey
    pk: int
    version: int
    head: int | None = None
    tip: int | None = None
    last: int = 0
    floor: str = ""
    fence: str | None = None
    owner: str | None = None
    until: int | None = None
    notes: int = 0
    tail_count: int = 0
    tail_bytes: int = 0
    offsets: bytes | None = None
    trail: bytes = b""
    epoch: int = 0

    @property
    def versions(self) -> list[bytes]:
        """The versions in its trail, the newest first."""
        trail, size = self.trail, VERSION_BYTES
        return [trail[at : at + size] for at in range(0, len(trail), size)]

    @property
    def revision(self) -> str:
        """What any change of the scope changes, of its notes and its lease too."""
        return f"{self.pk:x}.{self.version & 0xFFFF_FFFF_FFFF_FFFF:x}"

    @property
    def holds_anything(self) -> bool:
        """Whether it holds a snapshot, a note or a lease; else it is not listed."""
        facts = (self.head, self.tip, self.fence)
        return self.notes > 0 or any(each is not None for each in facts)


def is_at(record: ScopeRecord | None, before: ScopeRecord | None) -> bool:
    """Return whether a scope is still as it was when a change was made for it.

    Attempts to begin a scope have one version, but each its own pk.
    """
    if record is None or before is None:
        return record is before
    return record.version == before.version and record.pk == before.pk


class TailRow(NamedTuple):
    """The state of one of the newest snapshots: whole, or a delta on the state of `base`.

    If it is SHARED, `body` is the name of a `SharedRow`, which holds the whole state; or that name
    and a compressed delta on that state. `nonce` is
    that of the write that made its state, `base_nonce` the same of its base: what is encrypted
    remembers both, so that no older state can take the place of either. "" if that is not known.
    """

    seq: int
    base: int | None
    encoding: int
    body: bytes
    nonce: str = ""
    base_nonce: str = ""


class SegmentRow(NamedTuple):
    """The states of older snapshots, from one seq to another, as `core.segments` encodes them.

    `nonces` has the nonce of each state by its seq, as `TailRow` has; empty if they are not known.
    """

    first: int
    last: int
    blob: bytes
    nonces: Mapping[int, str] = {}


class SharedRow(NamedTuple):
    """A whole state that forks of one session begin at, compressed. No other has its name."""

    name: bytes
    body: bytes


class Change(NamedTuple):
    """All that one step writes to one scope.

    Attributes:
        before: the record that the scope must still have; None: it must not exist.
        after: its next record; None removes the scope with everything in it, and the shared states
            that no other scope has.
        rows: new snapshots, or with `replace` other versions of those with the same seq. The state
            of a new one is in `tail`, or in one of `segments`.
        rows_gone: seqs of snapshots that go, before those of `rows` come.
        tail, segments, notes: are inserted, or replace those with the same seq, last seq, address.
        tail_gone, segments_gone, notes_gone: seqs, last seqs and addresses of those that go.
        apart: whether the parent of a new snapshot may be another than the one just before it. With
            a parent that is the kept head and the tip, nothing ever comes between the two.
        shared: are inserted, unless they are there.
        unshared: names of shared states that go, unless a tail still has them.
        new_note: whether its notes, with which it writes nothing or a save, must not be there yet:
            else it is refused, or Taken.
    """

    key: ScopeKey
    before: ScopeRecord | None
    after: ScopeRecord | None
    rows: Sequence[Row] = ()
    replace: bool = False
    rows_gone: Collection[int] = ()
    tail: Sequence[TailRow] = ()
    tail_gone: Collection[int] = ()
    segments: Collection[SegmentRow] = ()
    segments_gone: Collection[int] = ()
    notes: Sequence[NoteRow] = ()
    notes_gone: Collection[tuple[str, str]] = ()
    apart: bool = True
    shared: Sequence[SharedRow] = ()
    unshared: Collection[bytes] = ()
    new_note: bool = False


class ScopeQuery(NamedTuple):
    """Which scopes to list: of one session, or of those with a prefix; those behind `after`."""

    session_id: str | None = None
    kind: str | None = None
    prefix: str = ""
    after: ScopeKey | None = None

    def covers(self, scope: ScopeKey) -> bool:
        """Return whether a scope is asked for, wherever the list begins."""
        is_kind = self.kind in (None, scope.kind)
        is_session = self.session_id in (None, scope.session_id)
        return is_kind and is_session and scope.session_id.startswith(self.prefix)


class Reader(Protocol):
    """One moment of one scope. Whatever it returns has been verified; else it raises Corrupt."""

    record: ScopeRecord | None

    def row_at(self, seq: int) -> Row | None: ...

    def rows(self, ids: Sequence[str]) -> list[Row]:
        """Return the snapshots that exist, drafts too, in the order of `ids`."""
        ...

    def row_by_nonce(self, nonce: str) -> Row | None: ...

    def rows_between(self, first: int, last: int) -> list[Row]:
        """Return the snapshots from one seq to another, drafts too, in ascending order."""
        ...

    def seqs_and_sizes(self, ids: Sequence[str]) -> list[tuple[int, int]]:
        """Return the seqs and the sizes of the snapshots that exist; they may be damaged."""
        ...

    def newest_kept(self, without: Collection[int]) -> int | None:
        """Return the seq of the newest kept snapshot, which may be damaged."""
        ...

    def tail_row(self, seq: int) -> TailRow | None:
        """Return a state of the tail; a damaged one as DAMAGED, since it can still be deleted."""
        ...

    def tail(self) -> dict[int, TailRow]:
        """Return the whole tail, by seq, in ascending order."""
        ...

    def segment(self, seq: int | None) -> SegmentRow | None:
        """Return the first segment that ends at a seq or later; None asks for the newest.

        Raises Corrupt if that one is damaged, or returns it with an empty blob, which cannot be
        parsed either: then the tail behind it can still be rolled.
        """
        ...

    def shared(self, name: bytes) -> SharedRow | None: ...

    def has_shared(self, name: bytes) -> bool | None:
        """Return whether a shared state is there, and stays until the change is stored.

        None: this storage shares none, so a fork copies its state.
        """
        ...

    def notes(self, on: Collection[str], names: Collection[str] | None = None) -> list[NoteRow]: ...

    def note_page(self, on: str, after: str, limit: int) -> list[NoteRow]:
        """Return notes with names greater than `after`, in their order, without damaged ones."""
        ...

    def note_addresses(self, on: Collection[str]) -> list[tuple[str, str]]:
        """Return the addresses of notes, which may be damaged."""
        ...

    def noted(self, after: str, limit: int) -> list[str]:
        """Return snapshot ids greater than `after` that have notes, in text order."""
        ...

    def count(self) -> int:
        """Return the number of snapshots."""
        ...

    def now(self, here: int, *, hint: bool = False) -> int:
        """Return the time by which leases end: the server's, or `here` where there is none.

        With `hint` nothing is decided by it, and a clock that may be wrong will do.
        """
        ...

    def other(self, key: ScopeKey) -> "Reader":
        """Return the same moment of another scope."""
        ...


class StateReader(Protocol):
    """Reads the states of one moment of a scope, as the engine does."""

    def keep(self, wanted: Mapping[int, str]) -> None:
        """Read states that will be asked for, by seq, with their nonces if they are known."""
        ...

    def of(self, row: Row) -> bytes:
        """Return the state of a snapshot, or raise Corrupt."""
        ...


class Storage(Protocol):
    """Holds scopes. Safe to call from many threads.

    All raise Unavailable when nothing was stored and nothing will be, and Corrupt when what is
    asked for fails its checksum; listings omit that.
    """

    blocking: bool
    capabilities: frozenset[str]

    def read(self, key: ScopeKey, use: Callable[[Reader], T], seen: ScopeRecord | None = None) -> T:
        """Call `use` with one moment of a scope, perhaps more than once; return its last result.

        The moment may be that of `seen`, which `read_head` has just returned.
        """
        ...

    def read_head(self, key: ScopeKey) -> tuple[ScopeRecord, Row | None, TailRow | None] | None:
        """Return a scope, its head and the tail row of its head, of one moment."""
        ...

    def write(self, change: Change) -> bool:
        """Apply all of a change if the scope is still at `before`, and return whether it was.

        Durable when it returns.

        Raises:
            Taken: a seq is taken in the store, or an id in the scope, or the address of a new note.
            LostAnswer: it is not known whether it was applied.
        """
        ...

    def transact(self, key: ScopeKey, decide: Callable[[Reader], tuple[Change | None, T]]) -> T:
        """Read, decide and write as one step; return what was decided with the change.

        What `Reader.other` showed is still so when the change is stored.
        `decide` is pure and may be called more than once. What it raises is raised, and nothing is
        written then. It is called again after a change that may be stored all the same, unless that
        removes the scope: the next record shows it otherwise.

        Raises:
            Taken, LostAnswer: as `write`. LostAnswer also if an earlier attempt may be stored.
        """
        ...

    def list_rows(self, query: Query, limit: int) -> list[tuple[ScopeKey, Row]]: ...

    def list_ids(self, scope: ScopeKey, after: str, limit: int) -> list[str]: ...

    def find_refs(self, id_prefix: str, limit: int) -> list[SnapshotRef]: ...

    def list_scopes(
        self, query: ScopeQuery, limit: int | None = None
    ) -> list[tuple[ScopeRecord, Row | None]]:
        """Return scopes that hold anything, with their heads, by session, kind and scope id."""
        ...

    def list_sessions(self, prefix: str, after: str, limit: int) -> list[str]: ...

    def list_newest(
        self, prefix: str, after: SessionAge | None, limit: int
    ) -> list[SessionAge]: ...

    def find_notes(
        self, query: NoteQuery, limit: int, take: Callable[[ScopeKey, NoteRow], T | None]
    ) -> list[T]:
        """Return what `take` makes of the notes that a query covers, the last written first.

        What it makes None is left out, and so may be notes that `query.where` does not match.
        """
        ...

    def revisions(self, targets: Sequence[Target]) -> list[str | None]:
        """Do what `protocol.Backend.read_revisions` promises."""
        ...

    def drop(self, session_id: str, key: ScopeKey | None = None) -> int:
        """Delete all scopes of a session, or one of them, damaged or not. May be repeated.

        Return the number of snapshots. Shared states that no other scope has go with them.

        Raises:
            LostAnswer: it is not known whether all of it was deleted.
        """
        ...

    def sizes(self, session_id: str | None) -> list[tuple[str, int, int]]:
        """Return session, number of snapshots and bytes of their states, for each scope."""
        ...

    def stored_bytes(self, session_id: str | None) -> int:
        """Return the bytes that states take as they are stored."""
        ...

    def list_damage(self, scope: ScopeKey | None) -> list[Finding]:
        """Do what `protocol.Backend.list_damage` promises; None asks for `list_unlisted`."""
        ...

    def check(self, after: str, *, repair: bool, limit: int) -> tuple[list[Finding], str | None]:
        """Do what `protocol.Backend.check` promises."""
        ...

    def rekey(self, after: str, *, limit: int) -> tuple[int, str | None]:
        """Do what `protocol.Backend.rekey` promises."""
        ...

    def compact(self) -> int:
        """Give unused space back to the system; return the bytes."""
        ...

    def listen(self) -> Listener[Topic]: ...

    def close(self) -> None: ...
