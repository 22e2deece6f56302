"""Commits: new snapshots, and new versions of existing ones.

Every attempt applies the rules of core/commits.py to the head that it replaces. A process that
wrote the head last need not read it: if it has moved, the compare-and-set fails.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import orjson

from limpet.backends.objects import edits, keys
from limpet.backends.objects.chain import composed
from limpet.backends.objects.history import Place
from limpet.backends.objects.index import stamped
from limpet.backends.objects.objects import Fact, Head
from limpet.backends.objects.storage import Beaten, Held, unknown
from limpet.backends.objects.writer import Change, Part
from limpet.core import commits, ids
from limpet.core.commits import Plan, ScopeState
from limpet.core.deltas import delta
from limpet.core.deltas.appending import extended
from limpet.core.rows import Row, info_of
from limpet.errors import (
    AlreadyExists,
    Conflict,
    InvalidInput,
    LimpetError,
    NotFound,
    Unavailable,
)
from limpet.model import ScopeKey, SnapshotInfo
from limpet.protocol import Append, AppendOffsets, Commit, Copy

_OFFSETS_BYTES_MAX = 2048


class _Outdated(Exception):
    """What this process remembers is not enough for an answer."""


class _NewVersion(NamedTuple):
    """A commit, the snapshot that it replaces, and the row of the new version."""

    commit: Commit
    existing: Place
    row: Row


class Saving(Part):
    def commit(self, commit: Commit) -> SnapshotInfo:
        lost, attempts = False, 0

        def attempt() -> SnapshotInfo:
            nonlocal lost, attempts
            attempts += 1
            try:
                return self._attempt(commit, is_first=attempts == 1)
            except Beaten as beaten:
                lost = lost or beaten.lost
                raise

        try:
            return self._storage.contend(commit.scope, attempt)
        except LimpetError as error:
            if lost and self._is_doubtful(commit, error):
                raise unknown(keys.head_key(commit.scope)) from error
            raise

    def _is_doubtful(self, commit: Commit, error: LimpetError) -> bool:
        """Return whether a create whose answer was lost may be stored, now or later."""
        if isinstance(error, Unavailable):
            return True
        try:
            head = self._storage.read_head(commit.scope).head
        except LimpetError:
            return True
        return head is None or commit.stamp.nonce in head.nonces

    def _attempt(self, commit: Commit, *, is_first: bool) -> SnapshotInfo:
        if is_first and not commit.again:
            remembered = self._storage.remembered(commit.scope)
            if remembered is not None:
                try:
                    return self._save(commit, remembered, is_fresh=False)
                except (AlreadyExists, Conflict, InvalidInput, NotFound, _Outdated):
                    pass
        held = self._storage.read_head(commit.scope)
        head = held.head
        if (commit.again or not is_first) and head and commit.stamp.nonce in head.nonces:
            # An answer was lost, and a write that seemed lost was stored after all.
            stored = self._stored_before(commit, head)
            if stored is not None:
                if head.pending is not None:
                    self._settle(held)
                return stored
        return self._save(commit, held, is_fresh=True)

    def _stored_before(self, commit: Commit, head: Head) -> SnapshotInfo | None:
        """Find a commit by its nonce; None if it is certainly not stored."""
        nonce = commit.stamp.nonce
        for fact in self._since(commit, head):
            if nonce in (fact.row.nonce, fact.born) or commit.id == fact.row.id:
                return info_of(commit.scope, _as_committed(commit, fact.row))
        if commit.replaces is None:
            raise Unavailable(
                f"the snapshot was stored, and deleted since. nonce=`{nonce}`", outcome_known=False
            )
        return None

    def _since(self, commit: Commit, head: Head) -> Iterator[Fact]:
        """Yield the snapshots among which a commit is, if it was stored."""
        yield from (entry.fact for entry in head.entries)
        for fact in self._history.newest_first(head):
            if commit.id is None and ids.place_us(fact.row.seq) < commit.stamp.now:
                return
            yield fact

    def _save(self, commit: Commit, held: Held, *, is_fresh: bool) -> SnapshotInfo:
        scope = commit.scope
        body, pending, source = self._source(commit)
        head, place = self._writer.begin(scope, held, commit.stamp)
        shown = self._history.find(held.head, None)
        existing = None if commit.id is None else self._history.find(held.head, commit.id)
        line = ScopeState(
            head=None if shown is None else shown.row,
            floor=head.floor,
            fence=head.fence,
            next_seq=place,
            taken=commit.new_scope and self._is_taken(scope, held.head),
            tag=keys.tag_of(head.line),
        )
        plan = commits.decide(
            commit,
            line,
            None if existing is None else existing.row,
            source=source,
            same_body=lambda: existing is not None and self._state(held, existing) == commit.body,
            newest_kept=lambda: _id_of(self._history.newest_kept(head)),
        )
        if plan.is_stored and not is_fresh:
            raise _Outdated
        if plan.is_stored:
            return info_of(scope, plan.row)
        if existing is not None:
            self._replace(held, [_NewVersion(commit, existing, plan.row)], place)
            return info_of(scope, plan.row)
        return self._insert(commit, held, head, plan, shown, body, pending)

    def _state(self, held: Held, place: Place) -> bytes:
        return self._history.states(held, [place])[place.row.seq]

    def _is_taken(self, scope: ScopeKey, head: Head | None) -> bool:
        if head is not None and (head.count or head.lease is not None):
            return True
        prefix = keys.all_notes_prefix(scope)
        return bool(self._storage.bucket.list(prefix, limit=1))

    def _source(self, commit: Commit) -> tuple[bytes | None, str | None, Row | None]:
        """Return the state of a commit; the line of a fork's source, if in its session; its row."""
        body, ref = commit.body, commit.forked_from
        if ref is None or (commit.source is None and not isinstance(body, Copy)):
            return (body if isinstance(body, bytes) else None), None, None

        def read(held: Held) -> tuple[bytes | None, str | None, Row | None]:
            place = self._history.find(held.head, ref.id)
            row = None if place is None else place.row
            commits.check_source(commit, row)
            if isinstance(body, Copy) and place is None:
                raise NotFound(f"there is no such snapshot. id=`{ref.id}`")
            text = body if isinstance(body, bytes) else None
            if isinstance(body, Copy) and place is not None:
                text = self._state(held, place)
            is_here = ref.scope.session_id == commit.scope.session_id and held.head is not None
            return text, held.head.line if is_here and held.head is not None else None, row

        return self._storage.reading(ref.scope, read)

    # New snapshots

    def _insert(
        self,
        commit: Commit,
        held: Held,
        head: Head,
        plan: Plan,
        shown: Place | None,
        body: bytes | None,
        pending: str | None,
    ) -> SnapshotInfo:
        whole = held.whole()
        whole = head if whole is None else replace(whole, floor=head.floor, last=head.last)
        offsets = commit.append_offsets
        known = None
        if isinstance(commit.body, Append):
            known = self._extended(commit.body, whole, shown)
            if known is None:
                before = None if shown is None else self._state(held, shown)
                body, offsets = commits.appended(commit.body, before)
        size = len(body or b"") if known is None else delta.size_of(known[0])
        row = plan.row._replace(size=size)
        fact = stamped(Fact(row, row.nonce, own=commit.id is not None), whole, row.seq)
        newest = held.newest
        if known is not None:
            new = edits.appended(whole, fact, known[0], _bounded(known[1]))
            if newest is not None and row.kept:
                newest = delta.apply(newest, known[0])
        else:
            new = self._added(commit, held, whole, fact, body or b"", offsets)
            newest = body if row.kept else newest
        new = new.rewritten(row.nonce, last=row.seq, floor=plan.floor)
        # The others are shared with a snapshot of the tail, which has written them.
        new_ones = f".{row.seq:016x}"
        pointers = self._writer.index.pointers_of(commit.scope, fact)
        pointers = [key for key in pointers if key.endswith(new_ones)]
        new = replace(new, pending=pending)
        stored = self._writer.store(held, Change(new, newest, pointers))
        if pending is not None:
            self._settle(stored)
        return info_of(commit.scope, row)

    def _added(
        self,
        commit: Commit,
        held: Held,
        head: Head,
        fact: Fact,
        body: bytes,
        offsets: AppendOffsets | None,
    ) -> Head:
        numbers = edits.numbered(head)[: len(head.kept)]
        last = numbers[-1][1] if numbers else 0
        known = {}
        if held.newest is not None and isinstance(last, int):
            known[last] = held.newest
        # The base is not needed if the state before is known, unless a draft is linked again.
        is_enough = known and not head.is_rooted and (commit.head or head.draft is None)
        base = b"" if is_enough else self._storage.base_of(head)
        return edits.added(
            head,
            base,
            fact,
            body,
            is_shown=commit.head,
            offsets=_bounded(offsets),
            known=known,
        )

    def _extended(
        self, append: Append, head: Head, shown: Place | None
    ) -> tuple[delta.Delta, AppendOffsets] | None:
        """Return the delta of an append against the last kept snapshot, without its state.

        None if the state is needed.
        """
        if shown is None or head.offsets is None:
            return None
        kept = head.kept[-1].row if head.kept else None
        draft = head.draft
        if draft is not None and draft.delta is None:
            return None
        found = extended(head.offsets, shown.row.size, append)
        if found is None:
            return None
        commits.check_size(delta.size_of(found[0]), append)
        if draft is not None and draft.delta is not None:
            if kept is None:
                return None
            return composed(kept.size, [draft.delta, found[0]]), found[1]
        if kept is not None and kept.seq != shown.row.seq:
            return None
        if kept is None and (head.is_rooted or head.segments[-1].last != shown.row.seq):
            return None
        return found

    def _settle(self, stored: Held) -> None:
        """Finish a fork. If the line of its source has ended, the whole session was deleted."""
        head = stored.whole()
        if head is None or stored.version is None:
            return
        nonce = self._storage.draw().nonce
        try:
            alive = self._storage.is_alive(head)
            new = head.rewritten(nonce) if alive else self._writer.emptied(head, nonce, ()).head
            self._storage.swap_head(stored, new, stored.newest if alive else None)
        except Beaten:
            self._storage.forget(head.scope)  # another writer has replaced it
        except Unavailable as error:
            # It is stored, and it will vanish if its source is deleted before another write.
            raise unknown(keys.head_key(head.scope)) from error
        if not alive:
            raise NotFound("the snapshot to fork from was deleted meanwhile")

    # New versions

    def replace_snapshots(self, changes: Sequence[Commit]) -> int:
        scope, fence, stamp = changes[0].scope, changes[0].fence, changes[0].stamp

        def attempt() -> int:
            held = self._storage.read_head(scope)
            head, place = self._writer.begin(scope, held, stamp)
            commits.check_fence(fence, head.fence, scope)
            wanted = {each.id: each for each in changes if each.id is not None}
            found = {} if held.head is None else self._history.find_all(held.head, wanted)
            line = ScopeState(fence=head.fence)
            new = [
                _NewVersion(wanted[id], each, _replaced_row(wanted[id], line, each.row))
                for id, each in found.items()
                if each.row.nonce != wanted[id].stamp.nonce  # else its answer was lost
            ]
            if new:
                self._replace(held, new, place)
            return len(found)

        return self._storage.contend(scope, attempt)

    def _replace(self, held: Held, new: Sequence[_NewVersion], place: int) -> None:
        same_size = [each.existing for each in new if each.existing.row.size == each.row.size]
        states = self._history.states(held, same_size)
        changed: dict[int, tuple[Fact, bytes | None]] = {}
        offsets: dict[int, AppendOffsets | None] = {}
        for commit, existing, row in new:
            if not isinstance(commit.body, bytes):
                raise InvalidInput("a new version needs its state")
            fact = _stamped_again(existing.fact._replace(row=row), existing.fact, place)
            changed[row.seq] = fact, None if states.get(row.seq) == commit.body else commit.body
            offsets[row.seq] = commit.append_offsets
        change = self._writer.edit(held, new[0].row.nonce, doomed={}, changed=changed)
        head = replace(change.head, last=place)
        if head.shown is not None and head.shown[1] in offsets:
            head = replace(head, offsets=_bounded(offsets[head.shown[1]]))
        self._writer.store(held, change._replace(head=head))


