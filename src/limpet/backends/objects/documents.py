"""Documents in a bucket: read and verified; written by compare-and-set, lost answers resolved.

A document has the nonce of its write (`w`) and those of the writes before it (`trail`). A writer
that lost an answer reads the document: if it has the writer's nonce, the write was stored; if it
only has the nonce that was to be replaced, the write was not stored and no longer can be; otherwise
the outcome is not known.
"""

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

from limpet.backends.buckets.protocol import Bucket, Listed, Moved, Stored
from limpet.core import document
from limpet.core import document as foreign
from limpet.core.document import Header, Tombstone
from limpet.core.layout import Clipped, Layout, Name
from limpet.core.rows import Row
from limpet.errors import Corrupt, InvalidInput, Unavailable
from limpet.model import ScopeKey

FIRST_BYTES = 16 * 1024  # of a document: mostly the whole header
TRAIL_MAX = 16
PAGE = 1000  # what one request lists
_RESENDS_MAX = 8
_WHOLES_MAX = 16  # whole documents in memory where only their headers are needed


def walk(bucket: Bucket, prefix: str, after: str = "", page: int = PAGE) -> Iterator[Listed]:
    """Iterate over all keys with a prefix, a page at a time."""
    while True:
        listed = bucket.list(prefix, after=after, limit=page)
        yield from listed
        if len(listed) < page:
            return
        after = listed[-1].key


class Beaten(Exception):
    """Another writer was first. Nothing of this attempt is stored or can be: begin again.

    `lost`: the answer to a create was lost. It may be stored later, and is then found by its nonce.
    """

    def __init__(self, *, lost: bool = False) -> None:
        super().__init__()
        self.lost = lost


class Doc(NamedTuple):
    """A document. `stored` is the whole of it, if that was read, `proved` its verified state."""

    header: Header
    version: str | None = None
    stored: bytes | None = None
    foreign: bool = False
    proved: bytes | None = None

    @property
    def body(self) -> bytes:
        """The encoded state of a document that was read whole; raises Corrupt."""
        return self.proved or document.read(self.stored or b"").body

    @property
    def row(self) -> Row:
        header = self.header
        return Row(
            seq=header.seq,
            id=header.id,
            rev=header.rev,
            nonce=header.nonce,
            kept=header.kept,
            parent_id=header.parent,
            forked_from=header.forked_from,
            status=header.status,
            labels=header.labels,
            metadata=header.metadata,
            created_at=header.created_at,
            updated_at=header.updated_at,
            saved_at=header.seq,
            size=header.size,
        )


class Grave(NamedTuple):
    tombstone: Tombstone
    version: str | None


Found: TypeAlias = Doc | Grave | Corrupt | None
"""What a key holds; a damaged document is a value too, so that a listing can skip it."""


NoncesOf: TypeAlias = Callable[[bytes], tuple[str, ...]]


class DocumentAddress(NamedTuple):
    """The key of a document, and the id that it must have; None for a head."""

    key: str
    id: Name | None = None


