"""One actor's view of an engine: every call is recorded with its times and its answer."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from limpet.core import codec, ids
from limpet.errors import LimpetError, Unavailable
from limpet.model import ANY, Expect, Finding, Note, ScopeKey, SnapshotInfo, SnapshotRef
from limpet.protocol import Append, Claim, Commit, Copy, Found, NoteWrite, Query
from simulation.history import OK, REFUSED, UNKNOWN, Op
from simulation.world import World

LIMIT: Final = 100
_PAGE: Final = 2
LOG: Final = "log"
STATE_BYTES_MAX: Final = 1 << 20
UPDATE_TRIES_MAX: Final = 3


def encoded(log: Sequence[str]) -> bytes:
    """Return the state that a log makes: what a snapshot holds names all writes that made it."""
    return codec.encode({LOG: list(log)})


def log_of(body: bytes) -> tuple[str, ...]:
    """Return the log of an encoded state; one that is not ours has none."""
    state = codec.decode(body)
    log = state.get(LOG, ()) if isinstance(state, dict) else ()
    return tuple(log)


class Client:
    """A process that works with a store of its own over the storage that all share."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.dice = world.dice_of(name)
        self.known: dict[ScopeKey, str | None] = {}
        self.keys: dict[ScopeKey, str] = {}  # of the leases that were claimed last
        self.backend = world.open(name)

    def restart(self) -> None:
        """Start again after a crash: nothing is remembered."""
        self.known = {}
        self.keys = {}
        self.backend = self.world.open(self.name)

    def _call(
        self, verb: str, scope: ScopeKey | None, given: dict[str, Any], call: Callable[[], Any]
    ) -> Op:
        world = self.world
        op = Op(self.name, verb, scope, given, world.scheduler.tick(), settled=world.settled)
        world.ops.append(op)
        world.scheduler.note(self.name, f"> {verb}", "", "", op)
        try:
            op.answer = call()
            op.outcome = OK
        except Unavailable as cause:
            op.outcome = REFUSED if cause.outcome_known else UNKNOWN
            op.said = str(cause)
        except LimpetError as cause:
            op.outcome = type(cause).__name__
            op.said = str(cause)
        finally:
            op.end = world.scheduler.tick()
            world.scheduler.note(self.name, f"< {verb}", "", "", op)
        return op

    # Writing

    def commit(self, commit: Commit, log: tuple[str, ...] = ()) -> Op:
        """Send a commit; `log` is what the source of a fork held."""
        call = self.backend.commit
        given = {"commit": commit, "log": log}
        op = self._call("commit", commit.scope, given, lambda: call(commit))
        if op.ok and commit.head:
            self.known[commit.scope] = op.answer.revision
        return op

    def save(
        self,
        scope: ScopeKey,
        *,
        log: Sequence[str] | None = None,
        labels: dict[str, str] | None = None,
        **options: Any,
    ) -> Op:
        """Save a state; without a `log` one that no other client saves."""
        tag = self.world.tag(self.name)
        body = encoded([tag] if log is None else log)
        return self.commit(self.prepared(scope, body, labels, **options))

    def append(self, scope: ScopeKey, **options: Any) -> Op:
        """Append an item that no other client appends."""
        items = codec.encode([self.world.tag(self.name)])
        return self.commit(self.prepared(scope, Append(LOG, items, STATE_BYTES_MAX), **options))

    def prepared(
        self,
        scope: ScopeKey,
        body: bytes | Append | Copy,
        labels: dict[str, str] | None = None,
        **options: Any,
    ) -> Commit:
        """Return a commit that can be sent more than once."""
        return Commit(
            scope=scope,
            body=body,
            status="completed",
            labels=codec.encode(dict(sorted((labels or {}).items()))),
            metadata=b"{}",
            stamp=self.world.draw(self.name),
            **options,
        )

    def update(
        self, scope: ScopeKey, snapshot_id: str, labels: dict[str, str] | None = None
    ) -> Op | None:
        """Read a snapshot, add a line to its log, and compare-and-set, as `Scope.update` does."""
        for _ in range(UPDATE_TRIES_MAX):
            read = self.read(scope, snapshot_id)
            if not read.ok or not read.answer:
                return None
            info, body = read.answer[0]
            log = [*log_of(body), self.world.tag(self.name)]
            commit = self.prepared(
                scope,
                encoded(log),
                info.labels if labels is None else labels,
                id=snapshot_id,
                replaces=info.revision,
            )
            op = self.commit(commit)
            if op.outcome != "Conflict":
                return op
        return None

    def fork(self, found: Found, to: ScopeKey) -> Op:
        """Begin a new scope with a snapshot that was read before."""
        info, body = found
        commit = self.prepared(
            to,
            Copy(),
            info.labels,
            forked_from=SnapshotRef(info.scope, info.id),
            source=info.revision,
            new_scope=True,
            parent=None,
        )
        return self.commit(commit, log_of(body))

    def delete(self, scope: ScopeKey, ids: Sequence[str], *, spare_head: bool = False) -> Op:
        """Delete snapshots."""
        given = {"ids": tuple(ids), "spare_head": spare_head}
        call = self.backend.delete_snapshots
        return self._call("delete", scope, given, lambda: call(scope, ids, spare_head=spare_head))

    def delete_scope(self, scope: ScopeKey, expect: Expect = ANY) -> Op:
        """Delete a scope."""
        call = self.backend.delete_scope
        given = {"expect": expect}
        return self._call("delete_scope", scope, given, lambda: call(scope, expect=expect))

    def delete_session(self, session_id: str) -> Op:
        """Delete a session."""
        call = self.backend.delete_session
        return self._call("delete_session", None, {"session": session_id}, lambda: call(session_id))

    def write_note(
        self, scope: ScopeKey, name: str, *, on: str | None = None, expect: Expect = ANY
    ) -> Op:
        """Write a note with a value that no other client writes."""
        value = codec.encode(self.world.tag(self.name))
        write = NoteWrite(scope, name, on, value, self.world.draw(self.name), expect)
        call = self.backend.write_note
        return self._call("write_note", scope, {"write": write}, lambda: call(write))

    def note_and_save(self, scope: ScopeKey, name: str, *, on: str | None = None) -> Op:
        """Write a new note, and save while it waits; or behind it, where notes do not wait."""
        saved = list[Op]()

        def save() -> None:
            saved.append(self.save(scope))

        if (meanwhile := getattr(self.backend, "meanwhile", None)) is not None:
            meanwhile.save = save
        value = codec.encode(self.world.tag(self.name))
        write = NoteWrite(scope, name, on, value, self.world.draw(self.name), None, joins=True)
        call = self.backend.write_note
        op = self._call("write_note", scope, {"write": write}, lambda: call(write))
        if not saved:
            save()
        return op

    def update_note(self, scope: ScopeKey, name: str, *, on: str | None = None) -> Op | None:
        """Read a note, add to its value, and compare-and-set, as `Scope.set_note` does."""
        for _ in range(UPDATE_TRIES_MAX):
            read = self.notes(scope, on=on, name=name)
            if not read.ok:
                return None
            before: Note | None = next(iter(read.answer), None)
            values = [] if before is None else [str(before.value)]
            value = codec.encode("+".join([*values, self.world.tag(self.name)]))
            expect = None if before is None else before.revision
            write = NoteWrite(scope, name, on, value, self.world.draw(self.name), expect)
            call = self.backend.write_note
            op = self._call("write_note", scope, {"write": write}, lambda: call(write))  # noqa: B023
            if op.outcome != "Conflict":
                return op
        return None

    def delete_note(self, scope: ScopeKey, name: str, *, on: str | None = None) -> Op:
        """Delete a note."""
        call = self.backend.delete_note
        given = {"name": name, "on": on}
        return self._call("delete_note", scope, given, lambda: call(scope, name, on=on))

    def claim(self, scope: ScopeKey, ttl_us: int) -> Op:
        """Claim a lease under a new key, and remember that key if it is the one that holds."""
        claim = self._claim(scope, self.world.tag(self.name), ttl_us)
        call = self.backend.claim
        op = self._call("claim", scope, {"claim": claim}, lambda: call(claim))
        if op.ok and op.answer.key == claim.key:
            self.keys[scope] = claim.key
        return op

    def renew(self, scope: ScopeKey, ttl_us: int) -> Op:
        """Renew the lease that was claimed last."""
        claim, call = self._claim(scope, self.keys[scope], ttl_us), self.backend.renew
        return self._call("renew", scope, {"claim": claim}, lambda: call(claim))

    def release(self, scope: ScopeKey) -> Op:
        """Give back the lease that was claimed last."""
        claim, call = self._claim(scope, self.keys[scope], 0), self.backend.release
        return self._call("release", scope, {"claim": claim}, lambda: call(claim))

    def _claim(self, scope: ScopeKey, key: str, ttl_us: int) -> Claim:
        return Claim(scope, key, self.name, ttl_us, self.world.draw(self.name))

    # Upkeep

    def sweep(self) -> Op:
        """Remove what dead processes have left over."""
        return self._call("sweep", None, {}, self.backend.compact)

    def check(self, *, repair: bool) -> Op:
        """Check everything."""

        def call() -> list[Finding]:
            found: list[Finding] = []
            after: str | None = ""
            while after is not None:
                page, after = self.backend.check(after, repair=repair, limit=LIMIT)
                found += page
            return found

        return self._call("check", None, {"repair": repair}, call)

    # Reading

    def read(self, scope: ScopeKey, *ids: str | None) -> Op:
        """Read snapshots with their states, or the head."""
        call, ids = self.backend.read_snapshots, ids or (None,)
        op = self._call("read", scope, {"ids": ids}, lambda: call(scope, ids))
        if op.ok and ids == (None,):
            self.known[scope] = op.answer[0][0].revision if op.answer else None
        return op

    def info(self, scope: ScopeKey, snapshot_id: str | None = None) -> Op:
        """Read the facts of a snapshot, or of the head."""
        call = self.backend.read_info
        op = self._call("info", scope, {"ids": (snapshot_id,)}, lambda: call(scope, snapshot_id))
        if op.ok and snapshot_id is None:
            self.known[scope] = op.answer.revision if op.answer else None
        return op

    def query(self, query: Query) -> Op:
        """List snapshots: of a scope, by label or by id."""
        call = self.backend.list_snapshots
        return self._call("query", query.scope, {"query": query}, lambda: call(query, limit=LIMIT))

    def history(self, scope: ScopeKey) -> list[SnapshotInfo]:
        """List the kept snapshots of a scope."""
        op = self.query(Query(scope))
        return list(op.answer) if op.ok else []

    def pages(self, scope: ScopeKey) -> Op:
        """List the kept snapshots of a scope, two at a time, as `Scope.history` does."""

        def call() -> list[SnapshotInfo]:
            found: list[SnapshotInfo] = []
            while True:
                after = ids.seq_of(found[-1].revision) if found else None
                query = Query(scope, after=after)
                page = self.backend.list_snapshots(query, limit=_PAGE)
                found += page
                if len(page) < _PAGE:
                    return found

        return self._call("query", scope, {"query": Query(scope), "page": _PAGE}, call)

    def ids(self, scope: ScopeKey) -> Op:
        """List the kept ids of a scope."""
        call = self.backend.list_ids
        return self._call("ids", scope, {}, lambda: call(scope, after="", limit=LIMIT))

    def notes(self, scope: ScopeKey, *, on: str | None = None, name: str | None = None) -> Op:
        """List notes."""
        call = self.backend.list_notes
        given = {"on": on, "name": name}
        return self._call(
            "notes", scope, given, lambda: call(scope, on=[on], name=name, after="", limit=LIMIT)
        )
