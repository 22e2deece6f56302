"""Requests that are sent again because the first answer was lost: they get the first answer."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Hashable, Mapping, MutableMapping
from typing import Any, Generic, NamedTuple, TypeVar

from limpet.backends.support.recent import Recent
from limpet.core.limits import MIB
from limpet.server.access import Refused

T = TypeVar("T")

_ANSWERS_MAX = 1024  # remembered: a client repeats within seconds
_BYTES_MAX = 64 * MIB  # of them: the answer to a note has its value


_CONDITIONS = ("if-match", "if-none-match", "limpet-lease")


class Fingerprint:
    """The hash of a request: of its address, its conditions, and its body as it is received."""

    def __init__(
        self,
        key: str,
        address: tuple[str, str, str],
        headers: Mapping[str, str],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
    ) -> None:
        self.key = key
        head = "\n".join((*address, *(headers.get(name, "") for name in _CONDITIONS)))
        self._hash = hashlib.blake2b(head.encode(), digest_size=16)
        self._receive = receive

    async def receive(self) -> MutableMapping[str, Any]:
        message = await self._receive()
        self._hash.update(message.get("body", b""))
        return message

    def hex(self) -> str:
        return self._hash.hexdigest()


class _Known(NamedTuple, Generic[T]):
    """A write under way, or the answer of one; and whether the request is a repetition."""

    found: T
    fingerprint: str
    is_repetition: bool


class Repeats(Generic[T]):
    """The writes under way, and the answers of the last ones.

    A repetition waits for the first request, if that is still under way: otherwise it could find
    nothing yet, store its state, and the first would store it once more. For the same reason a
    first request that arrives after its repetition gets the answer of that. After a restart nothing
    is remembered; a save is then found by its nonce in the store.
    """

    def __init__(self, size: Callable[[T], int]) -> None:
        self._under_way: dict[Hashable, _Known[asyncio.Event]] = {}
        self._answers: Recent[Hashable, _Known[T]] = Recent(
            _BYTES_MAX, lambda known: max(size(known.found), _BYTES_MAX // _ANSWERS_MAX)
        )

    async def run(
        self,
        key: Hashable,
        fingerprint: str,
        act: Callable[[], Awaitable[T]],
        *,
        again: bool,
        is_final: Callable[[T], bool],
    ) -> T:
        """Return the answer of a write; with `again`, that of the first with this key if known.

        Answers that are not final (the storage did not answer) are not remembered. Raises Refused
        if the key is known with another fingerprint.
        """
        while (before := self._answers.get(key) or self._under_way.get(key)) is not None:
            if before.fingerprint != fingerprint:
                why = "this Idempotency-Key was sent with another request: use a new key for each"
                raise Refused(422, "InvalidInput", why)
            if not again and not before.is_repetition:
                break  # another write, with the same stamp
            if not isinstance(before.found, asyncio.Event):
                return before.found
            await before.found.wait()
        self._answers.pop(key)
        mine = self._under_way[key] = _Known(asyncio.Event(), fingerprint, again)
        try:
            answer = await act()
            if is_final(answer):
                self._answers.put(key, _Known(answer, fingerprint, again))
            return answer
        finally:
            if self._under_way.get(key) is mine:
                del self._under_way[key]
            mine.found.set()