def _replaced_row(commit: Commit, scope: ScopeState, existing: Row) -> Row:
    plan = commits.decide(
        commit, scope, existing, same_body=lambda: False, newest_kept=lambda: None
    )
    return plan.row


def _stamped_again(fact: Fact, before: Fact, stamp: int) -> Fact:
    """Return a new version covered by pointers: those it had, and new ones."""
    if not fact.row.kept or (before.row.kept and fact.row.labels == before.row.labels):
        return fact
    had = dict(zip(before.labels.items(), before.pointers, strict=False))
    pointers = tuple(had.get(pair, stamp) for pair in fact.labels.items())
    return fact._replace(pointers=pointers)


def _id_of(row: Row | None) -> str | None:
    return None if row is None else row.id


def _bounded(offsets: AppendOffsets | None) -> AppendOffsets | None:
    if offsets is None or len(orjson.dumps(offsets)) > _OFFSETS_BYTES_MAX:
        return None
    return offsets


def _as_committed(commit: Commit, row: Row) -> Row:
    """Return a snapshot as this commit left it.

    With a later revision the caller would overwrite changes that it has never seen.
    """
    if row.nonce == commit.stamp.nonce:
        return row
    rev = 0 if commit.replaces is None else ids.rev_of(commit.replaces) + 1
    size = len(commit.body) if isinstance(commit.body, bytes) else row.size
    return row._replace(
        rev=rev,
        nonce=commit.stamp.nonce,
        status=row.status if commit.status is None else commit.status,
        labels=commit.labels,
        metadata=commit.metadata,
        updated_at=commit.stamp.now,
        size=size,
    )
