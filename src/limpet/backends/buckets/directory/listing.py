"""Listing a tree of folders: pages of keys in order, and what killed processes left."""

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
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

_SCAN_ITEMS_MIN = 256  # names that one scan of a folder looks for, at least
_SPARE_ITEMS = 1024  # names beyond its page that a scan collects before it sorts
_STALE_US = 3_600_000_000
_TIDIED_MAX = 1_024  # folders; the rest is left to `sweep`


class Page:
    """A page of keys in the order of their bytes. It opens no more folders than necessary.

    Of a folder with many names only those of the page are kept in memory.
    """

    def __init__(self, after: str, limit: int) -> None:
        self._after = after
        self._limit = limit
        self.found: list[Listed] = []

    def visit(self, folder: int, path: str, begin: str) -> None:
        """Add the keys of a folder whose names begin with `begin`."""
        last = ""
        while len(self.found) < self._limit:
            # Inner folders may be empty, and a scan per empty folder would take too long.
            wanted = max(self._limit - len(self.found), _SCAN_ITEMS_MIN)
            page = self._least(folder, path, begin, last, wanted)
            for order in page:
                last = order
                self._take(folder, path, order)
                if len(self.found) >= self._limit:
                    return
            if len(page) < wanted:
                return

    def _least(self, folder: int, path: str, begin: str, last: str, wanted: int) -> list[str]:
        """Return the first names after `last`. The name of a folder ends with `/`."""
        after = self._after
        if after.startswith(path):
            rest = after[len(path) :]
        elif after < path:
            rest = ""
        else:
            return []
        least: list[str] = []
        bound = "\U0010ffff" * 2  # above every name
        with os.scandir(folder) as entries:
            for entry in entries:
                name = entry.name
                # Of the names up to `after`, only the folder that it is in can matter.
                if not rest < name < bound and (name >= bound or not rest.startswith(name)):
                    continue
                if not name.startswith(begin) or name.startswith(TEMPORARY) or not is_text(name):
                    continue
                is_folder = entry.is_dir(follow_symlinks=False)
                if not is_folder and not entry.is_file(follow_symlinks=False):
                    continue
                order = name + "/" if is_folder else name
                if order <= last or (order <= rest and not (is_folder and rest.startswith(order))):
                    continue
                least.append(order)
                if len(least) >= wanted + _SPARE_ITEMS:
                    least.sort()
                    del least[wanted:]
                    bound = least[-1]
        least.sort()
        return least[:wanted]

    def _take(self, folder: int, path: str, order: str) -> None:
        try:
            if order.endswith("/"):
                self._descend(folder, path, order)
                return
            found = os.stat(order, dir_fd=folder, follow_symlinks=False)
        except OSError as cause:
            if cause.errno in NOTHING:
                return  # removed meanwhile
            raise
        key = path + order
        if stat.S_ISREG(found.st_mode) and key > self._after:
            self.found.append(Listed(key, found.st_size, found.st_mtime_ns // 1000))

    def _descend(self, folder: int, path: str, order: str) -> None:
        if path.count("/") >= DEPTH_MAX:
            return
        inner = os.open(order[:-1], FOLDER, dir_fd=folder)
        try:
            self.visit(inner, path + order, "")
        finally:
            os.close(inner)


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

    def tidy(self, folder: int, above: Sequence[str], *, new: bool = False) -> None:
        """Remove old temporary files from a folder, the first time that it is written to."""
        path = hash("/".join(above))
        if path in self._tidied or len(self._tidied) >= _TIDIED_MAX:
            return
        self._tidied.add(path)
        if new:
            return
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
