"""`Scope` and `Lease`: the sync API of a scope."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Generic

from limpet.api import branching, leases, redacting, upkeep, verbs
from limpet.api.driver import Claimed, Driver
from limpet.api.opened import JSON_MODEL, ScopeBase
from limpet.core import prepare
from limpet.model import (
    ANY,
    HEAD,
    JSON,
    Diff,
    Expect,
    Note,
    Parent,
    Pruned,
    Redacted,
    Snapshot,
    SnapshotInfo,
    SnapshotLike,
    SnapshotRef,
    State,
)


class Scope(ScopeBase, Generic[State]):
    """One line of state inside a session, with its history. Made by `Store.scope`.

    Wherever a method takes an id, it takes a `SnapshotInfo`, `Snapshot` or `SnapshotRef` too.

    Example:
        chat = store.scope("chat-42", "planner")
        chat.save({"messages": []})
        chat.append("messages", [{"role": "user", "content": "hello"}])
        print(chat.load().state)
    """

    driver: Driver

    def save(
        self,
        state: State,
        *,
        id: str | None = None,
        parent: Parent | SnapshotLike = HEAD,
        keep: bool = True,
        head: bool = True,
        overwrite: bool = False,
        status: str = "",
        labels: Mapping[str, str] | None = None,
        metadata: Mapping[str, JSON] | None = None,
        created_at: datetime | None = None,
        forked_from: SnapshotRef | None = None,
        expect: Expect = ANY,
    ) -> SnapshotInfo:
        """Save a state as a new snapshot. Atomic, and durable when it returns.

        Example:
            chat.save({"mood": "calm"}, labels={"run_id": "r-7"}, expect=chat.load().revision)

        Args:
            state: any JSON value.
            id: unique in the scope; by default new. The same content under it changes nothing.
            parent: the snapshot that this one follows; None for a root. By default the head if
                it is kept, else the draft's parent, else the newest kept snapshot.
            keep: False for a draft, which is not in history and gone when the head moves.
            head: False to keep it only, without making it the head.
            overwrite: replace the snapshot with this id, at its place; the head does not move.
            status, labels: short texts to filter by; a status of "" means "not said".
            metadata: any JSON to store with the state and list without it.
            created_at, forked_from: for imports: when it was made, what it is a copy of.
            expect: the revision that the head must have; None: there must be no head yet.

        Raises:
            AlreadyExists: the id exists with other content.
            Conflict: the head does not have the revision `expect`. Nothing was stored.
            InvalidInput: a value is not JSON (the message has its path) or is too large.
        """
        key, tools, model, fence = self._context
        commit = prepare.save(
            key,
            state if model is JSON_MODEL else model.dump(state),
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
            fence=fence,
            stamp=tools.draw(),
            state_bytes_max=tools.state_bytes_max,
            default=tools.default,
        )
        return self._opened.backend.commit(commit)

    def append(
        self,
        key: str,
        items: list[JSON],
        *,
        keep: bool = True,
        status: str | None = None,
        labels: Mapping[str, str] | None = None,
        metadata: Mapping[str, JSON] | None = None,
        expect: Expect = ANY,
    ) -> SnapshotInfo:
        """Save the head's state with `items` appended to the list under the top-level `key`.

        The list and the scope are created if they do not exist. Concurrent appends all take
        effect. On SQL engines the first reads the state; the next ones cost what they append.

        Example:
            chat.append("messages", [{"role": "user", "content": "hello"}])

        Args:
            key: a top-level key of the state.
            items: what to append.
            status: by default that of the head stays.
            keep, labels, metadata, expect: as in `save`.

        Raises:
            Conflict: the head does not have the revision `expect`.
            InvalidInput: the head's state is not an object, or the value is not a list.
        """
        scope, tools, model, fence = self._context
        commit = prepare.append(
            scope,
            *model.dump_member(key, items),
            keep=keep,
            status=status,
            labels=labels,
            metadata=metadata,
            expect=expect,
            fence=fence,
            stamp=tools.draw(),
            state_bytes_max=tools.state_bytes_max,
            default=tools.default,
        )
        return self._opened.backend.commit(commit)

    def load(self, id: SnapshotLike | None = None) -> Snapshot[State] | None:
        """Return a snapshot with its state; None if there is none.

        What another kind has saved under the same name is in another scope: a run of
        `limpet.runs` in that of kind "run", a thread of LangGraph in that of kind "thread".
        `store.scopes(session_id)` lists them.

        Example:
            print(chat.load().state, chat.load("step-7").state)

        Args:
            id: which one; by default the head.
        """
        if id is not None:
            return self.driver.run(verbs.load(self._key, id, self._context.model))
        found = self._opened.backend.read_snapshots(self._key, (None,))
        return verbs.snapshot_of(found[0], self._context.model) if found else None

    def load_many(self, ids: Iterable[SnapshotLike]) -> Iterator[Snapshot[State]]:
        """Yield snapshots with their states; missing ones are skipped.

        Example:
            for snapshot in chat.load_many(["step-7", "step-8"]): print(snapshot.state)

        Args:
            ids: which ones, in this order.
        """
        return self.driver.stream(verbs.load_many(self._key, ids, self._context.model))

    def info(self, id: SnapshotLike | None = None) -> SnapshotInfo | None:
        """Return a snapshot without its state; None if there is none.

        Example:
            print(chat.info().status)

        Args:
            id: which one; by default the head.
        """
        return self.driver.run(verbs.info(self._key, id))

    def history(
        self,
        *,
        limit: int | None = None,
        after: SnapshotLike | None = None,
        labels: Mapping[str, str] | None = None,
        status: str | None = None,
    ) -> Iterator[SnapshotInfo]:
        """Yield kept snapshots, the last saved first. Lazy: one query per page.

        Example:
            for info in chat.history(limit=20): print(info.id, info.status, info.labels)

        Args:
            limit: at most so many; by default all.
            after: continue after this snapshot: its id, or its info even if it was deleted.
            labels: only snapshots that have all of these labels.
            status: only snapshots with this status.

        Raises:
            NotFound: `after` is the id of a snapshot that does not exist.
        """
        walk = verbs.history(self._key, limit=limit, after=after, labels=labels, status=status)
        return self.driver.stream(walk)

    def ids(self, *, after: SnapshotLike | None = None, limit: int | None = None) -> Iterator[str]:
        """Yield kept ids in text order.

        Example:
            print(list(chat.ids(limit=100)))

        Args:
            after: only ids greater than this text, which need not exist.
            limit: at most so many; by default all.
        """
        return self.driver.stream(verbs.list_ids(self._key, after=after, limit=limit))

    def update(
        self, id: SnapshotLike, fn: Callable[[Snapshot[State]], Snapshot[State] | None]
    ) -> SnapshotInfo | None:
        """Change one snapshot in place, atomically: read, call `fn`, compare-and-set.

        No lock is held while `fn` runs. The head and the order of history stay as they are.

        Example:
            chat.update("step-7", lambda snapshot: snapshot.with_(status="done"))

        Args:
            id: which one.
            fn: gets the snapshot and returns it with another state, status, labels or metadata
                (`Snapshot.with_`), or None; called again if another writer changed it meanwhile.

        Raises:
            NotFound: there is no such snapshot.
            InvalidInput: `fn` returned something else, or changed another field.
        """
        return self.driver.drive(verbs.update(self._context, id, fn))

    def ancestors(self, id: SnapshotLike) -> Iterator[SnapshotInfo]:
        """Yield a snapshot, its parent, and so on, up to a root or a missing parent.

        Example:
            print([info.id for info in chat.ancestors("step-7")])

        Args:
            id: where to begin.

        Raises:
            NotFound: there is no such snapshot.
        """
        return self.driver.stream(branching.ancestors(self._key, id))

    def leaves(self) -> Iterator[SnapshotInfo]:
        """Yield the kept snapshots without kept children, the last saved first.

        Example:
            print([info.id for info in chat.leaves()])
        """
        return self.driver.stream(branching.leaves(self._key))

    def diff(self, a: SnapshotLike, b: SnapshotLike) -> Diff:
        """Return the changes from the state of `a` to that of `b`; falsy if there are none.

        Example:
            print(chat.diff("step-7", "step-8"))

        Args:
            a, b: ids of this scope; or infos, snapshots or refs of any scopes of the store.

        Raises:
            NotFound: one of the snapshots does not exist.
        """
        return self.driver.run(branching.difference(self._key, a, b))

    def restore(
        self,
        id: SnapshotLike,
        *,
        labels: Mapping[str, str] | None = None,
        metadata: Mapping[str, JSON] | None = None,
        expect: Expect = ANY,
    ) -> SnapshotInfo:
        """Save the state of an earlier snapshot as a new head, with that snapshot as parent.

        Example:
            chat.restore("step-7")

        Args:
            id: the earlier snapshot. Its status is copied.
            labels, metadata: replace those of the earlier snapshot.
            expect: as in `save`.

        Raises:
            NotFound: there is no such snapshot.
            Conflict: the head does not have the revision `expect`.
        """
        work = branching.restore(self._context, id, labels=labels, metadata=metadata, expect=expect)
        return self.driver.run(work)

    def fork(
        self,
        id: SnapshotLike,
        *,
        to: str | None = None,
        scope_id: str | None = None,
        patch: Mapping[str, JSON] | Callable[[State], State] | None = None,
        labels: Mapping[str, str] | None = None,
        metadata: Mapping[str, JSON] | None = None,
    ) -> "Scope[State]":
        """Begin a new scope with the state of an existing snapshot.

        Its first snapshot has no parent; its `forked_from` names the source.

        Example:
            bold = chat.fork("step-7", patch={"mood": "bold"})

        Args:
            id: the snapshot to begin with.
            to: the session of the new scope; by default this session.
            scope_id: the name of the new scope. By default `<scope_id>~<8 letters and digits>` in
                the same session, and the same name in another session.
            patch: a mapping that replaces top-level keys, or a function from state to state, which
                may be called again.
            labels: replace those of the source.
            metadata: replace that of the source.

        Raises:
            NotFound: there is no such snapshot.
            AlreadyExists: the new scope already holds something.
        """
        verb = branching.fork(
            self._context,
            id,
            to=to,
            scope_id=scope_id,
            patch=patch,
            labels=labels,
            metadata=metadata,
        )
        return Scope(self.driver, self._context._replace(key=self.driver.drive(verb), fence=None))

    def prune(
        self,
        *,
        keep_last: int | None = None,
        older_than: timedelta | None = None,
        dry_run: bool = False,
    ) -> Pruned:
        """Delete snapshots outside the newest `keep_last` **and** older than `older_than`.

        At least one of the two must be given. The head is never deleted.

        Example:
            chat.prune(keep_last=50, older_than=timedelta(days=30))

        Args:
            keep_last: how many of the newest to keep.
            older_than: how old, by `created_at`, those must be that are deleted.
            dry_run: delete nothing, only count.
        """
        verb = upkeep.prune(
            self._context, keep_last=keep_last, older_than=older_than, dry_run=dry_run
        )
        return self.driver.drive(verb)

    def redact(
        self, what: str | Callable[[str, JSON], bool], *, replacement: JSON = None
    ) -> Redacted:
        """Replace content everywhere: in this scope, in its forks, and in what it was forked from.

        That is in all their snapshots, drafts and notes, but not in other sessions. Ids, names and
        keys are not content. Repeating it changes nothing, and completes one that was interrupted.
        `Store.compact` then removes the bytes from storage.

        Example:
            chat.redact("/messages/3/content", replacement="(removed)")
            chat.redact(lambda path, value: isinstance(value, str) and "alice@" in value)

        Args:
            what: a JSON Pointer into the states, or `metadata/<pointer>`, `notes/<name>/<pointer>`,
                `labels/<name>`, `metadata`, `status`. Or a function that gets such a path and its
                value, for objects and lists before what is in them, and returns True for what to
                replace.
            replacement: what takes the place, so that nothing else moves; of a label or the status
                a text, and of all metadata an object, otherwise it is empty there.

        Raises:
            Corrupt: something is damaged, and may hold the content: delete it, and repeat this.
        """
        return self.driver.drive(redacting.redact(self._context, what, replacement=replacement))

    def delete_snapshot(self, id: SnapshotLike) -> int:
        """Delete one snapshot and the notes on its id; return 1, or 0 if there was none.

        No other snapshot changes, not even its children. If it was the head, the newest kept
        snapshot becomes the head.

        Example:
            chat.delete_snapshot("step-7")

        Args:
            id: which one.
        """
        key, fence = self._key, self._context.fence
        found = prepare.snapshot_id("id", id, key)
        return self.driver.run(
            lambda backend: backend.delete_snapshots(key, [found], fence=fence).count
        )

    def delete(self, *, expect: Expect = ANY) -> int:
        """Delete the whole scope with its notes; return the number of snapshots.

        Example:
            chat.delete()

        Args:
            expect: the revision that the head must have; None: there must be no head. Or that of
                the scope, as `Store.scopes` gives it: then no note may have changed either.

        Raises:
            Conflict: the head does not have the revision `expect`. Nothing was deleted.
        """
        key, fence, expect = self._key, self._context.fence, prepare.check_expect(expect)
        return self.driver.run(
            lambda backend: backend.delete_scope(key, expect=expect, fence=fence)
        )

    def note(self, name: str, *, on: SnapshotLike | None = None) -> Note | None:
        """Return a note; None if there is none.

        Example:
            print(chat.note("title"))

        Args:
            name: its name.
            on: the snapshot that it is on; by default it is one of the scope.
        """
        return self.driver.run(verbs.note(self._key, name, on))

    def notes(self, *, on: SnapshotLike | Iterable[SnapshotLike] | None = None) -> Iterator[Note]:
        """Yield notes, by name.

        Example:
            for note in chat.notes(): print(note.name, note.value)

        Args:
            on: the notes on this snapshot, or on these in their order; by default those of the
                scope.
        """
        return self.driver.stream(verbs.notes(self._key, on))

    def noted_ids(
        self, *, after: SnapshotLike | None = None, limit: int | None = None
    ) -> Iterator[str]:
        """Yield the snapshot ids that have notes, in text order. The snapshots need not exist.

        Example:
            print(list(chat.noted_ids()))

        Args:
            after: only ids greater than this text.
            limit: at most so many; by default all.
        """
        return self.driver.stream(verbs.noted_ids(self._key, after=after, limit=limit))

    def set_note(
        self,
        name: str,
        value_or_fn: JSON | Callable[[JSON], JSON],
        *,
        on: SnapshotLike | None = None,
        expect: Expect = ANY,
    ) -> Note | None:
        """Write a note: a small document of the scope, or of a snapshot.

        Example:
            chat.set_note("title", "A trip to Lisbon")
            chat.set_note("seen", lambda count: (count or 0) + 1)

        Args:
            name: its name.
            value_or_fn: any JSON; None is stored as null. A function gets the current value (None
                if there is none) and returns the next one, or None to change nothing; it may be
                called again.
            on: the snapshot to put it on, which need not exist yet; by default the scope.
            expect: the revision that the note must have; None: it must not exist yet.

        Raises:
            Conflict: the note does not have the revision `expect` (None: it must not exist yet).
        """
        verb = verbs.set_note(self._context, name, value_or_fn, on=on, expect=expect)
        return self.driver.drive(verb)

    def delete_note(self, name: str, *, on: SnapshotLike | None = None) -> int:
        """Delete a note; return 1, or 0 if there was none.

        Example:
            chat.delete_note("title")

        Args:
            name: its name.
            on: the snapshot that it is on; by default it is one of the scope.
        """
        key, fence = self._key, self._context.fence
        name, owner = prepare.note_address(key, name, on)
        return self.driver.run(
            lambda backend: backend.delete_note(key, name, on=owner, fence=fence)
        )

    def watch(
        self, id: SnapshotLike | None = None, *, timeout_s: float | None = None
    ) -> Iterator[SnapshotInfo]:
        """Yield the head, or the snapshot `id`, and again after each change by any process.

        The current one comes first; it need not exist yet. The last change is never missed; of
        several in a short time, earlier ones may be. The iterator ends when the watched snapshot
        or scope is deleted, and when the store is closed. Leaving the loop releases everything.

        Example:
            for info in chat.watch(timeout_s=1): print(info.id, info.status)

        Args:
            id: which one; by default the head.
            timeout_s: ends when so many seconds have passed without a change; by default never.
        """
        return self.driver.watch(verbs.scope_topic(self._key, id), timeout_s)

    def claim(
        self, *, owner: str, ttl_s: float = 30, wait_s: float = 0
    ) -> AbstractContextManager["Lease[State]"]:
        """Hold the lease of this scope for a `with` block.

        It is renewed in the background and released at the end; if this process stops, it ends
        `ttl_s` later. One caller holds it at a time, but writes without a lease are still possible.
        Once another holds it, every write through this lease raises Conflict and changes nothing.

        Example:
            with chat.claim(owner="worker-1", wait_s=5) as lease:
                lease.save({"step": 1})

        Args:
            owner: a name for people to read.
            ttl_s: how long the lease lasts without renewal.
            wait_s: how long to wait for another holder.

        Raises:
            Conflict: another caller still holds it after `wait_s`.
        """
        wanted = leases.prepare(self._context.tools, self._key, owner, ttl_s, wait_s)
        return Claimed(leases.held(self, wanted, Lease), Lease, "scope.claim(owner=…) as lease")


class Lease(leases.LeaseProperties, Scope[State]):
    """A scope whose every write carries a lease. Made by `Scope.claim`.

    Example:
        with chat.claim(owner="worker-1") as lease:
            lease.append("messages", ["still mine"])
            print(lease.expires_at, lease.token)
    """
