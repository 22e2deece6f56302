"""A bucket that is a folder: one file per key, with compare-and-set among processes.

A file is written under a temporary name in its folder, synced, and renamed, so that no reader sees
a part of it; then the folder is synced. An empty file needs no temporary name: it is complete as
soon as it exists, and only its folder is synced. A version is the hash of the bytes.

The lock is `flock` on the folder: there is no lock file, and the system releases it when a process
dies. Why every pair of calls is safe, in threads and in processes:

- Replace, blind put and delete hold the lock, so no other call changes a name between the
  comparison and the rename. The lock is not held during a sync.
- Create needs no lock: `link` fails if the name exists. `mark` creates with O_EXCL, likewise, or
  finds an empty file and is done.
- Folders are never renamed, and removed only when they are empty. A temporary file keeps its folder
  in place: two writers of a key always have the same folder, hence the same lock. In a folder that
  was removed nothing can be created; the writer opens it again.
- A temporary file is swept after an hour. If its writer was only suspended, it notices before the
  rename, and begins again.

A foreign tool, which writes without the lock, is noticed until just before the rename; what it
writes in the microseconds after that is replaced.

A folder that another process has just created is synced by that process. Our own sync comes later,
and file systems that keep the order of name changes (ext4, XFS, Btrfs, ZFS, APFS) keep both.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import groupby, islice
from typing import NamedTuple

from xxhash import xxh3_128_hexdigest

from limpet.backends.buckets.directory.folders import (
    NOTHING,
    TEMPORARY,
    Folders,
    Sweeper,
    failure,
    fingerprint,
    flush,
    keys_in,
    locked,
    parts_of,
)
from limpet.backends.buckets.directory.listen import DirectoryListener
from limpet.backends.buckets.protocol import Leftover, Listed, Moved, Stored
from limpet.core.limits import LOCK_WAIT_S_MAX
from limpet.errors import InvalidInput, Unavailable, Unsupported
from limpet.model import ANY, Expect
from limpet.protocol import Clock, Listener

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe must not block
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_TRIES_MAX = 1_000  # of a write whose folder other processes keep removing
_COMPARED_FIRST_BYTES_MAX = 65_536  # reading it costs less than a sync for nothing
_OPEN_MAX = 64  # folders at a time
# Names that one scan of a folder looks for, at least: inner folders may be empty, and a scan for
# each of these would take too long.
_SCAN_ITEMS_MIN = 256

# After these errors the step may have happened: on a network file system the answer is lost.
_DOUBTFUL = frozenset({errno.EIO, errno.ETIMEDOUT, errno.ESTALE})
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


class _File(NamedTuple):
    folder: int  # a handle
    name: str
    path: str  # for messages


class DirectoryBucket:
    """A folder as a bucket. It is created with the first write, and again if it was removed."""

    def __init__(
        self,
        root: str,
        *,
        token: Callable[[], str],
        now: Callable[[], int],
        clock: Clock,
        sync: bool = True,
        lock_wait_s: float = LOCK_WAIT_S_MAX,
    ) -> None:
        """`token` draws random text for temporary names, `now` returns microseconds since 1970.

        Without `sync` a power cut may undo what was written; a crash of the process does not.
        """
        try:
            self._folders = Folders(root, sync=sync)
        except (OSError, ValueError) as cause:  # NUL, or a working directory that was removed
            raise InvalidInput(f"the path is not valid. path=`{root!a}`") from cause
        self._token = token
        self._now = now
        self._clock = clock
        self._sweeper = Sweeper(self._folders, now=now)
        self._sync = sync
        self._lock_wait_s = lock_wait_s
        if os.path.exists(root) and not os.path.isdir(root):
            raise InvalidInput(f"the path is not a folder. path=`{root}`")

    def close(self) -> None:
        """Nothing is held between calls."""

    # Reading

    def get(self, keys: Sequence[str], *, first: int | None = None) -> list[Stored | None]:
        found: list[Stored | None] = []
        for above, names in _runs(keys):
            try:
                with self._folders.opened(above) as folder:
                    found += [_read(folder, name, first) for name in names]
            except OSError as cause:
                if cause.errno not in NOTHING:
                    raise failure(cause, self._folders.path(*above)) from cause
                found += [None] * len(names)
        return found

    def fingerprints(self, known: Mapping[str, str | None]) -> dict[str, str | None]:
        now_us = self._now()
        return {key: fingerprint(self._folders.path(key), now_us) for key in known}

    def listen(self, *, poll_s: float, clock: Clock) -> Listener[str]:
        return DirectoryListener(self._folders.root, poll_s=poll_s, clock=clock)

    def list(self, prefix: str, *, after: str = "", limit: int, until: str = "") -> list[Listed]:
        start, slash, begin = prefix.rpartition("/")
        found: list[Listed] = []
        try:
            with self._folders.opened(parts_of(start) if slash else []) as folder:
                at_a_time = max(limit, _SCAN_ITEMS_MIN)
                keys = keys_in(folder, start + slash, begin, after=after, at_a_time=at_a_time)
                with closing(keys):
                    found += islice(keys, limit)
        except OSError as cause:
            if cause.errno not in NOTHING:
                raise failure(cause, self._folders.path(start)) from cause
        return found

    # Writing

    def put(self, key: str, data: bytes, *, expect: Expect) -> str:
        *above, name = parts_of(key)
        path = self._folders.path(key)

        def act(folder: int) -> None:
            self._sweeper.tidy(folder, above)
            self._put(_File(folder, name, path), data, expect)

        try:
            os.close(self._make(above, act))
        except OSError as cause:
            raise failure(cause, path) from cause
        return version_of(data)

    def _make(self, above: Sequence[str], act: Callable[[int], object]) -> int:
        """Open or create a folder and call `act` with its handle; return that.

        Begins again if it was removed as empty, if a temporary file in it was swept while this
        process was suspended, or if its name is taken. Nothing was stored then.
        """
        for _ in range(_TRIES_MAX):
            with suppress(FileNotFoundError, FileExistsError):
                folder = self._folders.make(above)
                try:
                    act(folder)
                except BaseException:
                    os.close(folder)
                    raise
                return folder
        path = self._folders.path(*above)
        raise Unavailable(f"another process keeps removing the folder: try again. path=`{path}`")

    def _put(self, place: _File, data: bytes, expect: Expect) -> None:
        if not isinstance(expect, str) or len(data) <= _COMPARED_FIRST_BYTES_MAX:
            # It is checked again in the step that commits. A writer that has lost saves its sync.
            self._check(place, expect)
        folder = place.folder
        temporary = TEMPORARY + self._token()
        handle = os.open(temporary, _WRITE, 0o600, dir_fd=folder)
        renamed = False
        try:
            try:
                _write_all(handle, data)
                if self._sync:
                    flush(handle)
            finally:
                os.close(handle)
            if expect is None:
                self._link(place, temporary)
            else:
                self._replace(place, temporary, expect)
                renamed = True
        finally:
            if not renamed:
                with suppress(OSError):  # `sweep` finds it
                    os.unlink(temporary, dir_fd=folder)
        try:
            # Without this a power cut may bring back the old object after we have answered.
            self._folders.flush(folder)
        except OSError as cause:
            raise failure(cause, place.path, outcome_known=False) from cause

    def _check(self, place: _File, expect: Expect) -> None:
        """Raise Moved if a file is not as expected. What is not a file is never replaced."""
        status = _status(place)
        if isinstance(expect, str):
            stored = _read(place.folder, place.name, None)
            # A foreign tool without the lock may have written during the read.
            if stored is None or stored.version != expect or _status(place) != status:
                raise Moved
        elif status and not stat.S_ISREG(status[0]):
            raise Unavailable(f"not a regular file: move it away. path=`{place.path}`")
        elif status and expect is None:
            # A caller may rely on it, so it is synced first.
            self._folders.flush(place.folder)
            raise Moved

    def _link(self, place: _File, temporary: str) -> None:
        here = {"src_dir_fd": place.folder, "dst_dir_fd": place.folder}
        try:
            with _committing(place):
                # The temporary file is not a link; not every system can follow links here.
                os.link(temporary, place.name, **here, follow_symlinks=False)
        except FileExistsError:
            self._check(place, None)
            raise  # it was deleted since
        except OSError as cause:
            if cause.errno not in _NO_LINKS:
                raise
            raise Unsupported(
                f"the file system has no hard links, which are needed to create files: "
                f"choose another one. path=`{place.path}`"
            ) from cause

    def _replace(self, place: _File, temporary: str, expect: Expect) -> None:
        here = place.folder
        with locked(here, place.path, clock=self._clock, wait_s=self._lock_wait_s):
            self._check(place, expect)
            with _committing(place):
                os.rename(temporary, place.name, src_dir_fd=here, dst_dir_fd=here)

    def mark(self, keys: Sequence[str]) -> None:
        def create(above: Sequence[str], names: Sequence[str]) -> int:
            return self._make(above, lambda folder: self._create(folder, above, names))

        self._in_folders(keys, create)

    def _create(self, folder: int, above: Sequence[str], names: Sequence[str]) -> None:
        for name in names:
            try:
                os.close(os.open(name, _WRITE, 0o600, dir_fd=folder))
            except FileExistsError:
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if found.st_size or not stat.S_ISREG(found.st_mode):
                    self.put("/".join([*above, name]), b"", expect=ANY)

    def delete(self, keys: Sequence[str]) -> None:
        self._in_folders(keys, self._remove)
        for above, _ in _runs(keys):
            self._folders.prune(above)

    def _remove(self, above: Sequence[str], names: Sequence[str]) -> int | None:
        """Remove files; return a handle of their folder, which is not synced yet."""
        try:
            folder = self._folders.open(above)
        except OSError as cause:
            if cause.errno in NOTHING:
                return None
            raise
        try:
            path = self._folders.path(*above)
            with locked(folder, path, clock=self._clock, wait_s=self._lock_wait_s):
                for name in names:
                    with suppress(FileNotFoundError):
                        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
                        if stat.S_ISREG(found.st_mode):  # a link is not ours
                            os.unlink(name, dir_fd=folder)
            self._sweeper.tidy(folder, above)
        except BaseException:
            os.close(folder)
            raise
        return folder

    def _in_folders(
        self, keys: Sequence[str], act: Callable[[Sequence[str], Sequence[str]], int | None]
    ) -> None:
        """Call `act` for each folder, then sync them all: one sync may write for the others too.

        A folder in which nothing had to be done is synced as well: the process that did it may have
        died before its sync.
        """
        runs = _runs(keys)
        while some := list(islice(runs, _OPEN_MAX)):
            opened: list[int] = []
            above: Sequence[str] = ()
            try:
                for above, names in some:
                    handle = act(above, names)
                    if handle is not None:
                        opened.append(handle)
                for folder in opened:
                    self._folders.flush(folder)
            except OSError as cause:
                path = self._folders.path(*above, *([cause.filename] if cause.filename else []))
                raise failure(cause, path, outcome_known=False) from cause
            finally:
                for folder in opened:
                    os.close(folder)

    # What killed processes and foreign tools leave

    def leftovers(self, *, limit: int) -> Sequence[Leftover]:
        return self._sweeper.leftovers(limit=limit)

    def sweep(self) -> int:
        return self._sweeper.sweep()


def version_of(data: bytes) -> str:
    """Return the version of a file: a hash, as two writes may have the same modification time."""
    return xxh3_128_hexdigest(data)


def _runs(keys: Sequence[str]) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """Yield (folder, names) of adjacent keys in one folder, which is then opened once."""
    for above, found in groupby(map(parts_of, keys), key=lambda parts: parts[:-1]):
        yield above, [parts[-1] for parts in found]


def _status(place: _File) -> tuple[int, ...]:
    """Return what differs after a file was replaced or written to; empty if there is none."""
    try:
        found = os.stat(place.name, dir_fd=place.folder, follow_symlinks=False)
    except FileNotFoundError:
        return ()
    return found.st_mode, found.st_ino, found.st_size, found.st_mtime_ns


@contextmanager
def _committing(place: _File) -> Iterator[None]:
    """The step inside is the commit: after some errors its outcome is not known."""
    try:
        yield
    except OSError as cause:
        if cause.errno in _DOUBTFUL:
            raise failure(cause, place.path, outcome_known=False) from cause
        raise


def _read(folder: int, name: str, first: int | None) -> Stored | None:
    try:
        handle = os.open(name, _READ, dir_fd=folder)
    except OSError as cause:
        if cause.errno in NOTHING:
            return None
        raise
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            return None
        modified = found.st_mtime_ns // 1000
        if first is not None and first < found.st_size:
            return Stored(os.read(handle, first), found.st_size, None, modified)
        with open(handle, "rb", buffering=0, closefd=False) as file:
            data = file.readall()
        return Stored(data, len(data), version_of(data), modified)
    finally:
        os.close(handle)


def _write_all(handle: int, data: bytes) -> None:
    os.fstat(handle)  # a file whose times were read gets finer ones, so that writes have an order
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]
