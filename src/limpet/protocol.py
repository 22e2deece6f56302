"""What an engine must do: the `Backend` protocol, and its arguments and results.

An engine stores bytes and decides atomically; it never sees a caller's objects. Every write
carries the time and the random bits that it needs (`Stamp`), so that an engine has no clock and can
be replayed. Each docstring below is a promise that `limpet.testing.conformance` tests.
"""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from limpet.model import (
    ANY,
    HEAD,
    JSON,
    Expect,
    Finding,
    Note,
    Parent,
    Pruned,
    ScopeInfo,
    ScopeKey,
    SnapshotInfo,
    SnapshotRef,
    Stats,
)

OWN_SESSION = "limpet:store"
"""The session of what is about the store itself, such as its retention policy."""


class Target(NamedTuple):
    """One thing that can be watched: the head of a scope or, with an id, one snapshot of it."""

    scope: ScopeKey
    id: str | None = None


class Topic(NamedTuple):
    """What a subscription watches: one target, or all heads in some sessions.

    The sessions are `session_id`, or all that begin with `prefix`. With `id` it is the snapshot
    with that id, in any scope of them: a listener need only report that it comes or goes, since
    where it is known to be its target is followed as well.
    """

    target: Target | None = None
    session_id: str | None = None
    prefix: str = ""
    id: str | None = None


T_contra = TypeVar("T_contra", contravariant=True)


class Listener(Protocol[T_contra]):
    """Reports that something may have changed, in this process or another.

    An engine's listener follows topics and reports session ids; a bucket's follows prefixes of keys
    and reports keys. One thread uses it; only `wake` may be called from others.
    """

    def follow(self, topics: Collection[T_contra]) -> None:
        """Listen for these from now on: what changes after this returns ends a `wait`."""
        ...

    def wait(self, *, active: bool) -> frozenset[str] | None:
        """Wait until something may have changed; return where.

        None stands for everywhere; an empty set means that `wake` was called. It may report too
        much, never too little: what it cannot observe it reports at intervals. `active` says that
        the caller found a change after the last wait, so that a poller polls sooner.

        Raises:
            Unavailable: nothing more will be reported; call `listen` again.
        """
        ...

    def wake(self) -> None:
        """End the current wait, or the next one."""
        ...

    def close(self) -> None:
        """Release everything held. May be repeated."""
        ...


class Stamp(NamedTuple):
    """The time and the random bits of one write: microseconds, 16 hex digits, 80 bits."""

    now: int
    nonce: str
    bits: int


class Clock(NamedTuple):
    """How to wait: monotonic seconds, sleep, and a random number from 0 to 1 to vary pauses."""

    monotonic: Callable[[], float]
    sleep: Callable[[float], None]
    jitter: Callable[[], float]


AppendOffsets: TypeAlias = dict[str, tuple[int, bool] | None]
"""Where the lists of an encoded object end: the bytes from the `]` to the end of the encoding, and
whether the list holds anything; None for a member that is no list."""


class Append(NamedTuple):
    """A body that is the head's state with items added to one of its top-level lists.

    `items` is an encoded list. Without a head the state is an object with that one list.
    """

    key: str
    items: bytes
    state_bytes_max: int


class Copy(NamedTuple):
    """A body that is a copy of the snapshot in `forked_from`, as it is at the commit."""


class Commit(NamedTuple):
    """One write of one snapshot: the only way to create or change a snapshot.

    Attributes:
        status: None for that of the head, if there is one.
        labels, metadata: encoded objects, labels in the order of their names.
        append_offsets: where the lists of an encoded body end, for engines that append without
            reading it.
        replaces: makes it an update in place: the revision that the snapshot `id` must still have.
        fence: the key of the lease that the scope must still carry.
        new_scope: the scope must not hold anything yet.
        source: the revision that the snapshot in `forked_from` must still have.
        again: the same commit may already be stored, its answer lost: the engine searches for its
            nonce before it stores anything.
        past_damage: it may replace a head that cannot be read; the rest of that is kept for
            `check`.
    """

    scope: ScopeKey
    body: bytes | Append | Copy
    status: str | None
    labels: bytes
    metadata: bytes
    stamp: Stamp
    id: str | None = None
    parent: Parent = HEAD
    keep: bool = True
    head: bool = True
    overwrite: bool = False
    expect: Expect = ANY
    replaces: str | None = None
    created_at: int | None = None
    forked_from: SnapshotRef | None = None
    fence: str | None = None
    new_scope: bool = False
    source: str | None = None
    append_offsets: AppendOffsets | None = None
    again: bool = False
    past_damage: bool = False


