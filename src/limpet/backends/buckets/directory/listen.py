"""Listening to folders by notifications of the operating system (package `watchfiles`).

A watch cannot be given more folders, so it is replaced when others are followed: not for each of
many that are followed in a row, but a moment after the first, and until then everything is reported
as changed now and then. Whether a folder exists that did not is polled. What the system does not
report (changes by other hosts, or while a folder is being made) is found by the full poll every
few seconds.
"""

import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING

from limpet.backends.buckets.directory.folders import TEMPORARY
from limpet.backends.support.polling import Poller
from limpet.errors import Unavailable
from limpet.protocol import Clock

if TYPE_CHECKING:
    from watchfiles._rust_notify import RustNotify

_FIRST_S = 0.02  # the shortest interval of a poller
_FULL_POLL_S = 5.0  # everything is reported as changed this often
_STEP_MS = 8  # changes are reported after a step without others, or after two steps
_MISSING_POLL_S = 0.025  # how often folders that do not exist yet are polled
_MISSING_POLL_S_MAX = 0.25  # where there are many of them
_MISSING_REST = 20  # times as long as it took to poll them, they are not polled again
_UNWATCHED_S = 0.05  # how often everything is reported until the watch is replaced
_SETTLE_S = 0.03  # after a `follow`, before the watch is replaced
_COMING_S = 0.25  # after a missing folder has come
_REST = 4  # times as long as it took to replace the watch, it is not replaced again
_FOLDERS_MAX = 4096  # in a folder that is watched; one with more is polled instead

_DELETED = 3  # watchfiles.Change.deleted


def rust_notify() -> "type[RustNotify] | None":
    """Return the class of `watchfiles` that does the work; None if it is not installed.

    It is private, and used only here. The public `watch()` ends when it is woken, so every new
    subscription would start another watch; and with timeouts short enough to do without waking
    it, it drops changes that arrive while one ends. If a release moves the class, folders are
    polled, and `test_watchfiles_has_what_is_used_of_it` fails.
    """
    try:
        from watchfiles._rust_notify import RustNotify
    except ImportError:
        return None
    return RustNotify


