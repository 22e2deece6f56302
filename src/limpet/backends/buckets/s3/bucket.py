"""A bucket in an object store: S3 and what speaks like it, Google's and Microsoft's, by obstore.

Before its first write a bucket proves that the service honours conditions: one that ignores them
answers `200` to everything, and would lose whatever two writers write at once.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

from limpet.backends.buckets.protocol import Listed, Moved, Stored
from limpet.backends.buckets.s3 import order
from limpet.backends.buckets.s3.requests import Kind, Refusal, Service
from limpet.backends.support.polling import Poller
from limpet.errors import Unavailable, Unsupported
from limpet.model import ANY, Expect
from limpet.protocol import Clock

if TYPE_CHECKING:
    from obstore import Attributes, GetOptions, ObjectMeta, PutMode
    from obstore.store import ObjectStore

PAGE_KEYS_MAX = 1_000  # what a service returns for one LIST, and takes for one DELETE
_PROBE = ".limpet/probe"
_LIVELY = 8  # looks in the time of one, while something happens
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class ObjectStoreBucket:
    """The objects below a prefix of a bucket. Nothing is requested until something is asked.

    Costs, in requests: `get`, `fingerprints` and `mark` one for each key (two for the first bytes
    of an empty object); `put` one; `list` one for each 1,000 keys; `delete` one for each 1,000
    keys, with Google one for each; the first write four more, or two while another process proves
    the same.
    """

    def __init__(
        self,
        open_store: "Callable[[], ObjectStore]",
        *,
        name: str,
        prefix: str,
        clock: Clock,
        retry_s: float,
        parallel: int,
        version: Literal["e_tag", "version"] = "e_tag",
    ) -> None:
        """`name` is shown in errors; `prefix` is "" or ends with `/`.

        `version` is what the service compares: the ETag, or (Google) a number of its own.
        """
        self._service = Service(
            open_store, name=name, clock=clock, retry_s=retry_s, parallel=parallel
        )
        self._name = name
        self._root = prefix
        self._version = version
        self._proving = threading.Lock()
        self._proven = False
        self._unfit: str | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}(bucket=`{self._name}` prefix=`{self._root}`)"

    def close(self) -> None:
        """Let go of the threads and the connections."""
        self._service.close()

    # Reading

    def get(self, keys: Sequence[str], *, first: int | None = None) -> list[Stored | None]:
        """Return each object, or its first bytes, in the order asked; None where there is none."""
        return self._service.map(lambda key: self._get(key, first), keys)

    def _get(self, key: str, first: int | None) -> Stored | None:
        # No range can ask for nothing, so at least one byte is asked for.
        asked: GetOptions = {} if first is None else {"range": (0, max(first, 1))}
        try:
            try:
                return self._service.ask(lambda store: self._read(store, key, asked, first))
            except Refusal as refusal:
                if refusal.kind is not Kind.RANGE:
                    raise
                # Of an empty object there is no first byte. It may have grown since, hence no HEAD.
                return self._service.ask(lambda store: self._read(store, key, {}, first))
        except Refusal as refusal:
            if refusal.kind is Kind.MISSING:
                return None
            raise self._service.misread(refusal) from None

    def _read(
        self, store: "ObjectStore", key: str, asked: "GetOptions", first: int | None
    ) -> Stored:
        reply = store.get(self._root + key, options=asked)
        meta = reply.meta
        data = reply.bytes().to_bytes()
        return Stored(data[:first], meta["size"], meta[self._version], _modified(meta))

    def fingerprints(self, known: Mapping[str, str | None]) -> dict[str, str | None]:
        """Return the ETag of each key; what has not changed is told without being sent."""
        found = self._service.map(lambda each: self._fingerprint(*each), list(known.items()))
        return dict(zip(known, found, strict=True))

    def _fingerprint(self, key: str, known: str | None) -> str | None:
        asked: GetOptions = {"range": (0, 1)}
        if known is not None:
            asked["if_none_match"] = known
        try:
            return self._service.ask(lambda store: self._e_tag(store, key, asked))
        except Refusal as refusal:
            if refusal.kind is Kind.MOVED:
                return known
            if refusal.kind is Kind.MISSING:
                return None
            if refusal.kind is Kind.RANGE:
                return "empty"
            # What cannot be told is told by whoever reads it; it must not stop the others.
            return "refused"

    def _e_tag(self, store: "ObjectStore", key: str, asked: "GetOptions") -> str:
        meta = store.get(self._root + key, options=asked).meta
        return meta["e_tag"] or str(meta["last_modified"])

    def listen(self, *, poll_s: float, clock: Clock) -> Poller:
        """Nobody tells, so it is looked at."""
        return Poller(first_s=poll_s / _LIVELY, poll_s=poll_s, clock=clock)

    def list(self, prefix: str, *, after: str = "", limit: int) -> list[Listed]:
        """Return a page of keys that begin with a prefix and come after `after`, in order.

        `after` is a key, or ends with `~`: a tree would take the name of a folder for the whole of
        it.
        """
        whole, last = self._root + prefix, self._root + after
        offset = order.start_of(whole, last)
        if limit < 1 or offset is None:
            return []
        start = len(self._root)

        def request(store: "ObjectStore") -> list[Listed]:
            found: list[Listed] = []
            pages = store.list(
                order.folder_of(whole) or None,
                offset=offset or None,
                chunk_size=min(limit, PAGE_KEYS_MAX),
            )
            for page in pages:
                for each in page:
                    key = each["path"]
                    if not key.startswith(whole):
                        if key > whole:
                            return found
                    elif key != last:
                        found.append(Listed(key[start:], each["size"], _modified(each)))
                        if len(found) == limit:
                            return found
            return found

        return self._service.answer(request)

    # Writing

    def put(self, key: str, data: bytes, *, expect: Expect) -> str:
        """Store an object durably as one step; return its new version."""
        self._prove()
        try:
            return self._put(key, data, expect)
        except Refusal as refusal:
            if expect is not ANY and refusal.kind in (Kind.MOVED, Kind.MISSING):
                raise Moved from None
            raise self._service.misread(refusal) from None

    def _put(self, key: str, data: bytes, expect: Expect, *, again: bool = False) -> str:
        mode: PutMode = "overwrite"
        if expect is None:
            mode = "create"
        elif expect is not ANY:
            mode = {"e_tag": expect} if self._version == "e_tag" else {"version": expect}
        # For people's browsers, and the tools of others, who say so too.
        attributes: Attributes = {"Content-Type": "application/json"} if _is_json(key) else {}

        def request(store: "ObjectStore") -> str:
            # Never in parts: those would be several steps.
            done = store.put(
                self._root + key, data, mode=mode, use_multipart=False, attributes=attributes
            )
            return done[self._version] or ""

        return self._service.ask(request, write=True, again=again or expect is ANY)

    def mark(self, keys: Sequence[str]) -> None:
        """Store empty objects durably, whatever stands there."""
        if keys:
            self._prove()
            self._service.map(self._mark, keys)

    def _mark(self, key: str) -> None:
        try:
            self._put(key, b"", ANY)
        except Refusal as refusal:
            raise self._service.misread(refusal) from None

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects that exist.

        A service confirms every key of a request, or else obstore raises, and the request is sent
        again. What others put meanwhile is not looked for: it must not be deleted a second time.
        """
        if keys:
            self._prove()
        unique = list(dict.fromkeys(keys))
        starts = range(0, len(unique), PAGE_KEYS_MAX)
        batches = [unique[at : at + PAGE_KEYS_MAX] for at in starts]
        undone = self._service.map(self._delete, batches)
        self._service.map(self._delete, [[key] for batch in undone for key in batch])

    def _delete(self, keys: Sequence[str]) -> Sequence[str]:
        """Delete in one request; return the keys if that ended with one that is not there.

        Some services mind that, and leave the others undone.
        """
        paths = [self._root + key for key in keys]
        try:
            self._service.ask(lambda store: store.delete(paths), write=True, again=True)
        except Refusal as refusal:
            if refusal.kind is not Kind.MISSING:
                raise self._service.misread(refusal) from None
            return keys if len(keys) > 1 else ()
        return ()

    # Proving that the service honours conditions

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
                made = self._made_probe(None)
                # Only who made the probe removes it: so until then it is there for its maker, and
                # others are refused by the one or the other condition. Twice, for a delete of
                # another's that was late may have removed ours.
                twice = made and self._made_probe(None) and self._made_probe(None)
                ignored = "If-None-Match" if twice else ""
                if not ignored and self._made_probe(self._wrong_version()):
                    ignored = "If-Match"
                if made or ignored:
                    self._delete([_PROBE])
            except Unavailable as cause:
                raise Unavailable(*cause.args) from None  # nothing of the caller's was sent
            if ignored:
                self._unfit = (
                    f"the object store ignores conditions, so that writers would overwrite each"
                    f" other. {self._service.about} condition=`{ignored}`"
                )
                raise Unsupported(self._unfit)
            self._proven = True

    def _made_probe(self, expect: str | None) -> bool:
        try:
            # Sent again, it is refused if it was stored, which proves the same.
            self._put(_PROBE, b"limpet", expect, again=True)
        except Refusal as refusal:
            if refusal.kind in (Kind.MOVED, Kind.MISSING):
                return False
            raise self._service.misread(refusal) from None
        return True

    def _wrong_version(self) -> str:
        return '"00000000000000000000000000000000"' if self._version == "e_tag" else "1"


def _is_json(key: str) -> bool:
    return key.endswith(".json")


def _modified(meta: "ObjectMeta") -> int:
    return (meta["last_modified"] - _EPOCH) // _MICROSECOND
