"""Queries: kept snapshots of one scope, or of all scopes.

An index pointer only says in which scope to look.
"""

import heapq
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby, islice
from typing import TypeVar

from limpet.backends.objects import keys
from limpet.backends.objects.history import fits
from limpet.backends.objects.index import Pointed
from limpet.backends.objects.keys import ROOT
from limpet.backends.objects.objects import Fact, Head
from limpet.backends.objects.scopes import Listing
from limpet.backends.objects.storage import PAGE, Gone, Held, walk
from limpet.backends.objects.writer import Part, Writer
from limpet.backends.support.recent import Recent
from limpet.core import ids
from limpet.core.ages import newest_page
from limpet.core.encryption import WrongKeys
from limpet.core.limits import CACHE_BYTES_MAX
from limpet.core.rows import info_of
from limpet.core.times import to_us
from limpet.errors import Corrupt, Unsupported
from limpet.model import ScopeInfo, ScopeKey, SnapshotInfo, SnapshotRef, Stats
from limpet.protocol import Found, Query, SessionAge

T = TypeVar("T")

_CHUNK = 32  # heads read together
_ID_BYTES = 128  # in memory
# How much the clock of a writer may be ahead of the storage's: only a head that was modified since
# a snapshot's time, less this, can hold a newer one.
_SKEW_US = 3600 * 1_000_000


