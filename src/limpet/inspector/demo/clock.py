"""The time of the made-up sessions: days, hours and minutes ago."""

from datetime import UTC, datetime, timedelta
from hashlib import blake2b

from limpet.core.times import from_us
from limpet.protocol import Stamp

_DRAW_US = 1_000


class StoryClock:
    """A clock that each story sets back. Its random bits are the same each time."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._at_us = 0
        self._draws = 0
        self.go_back(0)

    @property
    def now(self) -> datetime:
        return from_us(self._at_us)

    def go_back(self, minutes: float) -> None:
        """Set the time to so long before the demo was made."""
        moment = self._now - timedelta(minutes=minutes)
        self._at_us = (moment - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)

    def wait(self, seconds: float) -> None:
        self._at_us += int(seconds * 1_000_000)

    def draw(self) -> Stamp:
        self._draws += 1
        self._at_us += _DRAW_US
        chance = blake2b(b"%d" % self._draws, digest_size=18).digest()
        return Stamp(self._at_us, chance[:8].hex(), int.from_bytes(chance[8:]))
