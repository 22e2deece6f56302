"""Checkpoints of a listing, which are made when they are looked at.

LangGraph reads a whole history into a list before it shows the first of it. Each state holds nearly
all of the one before, so they are kept as what differs, and taken apart one at a time.
"""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import zstandard

from holdfast.compat.langgraph.walking import Walker
from holdfast.core import delta

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


class Listed(dict[str, Any]):
    """A checkpoint, which is there when it is looked at; one that is changed stays so."""

    __slots__ = ("_make", "_number", "_own", "_shelf")

    def __init__(self, shelf: Shelf, body: bytes, make: Callable[[bytes], dict[str, Any]]) -> None:
        super().__init__()
        self._shelf = shelf
        self._number = shelf.add(body)
        self._make = make
        self._own: dict[str, Any] | None = None

    def _whole(self) -> dict[str, Any]:
        return self._shelf.shown(self._number, self._make) if self._own is None else self._own

    def _owned(self) -> dict[str, Any]:
        self._own = self._whole()
        return self._own

    # What `dict` itself would answer is that there is nothing, so all of it is asked anew. That it
    # has an `__iter__` of its own makes `dict(...)` and `{**...}` ask, too.

    def __getitem__(self, key: str) -> Any:
        return self._whole()[key]

    def __contains__(self, key: object) -> bool:
        return key in self._whole()

    def __iter__(self) -> Iterator[str]:
        return iter(self._whole())

    def __len__(self) -> int:
        return len(self._whole())

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return self._whole() == (other._whole() if isinstance(other, Listed) else other)

    __hash__ = None

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __repr__(self) -> str:
        return repr(self._whole())

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._whole())

    def __reduce_ex__(self, protocol: Any) -> Any:
        return dict, (self._whole(),)

    def __or__(self, other: Any) -> Any:
        return self._whole() | other

    def __ror__(self, other: Any) -> Any:
        return other | self._whole()

    def __ior__(self, other: Any) -> Any:
        self._owned().update(other)
        return self

    def __setitem__(self, key: str, value: Any) -> None:
        self._owned()[key] = value

    def __delitem__(self, key: str) -> None:
        del self._owned()[key]

    def get(self, key: str, default: Any = None) -> Any:
        """As `dict.get`."""
        return self._whole().get(key, default)

    def keys(self) -> Any:
        """As `dict.keys`."""
        return self._whole().keys()

    def values(self) -> Any:
        """As `dict.values`."""
        return self._whole().values()

    def items(self) -> Any:
        """As `dict.items`."""
        return self._whole().items()

    def copy(self) -> dict[str, Any]:
        """As `dict.copy`."""
        return self._whole().copy()

    def pop(self, *args: Any) -> Any:
        """As `dict.pop`."""
        return self._owned().pop(*args)

    def popitem(self) -> tuple[str, Any]:
        """As `dict.popitem`."""
        return self._owned().popitem()

    def setdefault(self, key: str, default: Any = None) -> Any:
        """As `dict.setdefault`."""
        return self._owned().setdefault(key, default)

    def update(self, *args: Any, **values: Any) -> None:
        """As `dict.update`."""
        self._owned().update(*args, **values)

    def clear(self) -> None:
        """As `dict.clear`."""
        self._owned().clear()
