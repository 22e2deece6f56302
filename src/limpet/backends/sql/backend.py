"""The verbs over tables: what the engines over SQL have in common.

An engine says how a transaction is run, and what checking and giving space back mean to it. Each
docstring of `protocol.Backend` is a promise that holds here.
"""

from __future__ import annotations  # those of inner functions are not evaluated on each call

from collections.abc import Callable, Sequence
from functools import partial
from operator import methodcaller
from typing import Any, TypeVar

import orjson

from limpet.backends.sql.check_rows import damage_of, unlisted_scopes
from limpet.backends.sql.commit import LastBody, PreparedDelta, cache_cost, replace_all
from limpet.backends.sql.continuing import KNOWN_SCOPES_BYTES_MAX, Continued, KnownScope
from limpet.backends.sql.folding import FoldedUpTo, fold_some, unfolded_scopes
from limpet.backends.sql.listed import (
    age_of,
    check_order,
    head_of,
    matches,
    name_of,
    ref_of,
    scope_info_of,
    session_of,
)
from limpet.backends.sql.notes import change_notes, good_note, reader_of
from limpet.backends.sql.rekey import encrypt_again, outdated
from limpet.backends.sql.stats import stats_of
from limpet.backends.sql.tables import (
    ScopeRow,
    Tables,
    is_text,
    note_of_scope,
)
from limpet.backends.support.recent import Recent
from limpet.core import commits
from limpet.core.deltas.chain import is_whole_at_first
from limpet.core.deltas.delta import diff
from limpet.core.encryption import Ciphers
from limpet.core.ids import prefix_end, revision
from limpet.core.leases import claimed, renewed
from limpet.core.notes import (
    NoteRow,
    found_note,
    note_of,
)
from limpet.core.rows import Row, info_of
from limpet.errors import Corrupt, InvalidInput
from limpet.model import (
    ANY,
    Expect,
    Finding,
    Note,
    Pruned,
    ScopeInfo,
    ScopeKey,
    SnapshotInfo,
    SnapshotRef,
    Stats,
)
from limpet.protocol import (
    Claim,
    Commit,
    Found,
    FoundNote,
    Hold,
    NoteChange,
    NoteQuery,
    NoteWrite,
    Query,
    SessionAge,
    Target,
)

T = TypeVar("T")

_MORE = 8  # times as many notes are read if too few of those that were read match


