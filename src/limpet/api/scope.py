"""The synchronous face of a scope. The full promise of each verb stands here."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta

from limpet.api import branching, leases, upkeep, verbs
from limpet.api.driver import Driver
from limpet.api.opened import ScopeBase
from limpet.core import limits, prepare
from limpet.errors import Conflict, InvalidInput, Unavailable
from limpet.model import (
    ANY,
    HEAD,
    JSON,
    Diff,
    Expect,
    Note,
    Parent,
    Pruned,
    ScopeKey,
    Snapshot,
    SnapshotInfo,
    SnapshotRef,
)
from limpet.protocol import Claim, Target, Topic


class Scope(ScopeBase):
    """One line of state inside a session."""

    def __init__(self, driver: Driver, key: ScopeKey) -> None:
        """Made by `Store.scope`, which checks the key."""
        super().__init__(key)
        self.driver = driver
        self._tools = driver.tools
        self._fence: str | None = None  # the lease under which a `Lease` writes

    def save(
        self,
        state: JSON,
        *,
        id: str | None = None,
        parent: Parent = HEAD,
        keep: bool = True,
        head: bool = True,
        overwrite: bool = False,
        status: str = "completed",
        labels: Mapping[str, str] | None = None,
        metadata: Mapping[str, JSON] | None = None,
        created_at: datetime | None = None,
        forked_from: SnapshotRef | None = None,
        expect: Expect = ANY,
    ) -> SnapshotInfo:
        """Save a state, durably, as one step.

        It is kept in history and becomes the head; with `keep=False` it only becomes the head (a
        draft, gone when the head moves); with `head=False` it is only kept. Without `id` one is
        minted. `parent` is by default the newest that stays: the head if kept, else the draft's
        parent, else the newest kept one; None makes a root. `created_at` is for imports.

        The same id with the same body again succeeds and changes nothing. With another body,
        `overwrite=True` replaces it in place: its place in history, its `created_at` and the head
        stay as they are.

        Raises:
            AlreadyExists: the id is there with another body.
            Conflict: the head's revision is not `expect` (None: there must be no head yet).
            InvalidInput: a value is not JSON (the message has its path), too large or misplaced.
        """
        commit = prepare.save(
            self._key,
            state,
            id=id,
            parent=parent,
            keep=keep,
            head=head,
            overwrite=overwrite,
            status=status,
            labels=labels,
            metadata=metadata,
            created_at=created_at,
            forked_from=forked_from,
            expect=expect,
            fence=self._fence,
            stamp=self._tools.draw(),
            state_bytes_max=self._tools.state_bytes_max,
        )
        return self.driver.run(lambda backend: backend.commit(commit))

    def append(
        self,
        key: str,
        items: list[JSON],
        *,
        keep: bool = True,
        status: str = "completed",
        labels: Mapping[str, str] | None = None,
        metadata: Mapping[str, JSON] | None = None,
        expect: Expect = ANY,
    ) -> SnapshotInfo:
        """Save the head's state with `items` added to the list under a top-level `key`.

        Creates the list, and the scope. Appends at the same time all take effect.

        Raises:
            Conflict: the head's revision is not `expect`.
            InvalidInput: the head's state is no object, or the value under `key` is no list.
        """
        commit = prepare.append(
            self._key,
            key,
            items,
            keep=keep,
            status=status,
            labels=labels,
            metadata=metadata,
            expect=expect,
            fence=self._fence,
            stamp=self._tools.draw(),
            state_bytes_max=self._tools.state_bytes_max,
        )
        return self.driver.run(lambda backend: backend.commit(commit))

    def load(self, id: str | None = None) -> Snapshot | None:
        """Return a snapshot with its state, the head without an id; None if there is none."""
        return self.driver.run(verbs.load(self._key, id))

    def load_many(self, ids: Iterable[str]) -> Iterator[Snapshot]:
        """Yield snapshots with their states in the order asked; missing ones are left out."""
        return self.driver.stream(verbs.load_many(self._key, ids))

    def info(self, id: str | None = None) -> SnapshotInfo | None:
        """Return the facts of a snapshot without its state; the head's without an id."""
        return self.driver.run(verbs.info(self._key, id))

    def history(
        self,
        *,
        limit: int | None = None,
        after: str | SnapshotInfo | None = None,
        labels: Mapping[str, str] | None = None,
        status: str | None = None,
    ) -> Iterator[SnapshotInfo]:
        """Yield kept snapshots, the last saved first. Lazy; holds nothing between pages.

        `after` is the last one seen: an id, or its info, even if deleted. All `labels` must match.

        Raises:
            NotFound: `after` is an id that is not there.
        """
        walk = verbs.history(self._key, limit=limit, after=after, labels=labels, status=status)
        return self.driver.stream(walk)

    def ids(self, *, after: str | None = None, limit: int | None = None) -> Iterator[str]:
        """Yield kept ids in text order, those greater than `after`, which need not exist."""
        return self.driver.stream(verbs.list_ids(self._key, after=after, limit=limit))

    def update(self, id: str, fn: Callable[[Snapshot], Snapshot | None]) -> SnapshotInfo | None:
        """Change one snapshot in place, atomically: read, `fn`, compare-and-set.

        `fn` gets the snapshot and returns it with another state, status, labels or metadata (see
        `Snapshot.with_`), or None to leave it. It may run several times, and nothing is locked
        while it runs. Neither the head nor the order of history moves.

        Raises:
            NotFound: there is no such snapshot.
            InvalidInput: `fn` returned something else, or changed what cannot be changed.
        """
        return self.driver.drive(verbs.update(self._tools, self._key, id, fn, fence=self._fence))

    def ancestors(self, id: str) -> Iterator[SnapshotInfo]:
        """Yield a snapshot, its parent, and so on, until a parent is missing.

        Raises:
            NotFound: there is no such snapshot.
        """
        return self.driver.stream(branching.ancestors(self._key, id))

    def leaves(self) -> Iterator[SnapshotInfo]:
        """Yield the kept snapshots that no other kept one follows, the last saved first."""
        return self.driver.stream(branching.leaves(self._key))

    def diff(self, a: str, b: str) -> Diff:
        """Return what changed from the state of `a` to that of `b`; falsy if nothing did.

        Raises:
            NotFound: one of them is not there.
        """
        return self.driver.run(branching.difference(self._key, a, b))

    def restore(
        self,
        id: str,
        *,
        labels: Mapping[str, str] | None = None,
        metadata: Mapping[str, JSON] | None = None,
        expect: Expect = ANY,
    ) -> SnapshotInfo:
        """Go back: save the state of an earlier snapshot as a new head, with that one as parent.

        Status, labels and metadata are those of that snapshot unless given.

        Raises:
            NotFound: there is no such snapshot.
            Conflict: the head's revision is not `expect`.
        """
        facts = (labels, metadata)
        work = branching.restore(
            self._tools, self._key, id, facts, expect=expect, fence=self._fence
        )
        return self.driver.run(work)

    def fork(
        self,
        id: str,
        *,
        to: str | None = None,
        scope_id: str | None = None,
        patch: Mapping[str, JSON] | Callable[[JSON], JSON] | None = None,
        labels: Mapping[str, str] | None = None,
        metadata: Mapping[str, JSON] | None = None,
    ) -> "Scope":
        """Begin a new line at an existing snapshot, in this session or in the session `to`.

        Its first snapshot has no parent and says in `forked_from` where it came from. In the same
        session its scope is called `<scope_id>~<8 letters and digits>`, in another one as here,
        unless `scope_id` is given. A mapping as `patch` replaces top-level keys, a function maps
        the state. Status, labels and metadata are those of the source unless given.

        Raises:
            NotFound: there is no such snapshot.
            AlreadyExists: there is something under that name already.
        """
        verb = branching.fork(
            self._tools,
            self._key,
            id,
            to=to,
            scope_id=scope_id,
            patch=patch,
            labels=labels,
            metadata=metadata,
        )
        return Scope(self.driver, self.driver.drive(verb))

    def prune(
        self,
        *,
        keep_last: int | None = None,
        older_than: timedelta | None = None,
        dry_run: bool = False,
    ) -> Pruned:
        """Drop what is outside the newest `keep_last` **and** older than `older_than`.

        At least one must be given. Never the head. With `dry_run` only counts.
        """
        verb = upkeep.prune(
            self._tools,
            self._key,
            keep_last=keep_last,
            older_than=older_than,
            dry_run=dry_run,
            fence=self._fence,
        )
        return self.driver.drive(verb)

    def delete_snapshot(self, id: str) -> int:
        """Remove one snapshot and the notes on its id; return 1, or 0 if there was none.

        No other snapshot changes, not even its children. If it was the head, the newest kept
        snapshot is uncovered.
        """
        id = limits.check_id("id", id)
        return self.driver.run(
            lambda backend: backend.delete_snapshots(self._key, [id], fence=self._fence).count
        )

    def delete(self, *, expect: Expect = ANY) -> int:
        """Remove the whole scope with its notes; return how many snapshots that were.

        Raises:
            Conflict: the head's revision is not `expect`. Nothing was removed.
        """
        expect = prepare.check_expect(expect)
        return self.driver.run(
            lambda backend: backend.delete_scope(self._key, expect=expect, fence=self._fence)
        )

    def note(self, name: str, *, on: str | None = None) -> Note | None:
        """Return a note of the scope, or on a snapshot id; None if there is none."""
        return self.driver.run(verbs.note(self._key, name, on))

    def notes(self, *, on: str | Iterable[str] | None = None) -> Iterator[Note]:
        """Yield the notes of the scope, or on one or several ids in the order asked, by name."""
        return self.driver.stream(verbs.notes(self._key, on))

    def noted_ids(self, *, after: str | None = None, limit: int | None = None) -> Iterator[str]:
        """Yield the snapshot ids that have notes, as `ids`; there need be no such snapshots."""
        return self.driver.stream(verbs.noted_ids(self._key, after=after, limit=limit))

    def set_note(
        self,
        name: str,
        value_or_fn: JSON | Callable[[JSON], JSON],
        *,
        on: str | None = None,
        expect: Expect = ANY,
    ) -> Note | None:
        """Write a note beside the scope, or beside a snapshot id, which need not exist yet.

        A function gets the present value (None if there is none) and returns the next one, or None
        to leave it; it may run several times. The value None is stored as null.

        Raises:
            Conflict: the note's revision is not `expect` (None: it must not exist yet).
        """
        verb = verbs.set_note(
            self._tools, self._key, name, value_or_fn, on=on, expect=expect, fence=self._fence
        )
        return self.driver.drive(verb)

    def delete_note(self, name: str, *, on: str | None = None) -> int:
        """Remove a note; return 1, or 0 if there was none."""
        name, on = prepare.note_address(name, on)
        return self.driver.run(
            lambda backend: backend.delete_note(self._key, name, on=on, fence=self._fence)
        )

    def watch(
        self, id: str | None = None, *, timeout_s: float | None = None
    ) -> Iterator[SnapshotInfo]:
        """Yield what the scope shows, and again whenever it shows something else; or one snapshot.

        The present one comes first, and need not exist yet. Whatever process made it, the last
        change is never missed; of several in a short time, those before may be. Ends when what is
        watched is deleted, when `timeout_s` has passed without a change, or with the store. A loop
        that is left lets go of everything.
        """
        target = Target(self._key, None if id is None else limits.check_id("id", id))
        return self.driver.watch(Topic(target), timeout_s)

    def claim(
        self, *, owner: str, ttl_s: float = 30, wait_s: float = 0
    ) -> AbstractContextManager["Lease"]:
        """Hold the lease of this scope: `with scope.claim(owner="worker-1") as lease:`.

        A lease is a scope whose every write carries it. It is renewed in the background and given
        back at the end; if this process stops, it ends `ttl_s` later. While it lasts nobody else
        can claim the scope; it does not shut out those who write without one. When it has passed to
        somebody else, everything written to the scope under it is Conflict and changes nothing.

        Raises:
            Conflict: somebody else holds it, also after `wait_s`.
        """
        return self._claim(owner, ttl_s, wait_s)

    def _claim(
        self, owner: str, ttl_s: float, wait_s: float, *, patient: bool = False
    ) -> AbstractContextManager["Lease"]:
        claim, wait_s = leases.prepare(
            self._tools, self._key, owner=owner, ttl_s=ttl_s, wait_s=wait_s
        )
        return self._claimed(claim, wait_s, patient)

    @contextmanager
    def _claimed(self, claim: Claim, wait_s: float, patient: bool) -> Iterator["Lease"]:
        renewals = self.driver.opened.service(leases.Renewals)
        try:
            verb = leases.claim(self._tools, claim, wait_s, patient=patient)
            term = self.driver.drive(verb)
        except Conflict:
            raise
        except BaseException:
            renewals.let_go(claim)  # it may have been granted, or may still be
            raise
        try:
            renewals.add(term)
            yield Lease(self.driver, term)
        finally:
            renewals.remove(term)
            try:
                self.driver.run(leases.give_back(self._tools, term))
            except (Unavailable, InvalidInput):
                pass  # then it ends by itself
            except BaseException:
                renewals.let_go(claim)  # interrupted, perhaps before it had begun
                raise


class Lease(leases.Held, Scope):
    """A scope that is held: whatever is written through it carries the lease."""

    def __init__(self, driver: Driver, term: leases.Term) -> None:
        """Made by `Scope.claim`."""
        super().__init__(driver, term.claim.scope)
        self._term = term
        self._fence = term.claim.key
