"""A bucket in memory that counts requests and bytes."""

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from limpet.backends.buckets.protocol import Listed, Moved, Stored
from limpet.model import ANY, Expect
from limpet.protocol import Clock, Listener

T = TypeVar("T")


class CountingBucket:
    """Requests are counted as on S3: a GET or PUT for each key, a DELETE for 1,000.

    With `keep_end` the end of a listing is a LIST more, unless a key after it was listed.
    """

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, int]] = {}
        self.count: Counter[str] = Counter()
        self.sent = 0
        self._lock = threading.Lock()
        self._time = 0
        self._keeps_end = False

    def keep_end(self) -> None:
        self._keeps_end = True

    def take(self) -> dict[str, int]:
        """Return the requests since the last call."""
        taken, self.count = dict(self.count), Counter()
        return taken

    @property
    def stored(self) -> int:
        return sum(len(data) for data, _ in self.objects.values())

    def get(self, keys: Sequence[str], *, first: int | None = None) -> list[Stored | None]:
        found = [self._get(key, first) for key in keys]
        # The first bytes of an empty object are a GET more.
        empty = sum(first is not None and each is not None and not each.size for each in found)
        self.count["GET"] += len(keys) + empty
        return found

    def _get(self, key: str, first: int | None) -> Stored | None:
        found = self.objects.get(key)
        if found is None:
            return None
        data, modified = found
        return Stored(data[:first], len(data), _version(data), modified)

    def put(self, key: str, data: bytes, *, expect: Expect) -> str:
        self.count["PUT"] += 1
        self.sent += len(data)
        with self._lock:
            found = self.objects.get(key)
            version = None if found is None else _version(found[0])
            if expect is not ANY and version != expect:
                raise Moved
            self._time += 1
            self.objects[key] = (data, self._time)
            return _version(data)

    def mark(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.put(key, b"", expect=ANY)

    def delete(self, keys: Sequence[str]) -> None:
        self.count["DELETE"] += bool(keys)
        for key in keys:
            self.objects.pop(key, None)

    def list(self, prefix: str, *, after: str = "", limit: int, until: str = "") -> list[Listed]:
        found = sorted(key for key in list(self.objects) if key.startswith(prefix) and key > after)
        folder = prefix[: prefix.rfind("/") + 1]
        is_end_seen = not self._keeps_end or len(found) >= limit or until in found
        if not is_end_seen:
            is_end_seen = any(
                key > prefix and key.startswith(folder) and not key.startswith(prefix)
                for key in self.objects
            )
        self.count["LIST"] += 1 if is_end_seen else 2
        return [
            Listed(key, len(self.objects[key][0]), self.objects[key][1]) for key in found[:limit]
        ]

    def fingerprints(self, known: Mapping[str, str | None]) -> dict[str, str | None]:
        self.count["GET"] += len(known)
        found = {key: self.objects.get(key) for key in known}
        return {key: None if each is None else _version(each[0]) for key, each in found.items()}

    def listen(self, *, poll_s: float, clock: Clock) -> Listener[str]:
        raise NotImplementedError

    def close(self) -> None:
        pass


def _version(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


class Killed(BaseException):
    """The process ends."""


class MortalBucket(CountingBucket):
    """Its process ends before one of its writes, if `left` of them are made before."""

    left = 1_000_000

    def _live(self) -> None:
        if not self.left:
            raise Killed
        self.left -= 1

    def put(self, key: str, data: bytes, *, expect: Expect) -> str:
        self._live()
        return super().put(key, data, expect=expect)

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._live()
            super().delete([key])


def kills(
    opened: Callable[[CountingBucket], T], fill: Callable[[T], object], act: Callable[[T], object]
) -> Iterator[CountingBucket]:
    """Kill a process before its first write, its second and so on; yield what it has left."""
    full = CountingBucket()
    fill(opened(full))
    is_killed, writes = True, 0
    while is_killed:
        bucket, is_killed = MortalBucket(), False
        bucket.objects, bucket.left = dict(full.objects), writes
        try:
            act(opened(bucket))
        except Killed:
            is_killed = True
        bucket.left = MortalBucket.left
        yield bucket
        writes += 1
    assert writes > 2
