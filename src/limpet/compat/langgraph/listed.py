"""Checkpoints of a listing, which are made when they are looked at.

LangGraph reads a whole history into a list before it shows the first of it. Each state holds nearly
all of the one before, so they are kept as what differs, and taken apart one at a time.
"""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import zstandard
from langgraph.checkpoint.base import CheckpointTuple

from limpet.compat.langgraph.walking import Walker
from limpet.core import delta

_KEY_EVERY = 64  # states: what it takes at most to come to one of them from anywhere
LARGE_MIN = 16 * 1024  # bytes of a state that is worth it


class Shelf:
    """The states of one listing. Whoever goes through them in order pays for each one once."""

    def __init__(self, walker: Walker) -> None:
        self.walker = walker
        self._parts: list[bytes] = []
        self._added = b""
        self._read: tuple[int, bytes] = (-1, b"")
        self._shown: tuple[int, dict[str, Any]] = (-1, {})
        self._lock = threading.Lock()

    def add(self, body: bytes) -> int:
        """Keep a state, and return its number."""
        with self._lock:
            number = len(self._parts)
            if number % _KEY_EVERY:
                self._parts.append(delta.dump(delta.diff(self._added, body)))
            else:
                self._parts.append(zstandard.ZstdCompressor(level=1).compress(body))
            self._added = body
            return number

    def body(self, number: int) -> bytes:
        """Return a state."""
        with self._lock:
            at, body = self._read
            key = number - number % _KEY_EVERY
            if not key <= at <= number:
                at, body = key, zstandard.ZstdDecompressor().decompress(self._parts[key])
            for each in range(at + 1, number + 1):
                body = delta.apply(body, delta.parse(self._parts[each]))
            self._read = number, body
            return body

    def shown(self, number: int, make: Callable[[bytes], dict[str, Any]]) -> dict[str, Any]:
        """Return the checkpoint of a state: the same one as long as no other is looked at."""
        at, checkpoint = self._shown
        if at != number:
            checkpoint = make(self.body(number))
            self._shown = number, checkpoint
        return checkpoint


class Waiting:
    """A checkpoint that is not made yet."""

    __slots__ = ("_make", "_number", "_shelf")

    def __init__(self, shelf: Shelf, body: bytes, make: Callable[[bytes], dict[str, Any]]) -> None:
        self._shelf = shelf
        self._number = shelf.add(body)
        self._make = make

    def made(self) -> dict[str, Any]:
        """Return it: a plain dict."""
        return self._shelf.shown(self._number, self._make)


class ListedTuple(CheckpointTuple):
    """A checkpoint with what belongs to it, whose state is made when it is asked for.

    What it then gives is a plain dict. It is made anew once another one of the listing was asked
    for: who wants to keep it keeps the dict.
    """

    __slots__ = ()

    @property
    def checkpoint(self) -> Any:
        """The checkpoint."""
        found = tuple.__getitem__(self, 1)
        return found.made() if isinstance(found, Waiting) else found

    def __getitem__(self, at: Any) -> Any:
        return self.checkpoint if at in (1, -4) else tuple(self)[at]

    def __iter__(self) -> Iterator[Any]:
        for at, each in enumerate(tuple.__iter__(self)):
            yield self.checkpoint if at == 1 else each

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple) and tuple(self) == tuple(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(CheckpointTuple(*self))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return CheckpointTuple, tuple(self)
