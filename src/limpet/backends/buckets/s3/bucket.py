"""A bucket in an object store, by obstore: S3 and compatible services, Google, Azure.

Before its first write a bucket proves that the service honours conditional writes: one that ignores
the conditions answers `200` to everything, and would lose concurrent writes.

obstore takes any XML for a listing, a login page for an empty one, and one that is truncated
without a token for a complete one. So with `keep_end` the end of a listing is only believed when a
key after it was seen: the object that proved the conditions stays, as the last key of the bucket.
Without it nothing of ours stays, and only a listing without keys is verified: by reading an object.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from os.path import commonprefix
from typing import TYPE_CHECKING, Final, Literal

from limpet.backends.buckets.protocol import Listed, Moved, Stored
from limpet.backends.buckets.s3.requests import Garbled, Kind, Service
from limpet.backends.support.polling import Poller
from limpet.core import times
from limpet.errors import Unavailable, Unsupported
from limpet.model import ANY, Expect
from limpet.protocol import Clock

if TYPE_CHECKING:
    from obstore import Attributes, GetOptions, ObjectMeta, PutMode
    from obstore.store import ObjectStore

_RETRY_S = 60.0
_PARALLEL = 16
PAGE_KEYS_MAX = 1_000  # what a service returns for one LIST, and takes for one DELETE
_WRONG_VERSIONS = {"e_tag": f'"{32 * "0"}"', "version": "1"}
_END_KEY = "~limpet"  # the last key
_END_BODY = b"limpet: by this object listings are known to be complete\n"
_PROBED_KEYS = 8  # keys after the end of a listing: one is enough
_EMPTY: Final = Stored(b"", 0, None, 0)  # that the object is too short for the range
_POLLS_WHEN_ACTIVE = 8  # in the time of one poll


class ObjectStoreBucket:
    """The objects below a prefix of a bucket. Opening makes no request.

    Costs, in requests: `get`, `fingerprints` and `mark` one per key (two for the first bytes of an
    empty object); `put` one; `list` one per 1,000 keys, and one more where it ends with
    `keep_end`, or without keys; `delete` one per 1,000 keys (with Google one per key); the first
    write three more (four without `keep_end`), or two if another process has proved the same.
    """

    def __init__(
        self,
        open_store: "Callable[[], ObjectStore]",
        *,
        name: str,
        prefix: str,
        clock: Clock,
        retry_s: float = _RETRY_S,
        parallel: int = _PARALLEL,
        version: Literal["e_tag", "version"] = "e_tag",
        seeks: bool = True,
    ) -> None:
        """`name` is for messages; `prefix` is "" or ends with `/`.

        `version` is what the service compares: the ETag, or (Google) the generation. A service that
        `seeks` begins a listing after any key; with others (Azure) only a listing without keys is
        verified, as without `keep_end`.
        """
        self._service = Service(
            open_store, name=name, clock=clock, retry_s=retry_s, parallel=parallel
        )
        self._name = name
        self._root = prefix
        self._version = version
        self._seeks = seeks
        self._keeps_end = False
        self._newest = ""  # the key that was put last, until it is deleted
        self._proving = threading.Lock()
        self._proven = False
        self._unfit: str | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}(bucket=`{self._name}` prefix=`{self._root}`)"

    def close(self) -> None:
        self._service.close()

    def keep_end(self) -> None:
        self._keeps_end = True

    # Reading

    def get(self, keys: Sequence[str], *, first: int | None = None) -> list[Stored | None]:
        return self._service.map(lambda key: self._get(key, first), keys)

    def _get(self, key: str, first: int | None) -> Stored | None:
        # A range cannot be empty, so at least one byte is requested.
        asked: GetOptions = {} if first is None else {"range": (0, max(first, 1))}
        found = self._service.ask(
            lambda store: self._read(store, key, asked, first),
            answers={Kind.MISSING: None, Kind.RANGE: _EMPTY},
        )
        if found is not _EMPTY:
            return found
        # An empty object has no first byte. It may have grown since, hence GET, not HEAD.
        return self._service.ask(
            lambda store: self._read(store, key, {}, first), answers={Kind.MISSING: None}
        )

    def _read(
        self, store: "ObjectStore", key: str, asked: "GetOptions", first: int | None
    ) -> Stored:
        reply = store.get(self._root + key, options=asked)
        meta = reply.meta
        data = reply.bytes().to_bytes()
        if meta[self._version] is None:
            raise Garbled("an object without a version")
        return Stored(data[:first], meta["size"], meta[self._version], _modified(meta))

    def fingerprints(self, known: Mapping[str, str | None]) -> dict[str, str | None]:
        """Return the ETag of each key, by requests that send no data of unchanged objects."""
        found = self._service.map(lambda each: self._fingerprint(*each), list(known.items()))
        return dict(zip(known, found, strict=True))

    def _fingerprint(self, key: str, known: str | None) -> str | None:
        asked: GetOptions = {"range": (0, 1)}
        if known is not None:
            asked["if_none_match"] = known
        # A reader of an object that is refused gets the error; it must not stop the others.
        answers = dict.fromkeys((Kind.DENIED, Kind.INVALID, Kind.REFUSED), "refused")
        return self._service.ask(
            lambda store: self._e_tag(store, key, asked),
            answers={**answers, Kind.MOVED: known, Kind.MISSING: None, Kind.RANGE: "empty"},
        )

    def _e_tag(self, store: "ObjectStore", key: str, asked: "GetOptions") -> str:
        meta = store.get(self._root + key, options=asked).meta
        return meta["e_tag"] or str(meta["last_modified"])

    def listen(self, *, poll_s: float, clock: Clock) -> Poller:
        """Poll: object stores send no notifications."""
        return Poller(first_s=poll_s / _POLLS_WHEN_ACTIVE, poll_s=poll_s, clock=clock)

    def list(self, prefix: str, *, after: str = "", limit: int, until: str = "") -> list[Listed]:
        """As `Bucket.list`; `after` is a key, or ends with `~`.

        A service that keeps trees would skip a whole folder after its name.
        """
        whole, last = self._root + prefix, self._root + after
        offset = start_of(whole, last)
        if limit < 1 or offset is None:
            return []

        def request(store: "ObjectStore") -> list[Listed]:
            found: dict[str, Listed] = {}
            for each in self._keys(store, whole, offset, limit, self._root + until):
                key = each["path"]
                if key in found or (offset == last and is_before(key, last)):
                    raise Garbled("a listing that repeats itself")
                if key != last:
                    found[key] = Listed(key[len(self._root) :], each["size"], _modified(each))
                    if len(found) == limit:
                        break
            return list(found.values())

        return self._service.ask(request)

    def _keys(
        self, store: "ObjectStore", whole: str, offset: str, limit: int, until: str
    ) -> "Iterator[ObjectMeta]":
        """Iterate over the keys that begin with a text, and verify that the last is the last."""
        folder, end = folder_of(whole), self._root + _END_KEY
        at = start = offset or f"{folder} "  # where the listing has arrived
        sees_end = self._keeps_end and self._seeks
        known = (until, self._root + self._newest)  # what is put from now on need not be listed
        is_enough = False
        for each in _walk(store, folder, offset, min(limit, PAGE_KEYS_MAX)):
            key = each["path"]
            is_enough = is_enough or key == until
            if (key == end and self._keeps_end) or (key > whole and not key.startswith(whole)):
                return
            if key.startswith(whole):
                yield each
                at = key
        if is_enough or (at != start and not sees_end):
            return
        before = ""
        while at != before and sees_end:
            before = at
            for each in _walk(store, self._root, at, _PROBED_KEYS):
                key = each["path"]
                is_inside = key.startswith(whole)
                if key == end or (not is_inside and (at.startswith(whole) or key > whole)):
                    return
                if is_inside and key != at:
                    yield each
                    at = key
        # Nothing more came. A key that would have come must not exist; to a login page, all do.
        inside = (key for key in known if key.startswith(whole) and is_before(at, key))
        missed = end if sees_end else next(inside, "")
        if self._exists(store, missed or end) and missed:
            raise Garbled("a listing without a key that exists")

    def _exists(self, store: "ObjectStore", path: str) -> bool:
        try:
            found = self._read(store, path[len(self._root) :], {}, None)
        except FileNotFoundError:
            return False
        if path == self._root + _END_KEY and found.data != _END_BODY:
            raise Garbled("an object that is another one")
        return True

    # Writing

    def put(self, key: str, data: bytes, *, expect: Expect) -> str:
        self._prove()
        version = self._put(key, data, expect)
        if version is None:
            raise Moved
        self._newest = key
        return version

    def _put(self, key: str, data: bytes, expect: Expect, *, again: bool = False) -> str | None:
        """Store an object; return its new version, or None if it is not as expected."""
        mode: PutMode = "overwrite"
        if expect is None:
            mode = "create"
        elif expect is not ANY:
            mode = {"e_tag": expect} if self._version == "e_tag" else {"version": expect}
        # For browsers; other tools set it too.
        attributes: Attributes = {}
        if key.endswith(".json"):
            attributes["Content-Type"] = "application/json"

        def request(store: "ObjectStore") -> str:
            # Never multipart: those are several steps.
            done = store.put(
                self._root + key, data, mode=mode, use_multipart=False, attributes=attributes
            )
            return done[self._version] or ""

        moved = {} if expect is ANY else {Kind.MOVED: None, Kind.MISSING: None}
        return self._service.ask(request, answers=moved, write=True, again=again or expect is ANY)

    def mark(self, keys: Sequence[str]) -> None:
        if keys:
            self._prove()
            self._service.map(lambda key: self._put(key, b"", ANY), keys)

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects.

        A service confirms every key of a request; otherwise obstore raises, and the request is sent
        again. There is no check afterwards: what was put meanwhile must not be deleted.
        """
        if keys:
            self._prove()
        if self._newest in keys:
            self._newest = ""
        unique = list(dict.fromkeys(keys))
        starts = range(0, len(unique), PAGE_KEYS_MAX)
        batches = [unique[at : at + PAGE_KEYS_MAX] for at in starts]
        undone = self._service.map(self._delete, batches)
        self._service.map(self._delete, [[key] for batch in undone for key in batch])

    def _delete(self, keys: Sequence[str]) -> Sequence[str]:
        """Delete in one request; return the keys if it failed because one does not exist.

        Some services then leave the others undeleted.
        """
        paths = [self._root + key for key in keys]
        missing = self._service.ask(
            lambda store: store.delete(paths), answers={Kind.MISSING: True}, write=True, keys=paths
        )
        return keys if missing and len(keys) > 1 else ()

    def _prove(self) -> None:
        """Refuse a service that ignores conditions, before anything is written to it."""
        if self._proven:
            return
        with self._proving:
            if self._unfit is not None:
                raise Unsupported(self._unfit)
            if self._proven:
                return
            try:
                # Only the process that created it removes it, if at all. Until then it exists, and
                # one of the two conditions must refuse a write. It is tried twice, as a delayed
                # delete of another process may have removed our object.
                made = self._put_end(None)
                twice = made and self._put_end(None) and self._put_end(None)
                ignored = "If-None-Match" if twice else ""
                if not ignored and self._put_end(_WRONG_VERSIONS[self._version]):
                    ignored = "If-Match"
                if ignored or (made and not self._keeps_end):
                    self._delete([_END_KEY])
            except Unavailable as cause:
                raise Unavailable(*cause.args) from None  # the caller's data was not sent
            if ignored:
                self._unfit = (
                    f"the object store ignores conditional writes, so that writers would overwrite"
                    f" each other: choose another one. bucket=`{self._name}` condition=`{ignored}`"
                )
                raise Unsupported(self._unfit)
            self._proven = True

    def _put_end(self, expect: str | None) -> bool:
        # If it was stored and is sent again it is refused, which proves the same.
        return self._put(_END_KEY, _END_BODY, expect, again=True) is not None