class Query(NamedTuple):
    """Which kept snapshots to list: of one scope, or of all whose session begins with `prefix`.

    All `labels` must match. `leaves` omits the parents of kept snapshots, and needs a scope.
    `after` is the `seq` (of its revision) of the last one seen; older ones follow.
    """

    scope: ScopeKey | None = None
    prefix: str = ""
    id: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    status: str | None = None
    leaves: bool = False
    after: int | None = None


class NoteWrite(NamedTuple):
    """One write of one note. `value` is encoded; `expect` compares the note's own revision.

    Attributes:
        fence: the key of the lease that the scope must still carry.
        keep: a first member for `value`, which is an object without it: its key, and its encoded
            value if the note that is replaced has none; else it is kept.
        joins: if it is new, it may wait some milliseconds for a save, to be stored with it.
    """

    scope: ScopeKey
    name: str
    on: str | None
    value: bytes
    stamp: Stamp
    expect: Expect = ANY
    fence: str | None = None
    keep: tuple[str, bytes] | None = None
    joins: bool = False


class NoteDelete(NamedTuple):
    """One deletion of one note. `expect` is the revision that it must still have."""

    scope: ScopeKey
    name: str
    on: str | None
    expect: Expect = ANY
    fence: str | None = None


NoteChange: TypeAlias = NoteWrite | NoteDelete


class NoteQuery(NamedTuple):
    """Which notes of scopes to find: in all scopes with this id and kind, of some sessions.

    Attributes:
        under: the session with this id, and all whose ids continue it after a `/`; "" for all.
        where: what the value must match (`core.matching`); None for any value.
        values: whether values are wanted; else they are None, and `where` must be.
    """

    scope_id: str
    kind: str
    under: str = ""
    where: JSON = None
    values: bool = True

    def covers(self, scope: ScopeKey) -> bool:
        """Return whether notes of this scope are asked for."""
        below = not self.under or f"{scope.session_id}/".startswith(f"{self.under}/")
        return below and (scope.scope_id, scope.kind) == (self.scope_id, self.kind)


class Claim(NamedTuple):
    """A request for the lease of a scope. `key` is unique; `owner` is for people to read."""

    scope: ScopeKey
    key: str
    owner: str
    ttl_us: int
    stamp: Stamp


class Hold(NamedTuple):
    """A lease: whose it is, and how long it lasts unless it is renewed."""

    key: str
    owner: str
    left_us: int


class FoundNote(NamedTuple):
    """A note of a scope, decoded; `updated_at` is in microseconds."""

    scope: ScopeKey
    name: str
    value: JSON
    revision: str
    updated_at: int


class SessionAge(NamedTuple):
    """A session, and when its newest head was created, in microseconds; None without a head."""

    session_id: str
    created_at: int | None


Found: TypeAlias = tuple[SnapshotInfo, bytes]
"""A snapshot and its encoded state."""


