"""Queries: kept snapshots of one scope, or of all scopes through the index.

A pointer only says where a snapshot may be. Its document and the head of its scope decide.
"""

import heapq
from collections.abc import Iterator, Sequence
from itertools import islice

from limpet.backends.buckets.protocol import Listed
from limpet.backends.objects.documents import Doc, DocumentAddress, Files
from limpet.backends.objects.heads import Head, Heads
from limpet.backends.objects.history import History
from limpet.backends.objects.index import Index, Pointed
from limpet.core import codec, ids
from limpet.core.document import TOMBSTONE_BYTES_MAX
from limpet.core.layout import File
from limpet.core.rows import info_of
from limpet.model import ScopeKey, SnapshotInfo, SnapshotRef
from limpet.protocol import Query

_CHUNK = 64  # snapshots read together


class Queries:
    def __init__(self, files: Files, index: Index, heads: Heads, history: History) -> None:
        self._files = files
        self._index = index
        self._heads = heads
        self._history = history

    def list_snapshots(self, query: Query, limit: int) -> list[SnapshotInfo]:
        if query.scope is None or query.labels:
            self._index.need()
        if query.scope is None:
            return self._across(query, limit)
        if not query.scope.session_id.startswith(query.prefix):
            return []
        scope = query.scope
        head = self._heads.look(scope)
        if query.leaves:
            docs = self._history.leaves(scope, head, after=query.after, limit=limit)
        elif query.labels:
            docs = self._labelled(scope, head, query, limit)
        elif query.status is None and query.id is None:
            docs = self._history.page(scope, head, after=query.after, limit=limit)
        else:
            walk = self._history.walk(scope, head, query.after)
            docs = list(islice((doc for doc in walk if _fits(doc, query)), limit))
        return [info_of(scope, doc.row) for doc in docs]

    def list_ids(self, scope: ScopeKey, after: str, limit: int) -> list[str]:
        """As `Backend.list_ids`, from a listing of keys.

        Only clipped ids are read, and documents small enough to be a tombstone. A kept head may not
        be in the listing yet.
        """
        layout = self._files.layout
        head = self._heads.look(scope)
        if head.damage is None and (head.header is None or head.header.mixed):
            return self._proved_ids(scope, head, after, limit)
        shown = head.shown
        start = layout.copy_key(scope, after) if after else ""
        keys: dict[str, str] = {}
        if shown is not None and shown.header.kept:
            key = layout.copy_key(scope, shown.header.id)
            keys |= {key: shown.header.id} if key > start else {}
        count = 0
        while wanted := limit - count:
            page = self._files.bucket.list(layout.history_prefix(scope), after=start, limit=wanted)
            found = self._named(page)
            count += len(found)
            keys |= found
            if len(page) < wanted:
                break
            start = page[-1].key
        return [keys[key] for key in sorted(keys)][:limit]

    def find_refs(self, id_prefix: str, limit: int) -> list[SnapshotRef]:
        self._index.need()
        found: dict[SnapshotRef, None] = {}
        refs = (each.ref for each in self._index.beginning(id_prefix))
        own = (ref for ref in refs if ref.id.startswith(id_prefix))
        while len(found) < limit and (chunk := list(dict.fromkeys(islice(own, _CHUNK)))):
            for scope, doc in self._look(chunk):
                if doc.header.kept:
                    found[SnapshotRef(scope, doc.header.id)] = None
        return list(found)[:limit]

    def _proved_ids(self, scope: ScopeKey, head: Head, after: str, limit: int) -> list[str]:
        """Return a page of ids where not all copies count, so their headers are read."""
        layout = self._files.layout
        start = layout.copy_key(scope, after) if after else ""
        scan = islice(self._history.scan(scope, head, start), limit + 1)
        keys = {layout.copy_key(scope, doc.header.id): doc.header.id for doc in scan}
        return [keys[key] for key in sorted(keys) if key > start][:limit]

    def _named(self, page: Sequence[Listed]) -> dict[str, str]:
        named: dict[str, str] = {}
        unclear: list[DocumentAddress] = []
        for each in page:
            key = self._files.layout.parse(each.key)
            if key is None or key.file is not File.COPY or key.id is None:
                continue
            if isinstance(key.id, str) and each.size > TOMBSTONE_BYTES_MAX:
                named[each.key] = key.id
            else:
                unclear.append(DocumentAddress(each.key, key.id))
        for place, found in zip(unclear, self._files.read(unclear), strict=True):
            if isinstance(found, Doc):
                named[place.key] = found.header.id
        return named

    def _labelled(self, scope: ScopeKey, head: Head, query: Query, limit: int) -> list[Doc]:
        """Follow the pointers of one label; the head may not have any yet."""
        shown = head.shown
        found: dict[str, Doc] = {}
        if shown is not None and shown.header.kept and _fits(shown, query):
            found[shown.header.id] = shown
        (name, value), *_ = query.labels
        pointers = self._index.labelled(name, value, after=query.after)
        own = (pointed for pointed in pointers if pointed.ref.scope == scope)
        count = 0
        for chunk in _moments(own, limit):
            if count >= limit:
                break
            ids = {pointed.ref.id for pointed in chunk} - found.keys()
            for doc in self._history.copies(scope, head, sorted(ids)):
                if _fits(doc, query) and (shown is None or doc.header.id != shown.header.id):
                    found[doc.header.id] = doc
                    count += 1
        return heapq.nlargest(limit, found.values(), key=lambda doc: doc.header.seq)

    def _across(self, query: Query, limit: int) -> list[SnapshotInfo]:
        if query.id is not None:
            named = self._index.named(query.id)
            return self._best((pointed.ref for pointed in named), query, limit)
        if not query.labels:
            return self._newest(query, limit)
        (name, value), *_ = query.labels
        pointers = self._index.labelled(name, value, after=query.after)
        inside = (p for p in pointers if p.ref.scope.session_id.startswith(query.prefix))
        found: list[SnapshotInfo] = []
        met: set[SnapshotRef] = set()
        for chunk in _moments(inside, limit):
            refs = [each.ref for each in chunk if each.ref not in met]
            met.update(refs)
            found += self._best(iter(refs), query, len(refs))
            if len(found) >= limit:
                break
        return found[:limit]

    def _newest(self, query: Query, limit: int) -> list[SnapshotInfo]:
        """Scan the pointers of all scopes for the newest, and read those."""
        after, found = query.after, list[SnapshotInfo]()
        while len(found) < limit:
            pointers = (
                pointed
                for pointed in self._index.everywhere(query.prefix)
                if pointed.seq is not None
                and (after is None or pointed.seq < after)
                and pointed.ref.scope.session_id.startswith(query.prefix)
            )
            page = heapq.nlargest(limit, pointers, key=lambda pointed: pointed.seq or 0)
            places = {(each.ref, each.seq) for each in page}
            best = self._best(iter([each.ref for each in page]), query, len(page))
            # An id that was deleted and saved again has two pointers, one of them outdated.
            found += [
                info
                for info in best
                if (SnapshotRef(info.scope, info.id), ids.seq_of(info.revision)) in places
            ]
            if len(page) < limit:
                break
            after = page[-1].seq
        return found[:limit]

    def _best(self, refs: Iterator[SnapshotRef], query: Query, limit: int) -> list[SnapshotInfo]:
        best: list[tuple[int, SnapshotInfo]] = []
        while chunk := list(dict.fromkeys(islice(refs, _CHUNK))):
            inside = [ref for ref in chunk if ref.scope.session_id.startswith(query.prefix)]
            found = [
                (doc.header.seq, info_of(scope, doc.row))
                for scope, doc in self._look(inside)
                if _fits(doc, query)
            ]
            best = heapq.nlargest(limit, best + found, key=lambda pair: pair[0])
        return [info for _, info in best]

    def _look(self, refs: Sequence[SnapshotRef]) -> Iterator[tuple[ScopeKey, Doc]]:
        scopes = list(dict.fromkeys(ref.scope for ref in refs))
        docs = self._files.read([self._files.head_place(scope) for scope in scopes])
        heads = {scope: self._heads.found(doc) for scope, doc in zip(scopes, docs, strict=True)}
        copies = self._files.read([self._files.copy_place(*ref) for ref in refs])
        for ref, copy in zip(refs, copies, strict=True):
            head = heads[ref.scope]
            if head.shown is not None and head.shown.header.id == ref.id:
                yield ref.scope, head.shown
            elif isinstance(copy, Doc) and head.counts(copy.header):
                yield ref.scope, copy


def _fits(doc: Doc, query: Query) -> bool:
    header = doc.header
    if not header.kept or (query.id is not None and header.id != query.id):
        return False
    if query.after is not None and header.seq >= query.after:
        return False
    if query.status is not None and header.status != query.status:
        return False
    if not query.labels:
        return True
    labels = codec.decode(header.labels)
    return all(labels.get(name) == value for name, value in query.labels)


def _moments(pointers: Iterator[Pointed], wanted: int) -> Iterator[list[Pointed]]:
    """Split a listing between milliseconds: within one there is no order."""
    size = min(_CHUNK, wanted)
    chunk: list[Pointed] = []
    for pointed in pointers:
        if len(chunk) >= size and pointed.at_ms != chunk[-1].at_ms:
            yield chunk
            chunk = []
        chunk.append(pointed)
    if chunk:
        yield chunk
