"""One who watches, as the hub sees it."""

import os
import threading
from collections.abc import Callable, Collection
from contextlib import suppress

from limpet.listening import Topic
from limpet.model import ScopeKey, SnapshotInfo

_FIRST_LOOK_S_MAX = 10.0


class Watcher:
    """One who watches: what is new for it. `tell` is called when there is, in another thread."""

    def __init__(self, topic: Topic, tell: Callable[[], object], *, exists: bool = False) -> None:
        """`exists` says that what is watched is known to be there: if it is not, it was deleted."""
        self.topic = topic
        self.pid = os.getpid()
        self.is_new = True  # and is told of what there is, changed or not
        self.is_seen = False
        self._tell = tell
        self._lock = threading.Lock()
        self._told: dict[ScopeKey, str] = {}
        self._news: dict[ScopeKey, SnapshotInfo] = {}
        self._knows = exists
        self._ended = False
        self._error: Exception | None = None

    def again(self, tell: Callable[[], object]) -> "Watcher":
        """Return one that goes on where this one is, in a child that was forked meanwhile."""
        other = Watcher(self.topic, tell)
        other._told, other._news = dict(self._told), dict(self._news)
        other._knows = self._knows
        return other

    def see(self) -> None:
        """Take note that it was looked at: if nothing was offered, there is nothing."""
        self.is_new = False
        if not self.is_seen:
            self.is_seen = True
            self._call()

    def patience_s(self, timeout_s: float | None) -> float | None:
        """Return how long to wait for news: at first also for the look, which may take long."""
        if timeout_s is None or self.is_seen:
            return timeout_s
        return max(timeout_s, _FIRST_LOOK_S_MAX)

    def take(self) -> tuple[list[SnapshotInfo], bool]:
        """Return what is new, the latest of each scope, and whether that was the last of it."""
        with self._lock:
            news, self._news = list(self._news.values()), {}
            if self._error is not None and not news:
                raise self._error
            return news, self._ended and self._error is None

    def offer(self, present: Collection[SnapshotInfo]) -> None:
        """Hand over what there is now; what was handed over before is left out."""
        with self._lock:
            self._knows = self._knows or bool(present)
            for info in present:
                if self._told.get(info.scope) != info.revision:
                    self._told[info.scope] = info.revision
                    self._news.pop(info.scope, None)
                    self._news[info.scope] = info
            for scope in self._told.keys() - {info.scope for info in present}:
                del self._told[scope]
            if not self._news:
                return
        self._call()

    def end(self, error: Exception | None = None, *, if_known: bool = False) -> None:
        """Let it end, when it has taken what is new; `if_known`: only if there was anything."""
        with self._lock:
            if if_known and not self._knows:
                return
            self._ended, self._error = True, error
        self._call()

    def _call(self) -> None:
        with suppress(RuntimeError):  # an event loop that is closed: nobody waits there any more
            self._tell()
