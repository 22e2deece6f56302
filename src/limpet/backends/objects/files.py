"""Reading the objects of scopes, and remembering them; and the index.

The index is objects whose keys say in which scope a snapshot is. Pointers are written before the
commit and removed after the last snapshot that needs them; their keys are never used again. So a
pointer may lead nowhere, or to something that has changed since: readers read the scope itself.
A pointer with a clipped name in its key holds the whole address; the others are empty.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, TypeAlias, TypeVar

import orjson

from limpet.backends.buckets.protocol import Bucket, Ending, Listed, Stored
from limpet.backends.objects import keys
from limpet.backends.objects.encrypted import EncryptedBucket
from limpet.backends.objects.format import (
    Fact,
    Named,
    NamedPage,
    StoredNote,
    StoredSegment,
    parse_key,
    parse_page,
    parsed,
)
from limpet.backends.objects.heads import Head, parse_head
from limpet.backends.objects.keys import Pointer
from limpet.backends.support.recent import Recent
from limpet.core.encryption import Ciphers
from limpet.core.foreign import recognise
from limpet.core.limits import CACHE_BYTES_MAX
from limpet.errors import CLOSED, Corrupt, InvalidInput, LimpetError, Unavailable, Unsupported
from limpet.model import ANY, ScopeKey
from limpet.protocol import Clock
from limpet.storage import TRAIL_BYTES_MAX, VERSION_BYTES, ScopeRecord

T = TypeVar("T")

PAGE: Final = 1000  # what one request lists
_TOP_KEYS: Final = 100  # that show whose folder it is
_LISTED_BYTES: Final = 16 * 1024  # of a head in a listing: mostly all of its facts
_SMALL_BYTES: Final = 512 * 1024  # a segment of this size is read whole, though facts are needed
_SCOPES_MAX: Final = 16_384
_CHUNK: Final = 256  # pointers followed together
_LOST_CHECKS: Final = 3
_LOST_PAUSE_S: Final = 0.1


class Gone(Exception):
    """An object that a head names is not there: the head has moved, or it is damage."""


class Held(NamedTuple):
    """The head of a scope as it was read or written; `version` is what a compare-and-set expects.

    None where there is no object.
    """

    head: Head | None = None
    version: str | None = None
    size: int = 0

    @property
    def record(self) -> ScopeRecord | None:
        return None if self.head is None else self.head.record


_Newest: TypeAlias = tuple[int, int, bytes]
"""The pk, the greatest seq and the trail of a record."""


def walk(bucket: Bucket, prefix: str, after: str = "") -> Iterator[Listed]:
    """Iterate over all keys with a prefix, a page at a time."""
    while True:
        listed = bucket.list(prefix, after=after, limit=PAGE)
        yield from listed
        if len(listed) < PAGE:
            return
        after = listed[-1].key


class Files:
    """The objects of a bucket. Safe for threads."""

    def __init__(self, bucket: Bucket, *, clock: Clock, ciphers: Ciphers) -> None:
        if isinstance(bucket, Ending):
            bucket.keep_end()
        self._bucket = EncryptedBucket(bucket, ciphers)
        self.ciphers = ciphers
        self.clock = clock
        self._closed = False
        self._is_ours = False
        self.held: Recent[ScopeKey, Held] = Recent(CACHE_BYTES_MAX, lambda held: 2 * held.size)
        self._segments: Recent[str, StoredSegment] = Recent(
            CACHE_BYTES_MAX, lambda found: found.cost
        )
        self._pages: Recent[str, list[StoredNote]] = Recent(
            CACHE_BYTES_MAX, lambda found: 2 * sum(len(n.about) + len(n.value) for n in found)
        )
        # With keys: what no later head is older than.
        self._newest: Recent[ScopeKey, _Newest] = Recent(_SCOPES_MAX)
        self._lost: Recent[str, bool] = Recent(_SCOPES_MAX)  # what shows that a head is lost
        self._leases: Recent[ScopeKey, tuple[tuple[str, int], float]] = Recent(_SCOPES_MAX)

    @property
    def bucket(self) -> EncryptedBucket:
        if self._closed:
            raise InvalidInput(CLOSED)
        return self._bucket

    def close(self) -> None:
        self._closed = True
        self._bucket.close()

    # Heads

    def read(self, key: ScopeKey) -> Held:
        """Read a head; without one the scope is empty.

        Raises:
            Corrupt: it is damaged, or it is missing although the scope was not deleted; or it is
                encrypted, and an older one that was put back.
        """
        path, newest = keys.head_key(key), self._newest.get(key)  # others may write meanwhile
        (stored,) = self.bucket.get([path])
        if stored is None:
            self.held.pop(key)
            self._check_absent(key)
            return Held()
        held = self.held.get(key)
        if held is None or held.version != stored.version:
            held = Held(self.parsed(stored, path), stored.version, stored.size)
        if newest is not None and held.head is not None and _is_older(held.head, newest):
            raise Corrupt(
                f"a head is older than one that this process has read or written. key=`{path}`"
            )
        self.keep(key, held)
        return held

    def keep(self, key: ScopeKey, held: Held) -> None:
        """Remember a head that was read or written."""
        self.held.put(key, held)
        record = held.record
        if record is not None and self.ciphers.encrypts:
            self._newest.put(key, (record.pk, record.last, record.trail))

    def parsed(self, stored: Stored, path: str) -> Head:
        """Return the head that is stored under a key, or raise Corrupt if it is that of another."""
        head = parse_head(stored.data)
        self._is_ours = True
        if keys.head_key(head.key) != path:
            raise Corrupt(f"a head is stored under the key of another scope. key=`{path}`")
        if head.pending is not None and not self.is_alive(*head.pending):
            return Head(head.key, None, head.w)
        return head

    def is_alive(self, source: ScopeKey, pk: int) -> bool:
        """Return whether the source of a fork was not deleted."""
        (stored,) = self.bucket.get([keys.head_key(source)])
        try:
            record = None if stored is None else parse_head(stored.data).record
            return record is not None and record.pk == pk
        except Corrupt:
            return True  # a damaged source must not hide its forks

    def list_heads(self, paths: Sequence[str]) -> list[Head | LimpetError | None]:
        """Read the facts of many heads; one that cannot be read is an error as a value."""
        found = dict(zip(paths, self.bucket.get(paths, first=_LISTED_BYTES), strict=True))
        heads = {path: self._listed_head(path, each) for path, each in found.items()}
        cut = [
            path
            for path, each in found.items()
            if each and len(each[0]) < each.size and type(heads[path]) is Corrupt
        ]
        for path, each in zip(cut, self.bucket.get(cut) if cut else [], strict=True):
            heads[path] = self._listed_head(path, each)
        return [heads[path] for path in paths]

    def _listed_head(self, path: str, stored: Stored | None) -> Head | LimpetError | None:
        try:
            return None if stored is None else self.parsed(stored, path)
        except (Corrupt, Unsupported) as error:
            return error

    # A head that is missing

    def check_ours(self) -> None:
        """Refuse the folder of another tool. Asked once, when a store seems to be empty."""
        if self._is_ours:
            return
        found = recognise(each.key for each in self.bucket.list("", limit=_TOP_KEYS))
        if found is not None:
            raise Unsupported(
                f"this is no store but {found.what}: import it into one with `limpet import strands"
                f" <this folder or URL>{found.below} --url <store>`"
            )
        self._is_ours = True

    def _check_absent(self, scope: ScopeKey) -> None:
        self.check_ours()
        prefix = keys.scope_prefix(scope)
        for each in self.bucket.list(prefix, limit=PAGE):
            path = each.key
            if path.endswith("/snapshot_latest.json"):
                raise Unsupported(
                    "this folder has another layout, of Strands or of an earlier version: use "
                    f"`limpet import`. key=`{path}`"
                )
            found = keys.parse(path)
            if found is not None and self.is_lost(scope, path):
                what = "its history is there: run `limpet check --repair`"
                if found.line:
                    what = "all that it held: restore it from a backup, or delete the scope"
                raise Corrupt(
                    f"the head of a scope is missing, and {what}. "
                    f"session=`{scope.session_id}` scope=`{scope.scope_id}`",
                    scope=scope,
                )

    def is_lost(self, scope: ScopeKey, path: str) -> bool:
        """Return whether an object whose head was missing shows that the head is lost.

        Otherwise the scope was deleted: that removes first the sign that the line was begun, last
        its pointer. A writer that began a line while the scope was deleted removes its own signs at
        once, so they are read again. Pages of notes show nothing.
        """
        key = keys.parse(path)
        if key is None or not (key.line or key.segment):
            return False
        is_known = self._lost.get(path) is not None  # then one check is enough
        for _ in range(1 if is_known else _LOST_CHECKS):
            head, found = self.bucket.get([keys.head_key(scope), path])
            if head is not None or found is None:
                return False
            try:
                line = key.line or StoredSegment(path.rpartition("/")[2], found.data).line
                if None in self.bucket.get(
                    [keys.line_key(scope, line), keys.started_key(scope, line)]
                ):
                    return False
            except (Corrupt, Unsupported):
                return True
            if not is_known:
                self.clock.sleep(_LOST_PAUSE_S)
        self._lost.put(path, True)
        return True

    # Segments and pages

    def segments(
        self, scope: ScopeKey, some: Sequence[Named], first: int | None = None
    ) -> list[StoredSegment]:
        """Return segments, whole or at least their first bytes, or raise Gone."""
        paths = [keys.segment_key(scope, each.name) for each in some]
        cached = ((path, self._segments.get(path)) for path in paths)
        known = {p: found for p, found in cached if found and (first or found.is_whole)}
        return self._loaded(paths, known, self._segments, StoredSegment, first)

    def facts(self, scope: ScopeKey, some: Sequence[Named]) -> list[StoredSegment]:
        """Return segments of which only the facts are needed, or raise Gone."""
        small = [each for each in some if each.size <= _SMALL_BYTES]
        large = [each for each in some if each.size > _SMALL_BYTES]
        known = dict(zip(small, self.segments(scope, small), strict=True))
        if large:
            first = max(each.facts_bytes for each in large)
            known |= zip(large, self.segments(scope, large, first), strict=True)
        return [known[each] for each in some]

    def notes_of(self, scope: ScopeKey, some: Sequence[NamedPage]) -> list[list[StoredNote]]:
        """Return the notes of pages, or raise Gone."""
        paths = [keys.page_key(scope, each.name) for each in some]
        known = {path: found for path in paths if (found := self._pages.get(path))}
        return self._loaded(paths, known, self._pages, parse_page)

    def _loaded(
        self,
        paths: Sequence[str],
        known: dict[str, T],
        cache: Recent[str, T],
        parse: Callable[[str, bytes], T],
        first: int | None = None,
    ) -> list[T]:
        """Return parts, of which those that are not known are read and cached, or raise Gone."""
        absent = [path for path in paths if path not in known]
        found = self.bucket.get(absent, first=first) if absent else []
        for path, stored in zip(absent, found, strict=True):
            if stored is None:
                raise Gone(path)
            known[path] = parse(path.rpartition("/")[2], stored.data)
            cache.put(path, known[path])
        return [known[path] for path in paths]

    def delete(self, paths: Sequence[str]) -> None:
        """Remove objects, also from memory."""
        for path in paths:
            self._segments.pop(path)
            self._pages.pop(path)
        self.bucket.delete(paths)

    # Leases

    def lease_seen_us(self, record: ScopeRecord) -> int:
        """Return for how long this process has seen a lease as it is now."""
        if record.fence is None:
            return 0
        lease = record.fence, record.until or 0
        now_s, seen = self.clock.monotonic(), self._leases.get(record.key)
        if seen is None or seen[0] != lease:
            seen = lease, now_s
            self._leases.put(record.key, seen)
        return int((now_s - seen[1]) * 1_000_000)


def _is_older(head: Head, newest: _Newest) -> bool:
    """Return whether another head has come after this one; known of the last changes, and saves.

    A change that is sent again may have the version of the one before.
    """
    pk, last, trail = newest
    record = head.record
    if record is None or record.pk != pk or record.trail == trail:
        return False
    if record.last < last:
        return True
    pasts = [trail[at:] for at in range(VERSION_BYTES, len(trail), VERSION_BYTES)]
    if len(trail) < TRAIL_BYTES_MAX:
        return record.trail in pasts
    return any(record.trail.startswith(past) for past in pasts)


# The index


class Pointed(NamedTuple):
    """A pointer under its key, and the scope that it leads to."""

    scope: ScopeKey
    pointer: Pointer
    key: str


class Index:
    def __init__(self, files: Files) -> None:
        self._files = files

    def spellings(self, scope: ScopeKey, fact: Fact) -> list[list[str]]:
        """Return the keys of the pointers that cover a kept snapshot, except that of its line.

        A label is spelt with the current key first, then as older keys did.
        """
        row = fact.row
        if not row.kept:
            return []
        cipher = self._files.ciphers.of(scope.session_id)
        found = [
            [keys.label_key(scope, *each, row.seq, stamp) for each in spelt]
            for label, stamp in zip(fact.labels.items(), fact.pointers, strict=True)
            if (spelt := cipher.labels(*label))
        ]
        return [*found, [keys.id_key(scope, row.id, row.seq)]] if fact.own else found

    def pointers_of(self, scope: ScopeKey, fact: Fact) -> list[str]:
        """Return the keys of the pointers to write for a snapshot."""
        return [current for current, *_ in self.spellings(scope, fact)]

    def current(self, scope: ScopeKey, facts: Iterable[Fact]) -> dict[str, str]:
        """Return for each pointer that snapshots may have the one that the current key writes."""
        spelt = (each for fact in facts for each in self.spellings(scope, fact))
        return {key: each[0] for each in spelt for key in each}

    def write(self, scope: ScopeKey, pointers: Sequence[str]) -> None:
        """Write pointers to a scope, durably."""
        clipped = [key for key in pointers if key.startswith(keys.INDEX) and "~" in key]
        plain = [key for key in pointers if key not in clipped]
        if plain:
            self._files.bucket.mark(plain)
        for key in clipped:
            self._files.bucket.put(key, orjson.dumps(list(scope)), expect=ANY)

    def mend(self, scope: ScopeKey, lost: Sequence[str], wanted: Collection[str]) -> None:
        """Write those that are lost of the wanted pointers to a scope, or remove all if it is gone.

        A sign that its writer got no answer for may come later: it needs another to do harm.
        """
        try:
            self.write(scope, lost)
        finally:
            if self._files.bucket.get([keys.head_key(scope)], first=1) == [None]:
                self.remove(wanted)

    def remove(self, pointers: Collection[str]) -> None:
        """Remove pointers; one that is left leads nowhere, which is harmless."""
        if pointers:
            with suppress(Unavailable):
                self._files.bucket.delete(sorted(pointers))

    def walk(self, prefix: str, after: str = "") -> Iterator[Pointed]:
        listed = walk(self._files.bucket, prefix, after)
        while page := [each for _, each in zip(range(_CHUNK), listed, strict=False)]:
            yield from self.followed(page)

    def followed(self, page: Sequence[Listed]) -> Iterator[Pointed]:
        """Return what pointers point to; skip what is not a pointer."""
        long = [each.key for each in page if each.size]
        texts = dict(zip(long, self._files.bucket.get(long), strict=True)) if long else {}
        for each in page:
            pointer = keys.parse_pointer(each.key)
            if pointer is not None:
                stored = texts.get(each.key)
                scope = pointer.scope if stored is None else _address_in(stored.data)
                if scope is not None and pointer.leads_to(scope):
                    yield Pointed(scope, pointer, each.key)


def _address_in(data: bytes) -> ScopeKey | None:
    with suppress(Corrupt):
        return parsed(lambda: parse_key(orjson.loads(data)))
    return None


def stamped(fact: Fact, known: Mapping[tuple[str, str], int], stamp: int) -> Fact:
    """Return a kept snapshot whose labels are covered by pointers: known ones, or with a stamp.

    A pointer stands for a minute, so one that another snapshot of the tail has, or this one had
    before, is shared.
    """
    if not fact.row.kept:
        return fact._replace(pointers=())
    return fact._replace(pointers=tuple(known.get(pair, stamp) for pair in fact.labels.items()))
