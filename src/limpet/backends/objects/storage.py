"""Reading and writing the objects of a scope.

The compare-and-set of the head is the commit of every write. A head has the nonce of its write
(`w`) and those of the writes before it (`trail`). A writer that lost an answer reads the head
again: if it has the writer's nonce, the write was stored; if it only has the nonce that was to be
replaced, the write was not stored and no longer can be; otherwise the outcome is not known. Notes
are written in the same way.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeAlias, TypeVar

from limpet.backends.buckets.protocol import Bucket, Ending, Listed, Moved, Stored
from limpet.backends.objects import keys
from limpet.backends.objects.encrypted import EncryptedBucket, Unreadable
from limpet.backends.objects.objects import (
    Fact,
    Frame,
    Head,
    Named,
    Segment,
    StoredHead,
    Unpacked,
    dump_head,
    dump_segment,
    parse_head,
    parse_segment,
    parse_segment_facts,
    unpack,
)
from limpet.backends.support.backoff import Backoff
from limpet.backends.support.recent import Recent
from limpet.core.encryption import Ciphers
from limpet.core.foreign import recognise
from limpet.core.limits import CACHE_BYTES_MAX, CONTENTION_WAIT_S_MAX
from limpet.core.rows import unpack_ref
from limpet.errors import Corrupt, InvalidInput, LimpetError, Unavailable, Unsupported
from limpet.model import ANY, ScopeKey
from limpet.protocol import Clock, Stamp

T = TypeVar("T")

PAGE = 1000  # what one request lists
_TOP_KEYS = 100  # that show whose folder it is
_LISTED_BYTES = 16 * 1024  # of a head in a listing: mostly all of its facts
_SMALL_BYTES = 512 * 1024  # a segment of this size is read whole, though only facts are needed
_FACT_BYTES = 1024  # in memory
_RESENDS_MAX = 8
_SCOPES_MAX = 16_384
_PAUSE_S_MIN = 0.000_5
_PAUSE_S_MAX = 0.05


class Beaten(Exception):
    """Another writer was first. Nothing of this attempt is stored or can be: begin again.

    `lost`: the answer to a create was lost. It may be stored later, and is then found by its nonce.
    """

    def __init__(self, *, lost: bool = False) -> None:
        super().__init__()
        self.lost = lost


class Gone(Exception):
    """A segment that a head names is not there: the head has moved, or it is damage."""


class Held(NamedTuple):
    """The head of a scope as it was read or written; `version` is what a compare-and-set expects.

    `stored` is set while the states of the head are not parsed yet. `newest` is the last kept
    state, if it is known, and `size` that of the object.
    """

    head: Head | None = None
    version: str | None = None
    stored: StoredHead | None = None
    newest: bytes | None = None
    size: int = 0

    def whole(self) -> Head | None:
        """Return the head with its states, or raise Corrupt."""
        return self.head if self.stored is None else self.stored.whole()


NoncesOf: TypeAlias = Callable[[bytes], tuple[str, ...]]


def walk(bucket: Bucket, prefix: str, after: str = "", until: str = "") -> Iterator[Listed]:
    """Iterate over all keys with a prefix, a page at a time; `until` as in `Bucket.list`."""
    while True:
        listed = bucket.list(prefix, after=after, limit=PAGE, until=until)
        yield from listed
        if len(listed) < PAGE:
            return
        after = listed[-1].key


class Storage:
    def __init__(
        self,
        bucket: Bucket,
        *,
        clock: Clock,
        draw: Callable[[], Stamp],
        compress: bool,
        ciphers: Ciphers,
    ) -> None:
        if isinstance(bucket, Ending):
            bucket.keep_end()
        self._bucket = EncryptedBucket(bucket, ciphers)
        self.ciphers = ciphers
        self._closed = False
        self._is_ours = False
        self.clock = clock
        self.draw = draw
        self._compress = compress
        self._held: Recent[ScopeKey, Held] = Recent(CACHE_BYTES_MAX, _held_cost)
        self._segments: Recent[str, Segment] = Recent(CACHE_BYTES_MAX, _segment_cost)
        self._facts: Recent[str, tuple[Fact, ...]] = Recent(CACHE_BYTES_MAX, _facts_cost)
        self._given: Recent[ScopeKey, tuple[str, int, str]] = Recent(_SCOPES_MAX)

    @property
    def bucket(self) -> EncryptedBucket:
        if self._closed:
            raise InvalidInput("the store is closed")
        return self._bucket

    def close(self) -> None:
        self._closed = True
        self._bucket.close()

    # Heads

    def read_head(self, scope: ScopeKey) -> Held:
        """Read a head; without one the scope is empty.

        Raises:
            Corrupt: it is damaged, or it is missing although the scope was not deleted; or it is
                encrypted, and an older one that was put back.
        """
        key = keys.head_key(scope)
        _, last, line = self.given(scope)  # before it is read: others may write meanwhile
        (stored,) = self.bucket.get([key])
        if stored is None:
            self._check_absent(scope)
            return Held()
        held = self.parsed_head(stored, key)
        if self.ciphers.encrypts and held.head and held.head.line == line and held.head.last < last:
            raise Corrupt(f"a head is older than one that this process has written. key=`{key}`")
        return held

    def parsed_head(self, stored: Stored, key: str) -> Held:
        """Return the head that is stored under a key, or raise Corrupt if it is that of another."""
        found = parse_head(stored.data)
        self._is_ours = True
        head = found.facts_only
        if keys.head_key(head.scope) != key:
            raise Corrupt(f"a head is stored under the key of another scope. key=`{key}`")
        if head.pending is not None and not self.is_alive(head):
            return Held(None, stored.version)
        return Held(head, stored.version, found, size=stored.size)

    def list_heads(self, paths: Sequence[str]) -> list[Head | LimpetError | None]:
        """Read the facts of many heads; one that cannot be read is an error as a value."""
        found = self.bucket.get(paths, first=_LISTED_BYTES)
        large = [at for at, each in enumerate(found) if each is not None and not _has_facts(each)]
        if large:
            wholes = self.bucket.get([paths[at] for at in large])
            for at, stored in zip(large, wholes, strict=True):
                found[at] = stored
        heads: list[Head | LimpetError | None] = []
        for path, each in zip(paths, found, strict=True):
            try:
                heads.append(None if each is None else self.parsed_head(each, path).head)
            except LimpetError as error:
                heads.append(error)
        return heads

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
        listed = [
            each.key for each in self.bucket.list(prefix, after=f"{prefix}notes/~", limit=PAGE)
        ]
        for path in listed[:1] + [each for each in listed[1:] if f"{prefix}started." in each]:
            if path.endswith("/snapshot_latest.json"):
                raise Unsupported(
                    "this folder has another layout, of Strands or of an earlier version: use "
                    f"`limpet import`. key=`{path}`"
                )
            if self.is_lost(scope, path):
                what = "its history is there: run `limpet repair`"
                if not path.startswith(f"{prefix}segments/"):
                    what = "all that it held: restore it from a backup, or delete the scope"
                raise Corrupt(
                    f"the head of a scope is missing, and {what}. "
                    f"session=`{scope.session_id}` scope=`{scope.scope_id}`"
                )

    def is_lost(self, scope: ScopeKey, path: str) -> bool:
        """Return whether a segment or a line whose head was missing shows that the head is lost.

        Otherwise the scope was deleted: that removes the sign that its line lives before the head.
        """
        key = keys.parse(path)
        head, found = self.bucket.get([keys.head_key(scope), path])
        if head is not None or found is None or key is None:
            return False
        try:
            line = key.line or unpack("segment", found.data).about["line"]
            return self.bucket.get([keys.alive_key(scope, line)]) != [None]
        except (Corrupt, KeyError, ValueError):
            return True

    def is_alive(self, head: Head) -> bool:
        """Return whether the source of a pending fork was not deleted before the fork."""
        ref = unpack_ref(head.entries[0].row.forked_from) if head.entries else None
        if ref is None:
            return True
        (stored,) = self.bucket.get([keys.head_key(ref.scope)])
        try:
            return stored is not None and parse_head(stored.data).facts_only.line == head.pending
        except Corrupt:
            return True  # a damaged source must not hide its forks

    def reading(self, scope: ScopeKey, read: Callable[[Held], T]) -> T:
        """Return what `read` returns for the head; repeat it if the head moves meanwhile."""
        seen = None
        while True:
            held = self.read_head(scope)
            try:
                return read(held)
            except Gone as gone:
                w = None if held.head is None else held.head.w
                if w == seen:
                    raise missing(gone) from None
                seen = w

    def remembered(self, scope: ScopeKey) -> Held | None:
        """Return the head that this process wrote last: if it moved, a compare-and-set fails."""
        return self._held.get(scope)

    def forget(self, scope: ScopeKey) -> None:
        self._held.pop(scope)

    def given(self, scope: ScopeKey) -> tuple[str, int, str]:
        """Return the greatest id and place that this process has assigned in a scope; its line."""
        return self._given.get(scope) or ("", 0, "")

    def contend(self, scope: ScopeKey, attempt: Callable[[], T]) -> T:
        """Repeat an attempt while other writers win the compare-and-set, for up to 30 seconds."""
        backoff = Backoff(
            self.clock, first_s=_PAUSE_S_MIN, longest_s=_PAUSE_S_MAX, wait_s=CONTENTION_WAIT_S_MAX
        )
        gone_before = ""
        while True:
            try:
                return attempt()
            except Beaten:
                self.forget(scope)
            except Gone as gone:
                if self.remembered(scope) is None and gone_before == str(gone):
                    raise missing(gone) from None
                self.forget(scope)
                gone_before = str(gone)
            if not backoff.sleep():
                raise Unavailable(
                    "other writers kept changing the scope first: try again later. "
                    f"waited_s=`{CONTENTION_WAIT_S_MAX:g}`"
                )

    def dump(self, head: Head) -> tuple[bytes, Head]:
        return dump_head(head, compress=self._compress)

    def swap_head(
        self, held: Held, head: Head, newest: bytes | None = None, data: bytes | None = None
    ) -> Held:
        """Replace the head. This is the commit.

        `data` is the head as `dump` returned it. The version returned is None if it was stored, and
        replaced since.
        """
        if data is None:
            data, head = self.dump(head)
        version = self.swap(
            keys.head_key(head.scope),
            data,
            expect=held.version,
            nonce=head.w,
            base="" if held.head is None else held.head.w,
            nonces_of=lambda found: parse_head(found).facts_only.nonces,
        )
        known = Held(head, version, None, newest, len(data))
        if version is None:
            self.forget(head.scope)
        else:
            self._held.put(head.scope, known)
        floor, last, _ = self.given(head.scope)
        self._given.put(head.scope, (max(floor, head.floor), max(last, head.last), head.line))
        return known

    def swap(
        self,
        key: str,
        data: bytes,
        *,
        expect: str | None,
        nonce: str,
        base: str,
        nonces_of: NoncesOf,
    ) -> str | None:
        """Store an object in place of the version `expect`; return the new version.

        None instead of a version: it was stored, and replaced since. `nonce` is that of this write,
        `base` that of the one it replaces ("" when it creates). `nonces_of` finds the nonces in
        stored bytes, the newest first.

        Raises:
            Beaten: it is not stored, and can no longer be.
            Unavailable: nothing was sent; or, with `outcome_known=False`, it is not known.
        """
        lost = False
        for _ in range(_RESENDS_MAX):
            try:
                return self.bucket.put(key, data, expect=expect)
            except Moved:
                pass
            except Unavailable as error:
                if error.outcome_known and not lost:
                    raise
                if error.outcome_known:
                    raise unknown(key) from error
                lost = True
            version, nonces, stored = self._written(key, nonces_of)
            if nonce in nonces:
                if expect is None and stored != data:
                    # Maybe an earlier attempt was stored, whose snapshot has another id.
                    raise Beaten(lost=True)
                return version if nonces[0] == nonce else None
            if not lost:
                raise Beaten
            if version == expect:
                if expect is None:
                    # The lost write may still be stored. The next attempt begins another line, so
                    # that the later one of the two is refused.
                    raise Beaten(lost=True)
                continue  # never report a failure: it may still be stored
            if base and base in nonces:
                raise Beaten
            break
        raise unknown(key)

    def _written(self, key: str, nonces_of: NoncesOf) -> tuple[str | None, tuple[str, ...], bytes]:
        try:
            (found,) = self.bucket.get([key])
        except Unavailable as error:
            raise unknown(key) from error
        if found is None:
            return None, (), b""
        try:
            return found.version, nonces_of(found.data), found.data
        except Corrupt:
            return "", (), b""  # not ours: no nonces

    # Segments

    def read_segments(self, scope: ScopeKey, named: Sequence[Named]) -> list[Segment]:
        """Return whole segments, or raise Gone."""
        paths = [keys.segment_key(scope, each.name) for each in named]
        known = {path: found for path in paths if (found := self._segments.get(path))}
        absent = [path for path in paths if path not in known]
        for path, stored in zip(absent, self.bucket.get(absent) if absent else [], strict=True):
            known[path] = parse_segment(_unpacked(path, stored))
            self._segments.put(path, known[path])
        return [known[path] for path in paths]

    def read_facts(self, scope: ScopeKey, named: Sequence[Named]) -> list[tuple[Fact, ...]]:
        """Return the facts of segments, or raise Gone."""
        known: dict[Named, tuple[Fact, ...]] = {}
        for each in named:
            path = keys.segment_key(scope, each.name)
            whole = self._segments.get(path)
            facts = whole.facts if whole is not None else self._facts.get(path)
            if facts is not None:
                known[each] = facts
        small = [each for each in named if each not in known and each.size <= _SMALL_BYTES]
        with suppress(Corrupt):  # a damaged state does not hide the facts
            pairs = zip(small, self.read_segments(scope, small), strict=True)
            known |= {each: segment.facts for each, segment in pairs}
        large = [each for each in named if each not in known]
        if large:
            paths = [keys.segment_key(scope, each.name) for each in large]
            found = self.bucket.get(paths, first=max(each.facts_bytes for each in large))
            for each, path, stored in zip(large, paths, found, strict=True):
                known[each] = parse_segment_facts(_unpacked(path, stored))
                self._facts.put(path, known[each])
        return [known[each] for each in named]

    def base_of(self, head: Head) -> bytes:
        """Return the base of a head that was read whole; b"" if it has none."""
        if head.base is not None:
            return head.base
        if not head.segments:
            return b""
        (last,) = self.read_segments(head.scope, head.segments[-1:])
        return last.chain.first

    def put_segment(self, head: Head, name: str, segment: Segment) -> tuple[Named, Frame]:
        """Store a segment under a key of its own; return also the frame of its newest state."""
        data, named, frame = dump_segment(name, segment, compress=self._compress)
        key = keys.segment_key(head.scope, name)
        try:
            self.bucket.put(key, data, expect=ANY)
        except Unavailable as error:
            # Nothing is committed: a sweep removes it, if it was stored.
            raise Unavailable(str(error), outcome_known=True) from error
        self._segments.put(key, segment)
        return named, frame

    def delete(self, paths: Sequence[str]) -> None:
        """Remove objects, also from memory."""
        for path in paths:
            self._segments.pop(path)
            self._facts.pop(path)
        self.bucket.delete(paths)

    def drop_segments(self, scope: ScopeKey, names: Sequence[str]) -> None:
        """Remove segments that no head can name any more; what fails is left to a sweep."""
        if names:
            with suppress(Unavailable):
                self.delete([keys.segment_key(scope, each) for each in names])

    def sweep(self, scope: ScopeKey, listed: Sequence[Listed] | None = None) -> int:
        """Remove the segments that the head does not name and never will; return their bytes.

        Listed before the head is read: one that is listed, not named, and not written to replace
        the present head can no longer be committed. Nothing is removed without a head.
        """
        if listed is None:
            listed = list(walk(self.bucket, keys.segments_prefix(scope)))
        head = self.read_head(scope).head if listed else None
        doomed = [] if head is None else unnamed(head, listed)
        if doomed:
            self.delete([each.key for each in doomed])
        return sum(each.size for each in doomed)

    def sweep_after(self, head: Head, before: Head | None) -> None:
        """As `sweep`, after this head was stored; mostly without reading the present one.

        A segment that is not named by this head is named by no later one if the head before named
        it, or if it was written to replace a head before this one.
        """
        names = [each.name for each in head.segments]
        # Only what a killed writer has left can come after the newest segment.
        newest = keys.segment_key(head.scope, names[-1]) if names else ""
        listed = list(walk(self.bucket, keys.segments_prefix(head.scope), until=newest))
        others = unnamed(head, listed)
        past = tuple(f".after-{w}" for w in head.trail)
        if before is not None:
            past += tuple(f"/{each.name}" for each in before.segments)
        if not all(each.key.endswith(past) for each in others):
            self.sweep(head.scope, listed)
        elif others:
            self.delete([each.key for each in others])


def unnamed(head: Head, listed: Sequence[Listed]) -> list[Listed]:
    """Return the segments that this head does not name, and no later one can."""
    names = {each.name for each in head.segments}
    found = ((each, keys.parse(each.key)) for each in listed)
    return [
        each
        for each, key in found
        if key is not None and key.segment and key.segment not in names and key.base != head.w
    ]


def _has_facts(stored: Stored) -> bool:
    """Return whether the bytes at hand are all, or have at least the facts of a head."""
    if isinstance(stored, Unreadable) or len(stored.data) == stored.size:
        return True
    try:
        unpacked = unpack("head", stored.data)
        return bool(len(unpacked.frames[0]) == unpacked.about["frames"][0])
    except (LimpetError, IndexError):
        return False


def _unpacked(path: str, stored: Stored | None) -> Unpacked:
    if stored is None:
        raise Gone(path)
    found = unpack("segment", stored.data)
    if not path.endswith(f"/{found.about.get('name')}"):
        raise Corrupt(f"a segment is stored under the key of another. key=`{path}`")
    return found


def missing(gone: Gone) -> Corrupt:
    return Corrupt(f"a segment of the history is missing. key=`{gone}`")


def unknown(key: str) -> Unavailable:
    return Unavailable(
        "an answer was lost, and it is not known whether the write was applied: read before you "
        f"write again. key=`{key}`",
        outcome_known=False,
    )


def _held_cost(held: Held) -> int:
    head = held.head
    if head is None:
        return 1
    deltas = sum(len(each.delta.literal) for each in head.entries if each.delta is not None)
    states = len(head.base or b"") + len(held.newest or b"")
    return _FACT_BYTES * (1 + len(head.entries)) + deltas + states


def _segment_cost(segment: Segment) -> int:
    deltas = sum(len(each.literal) for each in segment.chain.deltas)
    return _facts_cost(segment.facts) + deltas + len(segment.chain.first)


def _facts_cost(facts: tuple[Fact, ...]) -> int:
    return _FACT_BYTES * len(facts)
