"""Buckets that write as wrong designs would: blindly, in another order, or not at all."""

from collections.abc import Mapping, Sequence

from limpet.backends.buckets.protocol import Bucket, KeyPrefix, Listed, Moved, Stored
from limpet.core import document
from limpet.core.document import Header
from limpet.core.layout import File, Layout
from limpet.errors import LimpetError, Unavailable
from limpet.model import ANY, Expect
from limpet.protocol import Clock, Listener
from simulation.bucket import version_of
from simulation.world import LAYOUT


def header_in(data: bytes) -> Header | None:
    """Return the header of a document of ours, None for anything else."""
    try:
        return document.read(data).header
    except LimpetError:
        return None


class Honest:
    """A bucket that passes everything on; the others change one thing."""

    layout: Layout = LAYOUT

    def __init__(self, inner: Bucket) -> None:
        self.inner = inner

    def get(self, keys: Sequence[str], *, first: int | None = None) -> list[Stored | None]:
        """Pass it on."""
        return self.inner.get(keys, first=first)

    def put(self, key: str, data: bytes, *, expect: Expect) -> str:
        """Pass it on."""
        return self.inner.put(key, data, expect=expect)

    def mark(self, keys: Sequence[str]) -> None:
        """Pass it on."""
        self.inner.mark(keys)

    def delete(self, keys: Sequence[str]) -> None:
        """Pass it on."""
        self.inner.delete(keys)

    def list(self, prefix: str, *, after: str = "", limit: int, until: str = "") -> list[Listed]:
        """Pass it on."""
        return self.inner.list(prefix, after=after, limit=limit, until=until)

    def fingerprints(self, known: Mapping[str, str | None]) -> dict[str, str | None]:
        """Pass it on."""
        return self.inner.fingerprints(known)

    def listen(self, *, poll_s: float, clock: Clock) -> Listener[KeyPrefix]:
        """Pass it on."""
        return self.inner.listen(poll_s=poll_s, clock=clock)

    def close(self) -> None:
        """Pass it on."""
        self.inner.close()

    def file(self, key: str) -> File | None:
        """Return the object of a key."""
        parsed = self.layout.parse(key)
        return None if parsed is None else parsed.file

    def is_head(self, key: str) -> bool:
        """Return whether it is the key of a head."""
        return key.endswith("/snapshot_latest.json")

    def is_copy(self, key: str) -> bool:
        """Return whether it is the key of a copy."""
        return "/immutable_history/" in key


class BlindCopy(Honest):
    """Copies are put without a condition."""

    def put(self, key: str, data: bytes, *, expect: Expect) -> str:
        """Do not compare."""
        live = self.is_copy(key) and document.read_tombstone(data) is None
        return self.inner.put(key, data, expect=ANY if live else expect)


class BlindHead(Honest):
    """Heads are put without a condition."""

    def put(self, key: str, data: bytes, *, expect: Expect) -> str:
        """Do not compare."""
        return self.inner.put(key, data, expect=ANY if self.is_head(key) else expect)


class BlindNotes(Honest):
    """Notes are put without a condition."""

    def put(self, key: str, data: bytes, *, expect: Expect) -> str:
        """Do not compare."""
        return self.inner.put(key, data, expect=ANY if "/notes/" in key else expect)


class BareDelete(Honest):
    """A deleted copy leaves no tombstone."""

    def put(self, key: str, data: bytes, *, expect: Expect) -> str:
        """Delete instead of a tombstone."""
        if self.is_copy(key) and document.read_tombstone(data) is not None:
            self.inner.delete([key])
            return version_of(data)
        return self.inner.put(key, data, expect=expect)


class BareDeleteOfHead(Honest):
    """A deleted head leaves no tombstone."""

    def put(self, key: str, data: bytes, *, expect: Expect) -> str:
        """Delete instead of a void head."""
        header = header_in(data) if self.is_head(key) else None
        if header is not None and header.void:
            self.inner.delete([key])
            return version_of(data)
        return self.inner.put(key, data, expect=expect)


