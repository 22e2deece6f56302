"""The pauses of an async writer while other writers change the same thing."""

import asyncio

from limpet.api.integrations import Backoff, Clock, limits
from limpet.errors import Unavailable


class Contention:
    def __init__(self, clock: Clock, what: str) -> None:
        """`what` ends the message of the error: ``snapshot_id=`a```."""
        wait_s = limits.CONTENTION_WAIT_S_MAX
        self._backoff = Backoff(clock, first_s=0.001, longest_s=0.1, wait_s=wait_s)
        self._what = what

    async def pause(self) -> None:
        pause_s = self._backoff.pause_s()
        if pause_s is None:
            wait_s = limits.CONTENTION_WAIT_S_MAX
            raise Unavailable(f"other writers were faster for {wait_s} s. {self._what}")
        await asyncio.sleep(pause_s)
