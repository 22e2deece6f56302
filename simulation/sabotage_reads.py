"""Buckets that answer as if a wrong design had read: too early, or not at all."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from limpet.backends.buckets.protocol import Bucket, Listed, Stored
from limpet.core import document, layout
from limpet.core.document import Header
from limpet.model import Expect, ScopeKey
from simulation.bucket import version_of
from simulation.sabotage_writes import Honest, header_in


class ShortMemory(Honest):
    """A document names its last writer, but not those before: who was overwritten is forgotten."""

    def __init__(self, inner: Bucket) -> None:
        super().__init__(inner)
        self.mine: set[str] = set()

    def get(self, keys: Sequence[str], *, first: int | None = None) -> list[Stored | None]:
        """Forget one's own writes that others have replaced."""
        return [_changed(each, self._forgotten) for each in self.inner.get(keys)]

    def _forgotten(self, header: Header) -> Header:
        return replace(header, trail=tuple(w for w in header.trail if w not in self.mine))

    def put(self, key: str, data: bytes, *, expect: Expect) -> str:
        """Notice one's own writes."""
        header = header_in(data)
        if header is not None:
            self.mine.add(header.w)
        return self.inner.put(key, data, expect=expect)


def _changed(stored: Stored | None, change: Callable[[Header], Header]) -> Stored | None:
    if stored is None:
        return None
    header = header_in(stored.data)
    if header is None:
        return stored
    found = document.read(stored.data)
    data = document.write(change(header), found.kind, found.body)
    return Stored(data, len(data), stored.version, stored.modified)


class HeadBeforeCopy(Honest):
    """What is to be compared is read last: the head, then the copy."""

    def __init__(self, inner: Bucket) -> None:
        super().__init__(inner)
        self.known: dict[str, Stored | None] = {}

    def get(self, keys: Sequence[str], *, first: int | None = None) -> list[Stored | None]:
        """Read the head first, and give it when it is asked for."""
        (key, *others) = keys or ("",)
        if not others and self.is_copy(key):
            head = key.partition("immutable_history/")[0] + "snapshot_latest.json"
            (self.known[head],) = self.inner.get([head])
        elif not others and key in self.known:
            return [self.known.pop(key)]
        else:
            self.known.clear()
        return self.inner.get(keys, first=first)

    def put(self, key: str, data: bytes, *, expect: Expect) -> str:
        """Forget what was read before."""
        self.known.clear()
        return self.inner.put(key, data, expect=expect)


def _histories(head_key: str) -> tuple[str, str]:
    """Return where the history of a head is listed: its copies, and the index."""
    folder = head_key.removesuffix("snapshot_latest.json")
    session, _, kind, scope = folder.split("/")[1:5]
    return f"{folder}immutable_history/", layout.order_prefix(ScopeKey(session, scope, kind))


class ListBeforeHead(Honest):
    """A history is listed before its head is read."""

    def __init__(self, inner: Bucket) -> None:
        super().__init__(inner)
        self.known: dict[str, list[Listed]] = {}

    def get(self, keys: Sequence[str], *, first: int | None = None) -> list[Stored | None]:
        """List first, and give that when it is asked for."""
        for key in keys:
            if self.is_head(key):
                for prefix in _histories(key):
                    self.known[prefix] = self.inner.list(prefix, limit=1000)
        return self.inner.get(keys, first=first)

    def put(self, key: str, data: bytes, *, expect: Expect) -> str:
        """Forget what was listed before."""
        self.known.clear()
        return self.inner.put(key, data, expect=expect)

    def list(self, prefix: str, *, after: str = "", limit: int, until: str = "") -> list[Listed]:
        """Give what was listed before."""
        if prefix in self.known and not after:
            return self.known.pop(prefix)[:limit]
        return self.inner.list(prefix, after=after, limit=limit, until=until)


class IdsFromTheClock(Honest):
    """The greatest id that was minted is not remembered."""

    def get(self, keys: Sequence[str], *, first: int | None = None) -> list[Stored | None]:
        """Forget the floor of what is read."""
        return [_changed(each, lambda h: replace(h, floor="")) for each in self.inner.get(keys)]


class ForgetsNotes(Honest):
    """The notes on a deleted snapshot stay."""

    def list(self, prefix: str, *, after: str = "", limit: int, until: str = "") -> list[Listed]:
        """See no notes where a deletion lists them."""
        if prefix.endswith("notes/on/"):
            return []
        return self.inner.list(prefix, after=after, limit=limit, until=until)


class ForkWithoutCheck(Honest):
    """A fork does not check that its source still exists when it commits."""

    def __init__(self, inner: Bucket) -> None:
        super().__init__(inner)
        self.known: dict[str, Stored | None] = {}
        self.pending = False

    def get(self, keys: Sequence[str], *, first: int | None = None) -> list[Stored | None]:
        """Give what was read before, while a fork is under way."""
        if self.pending and len(keys) == 1 and keys[0] in self.known:
            return [self.known[keys[0]]]
        found = self.inner.get(keys, first=first)
        self.known |= {k: s for k, s in zip(keys, found, strict=True) if self.is_head(k)}
        return found

    def put(self, key: str, data: bytes, *, expect: Expect) -> str:
        """Notice when a fork begins and ends."""
        header = header_in(data) if self.is_head(key) else None
        version = self.inner.put(key, data, expect=expect)
        self.pending = header is not None and header.pending is not None
        return version


class NoBump(Honest):
    """What a head without a snapshot shows is changed without a write of that head."""

    def __init__(self, inner: Bucket) -> None:
        super().__init__(inner)
        self.void: dict[str, bool] = {}

    def get(self, keys: Sequence[str], *, first: int | None = None) -> list[Stored | None]:
        """Notice which heads are void."""
        found = self.inner.get(keys, first=first)
        for key, stored in zip(keys, found, strict=True):
            header = None if stored is None else header_in(stored.data)
            self.void[key] = header is not None and header.void
        return found

    def put(self, key: str, data: bytes, *, expect: Expect) -> str:
        """Do not replace a void head by a void head."""
        header = header_in(data) if self.is_head(key) else None
        if header is not None and header.void and self.void.get(key):
            return version_of(data)
        return self.inner.put(key, data, expect=expect)


class NoTouch(Honest):
    """A snapshot is put back into a head without a write of its copy."""

    def __init__(self, inner: Bucket) -> None:
        super().__init__(inner)
        self.known: dict[str, str] = {}

    def get(self, keys: Sequence[str], *, first: int | None = None) -> list[Stored | None]:
        """Notice at which revision copies are."""
        found = self.inner.get(keys, first=first)
        for key, stored in zip(keys, found, strict=True):
            header = None if stored is None else header_in(stored.data)
            self.known[key] = "" if header is None else header.revision
        return found

    def put(self, key: str, data: bytes, *, expect: Expect) -> str:
        """Do not replace a copy by the same revision."""
        header = header_in(data) if self.is_copy(key) else None
        if header is not None and self.known.get(key) == header.revision:
            return version_of(data)
        return self.inner.put(key, data, expect=expect)