class DirectoryListener:
    """Reports changes below folders of a root."""

    def __init__(self, root: str, *, poll_s: float, clock: Clock) -> None:
        self._root = root
        self._clock = clock
        self._poller = Poller(first_s=_FIRST_S, poll_s=poll_s, clock=clock)
        self._pid = os.getpid()
        self._watch: RustNotify | None = None
        self._folders: frozenset[str] = frozenset()
        self._watched: dict[str, int] = {}  # folders of the watch, with their inodes
        self._missing: set[str] = set()  # the others
        self._polls = False  # there can be no watch, or some folder is too large
        self._replace_at_s = inf
        self._rests_until_s = 0.0
        self._full_poll_s = clock.monotonic()
        self._missing_poll_s = 0.0  # the next one

    # What is followed

    def follow(self, topics: Collection[str]) -> None:
        """Listen below these folders. A later `wait` replaces the watch.

        Until then, `wait` reports everything now and then.
        """
        folders = frozenset(topics)
        if folders != self._folders:
            self._folders = folders
            self._replace_soon()

    def _replace_soon(self, wait_s: float = _SETTLE_S) -> None:
        self._replace_at_s = min(self._replace_at_s, self._clock.monotonic() + wait_s)

    def _replace(self) -> None:
        """Replace the watch by one of all folders that exist."""
        begun_s = self._clock.monotonic()
        self._replace_at_s = inf
        notify = rust_notify()
        self._polls = notify is None
        self._watched, self._missing = {}, set()
        named = {folder.rstrip("/") for folder in self._folders}
        for folder in named:
            if not named.isdisjoint(_parents(folder)):
                continue  # a folder above it is followed, too
            inode = self._inode(folder)
            if inode is None:
                self._missing.add(folder)
            elif self._is_large(folder):
                self._polls = True
            else:
                self._watched[folder] = inode
        # The new watch first: a change that only the old one has seen is found by the full poll
        # that follows, and from then on the new one reports.
        watch = None
        if notify is not None and self._watched and not self._polls:
            watch = self._start(notify)
        self._close_watch()
        self._watch = watch
        now_s = self._clock.monotonic()
        self._rests_until_s = now_s + _REST * (now_s - begun_s)

    def _start(self, notify: "type[RustNotify]") -> "RustNotify | None":
        try:
            # Not: debug, force_polling, poll_delay_ms. Yes: recursive, ignore_permission_denied.
            return notify([*map(self._path, self._watched)], False, False, 0, True, True)
        except FileNotFoundError:
            self._replace_soon()  # one of the folders was removed just now
        except (OSError, RuntimeError):
            self._polls = True  # the system allows no more watches
        return None

    def _path(self, folder: str) -> str:
        return os.path.join(self._root, folder) if folder else self._root

    def _inode(self, folder: str) -> int | None:
        try:
            return os.stat(self._path(folder), follow_symlinks=False).st_ino
        except OSError:
            return None

    def _is_large(self, folder: str) -> bool:
        with suppress(OSError), os.scandir(self._path(folder)) as entries:
            folders = (entry for entry in entries if entry.is_dir(follow_symlinks=False))
            return sum(1 for _ in folders) > _FOLDERS_MAX
        return False

    def _poll_missing(self) -> None:
        begun_s = self._clock.monotonic()
        if begun_s < self._missing_poll_s:
            return
        if any(self._inode(folder) is not None for folder in self._missing):
            # Until then everything is polled: a pointer comes before the head that it leads to.
            self._replace_soon(_COMING_S)
        now_s = self._clock.monotonic()
        # Bounded, as a busy machine may have taken most of that time for others.
        pause_s = min(_MISSING_REST * (now_s - begun_s), _MISSING_POLL_S_MAX)
        self._missing_poll_s = now_s + max(_MISSING_POLL_S, pause_s)

    # Changes

    def wait(self, *, active: bool) -> frozenset[str] | None:
        if self._pid != os.getpid():
            raise Unavailable("the listener belongs to the parent process: listen again")
        while True:
            if self._clock.monotonic() >= max(self._replace_at_s, self._rests_until_s):
                self._replace()
                break
            if self._poller.was_woken():
                return frozenset()
            if self._polls:
                if self._poller.pause(active=active):
                    return frozenset()
                break
            keys = self._receive(self._wait_s())
            # Also when much is received: a busy folder must not delay the others.
            self._poll_missing()
            if self._is_full_poll_due():
                break
            if keys:
                return keys
        self._full_poll_s = self._clock.monotonic()
        return None

    def _wait_s(self) -> float:
        """Return for how long nothing needs to be done but wait for notifications."""
        left_s = self._full_poll_s + _FULL_POLL_S - self._clock.monotonic()
        if self._replace_at_s < inf:
            left_s = min(left_s, _SETTLE_S)
        if self._missing:
            left_s = min(left_s, _MISSING_POLL_S)
        return max(0.0, left_s)

    def _is_full_poll_due(self) -> bool:
        since_s = self._clock.monotonic() - self._full_poll_s
        if since_s >= _FULL_POLL_S:
            if any(self._inode(folder) != inode for folder, inode in self._watched.items()):
                self._replace_soon()  # a folder was replaced by another
            return True
        return self._replace_at_s < inf and since_s >= _UNWATCHED_S

    def _receive(self, wait_s: float) -> frozenset[str]:
        """Wait for notifications; return the keys and folders that they name."""
        if self._watch is None:
            self._poller.sleep(wait_s)
            return frozenset()
        wait_ms = max(1, int(wait_s * 1000))  # 0 would mean without end
        try:
            changes = self._watch.watch(2 * _STEP_MS, _STEP_MS, wait_ms, self._poller.notifier)
        except RuntimeError as cause:
            raise Unavailable("the watch of the folders has ended: listen again") from cause
        if changes == "signal":
            raise KeyboardInterrupt
        return frozenset() if isinstance(changes, str) else frozenset(self._keys(changes))

    def _keys(self, changes: Collection[tuple[int, str]]) -> Iterator[str]:
        start = len(self._root) + 1
        for change, path in changes:
            key = path[start:]
            if change == _DELETED and key in self._watched:
                self._replace_soon()
            if not os.path.basename(path).startswith(TEMPORARY):
                yield key

    def wake(self) -> None:
        self._poller.wake()

    def close(self) -> None:
        """End the watch, unless it is the parent's."""
        if self._pid == os.getpid():
            self._close_watch()

    def _close_watch(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()


def _parents(folder: str) -> Iterator[str]:
    while folder:
        folder = folder.rpartition("/")[0]
        yield folder
