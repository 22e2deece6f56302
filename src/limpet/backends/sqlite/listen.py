"""Listening to a SQLite file: polls its data version, a number that every commit changes.

A poll takes some microseconds, however many topics are watched.
"""

from limpet.backends.sqlite.file import SqliteFile
from limpet.backends.support.polling import Poller
from limpet.protocol import Clock

_POLL_S = 0.02  # after a change
_IDLE_POLL_S = 0.035
_FULL_POLL_S = 5.0  # everything is reported as changed this often, whatever the version says
_REST = 4  # times as long as the caller took to react: a busy file must not keep it busy


class SqliteListener(Poller):
    """Reports everything as changed when the version of the file is another."""

    def __init__(self, file: SqliteFile, clock: Clock) -> None:
        super().__init__(first_s=_POLL_S, poll_s=_IDLE_POLL_S, clock=clock)
        self._file = file
        self._version = file.version()
        self._reported_s: float | None = None
        self._full_poll_at = clock.monotonic() + _FULL_POLL_S

    def wait(self, *, active: bool) -> frozenset[str] | None:
        if self._reported_s is not None:
            took_s = self._clock.monotonic() - self._reported_s
            self._reported_s = None
            if self.pause(active=active, at_least_s=_REST * took_s):
                return frozenset()
            if self.has_changed():
                return None
        return super().wait(active=active)

    def has_changed(self) -> bool:
        now_s, version = self._clock.monotonic(), self._file.version()
        if version == self._version and now_s < self._full_poll_at:
            return False
        self._version, self._full_poll_at = version, now_s + _FULL_POLL_S
        self._reported_s = now_s
        return True
