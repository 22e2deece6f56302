"""Hearing of changes to a SQLite file: a number in it that every commit changes is looked at.

The look takes some microseconds, and costs the same however many watch.
"""

import threading
from collections.abc import Collection

from holdfast.backends._sqlite_files import SqliteFile
from holdfast.listening import Topic
from holdfast.protocol import Clock

POLL_S = 0.02
_REST = 4  # times as long as a look took: a busy file does not keep those busy who watch


class SqliteListener:
    """Looks at the number again and again."""

    def __init__(self, file: SqliteFile, clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self._woken = threading.Event()
        self._version = file.version()
        self._left: float | None = None

    def follow(self, topics: Collection[Topic]) -> None:
        """Nothing: the number is that of the whole file."""

    def wait(self, *, lively: bool) -> frozenset[str] | None:
        """Wait until the number is another one."""
        begun = self._clock.monotonic()
        took_s = 0.0 if self._left is None else begun - self._left
        pause_s = max(POLL_S, _REST * took_s)
        while not self._woken.wait(pause_s):
            version = self._file.version()
            if version != self._version:
                self._version = version
                self._left = self._clock.monotonic()
                return None
            pause_s = POLL_S
        self._woken.clear()
        self._left = None
        return frozenset()

    def wake(self) -> None:
        """End a wait."""
        self._woken.set()

    def close(self) -> None:
        """Nothing: the connection is the file's own."""
