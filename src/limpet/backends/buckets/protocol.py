"""What a bucket must do: a few methods over keys and bytes, without sessions and snapshots.

A key is text of `/`-separated names, none of them empty, `.` or `..`. Every `put` of one key is
one step: a reader gets the bytes before or those after, never a mixture. What was written is seen
by every later `get` and `list`, in any process.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from limpet.model import Expect
from limpet.protocol import Clock, Listener


class Moved(Exception):
    """The object is not at the version that a `put` expects; nothing was written by this call.

    A bucket never repeats a conditional put by itself: if the first answer was lost, the second
    would report Moved although the object is stored.
    """


class Leftover(NamedTuple):
    """Something in a bucket that is not an object, and why. `sweep` removes what is `stale`."""

    key: str
    reason: str
    stale: bool


@runtime_checkable
class Sweepable(Protocol):
    """A bucket in which killed processes may leave files."""

    def leftovers(self, *, limit: int) -> Sequence[Leftover]:
        """Return what is not an object and will not become one, foreign files included."""
        ...

    def sweep(self) -> int:
        """Remove temporary files of processes killed long ago; return how many."""
        ...


@runtime_checkable
class Ending(Protocol):
    """A bucket that can keep an object as its last key."""

    def keep_end(self) -> None:
        """Verify from now on that listings are complete, by an object that stays."""
        ...


class Stored(NamedTuple):
    """An object, or its first bytes; then `version` may be None. `size` is that of the whole.

    `modified` is in microseconds, by the clock of the storage.
    """

    data: bytes
    size: int
    version: str | None
    modified: int


class Listed(NamedTuple):
    """One entry of a listing; `modified` is in microseconds, by the clock of the storage."""

    key: str
    size: int
    modified: int


class Bucket(Protocol):
    """Objects by key. Safe to call from many threads; what takes many keys works in parallel.

    All raise Unavailable when the storage does not answer. A `put` whose answer was lost raises it
    with `outcome_known=False`: it may have happened, or may still happen.
    """

    def get(self, keys: Sequence[str], *, first: int | None = None) -> list[Stored | None]:
        """Return each object, or its first bytes, in the order asked; None where there is none."""
        ...

    def put(self, key: str, data: bytes, *, expect: Expect) -> str:
        """Store an object durably as one step; return its new version.

        `expect` is the current version, None if there must be no object, ANY to replace anything.

        Raises:
            Moved: it is not as expected. Nothing was written by this call.
        """
        ...

    def mark(self, keys: Sequence[str]) -> None:
        """Store empty objects durably, replacing what exists."""
        ...

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects. When this returns none of them exists, unless put again since."""
        ...

    def list(self, prefix: str, *, after: str = "", limit: int, until: str = "") -> list[Listed]:
        """Return a page of keys that begin with a prefix and come after `after`, in order.

        Fewer than `limit` means the end; but after the key `until`, if it is listed, keys may be
        missing, which saves a request. No key at all means also that `until` does not exist.
        `after` need not exist. Keys are in the order of their bytes, or (some services keep trees)
        of the names along their paths. In both orders the keys of one folder are together, and
        `<folder>/~` comes after all of them that begin with ASCII.
        """
        ...

    def fingerprints(self, known: Mapping[str, str | None]) -> dict[str, str | None]:
        """Return for each key a text that differs after the object has changed; None if missing.

        `known` has the texts of the last call, so that unchanged objects cost little. Equal texts
        mean equal bytes; different texts need not mean different bytes.
        """
        ...

    def listen(self, *, poll_s: float, clock: Clock) -> Listener[str]:
        """Begin to listen for changes below folders, which need not exist, by their prefixes.

        Without notifications it polls once in `poll_s`.
        """
        ...

    def close(self) -> None:
        """Let go of everything held. May be repeated."""
        ...