class Files:
    def __init__(self, bucket: Bucket, layout: Layout) -> None:
        self.bucket = bucket
        self.layout = layout

    def copy_place(self, scope: ScopeKey, id: str) -> DocumentAddress:
        return DocumentAddress(self.layout.copy_key(scope, id), id)

    def head_place(self, scope: ScopeKey) -> DocumentAddress:
        return DocumentAddress(self.layout.head_key(scope))

    def read(
        self, places: Sequence[DocumentAddress], *, whole: bool = False, versions: bool = False
    ) -> list[Found]:
        """Return the headers, or whole documents with verified states.

        A second request is sent only if the first bytes are not enough.
        """
        first = None if whole else FIRST_BYTES
        answers = self.bucket.get([place.key for place in places], first=first)
        found = [
            self._parse(place, stored, whole, versions)
            for place, stored in zip(places, answers, strict=True)
        ]
        more = [at for at, each in enumerate(found) if each is _MORE]
        for start in range(0, len(more), _WHOLES_MAX):
            some = more[start : start + _WHOLES_MAX]
            answers = self.bucket.get([places[at].key for at in some])
            for at, stored in zip(some, answers, strict=True):
                found[at] = self._parse(places[at], stored, whole, versions)
        return found

    def read_one(
        self, place: DocumentAddress, *, whole: bool = False, versions: bool = False
    ) -> Found:
        (found,) = self.read([place], whole=whole, versions=versions)
        return found

    def read_head(
        self, scope: ScopeKey, *, whole: bool = False, versions: bool = False
    ) -> Doc | None:
        """Return the document of the head, or None; raise Corrupt if it is damaged."""
        found = self.read_one(self.head_place(scope), whole=whole, versions=versions)
        if isinstance(found, Corrupt):
            raise found
        return found if isinstance(found, Doc) else None

    def parsed(self, place: DocumentAddress, stored: Stored) -> Found:
        return self._parse(place, stored, whole=True, versions=False)

    def _parse(
        self, place: DocumentAddress, stored: Stored | None, whole: bool, versions: bool
    ) -> Found:
        if stored is None:
            return None
        is_all = len(stored.data) == stored.size
        if (versions and stored.version is None) and not is_all:
            return _MORE
        if place.id is not None and is_all:
            tombstone = document.read_tombstone(stored.data)
            if tombstone is not None:
                return Grave(tombstone, stored.version)
        try:
            return self._parse_live(place, stored, whole, is_all)
        except (Corrupt, InvalidInput) as error:  # a foreign document may be nested too deep
            return Corrupt(f"{error} key=`{place.key}`")

    def _parse_live(
        self, place: DocumentAddress, stored: Stored, whole: bool, is_all: bool
    ) -> Found:
        header: Header | int | None
        body = None
        if whole:
            read = document.read(stored.data)
            header, body = read.header, read.body
        else:
            header = document.read_header(stored.data)
            if isinstance(header, int) and not is_all:
                return _MORE
            if isinstance(header, int):
                header = document.read(stored.data).header
        if isinstance(header, Header):
            if not _bears(header, place.id) or (header.void and place.id is not None):
                raise Corrupt(f"a document is stored under the key of another. id=`{header.id}`")
            data = stored.data if whole or (is_all and stored.size <= FIRST_BYTES) else None
            return Doc(header, stored.version, data, proved=body)
        return self._parse_foreign(place, stored, whole)

    def _parse_foreign(self, place: DocumentAddress, stored: Stored, whole: bool) -> Found:
        if isinstance(place.id, Clipped):
            raise Corrupt("a foreign document has no id")
        header = foreign.header_of(
            document.read(stored.data),
            id=place.id,
            digest=blake2b(stored.data, digest_size=8).hexdigest(),
            modified=stored.modified,
        )
        data = stored.data if whole or stored.size <= FIRST_BYTES else None
        return Doc(header, stored.version, data, foreign=True)

    def stored_bytes(self, scope: ScopeKey) -> int:
        return sum(each.size for each in walk(self.bucket, self.layout.scope_prefix(scope)))

    def swap(
        self,
        key: str,
        data: bytes,
        *,
        expect: str | None,
        nonce: str,
        base: str,
        nonces_of: NoncesOf | None = None,
    ) -> str | None:
        """Store a document in place of the version `expect`; return the new version.

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
            written = self._written(key, nonces_of or _nonces_of_document)
            if nonce in written.nonces:
                if expect is None and written.nonces[0] == nonce and written.data != data:
                    raise Beaten(lost=True)  # an earlier attempt was stored
                return written.version if written.nonces[0] == nonce else None
            if not lost:
                raise Beaten
            if written.version == expect:
                if expect is None:
                    # The lost write may still be stored. The next attempt begins another line, so
                    # that the later one of the two is refused.
                    raise Beaten(lost=True)
                continue  # never report a failure: it may still be stored
            if base and base in written.nonces:
                raise Beaten
            break
        raise unknown(key)

    def _written(self, key: str, nonces_of: NoncesOf) -> "_Written":
        try:
            (found,) = self.bucket.get([key])
        except Unavailable as error:
            raise unknown(key) from error
        if found is None:
            return _Written(None, (), b"")
        try:
            return _Written(found.version, nonces_of(found.data), found.data)
        except Corrupt:
            return _Written("", (), b"")  # not ours: no nonces


class _Written(NamedTuple):
    version: str | None
    nonces: tuple[str, ...]
    data: bytes


# The first bytes are not enough. Never leaves `read`.
_MORE = Corrupt("more is needed")


def _nonces_of_document(stored: bytes) -> tuple[str, ...]:
    header = document.read(stored).header
    return () if header is None else (header.w, *header.trail)


def _bears(header: Header, id: Name | None) -> bool:
    if id is None:
        return True
    return id.matches(header.id) if isinstance(id, Clipped) else header.id == id


def unknown(key: str) -> Unavailable:
    return Unavailable(
        "an answer was lost, and it is not known whether the write was applied: read before you "
        f"write again. key=`{key}`",
        outcome_known=False,
    )


def trail_after(header: Header) -> tuple[str, ...]:
    return (header.w, *header.trail)[:TRAIL_MAX]