class Backend(Protocol):
    """An engine. Safe to call from many threads; every method is one atomic step.

    All raise Unavailable when the storage does not answer, and Corrupt when what is read by id
    fails its checksum; listings omit such snapshots. Text is ordered by code points.
    """

    @property
    def blocking(self) -> bool:
        """Whether calls may wait for storage, so that an event loop must use a thread."""
        ...

    @property
    def capabilities(self) -> frozenset[str]:
        """What this engine can do that not every engine can; the rest raises Unsupported.

        `durable`: what was acknowledged survives the process. `index`: snapshots are found by id
        and by labels across scopes. `atomic`: deleting many snapshots is one step, too, and so
        are the changes of `write_notes`.
        """
        ...

    def commit(self, commit: Commit) -> SnapshotInfo:
        """Store a snapshot and, if asked, make it the head of its scope, as one step.

        Durable when it returns. A new snapshot is the last in history; one that is replaced keeps
        its place, its `created_at`, and its parent unless another is given. A head that is not kept
        is gone when another snapshot becomes the head. Without an id the engine generates one that
        is greater than all it generated before in this scope. Repeating a commit (same id and same
        body, or `again`) succeeds and changes nothing, whatever `expect` is.

        Raises:
            AlreadyExists: the id exists with another body, and `overwrite` is not set; or
                `new_scope` is set and the scope holds something.
            Conflict: the head is not `expect`, the snapshot is not `replaces`, its source is not
                at `source`, or the scope does not carry `fence`. Nothing was stored.
            NotFound: `replaces` or `source` is given and there is no such snapshot.
            InvalidInput: an `Append` does not fit the state of the head.
        """
        ...

    def replace_snapshots(self, changes: Sequence[Commit]) -> int:
        """Make several updates in place (`replaces`) of one scope, each once; return how many.

        Each is one step, as with `commit`, and all of them where that costs less. What does not
        exist any more is left out.

        Raises:
            Conflict: a snapshot is not `replaces`, or the scope does not carry `fence`. Others may
                have been replaced.
        """
        ...

    def read_snapshots(self, scope: ScopeKey, ids: Sequence[str | None]) -> list[Found]:
        """Return the snapshots that exist, in the order of `ids`; None asks for the head."""
        ...

    def read_info(self, scope: ScopeKey, snapshot_id: str | None) -> SnapshotInfo | None:
        """Return one snapshot without its state (None: the head), or None if there is none."""
        ...

    def list_snapshots(self, query: Query, *, limit: int) -> list[SnapshotInfo]:
        """Return a page of kept snapshots, the last saved first; fewer than `limit` at the end."""
        ...

    def list_ids(self, scope: ScopeKey, *, after: str, limit: int) -> list[str]:
        """Return a page of kept ids in text order, all greater than `after`."""
        ...

    def find_refs(self, id_prefix: str, *, limit: int) -> list[SnapshotRef]:
        """Return kept snapshots of any scope whose id begins with `id_prefix`, in any order.

        Fewer than `limit`: there are no others.
        """
        ...

    def list_sessions(self, *, prefix: str, after: str, limit: int) -> list[str]:
        """Return a page of the sessions that hold anything, in text order."""
        ...

    def list_newest(self, *, prefix: str, after: SessionAge | None, limit: int) -> list[SessionAge]:
        """Return a page of the sessions that hold anything, those with the newest head first.

        By the greatest `created_at` of their heads, then in text order; those without a head come
        last. Heads are not verified: a damaged one may or may not count.
        """
        ...

    def list_scopes(
        self,
        *,
        session_id: str | None,
        kind: str | None,
        prefix: str,
        after: ScopeKey | None,
        limit: int,
    ) -> list[ScopeInfo]:
        """Return a page of the scopes that hold a snapshot, a note or a lease.

        Ordered by session, then kind, then scope id. The session `OWN_SESSION` is in no listing,
        unless it is asked for by its id.
        """
        ...

    def delete_snapshots(
        self,
        scope: ScopeKey,
        ids: Sequence[str],
        *,
        spare_head: bool = False,
        expect: Expect = ANY,
        fence: str | None = None,
    ) -> Pruned:
        """Delete snapshots and the notes on their ids, also where there is no such snapshot.

        No other snapshot changes. If the head is among them, the newest kept one becomes the head;
        with `spare_head` the head and its notes stay. Without ids only such bytes are removed from
        storage that belong to no snapshot of the scope: of replaced drafts, or of killed writers.

        Raises:
            Conflict: neither the head nor the scope is at `expect`. Nothing was deleted.
        """
        ...

    def delete_scope(
        self, scope: ScopeKey, *, expect: Expect = ANY, fence: str | None = None
    ) -> int:
        """Delete a scope with its notes; return the number of snapshots.

        Raises:
            Conflict: neither the head nor the scope is at `expect`. Nothing was deleted.
        """
        ...

    def delete_session(self, session_id: str) -> int:
        """Delete everything of one session; return the number of snapshots."""
        ...

    def list_notes(
        self,
        scope: ScopeKey,
        *,
        on: Sequence[str | None],
        name: str | None,
        after: str,
        limit: int,
    ) -> list[Note]:
        """Return a page of notes: for each of `on` in their order, ordered by name.

        None stands for the scope itself; the others are snapshot ids, each given once. `name` asks
        for notes of that name only. Of the first of `on`, only names greater than `after` are
        returned, so that a listing can be continued.
        """
        ...

    def read_notes(self, scope: ScopeKey, names: Sequence[str]) -> list[FoundNote]:
        """Return the notes of a scope itself that exist, in the order of `names`."""
        ...

    def find_notes(self, query: NoteQuery, *, limit: int) -> list[FoundNote]:
        """Return the notes that a query finds, the last written first, by the times of the writes.

        Those of the same time are in an order that stays the same.
        """
        ...

    def list_noted(self, scope: ScopeKey, *, after: str, limit: int) -> list[str]:
        """Return a page of snapshot ids with notes, in text order, all greater than `after`.

        The snapshots need not exist.
        """
        ...

    def list_damage(self, scope: ScopeKey) -> list[Finding]:
        """Return what is so damaged in a scope that its listings omit it.

        The states themselves are not checked: reading a damaged one raises Corrupt.
        """
        ...

    def list_unlisted(self) -> list[Finding]:
        """Return what is in no scope that is listed: snapshots whose head is lost, and links."""
        ...

    def write_note(self, write: NoteWrite) -> Note:
        """Store a note as one step; it needs no snapshot, and creates the scope.

        Raises:
            Conflict: the note is not at `expect` (None: it must not exist yet).
        """
        ...

    def write_notes(self, changes: Sequence[NoteChange]) -> None:
        """Store and delete several notes of one scope, each once; as one step if `atomic`.

        Other engines make the changes in this order, and a failure leaves those before it.

        Raises:
            Conflict: a note is not at its `expect`.
        """
        ...

    def delete_note(
        self, scope: ScopeKey, name: str, *, on: str | None, fence: str | None = None
    ) -> int:
        """Delete a note; return 1, or 0 if there was none."""
        ...

    def claim(self, claim: Claim) -> Hold:
        """Give a scope the lease of this claim, unless it carries another that has not ended.

        Return the lease that the scope carries now: the caller's, if it has the key of the claim.
        It needs no snapshot, and creates the scope. Time is that of the server; without a server, a
        lease has ended when this engine has seen it unrenewed for as long as it lasts. From then on
        no write under the old key has an effect. May be repeated.
        """
        ...

    def renew(self, claim: Claim) -> Hold:
        """Renew a lease, even if it has ended, as long as the scope has not been claimed since.

        Raises:
            Conflict: the scope no longer carries its key.
        """
        ...

    def release(self, claim: Claim) -> None:
        """Release a lease, unless the scope carries another."""
        ...

    def read_lease(self, scope: ScopeKey, *, now: int) -> Hold | None:
        """Return the lease that a scope carries, ended or not; the time left is a hint.

        `now` is the caller's time, for engines without a clock.
        """
        ...

    def read_revisions(self, targets: Sequence[Target]) -> list[str | None]:
        """Return the revision of each target, None where there is none. This is what a poll costs.

        Damage need not be noticed here, and one damaged target does not stop the others.
        """
        ...

    def listen(self) -> Listener[Topic]:
        """Begin to listen for changes."""
        ...

    def list_largest_heads(self, session_id: str, *, limit: int) -> list[SnapshotInfo]:
        """Return the heads of a session that have the largest states, the largest first."""
        ...

    def read_stats(self, session_id: str | None, *, limit: int) -> Stats:
        """Return the size of the store or of a session; `largest` only for the store."""
        ...

    def compact(self) -> int:
        """Give unused space back to the system without blocking others; return the bytes."""
        ...

    def check(self, after: str, *, repair: bool, limit: int) -> tuple[list[Finding], str | None]:
        """Check a bounded part of the store, after a cursor ("" is the beginning).

        Return what was found and the next cursor, None at the end. With `repair`, repair what can
        be repaired without losing anything that can still be read.
        """
        ...

    def rekey(self, after: str, *, limit: int) -> tuple[int, str | None]:
        """Encrypt a bounded part of the store with the current keys, after a cursor.

        Return how much was encrypted again, and the next cursor, None at the end. What is encrypted
        with its current key already is left alone, so that this may be repeated. Others may write
        meanwhile. What cannot be decrypted is left alone too.

        Raises:
            InvalidInput: the store was opened without keys.
        """
        ...

    def close(self) -> None:
        """Release everything held. May be repeated; calls that have begun end normally."""
        ...


METHODS = [
    name
    for name, member in vars(Backend).items()
    if not name.startswith("_") and callable(member) and name not in ("listen", "close")
]
