"""The kept snapshots of a scope, the newest first.

With an index its pointers give the order, and only the copies of a page are read. Below a foreign
head, or without an index, all headers are read: other tools write no pointers.
"""

import heapq
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import islice

from limpet.backends.buckets.protocol import Listed
from limpet.backends.objects.documents import PAGE, Doc, DocumentAddress, Files, walk
from limpet.backends.objects.heads import Head, Heads
from limpet.backends.objects.index import Index, Pointed
from limpet.backends.support.recent import Recent
from limpet.core.document import TOMBSTONE_BYTES_MAX, is_tombstone_size
from limpet.core.layout import File
from limpet.errors import Unavailable
from limpet.model import ScopeKey

_CHUNK = 64  # headers read at a time
_READS_MAX = 8  # of a head that moves while it is read
_ORDERS_MAX = 8  # scans under way at the same time
_ORDERED_MAX = 8192  # places remembered of one
_SPARE = 16  # pointers beyond a page, in case some are dangling


class History:
    def __init__(self, files: Files, index: Index, heads: Heads) -> None:
        self._files = files
        self._index = index
        self._heads = heads
        # By scope and the place of the last one seen: the rest of the order, and the fingerprint
        # of the listing that it was made of.
        self._orders: Recent[tuple[ScopeKey, int | None], tuple[list[tuple[int, str]], bytes]] = (
            Recent(_ORDERS_MAX)
        )

    def newest(self, scope: ScopeKey, head: Head) -> Doc | None:
        """Return the newest kept snapshot; for a void head the one that the scope shows.

        That is the snapshot for which it was made void, while it exists. Snapshots saved since with
        head=False are not shown: they never were the head.
        """
        if head.header is None or not head.is_void:
            return next(iter(self.page(scope, head, after=None, limit=1)), None)
        if not head.header.id:
            return None  # it was made for a lease, and never showed anything
        for doc in self.copies(scope, head, [head.header.id]):
            if doc.header.seq == head.header.seq:
                return doc
        return next(iter(self.page(scope, head, after=head.header.last + 1, limit=1)), None)

    def newest_kept(self, scope: ScopeKey, head: Head) -> str | None:
        page = self.page(scope, head, after=None, limit=1)
        return page[0].header.id if page else None

    def shown(self, scope: ScopeKey, head: Head) -> Doc | None:
        for _ in range(_READS_MAX):
            if not head.is_void:
                return head.shown
            newest, now = self.newest(scope, head), self._heads.read(scope)
            if now.header is not None and now.header.w == (head.header or now.header).w:
                return newest
            head = now
        raise Unavailable(f"the head keeps changing: try again. session=`{scope.session_id}`")

    def walk(self, scope: ScopeKey, head: Head, after: int | None = None) -> Iterator[Doc]:
        while page := self.page(scope, head, after=after, limit=PAGE):
            yield from page
            after = page[-1].header.seq

    def page(self, scope: ScopeKey, head: Head, *, after: int | None, limit: int) -> list[Doc]:
        """Return kept snapshots below the `seq` `after`, the newest first."""
        found = None
        if self._index.enabled and head.damage is None and not head.is_foreign:
            prefix = self._files.layout.history_prefix(scope)
            listed = self._files.bucket.list(prefix, limit=PAGE)
            if len(listed) < PAGE:
                found = self._by_place(scope, head, after, limit, listed)
            elif head.header is not None and not head.header.foreign:
                found = self._by_place(scope, head, after, limit, None)
        if found is None:
            found = self._by_scan(scope, head, after, limit)
        return heapq.nlargest(limit, found, key=_by_seq)

    def _by_scan(self, scope: ScopeKey, head: Head, after: int | None, limit: int) -> Iterator[Doc]:
        """Read all headers once, and remember the order for the pages that follow."""
        shown, count = head.shown, 0
        order, listing = self._orders.pop((scope, after)) or ([], b"")
        if not order or listing != self._fingerprint(scope):
            listing = self._fingerprint(scope)
            order, docs = self._ordered(scope, head, after, limit)
            if docs is not None:
                yield from docs
                return
        while count < limit and order:
            chunk, order = order[: limit - count], order[limit - count :]
            if order:
                self._orders.put((scope, chunk[-1][0]), (order, listing))
            ids = [id for _, id in chunk if shown is None or id != shown.header.id]
            found = self.copies(scope, head, ids)
            if shown is not None and len(ids) < len(chunk):
                found.append(shown)
            places = set(chunk)
            for doc in found:
                if (doc.header.seq, doc.header.id) in places:
                    count += 1
                    yield doc

    def _fingerprint(self, scope: ScopeKey) -> bytes:
        digest = blake2b(digest_size=16)
        for each in self.listed(scope):
            digest.update(f"{each.key} {each.size} {each.modified} ".encode())
        return digest.digest()

    def _ordered(
        self, scope: ScopeKey, head: Head, after: int | None, limit: int
    ) -> tuple[list[tuple[int, str]], list[Doc] | None]:
        """Return the order below a `seq`, the newest first; the snapshots too, if few."""
        docs: list[Doc] = []

        def places() -> Iterator[tuple[int, str]]:
            for doc in self.scan(scope, head):
                if after is None or doc.header.seq < after:
                    if len(docs) <= limit:
                        docs.append(doc)
                    yield _by_seq(doc)

        order = heapq.nlargest(_ORDERED_MAX, places())
        return order, docs if len(docs) <= limit else None

    def _by_place(
        self,
        scope: ScopeKey,
        head: Head,
        after: int | None,
        limit: int,
        listed: Sequence[Listed] | None,
    ) -> Iterator[Doc]:
        """Follow the pointers until there are enough; the head may be among them or not.

        `listed` are all copies, if they are few: those without a pointer come from other tools.
        """
        shown = head.shown
        if shown is not None and shown.header.kept and (after is None or shown.header.seq < after):
            yield shown
        pointers = self._index.history(scope, after=after, limit=limit + _SPARE)
        if listed is not None:
            known = list(self._index.history(scope, after=None, limit=PAGE))
            below = (each for each in known if after is None or (each.seq or 0) < after)
            pointers = iter(list(below))
            strangers = self._strangers(scope, head, listed, known)
            yield from (doc for doc in strangers if after is None or doc.header.seq < after)
        count = 0
        while count < limit and (chunk := list(islice(pointers, min(_CHUNK, limit - count)))):
            places = {(pointed.ref.id, pointed.seq) for pointed in chunk}
            ids = {id for id, _ in places if shown is None or id != shown.header.id}
            for doc in self.copies(scope, head, sorted(ids)):
                # An id that was deleted and saved again has two pointers, one of them outdated.
                if (doc.header.id, doc.header.seq) in places:
                    count += 1
                    yield doc

    def _strangers(
        self, scope: ScopeKey, head: Head, listed: Sequence[Listed], known: Sequence[Pointed]
    ) -> list[Doc]:
        layout = self._files.layout
        pointed = {layout.copy_key(scope, each.ref.id) for each in known}
        if head.shown is not None:
            pointed.add(layout.copy_key(scope, head.shown.header.id))
        unknown = [
            each
            for each in listed
            if not is_tombstone_size(each.size) and each.key not in pointed
            if (key := layout.parse(each.key)) is not None and key.file is File.COPY
        ]
        return self.at(head, unknown)

    def scan(self, scope: ScopeKey, head: Head, after: str = "") -> Iterator[Doc]:
        """Iterate over all kept snapshots, the head first, then in the order of their keys."""
        shown = head.shown
        if shown is not None and shown.header.kept:
            yield shown
        listed, layout = self.listed(scope, after), self._files.layout
        while chunk := list(islice(listed, _CHUNK)):
            small = {each.key for each in chunk if each.size <= TOMBSTONE_BYTES_MAX}
            for doc in self.at(head, chunk):
                # A copy that was listed as a tombstone was saved after the listing, which may lack
                # snapshots saved before it.
                late = layout.copy_key(scope, doc.header.id) in small and not doc.foreign
                if not late and (shown is None or doc.header.id != shown.header.id):
                    yield doc

    def listed(self, scope: ScopeKey, after: str = "") -> Iterator[Listed]:
        """Iterate over the copies of a scope in the order of their keys, with tombstones."""
        for each in walk(self._files.bucket, self._files.layout.history_prefix(scope), after):
            key = self._files.layout.parse(each.key)
            if key is not None and key.file is File.COPY:
                yield each

    def at(self, head: Head, listed: Sequence[Listed]) -> list[Doc]:
        """Return the listed copies that count, without their states."""
        keys = [(each.key, self._files.layout.parse(each.key)) for each in listed]
        places = [
            DocumentAddress(key, None if parsed is None else parsed.id) for key, parsed in keys
        ]
        return self._counting(head, places)

    def copies(self, scope: ScopeKey, head: Head, ids: Sequence[str]) -> list[Doc]:
        return self._counting(head, [self._files.copy_place(scope, id) for id in ids])

    def _counting(self, head: Head, places: Sequence[DocumentAddress]) -> list[Doc]:
        found = self._files.read(places) if places else []
        return [doc for doc in found if isinstance(doc, Doc) and head.counts(doc.header)]

    def sizes(self, scope: ScopeKey, head: Head) -> list[int]:
        sizes = [doc.header.size for doc in self.scan(scope, head)]
        if head.shown is not None and not head.shown.header.kept:
            sizes.append(head.shown.header.size)
        return sizes

    def leaves(self, scope: ScopeKey, head: Head, *, after: int | None, limit: int) -> list[Doc]:
        """Return the kept snapshots that are not the parent of another kept one.

        Only leaves, and parents that were not seen yet, are kept in memory.
        """
        awaited: set[str] = set()
        leaves: dict[str, Doc] = {}
        for doc in self.walk(scope, head):
            id, parent = doc.header.id, doc.header.parent
            if id in awaited:
                awaited.discard(id)
            else:
                leaves[id] = doc
            if parent is not None and leaves.pop(parent, None) is None:
                awaited.add(parent)
        found = [doc for doc in leaves.values() if after is None or doc.header.seq < after]
        return heapq.nlargest(limit, found, key=_by_seq)


def _by_seq(doc: Doc) -> tuple[int, str]:
    return doc.header.seq, doc.header.id
