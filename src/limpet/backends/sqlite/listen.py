"""Hearing of changes to a SQLite file: a number in it that every commit changes is looked at.

The look takes some microseconds, and costs the same however many watch.
"""

from collections.abc import Collection

from limpet.backends.sqlite.file import SqliteFile
from limpet.backends.support.polling import Bell
from limpet.protocol import Clock, Topic

POLL_S = 0.02
LOOK_S = 5.0  # everything is looked at so often, whatever the number says
_REST = 4  # times as long as a look took: a busy file does not keep those busy who watch


class SqliteListener:
    """Looks at the number again and again, and asks for a look at everything now and then."""

    def __init__(self, file: SqliteFile, clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self._bell = Bell()
        self._version = file.version()
        self._due = clock.monotonic() + LOOK_S
        self._left: float | None = None

    def follow(self, topics: Collection[Topic]) -> None:
        """Nothing: the number is that of the whole file."""

    def wait(self, *, lively: bool) -> frozenset[str] | None:
        """Wait until the number is another one."""
        took_s = 0.0 if self._left is None else self._clock.monotonic() - self._left
        pause_s = max(POLL_S, _REST * took_s)
        while True:
            woken = self._bell.wait(pause_s)
            if self._has_changed():
                return None
            if woken:
                self._bell.answer()
                self._left = None
                return frozenset()
            pause_s = POLL_S

    def _has_changed(self) -> bool:
        """Tell whether everything is to be looked at."""
        now, version = self._clock.monotonic(), self._file.version()
        if version == self._version and now < self._due:
            return False
        self._version, self._due, self._left = version, now + LOOK_S, now
        return True

    def wake(self) -> None:
        """End a wait."""
        self._bell.ring()

    def close(self) -> None:
        """Nothing: the connection is the file's own."""
