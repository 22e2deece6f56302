"""Listing a tree of folders: pages of keys in order, and what killed processes left."""

import os
import stat
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from heapq import nsmallest
from itertools import islice

from limpet.backends.buckets.directory.folders import (
    DEPTH_MAX,
    FOLDER,
    NOTHING,
    TEMPORARY,
    Folders,
    failure,
    is_text,
)
from limpet.backends.buckets.protocol import Leftover, Listed

_STALE_US = 3_600_000_000
_TIDIED_MAX = 1_024  # folders; the rest is left to `sweep`


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
