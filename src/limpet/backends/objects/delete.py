"""Deleting snapshots, scopes and sessions.

Deleting snapshots is one compare-and-set of the head, whatever their number. A scope or a session
is deleted object by object, until a listing is empty: first the sign that its line lives, so that
segments without a head are known as the rest of a deletion and not as damage; then its head.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from limpet.backends.objects import keys
from limpet.backends.objects.notes import Notes
from limpet.backends.objects.objects import Fact, Head
from limpet.backends.objects.storage import PAGE, Beaten, Gone, Held
from limpet.core import commits, ids
from limpet.errors import Corrupt, LimpetError, Unavailable
from limpet.model import ANY, Expect, Pruned, ScopeKey

_PASSES_MAX = 100  # over a session that other writers keep writing to


class Deleting(Notes):
    # Snapshots

    def delete_snapshots(
        self,
        scope: ScopeKey,
        ids: Sequence[str],
        *,
        spare_head: bool = False,
        fence: str | None = None,
    ) -> Pruned:
        def attempt() -> tuple[list[Fact], set[str]]:
            held = self._storage.read_head(scope)
            head = held.head
            commits.check_fence(fence, None if head is None else head.fence, scope)
            wanted = set(ids)
            if spare_head and head is not None and head.shown is not None:
                wanted.discard(head.shown[0])
            if head is None:
                return [], wanted
            found = self._history.find_all(head, wanted)
            if found:
                self._remove(held, {place.row.seq: place.fact for place in found.values()})
            else:
                # An earlier call may have been killed before it removed the bytes.
                self._storage.sweep(scope)
            return [place.fact for place in found.values()], wanted

        gone, wanted = self._storage.contend(scope, attempt)
        try:
            self._clear_notes(scope, sorted(wanted))
        except Unavailable as error:
            raise Unavailable(
                f"the snapshots are deleted, and maybe not all notes on them: {error}",
                outcome_known=False,
            ) from error
        return Pruned(len(gone), sum(fact.row.size for fact in gone))

    def _remove(self, held: Held, doomed: dict[int, Fact]) -> None:
        nonce = self._storage.draw().nonce
        if held.head is not None and len(doomed) == held.head.count:
            # Also where the states cannot be read.
            self._writer.store(held, self._writer.emptied(held.head, nonce, doomed.values()))
            return
        self._writer.store(held, self._writer.edit(held, nonce, doomed=doomed, changed={}))

    # Scopes and sessions

    def delete_scope(
        self, scope: ScopeKey, *, expect: Expect = ANY, fence: str | None = None
    ) -> int:
        if expect is ANY and fence is None:
            return self._erase(scope.session_id, keys.scope_prefix(scope))

        def attempt() -> tuple[int, Held]:
            held = self._storage.read_head(scope)
            head = held.head
            if head is not None and head.ended is not None and head.ended[0] == expect:
                self._storage.sweep(scope)  # an earlier call was killed after its commit
                return head.ended[2], held
            shown = self._history.find(head, None)
            commits.check_fence(fence, None if head is None else head.fence, scope)
            commits.check_expect(expect, None if shown is None else shown.row, scope)
            if head is None:
                return 0, held
            drawn = self._storage.draw()
            change = self._writer.emptied(head, drawn.nonce, self._facts_of(head))
            # Another line begins, so that no fork of this one comes into being later.
            line = ids.mint(drawn.now, drawn.bits, "")
            revision = "" if shown is None else shown.row.revision
            ended = (revision, drawn.now, head.count)
            change = change._replace(
                head=replace(change.head, line=line, lease=None, ended=ended),
                pointers=keys.line_keys(scope, line),
                unneeded={
                    *change.unneeded,
                    *keys.line_keys(scope, head.line),
                    keys.started_key(scope, head.line),
                },
            )
            return head.count, self._writer.store(held, change)

        notes = self._note_keys(scope)
        count, held = self._storage.contend(scope, attempt)
        try:
            self._storage.bucket.delete(notes)
            # Until then a repetition, or the next write, removes the notes that are left.
            if held.head is not None and held.version is not None:
                with suppress(Beaten):
                    nonce = self._storage.draw().nonce
                    self._storage.swap_head(held, held.head.rewritten(nonce))
        except Unavailable as error:
            raise Unavailable("not all of it was deleted", outcome_known=False) from error
        return count

    def _facts_of(self, head: Head) -> list[Fact]:
        """Return the facts of all snapshots that can be read, for their pointers."""
        facts = [entry.fact for entry in head.entries]
        with suppress(Corrupt, Gone):  # then some pointers are left that lead nowhere
            for each in self._storage.read_facts(head.scope, head.segments):
                facts += each
        return facts

    def delete_session(self, session_id: str) -> int:
        return self._erase(session_id, keys.session_prefix(session_id))

    def _erase(self, session_id: str, prefix: str) -> int:
        count = 0
        try:
            for removed in self._passes(session_id, prefix):
                count += removed
            if not count:
                self._storage.check_ours()
        except Unavailable as error:
            raise Unavailable(
                f"not all of the session was deleted: {error}", outcome_known=False
            ) from error
        return count

    def _passes(self, session_id: str, prefix: str) -> Iterator[int]:
        """Delete page by page until a listing is empty; yield how many snapshots."""
        bucket, passes = self._storage.bucket, 0
        while page := bucket.list(prefix, limit=PAGE):
            parsed = [key for each in page if (key := keys.parse(each.key)) is not None]
            heads = list(dict.fromkeys(f"{key.folder}head" for key in parsed))
            begun = [(key.scope, key.line) for key in parsed if key.line and key.scope]
            alive = [keys.alive_key(*each) for each in begun]  # also where the head is lost
            pointers = {keys.line_key(*each) for each in begun}
            for head in self._storage.list_heads(heads):
                if isinstance(head, LimpetError):  # it is deleted all the same
                    pointers |= self._pointers_below(prefix)
                if not isinstance(head, Head):
                    continue
                yield head.count
                self._storage.forget(head.scope)
                alive.append(keys.alive_key(head.scope, head.line))
                pointers.add(keys.line_key(head.scope, head.line))
                pointers |= self._writer.index.unused(head.scope, self._facts_of(head))
            rest = [each.key for each in page if each.key not in heads]
            # A repair may have written the sign again until the head was gone.
            for some in (alive, heads, [*alive, *rest] if rest else []):
                if some:
                    self._storage.delete(some)
            self._writer.index.remove(pointers)
            passes += len(page) < PAGE
            if passes > _PASSES_MAX:
                raise Unavailable(
                    f"other writers keep writing to the session. session=`{session_id}`"
                )

    def _pointers_below(self, prefix: str) -> set[str]:
        """Return all pointers to a scope or a session, where no head says which there are."""
        pointed = self._writer.index.walk(keys.INDEX)
        return {each.key for each in pointed if keys.head_key(each.scope).startswith(prefix)}