class Queries(Part):
    def __init__(self, writer: Writer) -> None:
        super().__init__(writer)
        # By scope: the nonce of its head, and its ids in text order.
        self._sorted: Recent[ScopeKey, tuple[str, list[str]]] = Recent(
            CACHE_BYTES_MAX, lambda each: _ID_BYTES * (1 + len(each[1]))
        )

    def read_snapshots(self, scope: ScopeKey, ids: Sequence[str | None]) -> list[Found]:
        def read(held: Held) -> list[Found]:
            if held.head is None:
                return []
            wanted = [each for each in ids if each is not None]
            found = self._history.find_all(held.head, wanted, with_states=True)
            shown = self._history.find(held.head, None) if None in ids else None
            places = [shown if each is None else found.get(each) for each in ids]
            there = [each for each in places if each is not None]
            states = self._history.states(held, there)
            return [(info_of(scope, each.row), states[each.row.seq]) for each in there]

        return self._storage.reading(scope, read)

    def read_info(self, scope: ScopeKey, snapshot_id: str | None) -> SnapshotInfo | None:
        def read(held: Held) -> SnapshotInfo | None:
            place = self._history.find(held.head, snapshot_id)
            return None if place is None else info_of(scope, place.row)

        return self._storage.reading(scope, read)

    def list_snapshots(self, query: Query, *, limit: int) -> list[SnapshotInfo]:
        if query.scope is not None:
            if not query.scope.session_id.startswith(query.prefix):
                return []
            return self._of_scope(query.scope, query, limit)
        if query.id is not None:
            scopes = self._scopes_with(query.id, query.prefix)
            found = _newest(limit, (self._of_any(each, query, limit) for each in scopes))
        else:
            found = (self._labelled if query.labels else self._everywhere)(query, limit)
        if not found:
            self._storage.check_ours()
        return found

    def _of_scope(
        self, scope: ScopeKey, query: Query, limit: int | None, since: int = 0
    ) -> list[SnapshotInfo]:
        """Return a page of one scope: what is not older than `since`."""

        def read(held: Held, *, skip: bool = False) -> list[SnapshotInfo]:
            if query.id is not None and not query.leaves:
                place = self._history.find(held.head, query.id)
                facts: Iterable[Fact] = [place.fact] if place and place.row.kept else []
                after = query.after
                facts = [f for f in facts if fits(f, query) and (not after or f.row.seq < after)]
            else:
                facts = self._history.matching(held.head, query, since, skip=skip)
            return [info_of(scope, fact.row) for fact in islice(facts, limit)]

        return self._listed(scope, read, may_skip=query.id is None and not query.leaves)

    def _listed(self, scope: ScopeKey, read: Callable[..., list[T]], *, may_skip: bool) -> list[T]:
        """Return what can be listed of a scope: a segment that is damaged does not hide the rest.

        Raises:
            Corrupt: the head is damaged, or missing.
        """
        try:
            return self._storage.reading(scope, read)
        except Corrupt:
            if not may_skip:
                raise
            return read(self._storage.read_head(scope), skip=True)

    def _of_any(
        self, scope: ScopeKey, query: Query, limit: int | None, since: int = 0
    ) -> list[SnapshotInfo]:
        """As `_of_scope`, and nothing where a head cannot be read: `check` reports it."""
        try:
            return self._of_scope(scope, query, limit, since)
        except (Corrupt, Unsupported):
            return []

    def list_ids(self, scope: ScopeKey, *, after: str, limit: int) -> list[str]:
        def read(held: Held, *, skip: bool = False) -> list[str]:
            w = "" if held.head is None else held.head.w
            known = self._sorted.get(scope)  # a page would else cost as much as all of them
            if known is None or known[0] != w:
                facts = self._history.newest_first(held.head, skip=skip)
                known = w, sorted(fact.row.id for fact in facts)
                if not skip:
                    self._sorted.put(scope, known)
            start = bisect_right(known[1], after)
            return known[1][start : start + limit]

        return self._listed(scope, read, may_skip=True)

    def list_sessions(self, *, prefix: str, after: str, limit: int) -> list[str]:
        return list(islice(self._scopes.session_ids(prefix, after), limit))

    def list_newest(self, *, prefix: str, after: SessionAge | None, limit: int) -> list[SessionAge]:
        found = ((each, self._head_info(each)) for each in self._scopes.walk(prefix=prefix))
        heads = (
            (each.scope.session_id, None if head is None else to_us("created_at", head.created_at))
            for each, head in found
        )
        return newest_page(heads, after, limit)

    def list_scopes(
        self,
        *,
        session_id: str | None,
        kind: str | None,
        prefix: str,
        after: ScopeKey | None,
        limit: int,
    ) -> list[ScopeInfo]:
        found = self._scopes.walk(session_id, prefix, after)
        page = islice((each for each in found if kind in (None, each.scope.kind)), limit)
        return [ScopeInfo(each.scope, self._head_info(each)) for each in page]

    def _head_info(self, listing: Listing) -> SnapshotInfo | None:
        head = listing.head
        if not isinstance(head, Head) or head.shown is None:
            return None  # `check` reports a damaged one
        for entry in head.entries:
            if entry.row.seq == head.shown[1]:
                return info_of(listing.scope, entry.row)
        try:
            return self.read_info(listing.scope, None)
        except Corrupt:
            return None

    def list_largest_heads(self, session_id: str, *, limit: int) -> list[SnapshotInfo]:
        heads = map(self._head_info, self._scopes.walk(session_id))
        return heapq.nlargest(limit, filter(None, heads), key=lambda head: head.size)

    def read_stats(self, session_id: str | None, *, limit: int) -> Stats:
        sessions = scopes = snapshots = logical = stored = 0
        largest: list[tuple[int, str]] = []
        found = self._scopes.walk(session_id)
        for name, group in groupby(found, key=lambda each: each.scope.session_id):
            sessions, size = sessions + 1, 0
            for each in group:
                scopes += 1
                if isinstance(each.head, Head):
                    snapshots, logical = snapshots + each.head.count, logical + each.head.logical
                prefix = keys.scope_prefix(each.scope)
                size += sum(listed.size for listed in walk(self._bucket, prefix))
            stored += size
            largest = heapq.nlargest(limit, [*largest, (size, name)])
        named = tuple((name, size) for size, name in largest) if session_id is None else ()
        return Stats(sessions, scopes, snapshots, logical, stored, named)

    # Across scopes

    def _scopes_with(self, id: str, prefix: str) -> Iterator[ScopeKey]:
        """Return the scopes that may hold a snapshot with this id."""
        pointed = self._writer.index.walk(keys.id_prefix(id))
        scopes = [each.scope for each in pointed]
        tag = ids.tag_of(id)
        if tag is not None:
            scopes += [each.scope for each in self._writer.index.walk(keys.line_prefix(tag))]
        return (s for s in dict.fromkeys(scopes) if s.session_id.startswith(prefix))

    def _labelled(self, query: Query, limit: int) -> list[SnapshotInfo]:
        """Follow the pointers of one label minute by minute, until there are enough snapshots."""
        label, *_ = query.labels
        found: list[SnapshotInfo] = []
        spelt = self._storage.ciphers.labels(query.prefix, *label)
        for minute, group in groupby(self._pointed_by_any(spelt, query.after), key=_minute):
            scopes = {p.scope for p in group if p.scope.session_id.startswith(query.prefix)}
            first, end = keys.minute_range(minute)
            until = query._replace(after=end if query.after is None else min(end, query.after))
            pages = [self._of_any(each, until, None, first) for each in sorted(scopes)]
            found += _newest(limit, pages)
            if len(found) >= limit:
                break
        return found[:limit]

    def _pointed_by_any(
        self, spelt: Sequence[tuple[str, str]], after: int | None
    ) -> Iterator[Pointed]:
        """Yield the pointers of a label, however it is spelt: whole minutes, the newest first."""
        if len(spelt) == 1:
            yield from self._pointed(*spelt[0], after)
            return
        count = PAGE
        while True:
            # Older keys first: `rekey` writes a new pointer before it removes the old one.
            pages = [list(islice(self._pointed(*each, after), count)) for each in reversed(spelt)]
            # The minute in which a page ends may have more.
            end = max((_minute(page[-1]) for page in pages if len(page) == count), default=-1)
            some = [each for page in pages for each in page if _minute(each) > end]
            yield from sorted(some, key=_minute, reverse=True)
            if end < 0:
                return
            if not some:
                count *= 2
            after, _ = keys.minute_range(end)

    def _pointed(self, name: str, value: str, after: int | None) -> Iterator[Pointed]:
        start = "" if after is None else keys.label_start(name, value, after)
        return self._writer.index.walk(keys.label_prefix(name, value), start)

    def _everywhere(self, query: Query, limit: int) -> list[SnapshotInfo]:
        """Read heads, those modified last first, until no other one can hold newer snapshots."""
        below = keys.sessions_prefix(query.prefix)
        heads = [
            (each.modified, each.key)
            for each in walk(self._storage.bucket, below or ROOT)
            if each.key.endswith("/head")
        ]
        heads.sort(reverse=True)
        found: list[SnapshotInfo] = []
        for start in range(0, len(heads), _CHUNK):
            if len(found) == limit:
                oldest = ids.place_us(ids.seq_of(found[-1].revision))
                if heads[start][0] + _SKEW_US < oldest:
                    break
            chunk = [path for _, path in heads[start : start + _CHUNK]]
            found = _newest(limit, [found, *self._of_heads(chunk, query, limit)])
        return found

    def _of_heads(
        self, paths: Sequence[str], query: Query, limit: int
    ) -> Iterator[list[SnapshotInfo]]:
        for path, head in zip(paths, self._storage.list_heads(paths), strict=True):
            if not isinstance(head, Head) or path != keys.head_key(head.scope):
                continue  # `check` reports it
            if head.scope.session_id.startswith(query.prefix):
                try:
                    facts = islice(self._history.matching(head, query), limit)
                    yield [info_of(head.scope, fact.row) for fact in facts]
                except (Gone, Corrupt):
                    yield self._of_any(head.scope, query, limit)

    def find_refs(self, id_prefix: str, *, limit: int) -> list[SnapshotRef]:
        found: dict[SnapshotRef, None] = {}
        for scope in self._scopes_beginning(id_prefix):
            with suppress(WrongKeys):  # a session without its key does not hide the others
                refs = self._storage.reading(scope, lambda held: self._refs(held, id_prefix))
                found |= dict.fromkeys(refs)
            if len(found) >= limit:
                break
        return list(found)[:limit]

    def _refs(self, held: Held, id_prefix: str) -> list[SnapshotRef]:
        facts = self._history.newest_first(held.head)
        scope = None if held.head is None else held.head.scope
        names = (fact.row.id for fact in facts)
        return [SnapshotRef(scope, id) for id in names if scope and id.startswith(id_prefix)]

    def _scopes_beginning(self, id_prefix: str) -> Iterator[ScopeKey]:
        """Return the scopes with an id that begins with a text, and maybe others, each once.

        The tag of a minted id is at its end: if the text may begin one, all scopes are read.
        """
        seen: set[ScopeKey] = set()
        pointed: Iterable[Pointed] = self._writer.index.walk(keys.ids_prefix(id_prefix))
        if ids.may_begin_minted(id_prefix):
            pointed = self._writer.index.walk(keys.lines_prefix())
        for each in pointed:
            if each.scope not in seen:
                seen.add(each.scope)
                yield each.scope


def _minute(pointed: Pointed) -> int:
    return keys.pointed_minute(pointed.pointer)


def _newest(limit: int, pages: Iterable[list[SnapshotInfo]]) -> list[SnapshotInfo]:
    infos = (info for page in pages for info in page)
    return heapq.nlargest(limit, infos, key=lambda info: ids.seq_of(info.revision))
