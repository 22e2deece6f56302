"""Requests that are sent again because the first answer was lost: they get the first answer."""

import asyncio
import weakref
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")

_ANSWERS_MAX = 1024  # remembered: a client repeats within seconds


class Repeats(Generic[T]):
    """The writes under way, and the answers of the last ones.

    A repetition waits for the first request, if that is still under way: otherwise it could find
    nothing yet, store its state, and the first would store it once more. For the same reason a
    first request that arrives after its repetition gets the answer of that. After a restart nothing
    is remembered; a save is then found by its nonce in the store.
    """

    def __init__(self) -> None:
        self._answers: OrderedDict[Hashable, asyncio.Future[T]] = OrderedDict()
        self._repetitions: weakref.WeakSet[asyncio.Future[T]] = weakref.WeakSet()

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
        while (before := self._answers.get(key)) is not None:
            if not again and before not in self._repetitions:
                break  # another write, with the same stamp
            answer = await asyncio.shield(before)
            if is_final(answer):
                return answer
            if self._answers.get(key) is before:
                break
        mine = self._answers[key] = asyncio.get_running_loop().create_future()
        self._answers.move_to_end(key)
        if again:
            self._repetitions.add(mine)
        try:
            answer = await act()
        except BaseException:
            mine.cancel()
            self._forget(key, mine)
            raise
        mine.set_result(answer)
        if not is_final(answer):
            self._forget(key, mine)
        while len(self._answers) > _ANSWERS_MAX and next(iter(self._answers.values())).done():
            self._answers.popitem(last=False)
        return answer

    def _forget(self, key: Hashable, mine: "asyncio.Future[T]") -> None:
        if self._answers.get(key) is mine:
            del self._answers[key]