def _walk(store: "ObjectStore", folder: str, offset: str, at_a_time: int) -> "Iterator[ObjectMeta]":
    pages = store.list(folder or None, offset=offset or None, chunk_size=at_a_time)
    return chain.from_iterable(pages)


def _modified(meta: "ObjectMeta") -> int:
    return times.to_us("last_modified", meta["last_modified"])


# Where a listing begins and ends, in either of two orders.
#
# S3 lists keys by their bytes. SeaweedFS keeps a tree and lists by the names along the path, as if
# `/` came before every other character. Both keep a folder together, and both agree on keys that
# first differ in characters other than `/`; nothing else is relied on.
#
# An `offset` must be inside the folder that is listed: outside of it SeaweedFS compares by bytes.
# And one that names a folder skips the whole folder there, so ours never does.


def folder_of(key: str) -> str:
    """Return the folder of a key or a prefix, with its `/`; "" for none."""
    return key[: key.rfind("/") + 1]


def before(text: str) -> str:
    """Return an offset just before all keys that begin with a text, which does not end with `/`."""
    stem, last = text[:-1], text[-1]
    if last <= "!" or last == "\ue000":
        # Hardly a character comes before it, or none that is text. A path cannot end with `/`.
        return "" if stem == folder_of(stem) else stem
    # `~` is the last character that our names have. Other names that follow are listed in vain.
    return f"{stem}{chr(ord(last) - 1)}~~~"


def start_of(prefix: str, after: str) -> str | None:
    """Return the offset for listing the keys of a prefix that come after a key.

    "" is the beginning of the folder. None: no key can follow.
    """
    folder = folder_of(prefix)
    begin = "" if prefix == folder else before(prefix)
    if prefix.startswith(after):
        return begin
    if after.startswith(prefix):
        # A path cannot end with `/`; nothing in a folder comes before a blank.
        return f"{after} " if after.endswith("/") else after
    at = len(commonprefix([after, prefix]))  # noqa: RUF071
    if at >= len(folder) and after[at] == "/":
        # `x/…` comes before `x-1` in a tree and after it by bytes. No key in that folder has the
        # prefix, so the listing begins at the folder's end, wherever the service has it.
        return f"{after[:at]}/~"
    return begin if after < prefix else None


def is_before(key: str, other: str) -> bool:
    """Return whether a key comes before another one in both orders."""
    return key < other and key.split("/") < other.split("/")
