"""The index: empty objects whose keys say where a snapshot is.

They are written before the copy they point to and never reused. A pointer may be dangling, or the
snapshot may have changed since: readers check the snapshot itself. A pointer with a clipped name in
its key holds the whole address.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from limpet.backends.buckets.protocol import Bucket, Listed
from limpet.backends.objects.documents import PAGE, walk
from limpet.core import codec, ids, layout
from limpet.core.document import Header
from limpet.core.layout import Clipped, Pointer
from limpet.core.rows import pack_ref, unpack_ref
from limpet.errors import Corrupt, Unsupported
from limpet.model import ANY, ScopeKey, SnapshotRef


class Pointed(NamedTuple):
    """The snapshot that a pointer points to, and the key of the pointer."""

    ref: SnapshotRef
    seq: int | None
    at_ms: int | None
    born: str
    key: str


class Index:
    """Pointers to snapshots: by id, by `seq` in their scope, and by label."""

    def __init__(self, bucket: Bucket, *, enabled: bool) -> None:
        self._bucket = bucket
        self.enabled = enabled

    def need(self) -> None:
        if not self.enabled:
            raise Unsupported("this layout has no index: snapshots cannot be found by id or label")

    def point(self, scope: ScopeKey, header: Header, *, beside: Header | None = None) -> None:
        """Write the pointers to a snapshot, except those of its older version `beside`."""
        if not self.enabled:
            return
        keys = keys_of(scope, header)
        if beside is not None:
            keys = sorted(set(keys).difference(keys_of(scope, beside)))
        self._bucket.mark([key for key in keys if "~" not in key])
        address = pack_ref(SnapshotRef(scope, header.id)) or b""
        for key in keys:
            if "~" in key:
                self._bucket.put(key, address, expect=ANY)

    def unpoint(self, scope: ScopeKey, header: Header) -> None:
        if self.enabled:
            self._bucket.delete(keys_of(scope, header))

    def history(self, scope: ScopeKey, *, after: int | None, limit: int) -> Iterator[Pointed]:
        """Follow the pointers of a scope, the newest first, below the `seq` `after`."""
        prefix = layout.order_prefix(scope)
        start = "" if after is None else layout.order_start(scope, after)
        return self._pointed(prefix, start, min(limit, PAGE))

    def named(self, id: str) -> Iterator[Pointed]:
        return self._pointed(layout.id_prefix(id), "", PAGE)

    def beginning(self, id_prefix: str) -> Iterator[Pointed]:
        """Follow the pointers to the ids with a prefix, and to some others."""
        return self._pointed(layout.ids_prefix(id_prefix), "", PAGE)

    def labelled(self, name: str, value: str, *, after: int | None) -> Iterator[Pointed]:
        """Follow the pointers of a label, the newest first, from the millisecond of `after` on."""
        prefix = layout.label_prefix(name, value)
        start = (
            ""
            if after is None
            else layout.label_start(name, value, at_ms=ids.place_us(after) // 1000)
        )
        return self._pointed(prefix, start, PAGE)

    def keys_of_session(self, session_id: str, scope: ScopeKey | None, limit: int) -> list[str]:
        """Return the pointers to the snapshots of a session or scope, except those of labels.

        To be listed before the snapshots are deleted, and deleted afterwards.
        """
        if not self.enabled:
            return []
        prefix = (
            layout.session_order_prefix(session_id) if scope is None else layout.order_prefix(scope)
        )
        keys: list[str] = []
        for each in islice(self._pointed(prefix, "", PAGE), limit):
            keys += [each.key, layout.id_key(each.ref, born=each.born)]
        return keys

    def everywhere(self, prefix: str) -> Iterator[Pointed]:
        """Follow all pointers of the sessions with a prefix."""
        return self._pointed(layout.orders_prefix(prefix), "", PAGE)

    def _pointed(self, prefix: str, after: str, limit: int) -> Iterator[Pointed]:
        listed = walk(self._bucket, prefix, after, limit)
        while page := list(islice(listed, limit)):
            yield from self.followed(page)

    def followed(self, page: Sequence[Listed]) -> Iterator[Pointed]:
        """Follow the pointers of a page; skip what is not a pointer."""
        long = [each.key for each in page if each.size]
        addresses = dict(zip(long, self._bucket.get(long), strict=True)) if long else {}
        for each in page:
            pointer = layout.parse_pointer(each.key)
            if pointer is None:
                continue
            stored = addresses.get(each.key)
            try:
                ref = _short_ref(pointer) if stored is None else unpack_ref(stored.data)
            except Corrupt:
                continue
            if ref is not None and _agrees(pointer, ref):
                yield Pointed(ref, pointer.seq, pointer.at_ms, pointer.born, each.key)


def _agrees(pointer: Pointer, ref: SnapshotRef) -> bool:
    pairs = (
        (pointer.session_id, ref.scope.session_id),
        (pointer.scope_id, ref.scope.scope_id),
        (pointer.id, ref.id),
    )
    return pointer.kind == ref.scope.kind and all(
        name.matches(id) if isinstance(name, Clipped) else name == id for name, id in pairs
    )


def _short_ref(pointer: Pointer) -> SnapshotRef | None:
    session_id, scope_id, id = pointer.session_id, pointer.scope_id, pointer.id
    if isinstance(session_id, Clipped) or isinstance(scope_id, Clipped) or isinstance(id, Clipped):
        return None
    return SnapshotRef(ScopeKey(session_id, scope_id, pointer.kind), id)


def keys_of(scope: ScopeKey, header: Header) -> list[str]:
    ref, born = SnapshotRef(scope, header.id), header.born
    keys = [layout.id_key(ref, born=born), layout.order_key(ref, seq=header.seq, born=born)]
    labels = {} if header.labels == b"{}" else codec.decode(header.labels)
    return keys + [
        layout.label_key(ref, name, value, at_ms=header.at, born=born)
        for name, value in labels.items()
    ]
