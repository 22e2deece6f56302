"""Requests that are sent again because the first answer was lost: they get the first answer."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from limpet.backends.support.recent import Recent
from limpet.core.limits import MIB

T = TypeVar("T")

_ANSWERS_MAX = 1024  # remembered: a client repeats within seconds
_BYTES_MAX = 64 * MIB  # of them: the answer to a note has its value


class Repeats(Generic[T]):
    """The writes under way, and the answers of the last ones.

    A repetition waits for the first request, if that is still under way: otherwise it could find
    nothing yet, store its state, and the first would store it once more. For the same reason a
    first request that arrives after its repetition gets the answer of that. After a restart nothing
    is remembered; a save is then found by its nonce in the store.
    """

    def __init__(self, size: Callable[[T], int]) -> None:
        # With whether it is of a repetition.
        self._under_way: dict[Hashable, tuple[asyncio.Event, bool]] = {}
        self._answers: Recent[Hashable, tuple[T, bool]] = Recent(
            _BYTES_MAX, lambda known: max(size(known[0]), _BYTES_MAX // _ANSWERS_MAX)
        )

    async def run(
        self,
        key: Hashable,
        act: Callable[[], Awaitable[T]],
        *,
        again: bool,
        is_final: Callable[[T], bool],
    ) -> T:
        """Return the answer of a write; with `again`, that of the first with this key if known.

        Answers that are not final (the storage did not answer) are not remembered.
        """
        while (before := self._answers.get(key) or self._under_way.get(key)) is not None:
            found, is_repetition = before
            if not again and not is_repetition:
                break  # another write, with the same stamp
            if not isinstance(found, asyncio.Event):
                return found
            await found.wait()
        self._answers.pop(key)
        mine = self._under_way[key] = asyncio.Event(), again
        try:
            answer = await act()
            if is_final(answer):
                self._answers.put(key, (answer, again))
            return answer
        finally:
            if self._under_way.get(key) is mine:
                del self._under_way[key]
            mine[0].set()
