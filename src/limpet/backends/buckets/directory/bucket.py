"""A bucket that is a folder: one file for each key, with compare-and-set among processes.

A file is written under a temporary name in its folder, synced, and moved into place, so that no
reader sees a part of it; then the folder is synced. An empty file needs no temporary name: it is
whole as soon as it exists, and its folder alone is synced. A version is the hash of the bytes.

The lock is `flock` on the folder: no lock file ever appears, and the system lets go of it when a
process dies. Why every pair of calls is safe, in threads and in processes:

- Replace, blind put and delete hold the lock, so nothing of ours changes a name between the moment
  at which it is compared and the rename. The lock is not held while anything is synced.
- Create holds none: `link` is one step that fails if the name exists, and from the comparison to
  the rename it does. `mark` creates with O_EXCL, likewise, or finds an empty file and is done.
- Folders are never renamed, and removed only when they are empty. Whoever has a temporary file in
  one keeps it where it is: two writers of a key always hold the same folder, hence the same lock.
  In a folder that was removed before nothing can be created; the writer opens it anew.
- A temporary file is swept after an hour. If its writer was only asleep, it finds it gone before
  anything is placed, and begins again.

Who writes here without the lock (a foreign tool) is noticed until just before the rename; what it
writes in the microseconds after that is replaced.

A folder made by somebody else a moment ago is theirs to sync. Ours comes later, and file systems
that keep changes of names in order (ext4, XFS, Btrfs, ZFS, APFS) keep theirs with ours.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby, islice
from typing import NamedTuple, NoReturn

from xxhash import xxh3_128_hexdigest

from limpet.backends.buckets.directory.folders import (
    NOTHING,
    TEMPORARY,
    Folders,
    failure,
    fingerprint,
    flush,
    locked,
    parts_of,
)
from limpet.backends.buckets.directory.listen import FIRST_S, DirectoryListener, rust_notify
from limpet.backends.buckets.directory.listing import Leftover, Page, Sweeper
from limpet.backends.buckets.protocol import KeyPrefix, Listed, Moved, Stored
from limpet.backends.support.polling import Poller
from limpet.core.limits import LOCK_WAIT_S_MAX
from limpet.errors import InvalidInput, Unavailable, Unsupported
from limpet.model import ANY, Expect
from limpet.protocol import Clock, Listener

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe must not hold us up
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_TRIES_MAX = 1_000  # of a write whose folder others keep removing
_GLANCE_BYTES_MAX = 65_536  # a file that costs less to read than to write in vain
_OPEN_MAX = 64  # folders at a time, where many keys are given

# After these the step may have happened all the same: on a network file system the answer is lost.
_DOUBTFUL = frozenset({errno.EIO, errno.ETIMEDOUT, errno.ESTALE})
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


class _Place(NamedTuple):
    folder: int  # a handle
    name: str
    path: str  # for people


class DirectoryBucket:
    """A folder as a bucket. It is created with the first write, and again if it was removed."""

    def __init__(
        self,
        root: str,
        *,
        token: Callable[[], str],
        now: Callable[[], int],
        sync: bool = True,
        lock_wait_s: float = LOCK_WAIT_S_MAX,
    ) -> None:
        """`token` draws a random text for temporary names, `now` tells the time in microseconds.

        Without `sync` a power cut may take back what was written; a crash of the process may not.
        """
        try:
            self._folders = Folders(root, sync=sync)
        except (OSError, ValueError) as cause:  # NUL, or a working directory that was removed
            raise InvalidInput(f"the path leads nowhere. path=`{root!a}`") from cause
        self._token = token
        self._now = now
        self._sweeper = Sweeper(self._folders, now=now)
        self._sync = sync
        self._lock_wait_s = lock_wait_s
        if os.path.exists(root) and not os.path.isdir(root):
            raise InvalidInput(f"the path is not that of a folder. path=`{root}`")

    def close(self) -> None:
        """Hold nothing, so there is nothing to let go of."""

    # Reading

    def get(self, keys: Sequence[str], *, first: int | None = None) -> list[Stored | None]:
        """Return each object, or its first bytes; None where there is none."""
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
        """Return what the system says of each file: cheap, and nothing is opened."""
        now_us = self._now()
        return {key: fingerprint(self._folders.path(key), now_us) for key in known}

    def listen(self, *, poll_s: float, clock: Clock) -> Listener[KeyPrefix]:
        """Use the notifications of the operating system, if there are any."""
        if rust_notify() is not None:
            return DirectoryListener(self._folders.root, now=self._now, poll_s=poll_s, clock=clock)
        return Poller(first_s=FIRST_S, poll_s=poll_s, clock=clock)

    def list(self, prefix: str, *, after: str = "", limit: int) -> list[Listed]:
        """Return a page of keys that begin with a prefix and are greater than `after`, sorted."""
        start, slash, begin = prefix.rpartition("/")
        page = Page(after, limit)
        try:
            with self._folders.opened(parts_of(start) if slash else []) as folder:
                page.visit(folder, start + slash, begin)
        except OSError as cause:
            if cause.errno not in NOTHING:
                raise failure(cause, self._folders.path(start)) from cause
        return page.found

    # Writing

    def put(self, key: str, data: bytes, *, expect: Expect) -> str:
        """Store an object durably as one step; return its new version."""
        version = version_of(data)
        *above, name = parts_of(key)
        for _ in range(_TRIES_MAX):
            try:
                folder, new = self._folders.make(above)
                try:
                    self._sweeper.tidy(folder, above, new=new)
                    self._put(_Place(folder, name, self._folders.path(key)), data, expect)
                finally:
                    os.close(folder)
            except (FileNotFoundError, FileExistsError):
                # The folder was removed as empty, our temporary file was swept while we slept, or
                # its name is taken. Nothing was placed.
                continue
            except OSError as cause:
                raise failure(cause, self._folders.path(key)) from cause
            return version
        raise self._restless(above)

    def _put(self, place: _Place, data: bytes, expect: Expect) -> None:
        if expect is None and _look(place) is not None:
            self._refuse(place)
        if isinstance(expect, str) and len(data) <= _GLANCE_BYTES_MAX:
            # It is compared again under the lock; who has lost already need not sync anything.
            stored = _read(place.folder, place.name, None)
            if stored is None or stored.version != expect:
                raise Moved
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
            # Without this a power cut brings back what was there before, after we have answered.
            self._folders.flush(folder)
        except OSError as cause:
            raise failure(cause, place.path, outcome_known=False) from cause

    def _refuse(self, place: _Place) -> NoReturn:
        """Say that an object exists. Who gets this may go by it, so it must be durable first."""
        self._folders.flush(place.folder)
        raise Moved

    def _link(self, place: _Place, temporary: str) -> None:
        here = place.folder
        try:
            with _committing(place):
                # The temporary file is no link; not every system knows the flag for following.
                os.link(
                    temporary,
                    place.name,
                    src_dir_fd=here,
                    dst_dir_fd=here,
                    follow_symlinks=False,
                )
        except FileExistsError:
            _look(place)
            self._refuse(place)
        except OSError as cause:
            if cause.errno not in _NO_LINKS:
                raise
            raise Unsupported(
                f"the file system has no hard links, by which files are created. "
                f"path=`{place.path}`"
            ) from cause

    def _replace(self, place: _Place, temporary: str, expect: Expect) -> None:
        here = place.folder
        with locked(here, place.path, wait_s=self._lock_wait_s):
            found = _look(place)
            if expect is not ANY:
                stored = None if found is None else _read(here, place.name, None)
                if stored is None or stored.version != expect:
                    raise Moved
                # Somebody without the lock may have written while we were reading.
                if _trace(_look(place)) != _trace(found):
                    raise Moved
            with _committing(place):
                os.rename(temporary, place.name, src_dir_fd=here, dst_dir_fd=here)

    def mark(self, keys: Sequence[str]) -> None:
        """Store empty files durably, whatever stands there."""
        self._in_folders(keys, self._create)

    def _create(self, above: Sequence[str], names: Sequence[str]) -> int:
        """Create empty files; return a handle of their folder, which is yet to be synced."""
        for _ in range(_TRIES_MAX):
            with suppress(FileNotFoundError):  # the folder, or a file, was removed meanwhile
                folder, _ = self._folders.make(above)
                try:
                    for name in names:
                        self._create_one(folder, above, name)
                except BaseException:
                    os.close(folder)
                    raise
                return folder
        raise self._restless(above)

    def _create_one(self, folder: int, above: Sequence[str], name: str) -> None:
        try:
            os.close(os.open(name, _WRITE, 0o600, dir_fd=folder))
        except FileExistsError:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if found.st_size or not stat.S_ISREG(found.st_mode):
                self.put("/".join([*above, name]), b"", expect=ANY)

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects that exist, and folders that become empty."""
        self._in_folders(keys, self._remove)
        for above, _ in _runs(keys):
            self._folders.prune(above)

    def _remove(self, above: Sequence[str], names: Sequence[str]) -> int | None:
        """Remove files; return a handle of their folder, which is yet to be synced."""
        try:
            folder = self._folders.open(above)
        except OSError as cause:
            if cause.errno in NOTHING:
                return None
            raise
        try:
            with locked(folder, self._folders.path(*above), wait_s=self._lock_wait_s):
                for name in names:
                    with suppress(FileNotFoundError):
                        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
                        if stat.S_ISREG(found.st_mode):  # a link is none of ours
                            os.unlink(name, dir_fd=folder)
            self._sweeper.tidy(folder, above)
        except BaseException:
            os.close(folder)
            raise
        return folder

    def _in_folders(
        self, keys: Sequence[str], act: Callable[[Sequence[str], Sequence[str]], int | None]
    ) -> None:
        """Do something in each folder, then sync them all: what one sync writes, the next need not.

        A folder in which nothing was found is synced as well: whoever removed or created it there
        may have died before.
        """
        runs = _runs(keys)
        while some := list(islice(runs, _OPEN_MAX)):
            opened: list[int] = []
            try:
                for above, names in some:
                    handle = act(above, names)
                    if handle is not None:
                        opened.append(handle)
                for folder in opened:
                    self._folders.flush(folder)
            except OSError as cause:
                raise failure(cause, self._folders.root, outcome_known=False) from cause
            finally:
                for folder in opened:
                    os.close(folder)

    def _restless(self, above: Sequence[str]) -> Unavailable:
        return Unavailable(f"the folder keeps vanishing. path=`{self._folders.path(*above)}`")

    # What killed processes and foreign hands leave

    def leftovers(self, *, limit: int) -> Sequence[Leftover]:
        """Return what is not an object and will not become one; foreign things among it."""
        return self._sweeper.leftovers(limit=limit)

    def sweep(self) -> int:
        """Remove temporary files that a killed process left long ago; return how many."""
        return self._sweeper.sweep()


def version_of(data: bytes) -> str:
    """Return the version of a file: a hash, since two writers may write within one tick."""
    return xxh3_128_hexdigest(data)


def _runs(keys: Sequence[str]) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """Yield (folder, names) for neighbours in one folder, so that it is opened once for them."""
    for above, found in groupby(map(parts_of, keys), key=lambda parts: parts[:-1]):
        yield above, [parts[-1] for parts in found]


def _look(place: _Place) -> os.stat_result | None:
    """Return what stands in a place; None if nothing does. Never replace what is no file."""
    try:
        found = os.stat(place.name, dir_fd=place.folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise Unavailable(f"what stands in the place of a file is none. path=`{place.path}`")
    return found


def _trace(found: os.stat_result | None) -> tuple[int, ...]:
    """Return what changes when somebody writes to a file, or puts another in its place."""
    return () if found is None else (found.st_ino, found.st_size, found.st_mtime_ns)


@contextmanager
def _committing(place: _Place) -> Iterator[None]:
    """The step inside is the commit."""
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
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]