class NoRollForward(Honest):
    """The head of another writer is not copied into history."""

    def __init__(self, inner: Bucket) -> None:
        super().__init__(inner)
        self.mine: set[bytes] = set()

    def put(self, key: str, data: bytes, *, expect: Expect) -> str:
        """Leave out copies that are not of a head that was put here."""
        if self.is_head(key):
            self.mine.add(data)
        foreign = data not in self.mine and document.read_tombstone(data) is None
        if self.is_copy(key) and expect is None and foreign:
            return version_of(data)
        return self.inner.put(key, data, expect=expect)


class DraftsSkipRollForward(Honest):
    """Who saves a draft does not copy the head that it replaces."""

    def __init__(self, inner: Bucket) -> None:
        super().__init__(inner)
        self.mine: set[bytes] = set()
        self.waiting: list[tuple[str, bytes]] = []

    def put(self, key: str, data: bytes, *, expect: Expect) -> str:
        """Hold copies of others back until it is known what replaces them."""
        if self.is_copy(key) and expect is None and data not in self.mine:
            self.waiting.append((key, data))
            return version_of(data)
        if self.is_head(key):
            self.mine.add(data)
            header, waiting = header_in(data), self.waiting
            self.waiting = []
            if header is not None and header.kept:
                for copy, stored in waiting:
                    try:
                        self.inner.put(copy, stored, expect=None)
                    except Moved:
                        continue
        return self.inner.put(key, data, expect=expect)


class AcknowledgedEarly(Honest):
    """A save is acknowledged before its copy is there."""

    def __init__(self, inner: Bucket) -> None:
        super().__init__(inner)
        self.waiting: list[tuple[str, bytes]] = []

    def _flush(self) -> None:
        waiting, self.waiting = self.waiting, []
        for key, data in waiting:
            try:
                self.inner.put(key, data, expect=None)
            except (Moved, Unavailable):
                continue

    def get(self, keys: Sequence[str], *, first: int | None = None) -> list[Stored | None]:
        """Do first what was left undone."""
        self._flush()
        return self.inner.get(keys, first=first)

    def put(self, key: str, data: bytes, *, expect: Expect) -> str:
        """Leave copies for later."""
        if self.is_copy(key) and expect is None:
            self.waiting.append((key, data))
            return version_of(data)
        version = self.inner.put(key, data, expect=expect)
        self._flush()
        return version


class Resends(Honest):
    """A conditional put is sent again when its answer is lost, and a 412 is taken at its word."""

    def put(self, key: str, data: bytes, *, expect: Expect) -> str:
        """Send it again, as a client layer does that retries by itself."""
        try:
            return self.inner.put(key, data, expect=expect)
        except Unavailable:
            return self.inner.put(key, data, expect=expect)


class SaysFailed(Honest):
    """A lost answer is taken for a write that did not happen."""

    def put(self, key: str, data: bytes, *, expect: Expect) -> str:
        """Claim to know."""
        try:
            return self.inner.put(key, data, expect=expect)
        except Unavailable as cause:
            raise Unavailable(*cause.args, outcome_known=True) from cause


class PointersAfterCopy(Honest):
    """The index is written after the copy that it points to."""

    def __init__(self, inner: Bucket) -> None:
        super().__init__(inner)
        self.waiting: list[str] = []

    def mark(self, keys: Sequence[str]) -> None:
        """Leave it for later."""
        self.waiting += keys

    def put(self, key: str, data: bytes, *, expect: Expect) -> str:
        """Write the copy, then the index."""
        version = self.inner.put(key, data, expect=expect)
        if self.is_copy(key):
            waiting, self.waiting = self.waiting, []
            self.inner.mark(waiting)
        return version


class HeadsLast(Honest):
    """Of a session the copies are deleted first, then the heads."""

    def __init__(self, inner: Bucket) -> None:
        super().__init__(inner)
        self.waiting: list[str] = []

    def delete(self, keys: Sequence[str]) -> None:
        """Leave the heads for later."""
        if keys and all(map(self.is_head, keys)):
            self.waiting += keys
            return
        self.inner.delete(keys)
        waiting, self.waiting = self.waiting, []
        self.inner.delete(waiting)
