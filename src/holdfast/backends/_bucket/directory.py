"""A bucket that is a folder: one file for each key, with compare-and-set among processes.

A file is written under a temporary name, synced, and moved into place, so that no reader sees a
part of it; then its folder is synced. A version is the hash of the bytes. Who compares holds a
lock on the folder (`flock`, which the system lets go of when a process dies), and so does who
deletes; to create a file is one step by itself. No lock file ever appears.

Folders are opened name by name without following links, so that nothing leads out of the root.
"""

import errno
import fcntl
import heapq
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from typing import NamedTuple

from holdfast.backends._bucket.protocol import Listed, Moved, Stored
from holdfast.errors import InvalidInput, Unavailable
from holdfast.model import ANY, Expect

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_TEMPORARY = ".holdfast-"  # and a random token: begins with a dot, as no name in a key does
_STALE_US = 3_600_000_000
_TRIES_MAX = 1_000

# What is no file of ours stands in the place of one, or of a folder.
_NOTHING = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})


class DirectoryBucket:
    """A folder as a bucket. The folder is created with the first write."""

    def __init__(self, root: str, *, token: Callable[[], str], sync: bool = True) -> None:
        """`token` draws a random text for temporary names."""
        self._root = root
        self._token = token
        self._sync = sync
        if os.path.exists(root) and not os.path.isdir(root):
            raise InvalidInput(f"the path is a file, not a folder. path=`{root}`")

    def close(self) -> None:
        """Hold nothing, so there is nothing to let go of."""

    # Reading

    def get(self, keys: Sequence[str], *, first: int | None = None) -> list[Stored | None]:
        """Return each object, or its first bytes; None where there is none."""
        return [self._get(key, first) for key in keys]

    def _get(self, key: str, first: int | None) -> Stored | None:
        try:
            with self._folder(key) as (folder, name):
                return _read(folder, name, first)
        except OSError as cause:
            if cause.errno in _NOTHING:
                return None
            raise self._translated(cause) from cause

    def list(self, prefix: str, *, after: str = "", limit: int) -> list[Listed]:
        """Return a page of keys that begin with a prefix and are greater than `after`, sorted."""
        start, _, begin = prefix.rpartition("/")
        walk = _Walk(after, limit, prefix)
        try:
            with self._open_folder(start.split("/") if start else [], create=False) as folder:
                walk.visit(folder, start + "/" if start else "", begin)
        except OSError as cause:
            if cause.errno not in _NOTHING:
                raise self._translated(cause) from cause
        return walk.found

    # Writing

    def put(self, key: str, data: bytes, *, expect: Expect) -> str:
        """Store an object durably as one step; return its new version."""
        for _ in range(_TRIES_MAX):
            try:
                with self._folder(key, create=True) as (folder, name):
                    self._put(folder, name, data, expect)
                    return version_of(data)
            except FileNotFoundError:
                continue  # the folder was removed as empty meanwhile
            except OSError as cause:
                raise self._translated(cause) from cause
        raise Unavailable(f"the folder keeps vanishing. path=`{self._root}`")

    def _put(self, folder: int, name: str, data: bytes, expect: Expect) -> None:
        temporary = _TEMPORARY + self._token()
        handle = os.open(temporary, _WRITE, 0o600, dir_fd=folder)
        try:
            try:
                _write_all(handle, data)
                if self._sync:
                    os.fsync(handle)
            finally:
                os.close(handle)
            self._place(folder, temporary, name, expect)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise
        try:
            if self._sync:
                os.fsync(folder)
        except OSError as cause:
            raise Unavailable(
                f"the folder cannot be synced. path=`{self._root}`", outcome_known=False
            ) from cause

    def _place(self, folder: int, temporary: str, name: str, expect: Expect) -> None:
        """Move a file into its place, if what stands there is as expected: this is the commit."""
        if expect is None:
            try:
                os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            except FileExistsError as cause:
                raise Moved from cause
            os.unlink(temporary, dir_fd=folder)
            return
        with _locked(folder):
            if expect is not ANY:
                found = _read(folder, name, None)
                if found is None or found.version != expect:
                    raise Moved
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects that exist, and folders that become empty."""
        for key in keys:
            try:
                with self._folder(key) as (folder, name):
                    with _locked(folder), suppress(FileNotFoundError):
                        os.unlink(name, dir_fd=folder)
                    if self._sync:
                        os.fsync(folder)
            except OSError as cause:
                if cause.errno in _NOTHING:
                    continue
                raise self._translated(cause) from cause
        for key in keys:
            self._prune(key)

    def _prune(self, key: str) -> None:
        """Remove the folders above a key as far as they are empty."""
        parts = key.split("/")[:-1]
        while parts:
            *above, last = parts
            try:
                with self._open_folder(above, create=False) as folder:
                    os.rmdir(last, dir_fd=folder)
            except OSError:
                return
            parts = above

    def sweep(self, now: int) -> int:
        """Remove temporary files that a killed process left long ago; return how many."""
        count = 0
        for path, _, names in os.walk(self._root):
            for name in names:
                if name.startswith(_TEMPORARY):
                    with suppress(OSError):
                        whole = os.path.join(path, name)
                        if os.stat(whole).st_mtime_ns // 1000 < now - _STALE_US:
                            os.unlink(whole)
                            count += 1
        return count

    # Folders

    @contextmanager
    def _folder(self, key: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
        *parts, name = key.split("/")
        with self._open_folder(parts, create=create) as folder:
            yield folder, name

    @contextmanager
    def _open_folder(self, parts: Sequence[str], *, create: bool) -> Iterator[int]:
        """Open a folder below the root, name by name, so that no link is followed."""
        if create and not os.path.isdir(self._root):
            os.makedirs(self._root, 0o700, exist_ok=True)
        folder = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in parts:
                inner = self._enter(folder, part, create=create)
                os.close(folder)
                folder = inner
            yield folder
        finally:
            os.close(folder)

    def _enter(self, folder: int, part: str, *, create: bool) -> int:
        try:
            return os.open(part, _FOLDER, dir_fd=folder)
        except FileNotFoundError:
            if not create:
                raise
        with suppress(FileExistsError):
            os.mkdir(part, 0o700, dir_fd=folder)
            if self._sync:
                os.fsync(folder)
        return os.open(part, _FOLDER, dir_fd=folder)

    def _translated(self, cause: OSError) -> Unavailable:
        code = errno.errorcode.get(cause.errno or 0, "")
        return Unavailable(f"the folder does not answer. path=`{self._root}` error=`{code}`")


class _Entry(NamedTuple):
    order: str  # a folder sorts as if its name ended with `/`, so that keys come in order
    name: str
    is_folder: bool


class _Walk:
    """A page of keys in text order, found by visiting no more folders than it takes."""

    def __init__(self, after: str, limit: int, prefix: str) -> None:
        self._after = after
        self._limit = limit
        self._prefix = prefix
        self.found: list[Listed] = []

    def visit(self, folder: int, path: str, begin: str) -> None:
        """Add the keys of a folder whose names begin with some text."""
        last = ""
        while len(self.found) < self._limit:
            wanted = self._limit - len(self.found)
            page = heapq.nsmallest(wanted, self._entries(folder, path, begin, last))
            for entry in page:
                last = entry.order
                self._take(folder, path, entry)
                if len(self.found) >= self._limit:
                    return
            if len(page) < wanted:
                return

    def _entries(self, folder: int, path: str, begin: str, last: str) -> Iterator[_Entry]:
        with os.scandir(folder) as entries:
            for entry in entries:
                name = entry.name
                if not name.startswith(begin) or name.startswith(_TEMPORARY):
                    continue
                is_folder = entry.is_dir(follow_symlinks=False)
                order = name + "/" if is_folder else name
                whole = path + order
                # Of a folder all keys count that begin with its name.
                done = whole <= self._after and not self._after.startswith(whole)
                if order > last and not done:
                    yield _Entry(order, name, is_folder)

    def _take(self, folder: int, path: str, entry: _Entry) -> None:
        try:
            if entry.is_folder:
                inner = os.open(entry.name, _FOLDER, dir_fd=folder)
                try:
                    self.visit(inner, path + entry.order, "")
                finally:
                    os.close(inner)
                return
            found = os.stat(entry.name, dir_fd=folder, follow_symlinks=False)
        except OSError as cause:
            if cause.errno in _NOTHING:
                return  # removed meanwhile
            raise
        key = path + entry.name
        if stat.S_ISREG(found.st_mode) and key > self._after:
            self.found.append(Listed(key, found.st_size, found.st_mtime_ns // 1000))


def version_of(data: bytes) -> str:
    """Return the version of a file: a hash, since two writers may write within one tick."""
    return blake2b(data, digest_size=16).hexdigest()


def _read(folder: int, name: str, first: int | None) -> Stored | None:
    try:
        handle = os.open(name, _READ, dir_fd=folder)
    except FileNotFoundError:
        return None
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            return None
        if first is not None and first < found.st_size:
            return Stored(file.read(first), found.st_size, None)
        data = file.read()
        return Stored(data, len(data), version_of(data))


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


@contextmanager
def _locked(folder: int) -> Iterator[None]:
    """Hold the lock of a folder. Threads of one process exclude each other as well."""
    # A lock belongs to the opened handle, and each call has opened its own.
    fcntl.flock(folder, fcntl.LOCK_EX)
    try:
        if os.fstat(folder).st_nlink == 0:
            raise FileNotFoundError(errno.ENOENT, "the folder was removed")
        yield
    finally:
        fcntl.flock(folder, fcntl.LOCK_UN)
