"""Memory that requests reserve, so that many large ones wait for each other."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from limpet.errors import Unavailable

_QUEUE_S_MAX = 30.0


def busy(what: str) -> Unavailable:
    return Unavailable(f"the server is busy: {what}. Try again later", outcome_known=True)


class Memory:
    """Bytes that are reserved and given back; who asks first gets them first."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._used = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def reserved(self, count: int) -> AsyncIterator[Callable[[int], None]]:
        """Reserve bytes, at most `bytes_max`, or raise Unavailable after a while.

        The function that it yields gives back all but so many of them.
        """
        left = count = min(count, self._bytes_max)
        await self._take(count)

        def keep(count: int) -> None:
            nonlocal left
            given_back = max(left - count, 0)
            left -= given_back
            self._used -= given_back
            self._grant()

        try:
            yield keep
        finally:
            keep(0)

    async def _take(self, count: int) -> None:
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((count, mine))
        self._grant()
        try:
            async with asyncio.timeout(_QUEUE_S_MAX):
                await mine
        except BaseException as error:
            if not mine.cancelled():
                self._used -= count  # it was granted at the same moment
            self._grant()
            if isinstance(error, TimeoutError):
                raise busy("too many large requests are under way") from None
            raise

    def _grant(self) -> None:
        while self._waiting:
            count, future = self._waiting[0]
            if not future.cancelled():
                if self._used + count > self._bytes_max:
                    return
                self._used += count
                future.set_result(None)
            self._waiting.popleft()
