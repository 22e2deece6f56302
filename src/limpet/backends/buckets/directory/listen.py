"""Listening to folders: the system tells (by `watchfiles`), where it can, what changes below them.

The watcher cannot be given more folders, so another one takes its place when others are followed:
not for each of many that are followed in a row, but when they have all come, and until then
everything is looked at now and then. A folder that does not exist yet is waited for by looking at
the nearest one above it. What the system does not tell (of other hosts, or while a folder is being
made) is noticed when everything is looked at, which is done every few seconds in any case.
"""

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from limpet.backends.buckets.directory.folders import RECENT_US, TEMPORARY
from limpet.backends.support.polling import Poller
from limpet.errors import Unavailable
from limpet.protocol import Clock

if TYPE_CHECKING:
    from watchfiles._rust_notify import RustNotify

FIRST_S: Final = 0.02  # the shortest pause where nobody tells
_LOOK_S = 5.0  # everything is looked at so often, whatever is heard
_STEP_S = 0.008  # how often it is asked whether something was heard; it takes two to hear
_GLANCE_S = 0.025  # how often folders that do not exist yet are looked for
_AWAITED_S = 0.05
_PRESENT_S = 0.25  # how often everything is looked at for a snapshot that is watched by its id
_SETTLE_S = 0.03  # without others to follow, before the watcher is replaced
_SETTLE_S_MAX = 0.25
_COSTS = 4  # times what it takes to replace the watcher, it is not replaced again
_FOLDERS_MAX = 4096  # in a folder that is listened to; more are looked at instead
_DELETED = 3  # how the watcher calls it


def can_hear() -> bool:
    """Tell whether the system can be asked to tell of changes."""
    try:
        import watchfiles._rust_notify  # noqa: F401
    except ImportError:
        return False
    return True