class SqlBackend:
    """A backend over tables. An engine adds how it runs transactions."""

    def __init__(self, cache_bytes_max: int, ciphers: Ciphers) -> None:
        self._ciphers = ciphers
        # The last encoded state of each scope, so that the next one can be compared with it.
        self._cache: Recent[ScopeKey, LastBody] = Recent(cache_bytes_max, cache_cost)
        # Scopes of which this process made the last change.
        self._known_scopes: Recent[ScopeKey, KnownScope] = Recent(
            KNOWN_SCOPES_BYTES_MAX, KnownScope.cost
        )

    def _read(self, action: Callable[[Tables], T]) -> T:
        """Run an action that sees one moment of the store."""
        raise NotImplementedError

    def _query(self, action: Callable[[Tables], T]) -> T:
        """Run an action whose statements need not see the same moment of the store."""
        return self._read(action)

    def _one_by_one(self, action: Callable[[Tables], T]) -> T:
        """Run an action of which one statement alone decides what is found."""
        return self._query(action)

    def _first_row(self, name: str, values: Any) -> Any:
        """Return the first row of one statement that reads."""
        return self._one_by_one(lambda tables: tables.transaction.one(name, values))

    def _write(self, action: Callable[[Tables], T]) -> T:
        """Run an action as one step, durable when this returns, or not at all."""
        raise NotImplementedError

    def _write_note(self, scope: ScopeKey, action: Callable[[Tables], T]) -> T:
        return self._write(action)

    def _write_lease(self, scope: ScopeKey, action: Callable[[Tables], T]) -> T:
        return self._write_note(scope, action)

    def _give_back(self) -> int:
        """Give unused space back to the operating system; return the bytes."""
        raise NotImplementedError

    # Committing

    def commit(self, commit: Commit) -> SnapshotInfo:
        raise NotImplementedError

    def _remember(
        self,
        commit: Commit,
        row: Row,
        body: bytes | None,
        known: KnownScope | None,
        plan: Continued | None = None,
    ) -> SnapshotInfo:
        """Remember what a commit left, for the next one; return its record.

        `plan` is how it was made, if it continued what this process knew.
        """
        if known is None:
            self._known_scopes.pop(commit.scope)
        else:
            self._known_scopes.put(commit.scope, known)
        if body is not None:
            self._cache.put(commit.scope, LastBody(row.nonce, body))
        elif plan is not None and plan.step is not None:
            last = self._cache.get(commit.scope)
            if last is not None and last.nonce == plan.known.chain.nonce:
                self._cache.put(commit.scope, last.after(row.nonce, plan.step))
        return info_of(commit.scope, row)

    def _known(self, scope: ScopeKey) -> KnownScope | None:
        """Return what is known of a scope that this process changed last, with the same keys."""
        known = self._known_scopes.get(scope)
        is_same = known and known.scope.cipher is self._ciphers.of(scope.session_id)
        return known if is_same else None

    def _forget(self, is_gone: Callable[[ScopeKey], bool] = lambda scope: True) -> None:
        self._cache.drop(is_gone)
        self._known_scopes.drop(is_gone)

    def distrust(self, scope: ScopeKey) -> None:
        """Forget a scope in which damage was found: no save may build on what is only in memory."""
        self._forget(scope.__eq__)

    def replace_snapshots(self, changes: Sequence[Commit]) -> int:
        self._forget(changes[0].scope.__eq__)
        return self._write(lambda tables: replace_all(tables, changes))

    def _prepare(self, commit: Commit, scope: KnownScope | None) -> PreparedDelta | None:
        """Compare with the last state that this process knows, before the transaction begins."""
        known, body = self._cache.get(commit.scope), commit.body
        if known is None or not isinstance(body, bytes):
            return None
        # A state that is replaced is compared only if it differs.
        is_needless = commit.replaces is not None or (
            scope is not None and is_whole_at_first(scope.chain, len(body))
        )
        return PreparedDelta(known, None if is_needless else diff(known.body, body))

    # Reading

    def read_snapshots(self, scope: ScopeKey, ids: Sequence[str | None]) -> list[Found]:
        head: list[int | None] = []

        def read(tables: Tables) -> list[tuple[Row, bytes]]:
            found = tables.scope(scope)
            if found is None:
                return []
            head[:] = [found.head_seq]
            rows = [row for each in ids if (row := tables.named(found, each)) is not None]
            return list(zip(rows, tables.states(rows), strict=True))

        found = self._read(read)
        for row, body in found:
            if [row.seq] == head:  # the next save probably builds on it
                self._cache.put(scope, LastBody(row.nonce, body))
        return [(info_of(scope, row), body) for row, body in found]

    def read_info(self, scope: ScopeKey, snapshot_id: str | None) -> SnapshotInfo | None:
        def read(tables: Tables) -> Row | None:
            found = tables.scope(scope)
            return None if found is None else tables.named(found, snapshot_id)

        row = self._one_by_one(read) if snapshot_id is None else self._query(read)
        return None if row is None else info_of(scope, row)

    # Listing

    def list_snapshots(self, query: Query, *, limit: int) -> list[SnapshotInfo]:
        return self._query(lambda tables: matches(tables, query, limit))

    def list_ids(self, scope: ScopeKey, *, after: str, limit: int) -> list[str]:
        return self._query(lambda tables: _names(tables, "list_ids", scope, after, limit))

    def find_refs(self, id_prefix: str, *, limit: int) -> list[SnapshotRef]:
        values = {"low": id_prefix, "high": prefix_end(id_prefix)}
        return self._query(
            lambda tables: tables.transaction.page("find_refs", values, ref_of, limit)
        )

    def list_sessions(self, *, prefix: str, after: str, limit: int) -> list[str]:
        values = {"low": prefix, "high": prefix_end(prefix), "after": after}
        found = self._query(
            lambda tables: tables.transaction.page("list_sessions", values, session_of, limit)
        )
        check_order([after, *found], "sessions")
        return found

    def list_newest(self, *, prefix: str, after: SessionAge | None, limit: int) -> list[SessionAge]:
        values: dict[str, Any] = {"low": prefix, "high": prefix_end(prefix), "first": not after}
        values["after"], values["newest"] = after or ("", None)
        return self._query(
            lambda tables: tables.transaction.page("list_newest", values, age_of, limit)
        )

    def list_scopes(
        self,
        *,
        session_id: str | None,
        kind: str | None,
        prefix: str,
        after: ScopeKey | None,
        limit: int,
    ) -> list[ScopeInfo]:
        low, high = prefix, prefix_end(prefix)
        if session_id is not None:
            if not session_id.startswith(prefix):
                return []
            low, high = session_id, session_id + "\x01"  # no id holds NUL: this one alone
        # SQLite begins to read at one of the two lower bounds, so both are the greater one.
        start = ScopeKey(low, "", "") if after is None or after.session_id < low else after
        values = {
            "low": start.session_id,
            "high": high,
            "kind": kind,
            "after_session": start.session_id,
            "after_kind": start.kind,
            "after_scope": start.scope_id,
        }
        take = partial(scope_info_of, self._ciphers)
        found = self._query(
            lambda tables: tables.transaction.page("list_scopes", values, take, limit)
        )
        keys = (each.key for each in found)
        check_order([(key.session_id, key.kind, key.scope_id) for key in keys], "scopes")
        return found

    # Deleting

    def delete_snapshots(
        self,
        scope: ScopeKey,
        ids: Sequence[str],
        *,
        spare_head: bool = False,
        fence: str | None = None,
    ) -> Pruned:
        def write(tables: Tables) -> Pruned:
            found = tables.scope_to_change(scope)
            commits.check_fence(fence, None if found is None else found.fence, scope)
            if found is None:
                return Pruned(0, 0)
            tables.save_last_seq()
            dead: dict[int, int] = {}
            for each in ids:
                seq, size = tables.seq_and_size(found, each) or (None, 0)
                if seq is not None and seq == found.head_seq and spare_head:
                    continue
                tables.remove_notes_on(found, each)
                if seq is not None:
                    tables.remove(found, seq)
                    dead[seq] = size
            if dead:
                tables.uncover(found, dead)
                tables.remove_bodies(found, dead)
            if not ids:
                tables.drop_unlisted_below(found)
            return Pruned(len(dead), sum(dead.values()))

        self._forget(scope.__eq__)
        return self._write(write)

    def delete_scope(
        self, scope: ScopeKey, *, expect: Expect = ANY, fence: str | None = None
    ) -> int:
        def write(tables: Tables) -> int:
            # Without conditions, damage to the scope or its head does not matter.
            is_sound = expect is not ANY or fence is not None
            found = tables.scope_to_change(scope, is_sound=is_sound)
            commits.check_fence(fence, None if found is None else found.fence, scope)
            if expect is not ANY:
                commits.check_expect(expect, None if found is None else tables.head(found), scope)
            if found is None:
                return 0
            tables.save_last_seq()
            tables.detach(found.pk, "scope")
            count = tables.remove_scopes([found.pk])
            tables.remove_empty_session(scope.session_id)
            return count

        self._forget(scope.__eq__)
        return self._write(write)

    def delete_session(self, session_id: str) -> int:
        def write(tables: Tables) -> int:
            pks = tables.session_to_remove(session_id)
            tables.save_last_seq()
            for pk in pks:
                tables.detach(pk, "session")
            count = tables.remove_scopes(pks)
            tables.remove_empty_session(session_id)
            return count

        self._forget(lambda scope: scope.session_id == session_id)
        return self._write(write)

    # The whole

    def list_largest_heads(self, session_id: str, *, limit: int) -> list[SnapshotInfo]:
        values = {"session_id": session_id, "limit": limit}
        take = partial(head_of, self._ciphers)
        return self._query(
            lambda tables: tables.transaction.page("largest_heads", values, take, limit)
        )

    def read_stats(self, session_id: str | None, *, limit: int) -> Stats:
        return self._read(lambda tables: stats_of(tables, session_id, limit))

    def compact(self) -> int:
        # One at a time, since other writers wait meanwhile, and none that is added on the way.
        last, _ = self._read(lambda tables: tables.last_seq_and_time())
        after: int | None = 0
        while after is not None and after < last:
            after = self._write(methodcaller("drop_unlisted", after))
        for scope in self._read(unfolded_scopes):
            done: FoldedUpTo | None = FoldedUpTo()
            while done is not None:
                done = self._write(partial(fold_some, key=scope, done=done))
        return self._give_back()

    def rekey(self, after: str, *, limit: int) -> tuple[int, str | None]:
        if not self._ciphers.encrypts:
            raise InvalidInput("the store was opened without keys: give keys= or keys_file=")
        found, following = self._query(partial(outdated, after=after, limit=limit))
        return sum(self._write(partial(encrypt_again, what=each)) for each in found), following

    # Notes

    def list_notes(
        self,
        scope: ScopeKey,
        *,
        on: Sequence[str | None],
        name: str | None,
        after: str,
        limit: int,
    ) -> list[Note]:
        def read(tables: Tables) -> list[Note]:
            owner = tables.scope(scope)
            if owner is None:
                return []
            if name is not None:
                asked = [tables.note(owner, each or "", name) for each in on]
                return [note_of(row) for row in asked if row is not None][:limit]
            page: list[Note] = []
            behind = after
            take = partial(good_note, scope, owner.cipher)
            for each in on:
                at = {"pk": owner.pk, "on": each or "", "after": behind}
                found = tables.transaction.page("list_notes", at, take, limit - len(page))
                if any(note.snapshot_id != each for note in found):
                    raise Corrupt("the index of notes leads to others")
                check_order([behind, *(note.name for note in found)], "notes")
                page += found
                if len(page) >= limit:
                    break
                behind = ""
            return page

        return self._one_by_one(read) if len(on) == 1 else self._query(read)

    def read_notes(self, scope: ScopeKey, names: Sequence[str]) -> list[FoundNote]:
        session_id, scope_id, kind = scope
        cipher = self._ciphers.of(session_id)
        asked = {"session_id": session_id, "scope_id": scope_id, "kind": kind, "on": ""}
        if len(names) == 1:
            one = {**asked, "name": names[0]}
            row = self._first_row("note_in_scope", one)
            return [] if row is None else [found_note(scope, note_of_scope(scope, row, cipher))]

        def read(tables: Tables) -> list[Any]:
            several = tables.transaction.many(names)
            return tables.transaction.all("notes_in_scope", {**asked, "names": several})

        found = {row[1]: row for row in self._one_by_one(read)}
        rows = [note_of_scope(scope, found[name], cipher) for name in names if name in found]
        return [found_note(scope, row) for row in rows]

    def find_notes(self, query: NoteQuery, *, limit: int) -> list[FoundNote]:
        below = f"{query.under}/" if query.under else ""
        scope_id, kind, under, _, values = query
        asked = {"scope_id": scope_id, "kind": kind, "under": under, "values": values}
        # What is encrypted is not for the statement to test.
        bound = self._bound(query._replace(where=None) if self._ciphers.encrypts else query)
        asked |= {"low": below, "high": prefix_end(below), **bound}
        take = reader_of(query, self._ciphers)

        def find(tables: Tables) -> list[FoundNote]:
            count = limit
            while True:
                rows = self._note_rows(tables, {**asked, "limit": count})
                found = [each for row in rows if (each := take(row)) is not None]
                if len(found) >= limit or len(rows) < count:
                    return found[:limit]
                count *= _MORE

        found = self._one_by_one(find)
        if len({(each.scope, each.name) for each in found}) < len(found):
            raise Corrupt("the index of notes leads to some twice")
        return found

    def _note_rows(self, tables: Tables, asked: dict[str, Any]) -> list[Any]:
        """Return the rows of the statement `find_notes`."""
        return tables.transaction.all("find_notes", asked)

    def _bound(self, query: NoteQuery) -> dict[str, Any]:
        """Return what the statement `find_notes` tests in the values, if it tests anything."""
        return {}

    def list_noted(self, scope: ScopeKey, *, after: str, limit: int) -> list[str]:
        return self._query(lambda tables: _names(tables, "list_noted", scope, after, limit))

    def list_damage(self, scope: ScopeKey) -> list[Finding]:
        return self._read(lambda tables: list(damage_of(tables, scope)))

    def list_unlisted(self) -> list[Finding]:
        return self._read(lambda tables: list(unlisted_scopes(tables)))

    def write_note(self, write: NoteWrite) -> Note:
        (row,) = self._change_notes([write])
        return note_of(row)

    def write_notes(self, changes: Sequence[NoteChange]) -> None:
        if changes:
            self._change_notes(changes)

    def _change_notes(self, changes: Sequence[NoteChange]) -> list[NoteRow]:
        return self._write_note(changes[0].scope, lambda tables: change_notes(tables, changes))

    def delete_note(
        self, scope: ScopeKey, name: str, *, on: str | None, fence: str | None = None
    ) -> int:
        def remove(tables: Tables) -> int:
            found = tables.scope_to_note(scope)
            commits.check_fence(fence, None if found is None else found.fence, scope)
            return 0 if found is None else tables.remove_note(found, on or "", name)

        return self._write_note(scope, remove)

    # Leases

    # The key of a lease is a column of the row that every write of its scope locks or compares: so
    # none is made under a lease that another owner holds by now.

    def claim(self, claim: Claim) -> Hold:
        def take(tables: Tables) -> Hold:
            scope = tables.scope_to_note(claim.scope) or tables.add_scope(claim.scope)
            now = _now(scope, claim.stamp.now)
            lease = claimed(claim, scope.lease, now)
            if lease.key == claim.key:
                tables.put_lease(scope, lease)
            return lease.hold(now)

        return self._write_lease(claim.scope, take)

    def renew(self, claim: Claim) -> Hold:
        def extend(tables: Tables) -> Hold:
            scope = tables.scope_to_note(claim.scope)
            now = _now(scope, claim.stamp.now)
            lease = renewed(claim, None if scope is None else scope.lease, now)
            if scope is not None:
                tables.put_lease(scope, lease)
            return lease.hold(now)

        return self._write_note(claim.scope, extend)

    def release(self, claim: Claim) -> None:
        def give_back(tables: Tables) -> None:
            scope = tables.scope_to_note(claim.scope)
            if scope is None or scope.fence != claim.key:
                return
            tables.put_lease(scope, None)
            if not scope.floor and not tables.is_taken(scope._replace(fence=None)):
                # Nothing was ever minted in it, so nothing needs to be remembered of it.
                tables.remove_scopes([scope.pk])
                tables.remove_empty_session(claim.scope.session_id)

        self._write_lease(claim.scope, give_back)

    def read_lease(self, scope: ScopeKey, *, now: int) -> Hold | None:
        def read(tables: Tables) -> Hold | None:
            found = tables.scope(scope)
            lease = None if found is None else found.lease
            return None if lease is None else lease.hold(_now(found, now))

        return self._read(read)

    def read_revisions(self, targets: Sequence[Target]) -> list[str | None]:
        asked = orjson.dumps([[*key, id] for key, id in targets]).decode()
        revisions: list[str | None] = [None] * len(targets)
        found = self._query(lambda tables: tables.transaction.all("revisions", (asked,)))
        for at, seq, rev, nonce in found:
            # Of a damaged row any revision will do: whoever reads the snapshot then finds out.
            is_sound = type(rev) is int and is_text(nonce)
            revisions[at] = revision(seq, rev, nonce) if is_sound else f"{seq:x}.damaged"
        return revisions


def _names(tables: Tables, name: str, scope: ScopeKey, after: str, limit: int) -> list[str]:
    found = tables.scope(scope)
    if found is None:
        return []
    damaged = _damaged_head(tables, found) if name == "list_ids" else None

    def take(columns: Any) -> str | None:
        return None if columns[0] == damaged else name_of(columns)

    names = tables.transaction.page(name, {"pk": found.pk, "after": after}, take, limit)
    check_order([after, *names], "ids")
    return names


def _damaged_head(tables: Tables, scope: ScopeRow) -> str | None:
    """Return the id of a head that may be a draft, whatever its row says. No other row can be."""
    try:
        tables.head(scope)
    except Corrupt:
        return None if scope.shown is None else scope.shown.id
    return None


def _now(scope: ScopeRow | None, now: int) -> int:
    """Return the time by which leases end: of the server if it has one, else of this machine."""
    return now if scope is None or scope.now is None else scope.now
