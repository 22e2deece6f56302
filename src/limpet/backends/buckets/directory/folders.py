"""Folders below a root: opened without following links, created durably, locked, listed, swept.

Functions here raise OSError as the system does; `failure` translates it.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from heapq import nsmallest
from itertools import islice

from limpet.backends.buckets.protocol import Leftover, Listed
from limpet.backends.support.backoff import Backoff
from limpet.core.limits import is_text
from limpet.errors import InvalidInput, LimpetError, Unavailable, Unsupported
from limpet.protocol import Clock

# Begins the name of a temporary file, before a random token. No name in a key may begin so.
TEMPORARY = ".limpet-"

_RECENT_US = 50_000  # the clock of a file system ticks in milliseconds

DEPTH_MAX = 64  # names in a key; ours have at most ten, and deeper ones are not listed

# There is no file, or something else has its name: a reader finds nothing.
NOTHING = frozenset(
    {
        errno.ENOENT,
        errno.ENOTDIR,
        errno.ELOOP,  # a link
        errno.ENXIO,  # a socket
        errno.EOPNOTSUPP,  # a socket, on macOS
        errno.ENAMETOOLONG,
    }
)

_ROOT = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
FOLDER = _ROOT | os.O_NOFOLLOW
_PAUSE_S_MIN = 0.000_5  # a lock is held for less than a millisecond
_PAUSE_S_MAX = 0.016
_STALE_US = 3_600_000_000
_TIDIED_MAX = 1_024  # folders; the rest is left to `sweep`

# macOS: fsync alone leaves the bytes in the cache of the disk.
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)
_NOT_HERE = frozenset({errno.EINVAL, errno.ENOTSUP, errno.ENOTTY, errno.ENOSYS, errno.EOPNOTSUPP})
_NO_LOCKS = _NOT_HERE | {errno.ENOLCK, errno.EBADF}  # NFS locks only what is open for writing

_FACTS = {
    errno.ENOSPC: "the disk is full: make room, for example by scope.delete(), which needs none",
    errno.EDQUOT: "the disk quota is used up: make room, for example by scope.delete()",
    errno.EACCES: "permission denied: this user may not use the folder",
    errno.EPERM: "permission denied: this user may not use the folder",
    errno.EROFS: "the file system is read-only",
    errno.EIO: "the disk reports an error",
    errno.EMFILE: "too many files are open",
    errno.ENFILE: "too many files are open",
    errno.ENOTDIR: "a file has the name of a folder that is needed",
    errno.ELOOP: "a link has the name of a folder that is needed",
}


def failure(cause: OSError, path: str, *, outcome_known: bool = True) -> LimpetError:
    """Return our error for an OSError, chosen by its code."""
    code = errno.errorcode.get(cause.errno or 0, "")
    where = f"path=`{path}` error=`{code}`"
    if cause.errno == errno.ENAMETOOLONG:
        return InvalidInput(f"the name is too long for this file system. {where}")
    fact = _FACTS.get(cause.errno or 0, "the folder cannot be accessed")
    return Unavailable(f"{fact}. {where}", outcome_known=outcome_known)


def parts_of(key: str) -> list[str]:
    """Return the names in a key; InvalidInput if one leads elsewhere or looks temporary."""
    parts = key.split("/")
    for part in parts:
        if part in {"", ".", ".."} or part.startswith(TEMPORARY):
            raise InvalidInput(f"a name in the key is not allowed. key=`{key!a}`")
    if "\0" in key or not is_text(key) or len(parts) > DEPTH_MAX:
        raise InvalidInput(f"the key cannot be a path. key=`{key!a}`")
    return parts


def fingerprint(path: str, now_us: int) -> str | None:
    """Return a text that differs after a file was replaced or written to; None if missing."""
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError as cause:
        # A reader of this file will get the error; it must not stop the others.
        return None if cause.errno in NOTHING else f"error.{cause.errno}"
    text = f"{found.st_ino}.{found.st_size}.{found.st_mtime_ns}.{found.st_ctime_ns}"
    # A file written within the same tick as the one it replaced may look the same, since inodes are
    # reused. So a file that new is reported as changed once more.
    recent = abs(now_us - found.st_mtime_ns // 1000) < _RECENT_US
    return f"{text}.{now_us}" if recent else text


class Folders:
    """The folders below a root, each opened name by name, so that no link leads out of it."""

    def __init__(self, root: str, *, sync: bool) -> None:
        # Resolved now, so that a later change of the working directory does not move it.
        self.root = os.path.realpath(root)
        self._sync = sync

    def path(self, *names: str) -> str:
        """Return a path for messages."""
        return os.path.join(self.root, *names)

    def open(self, parts: Sequence[str]) -> int:
        folder = os.open(self.root, _ROOT)
        for part in parts:
            try:
                inner = os.open(part, FOLDER, dir_fd=folder)
            finally:
                os.close(folder)
            folder = inner
        return folder

    @contextmanager
    def opened(self, parts: Sequence[str]) -> Iterator[int]:
        folder = self.open(parts)
        try:
            yield folder
        finally:
            os.close(folder)

    def make(self, parts: Sequence[str]) -> int:
        """Open or durably create a folder; return its handle.

        Raises FileNotFoundError if a folder on the path is removed meanwhile: begin again.
        """
        folder, missing = self._nearest()
        for part in [*missing, *parts]:
            try:
                inner = self._enter(folder, part)
            finally:
                os.close(folder)
            folder = inner
        return folder

    def _nearest(self) -> tuple[int, list[str]]:
        """Open the root, or the nearest folder above it; return also the missing names."""
        path = self.root
        missing: list[str] = []
        while True:
            try:
                return os.open(path, _ROOT), missing
            except FileNotFoundError:
                path, name = os.path.split(path)
                missing.insert(0, name)

    def _enter(self, folder: int, part: str) -> int:
        with suppress(FileNotFoundError):
            return os.open(part, FOLDER, dir_fd=folder)
        # Another process that has just created it may die before its sync, so it is synced here.
        with suppress(FileExistsError):
            os.mkdir(part, 0o700, dir_fd=folder)
        try:
            self.flush(folder)
        except OSError:
            # Otherwise the next writer finds the folder and believes that it is durable.
            with suppress(OSError):
                os.rmdir(part, dir_fd=folder)
            raise
        return os.open(part, FOLDER, dir_fd=folder)

    def flush(self, folder: int) -> None:
        if self._sync:
            try:
                flush(folder)
            except OSError as cause:
                # Some network file systems cannot sync folders, and need not.
                if cause.errno not in _NOT_HERE:
                    raise

    def prune(self, parts: Sequence[str]) -> None:
        """Remove a folder, and those above it, as far as they are empty. Never the root."""
        left = list(parts)
        while left:
            last = left.pop()
            try:
                with self.opened(left) as folder:
                    os.rmdir(last, dir_fd=folder)
            except OSError:
                return


def flush(handle: int) -> None:
    if _FULL_SYNC is not None:
        try:
            fcntl.fcntl(handle, _FULL_SYNC)
        except OSError as cause:
            if cause.errno not in _NOT_HERE:
                raise
        else:
            return
    os.fsync(handle)


@contextmanager
def locked(folder: int, path: str, *, clock: Clock, wait_s: float) -> Iterator[None]:
    """Hold the lock of a folder. Threads of one process exclude each other as well.

    The lock belongs to the opened handle, and each call opens its own. It is polled: a blocking
    `flock` has no timeout, so that one stopped process would stop all others for ever.
    """
    backoff = Backoff(clock, first_s=_PAUSE_S_MIN, longest_s=_PAUSE_S_MAX, wait_s=wait_s)
    while True:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError as cause:
            if not backoff.sleep():
                raise Unavailable(
                    f"another process holds the lock of the folder: try again. path=`{path}`"
                ) from cause
        except OSError as cause:
            if cause.errno not in _NO_LOCKS:
                raise
            raise Unsupported(f"the file system cannot lock folders. path=`{path}`") from cause
    try:
        yield
    finally:
        # Closing is not enough: a process forked meanwhile has the same handle.
        fcntl.flock(folder, fcntl.LOCK_UN)


# Pages of keys in order, and what killed processes left


def keys_in(
    folder: int, path: str, begin: str, *, after: str, at_a_time: int
) -> Generator[Listed, None, None]:
    """Iterate over the keys of a folder that come after a key, in the order of their bytes.

    The first names in them begin with `begin`. No more folders are opened than necessary, and of
    each no more than `at_a_time` names are in memory.
    """
    rest = after[len(path) :] if after.startswith(path) else ""
    if not rest and after > path:
        return
    last = ""
    while True:
        names = nsmallest(at_a_time, _names(folder, begin, rest, last))
        for last in names:
            if last.startswith(TEMPORARY) or not is_text(last):
                continue
            try:
                if not last.endswith("/"):
                    found = os.stat(last, dir_fd=folder, follow_symlinks=False)
                    if stat.S_ISREG(found.st_mode):
                        yield Listed(path + last, found.st_size, found.st_mtime_ns // 1000)
                elif path.count("/") < DEPTH_MAX:
                    inner = os.open(last[:-1], FOLDER, dir_fd=folder)
                    try:
                        yield from keys_in(inner, path + last, "", after=after, at_a_time=at_a_time)
                    finally:
                        os.close(inner)
            except OSError as cause:
                if cause.errno not in NOTHING:
                    raise  # else it was removed meanwhile
        if len(names) < at_a_time:
            return


def _names(folder: int, begin: str, rest: str, last: str) -> Iterator[str]:
    """Iterate over the names after `last` of what may be or hold keys after `rest`, in any order.

    The name of a folder ends with `/`.
    """
    with os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            if not name.startswith(begin):
                continue
            is_folder = entry.is_dir(follow_symlinks=False)
            if is_folder:
                name += "/"
            if name > last and (name > rest or (is_folder and rest.startswith(name))):
                yield name


class Sweeper:
    """Finds and removes what killed processes left. Reports foreign files, but leaves them."""

    def __init__(self, folders: Folders, *, now: Callable[[], int]) -> None:
        self._folders = folders
        self._now = now
        self._tidied: set[int] = set()  # hashes: a name may be one that was deleted since

    def leftovers(self, *, limit: int) -> list[Leftover]:
        found = (
            Leftover(_shown(path + entry.name), reason, self._is_stale(entry))
            for _, path, entry in self._walk()
            if (reason := self._reason(entry))
        )
        return list(islice(found, limit))

    def sweep(self) -> int:
        count = 0
        for folder, path, entry in self._walk():
            if self._is_stale(entry):
                try:
                    os.unlink(entry.name, dir_fd=folder)
                    count += 1
                except FileNotFoundError:
                    continue
                except OSError as cause:
                    shown = self._folders.path(_shown(path + entry.name))
                    raise failure(cause, shown) from cause
                self._folders.prune(path.split("/")[:-1])
        return count

    def _walk(self) -> Iterator[tuple[int, str, os.DirEntry[str]]]:
        try:
            with self._folders.opened([]) as root:
                yield from _walk(root)
        except FileNotFoundError:
            return
        except OSError as cause:
            raise failure(cause, self._folders.root) from cause

    def _reason(self, entry: os.DirEntry[str]) -> str | None:
        if self._is_stale(entry):
            return "a temporary file of a write that did not finish"
        if not is_text(entry.name):
            return "a name that is not UTF-8"
        if entry.is_file(follow_symlinks=False):
            return None  # an object, or the temporary file of a running write
        if not entry.is_dir(follow_symlinks=False):
            return "neither a file nor a folder"
        if entry.name.startswith(TEMPORARY):
            return "a folder with the name of a temporary file"
        return None

    def _is_stale(self, entry: os.DirEntry[str]) -> bool:
        if not entry.name.startswith(TEMPORARY) or not entry.is_file(follow_symlinks=False):
            return False
        try:
            modified = entry.stat(follow_symlinks=False).st_mtime_ns // 1000
        except FileNotFoundError:
            return False
        return modified < self._now() - _STALE_US

    def tidy(self, folder: int, above: Sequence[str]) -> None:
        """Remove old temporary files from a folder, the first time that it is written to."""
        path = hash("/".join(above))
        if path in self._tidied or len(self._tidied) >= _TIDIED_MAX:
            return
        self._tidied.add(path)
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if self._is_stale(entry):
                    with suppress(FileNotFoundError):
                        os.unlink(entry.name, dir_fd=folder)


def _walk(folder: int, path: str = "") -> Iterator[tuple[int, str, os.DirEntry[str]]]:
    """Yield (folder, path, entry) for everything in and below a folder, following no link."""
    with os.scandir(folder) as entries:
        for entry in entries:
            yield folder, path, entry
            if not entry.is_dir(follow_symlinks=False) or path.count("/") >= DEPTH_MAX:
                continue
            try:
                inner = os.open(entry.name, FOLDER, dir_fd=folder)
            except OSError as cause:
                if cause.errno in NOTHING:
                    continue  # removed meanwhile
                raise
            try:
                yield from _walk(inner, f"{path}{entry.name}/")
            finally:
                os.close(inner)


def _shown(key: str) -> str:
    """Return a key for messages: bytes that are not UTF-8 as escapes."""
    return os.fsencode(key).decode("utf-8", "backslashreplace")
