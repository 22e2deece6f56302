"""Folders below a root: opened without following links, created durably, locked.

Functions here raise OSError as the system does; `failure` translates it.
"""

import errno
import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from limpet.backends.support.backoff import Backoff
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


def is_text(name: str) -> bool:
    """Return whether a name is valid text: os functions return bad UTF-8 as surrogates."""
    if name.isascii():
        return True
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


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