class FolderEar:
    """Hears of changes below folders of a root."""

    def __init__(self, root: str, *, now: Callable[[], int], poll_s: float, clock: Clock) -> None:
        self._root = root
        self._now = now
        self._clock = clock
        self._poller = Poller(first_s=FIRST_S, poll_s=poll_s, clock=clock)
        self._process = os.getpid()
        self._watcher: RustNotify | None = None
        self._folders: frozenset[str] = frozenset()
        self._awaited: frozenset[str] = frozenset()
        self._present: set[str] = set()  # of those, when last looked for
        self._heard: dict[str, int] = {}  # the folders that the watcher has, with their inodes
        self._missing: dict[str, set[str]] = {}  # the others, by the nearest path that exists
        self._marks: dict[str, tuple[int, int] | None] = {}  # of these paths, when last looked at
        self._is_deaf = False  # or some folder is too large
        self._changed_s: float | None = None  # when what is followed has changed, first and last
        self._last_changed_s = 0.0
        self._cost_s = 0.0
        self._aimed_s = 0.0
        self._looked_s = clock.monotonic()
        self._glanced_s = 0.0

    # What is followed

    def follow(self, folders: Collection[str], *, awaited: Collection[str] = ()) -> None:
        """Listen below these folders. The watcher is replaced by the next `wait`, or a later one.

        Until then, `wait` ends again and again.
        """
        self._awaited = frozenset(awaited)
        wanted = frozenset(folders)
        if wanted != self._folders:
            self._folders = wanted
            self._turn()

    def _turn(self) -> None:
        """See that the watcher is replaced."""
        self._last_changed_s = self._clock.monotonic()
        if self._changed_s is None:
            self._changed_s = self._last_changed_s

    def _is_settled(self) -> bool:
        """Tell whether it is time to replace the watcher."""
        now_s = self._clock.monotonic()
        if self._changed_s is None or now_s < self._aimed_s + _COSTS * self._cost_s:
            return False
        quiet_s, waited_s = now_s - self._last_changed_s, now_s - self._changed_s
        return quiet_s >= _SETTLE_S or waited_s >= _SETTLE_S_MAX

    def _aim(self) -> None:
        """Replace the watcher by one for all folders that exist."""
        begun_s = self._clock.monotonic()
        self._changed_s = None
        self._is_deaf = False
        self._heard, self._missing, self._marks = {}, {}, {}
        named = {folder.rstrip("/") for folder in self._folders}
        for folder in named:
            if not named.isdisjoint(_above(folder)):
                continue  # what is above it is followed, too
            inode = self._inode(folder)
            if inode is None:
                self._await(folder)
            elif self._is_large(folder):
                self._is_deaf = True
            else:
                self._heard[folder] = inode
        # The new one first: a change that only the old one has heard is seen by the look that
        # follows, and from then on the new one hears.
        watcher = None if self._is_deaf else self._watch([*map(self._path, self._heard)])
        self._close_watcher()
        self._watcher = watcher
        self._aimed_s = self._clock.monotonic()
        self._cost_s = self._aimed_s - begun_s

    def _watch(self, paths: list[str]) -> "RustNotify | None":
        from watchfiles._rust_notify import RustNotify

        if not paths:
            return None
        try:
            return RustNotify(paths, False, False, 0, True, True)
        except FileNotFoundError:
            self._turn()  # one of them was removed just now
        except (OSError, RuntimeError):
            self._is_deaf = True  # the system has no more room for watches
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

    # Folders that do not exist yet

    def _await(self, folder: str) -> None:
        path = self._path(folder)
        while path != os.path.dirname(path):
            path = os.path.dirname(path)
            if _mark(path) is not None:
                break
        self._missing.setdefault(path, set()).add(folder)

    def _glance_if_due(self) -> None:
        now_s = self._clock.monotonic()
        if self._missing and now_s >= self._glanced_s + _GLANCE_S:
            self._glanced_s = now_s
            self._glance()

    def _glance(self) -> None:
        """Look for the folders that do not exist yet, where something above them has changed."""
        for path in list(self._missing):
            # The mark first: what comes after it is seen by the next glance.
            mark = _mark(path)
            if mark is not None and mark == self._marks.get(path):
                continue
            recent = mark is None or abs(self._now() - mark[1] // 1000) < RECENT_US
            self._marks[path] = None if recent else mark
            for folder in self._missing.pop(path):
                if self._inode(folder) is None:
                    self._await(folder)
                else:
                    self._turn()
                    self._last_changed_s -= _SETTLE_S  # no others are to be waited for

    # What is heard

    def wait(self, *, lively: bool) -> frozenset[str] | None:
        """Wait until something is heard; return where, or None for everything."""
        if self._process != os.getpid():
            raise Unavailable("what is heard belongs to another process: listen anew")
        while True:
            if self._is_settled():
                self._aim()
                break
            if self._poller.was_woken():
                return frozenset()
            if self._is_deaf:
                if self._poller.pause(lively=lively):
                    return frozenset()
                break
            heard = self._listen(self._patience_s())
            # Also when much is heard, or a busy folder would keep us from looking at the others.
            self._glance_if_due()
            if self._is_due():
                break
            if heard:
                return heard
        self._looked_s = self._clock.monotonic()
        return None

    def _patience_s(self) -> float:
        """Return how long nothing needs to be done but listen."""
        left_s = self._looked_s + _LOOK_S - self._clock.monotonic()
        if self._changed_s is not None:
            left_s = min(left_s, _SETTLE_S)
        if self._missing:
            left_s = min(left_s, _GLANCE_S)
        if self._awaited:
            left_s = min(left_s, _AWAITED_S)
        return max(0.0, left_s)

    def _is_due(self) -> bool:
        """Tell whether everything is to be looked at, whatever was heard."""
        since_s = self._clock.monotonic() - self._looked_s
        if since_s >= _LOOK_S:
            self._prove()
            return True
        before, self._present = self._present, self._existing()
        if before != self._present:
            return True
        if self._changed_s is not None:
            return since_s >= _AWAITED_S
        return bool(self._present) and since_s >= _PRESENT_S

    def _existing(self) -> set[str]:
        return {each for each in self._awaited if self._inode(each.rstrip("/")) is not None}

    def _prove(self) -> None:
        """See that the folders are still those that the watcher was given."""
        if any(self._inode(folder) != inode for folder, inode in self._heard.items()):
            self._turn()

    def _listen(self, wait_s: float) -> frozenset[str]:
        """Listen for some time; return the keys and folders of which something was heard."""
        if self._watcher is None:
            self._poller.sleep(wait_s)
            return frozenset()
        step_ms = int(_STEP_S * 1000)
        try:
            # No time at all would mean without end.
            told = self._watcher.watch(
                2 * step_ms, step_ms, max(1, int(wait_s * 1000)), self._poller.bell
            )
        except RuntimeError as cause:
            raise Unavailable("nothing is heard of the folders any more: listen anew") from cause
        if told == "signal":
            raise KeyboardInterrupt
        return frozenset() if isinstance(told, str) else frozenset(self._keys(told))

    def _keys(self, told: Collection[tuple[int, str]]) -> Iterator[str]:
        start = len(self._root) + 1
        for change, path in told:
            key = path[start:]
            if change == _DELETED and key in self._heard:
                self._turn()
            if not os.path.basename(path).startswith(TEMPORARY):
                yield key

    def wake(self) -> None:
        """End a wait."""
        self._poller.wake()

    def close(self) -> None:
        """Let go of the watcher; in another process, leave it alone."""
        if self._process == os.getpid():
            self._close_watcher()

    def _close_watcher(self) -> None:
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.close()


def _above(folder: str) -> Iterator[str]:
    """Yield the folders that a folder is in."""
    while folder:
        folder = folder.rpartition("/")[0]
        yield folder


def _mark(path: str) -> tuple[int, int] | None:
    """Return what is another after something was made in a folder; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns
