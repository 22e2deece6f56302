"""Writing the files of a kept save by hand, equally durably, with nothing but `os`."""

import os
from pathlib import Path

from benchmarks.objects.material import HEAD, Keys

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL


class Hand:
    """Writes below a folder. Nothing is compared, hashed or locked."""

    def __init__(self, root: Path, keys: Keys, *, sync: bool) -> None:
        self._root = str(root)
        self._sync = sync
        for key in (HEAD, keys.copy, keys.by_place, os.path.dirname(keys.by_id)):
            os.makedirs(os.path.dirname(self._path(key)), mode=0o700, exist_ok=True)

    def save(self, document: bytes, keys: Keys) -> None:
        """Write each of the four files: temporary file, sync, rename, sync of the directory."""
        self._write(HEAD, document)
        self._make_folder(os.path.dirname(keys.by_id))
        self._write(keys.by_id, b"")
        self._write(keys.by_place, b"")
        self._write(keys.copy, document)

    def save_least(self, document: bytes, keys: Keys) -> None:
        """Do the same with the fewest steps: an empty file is complete as soon as it exists."""
        self._write(HEAD, document)
        self._make_folder(os.path.dirname(keys.by_id))
        for key in (keys.by_id, keys.by_place):
            os.close(os.open(self._path(key), _NEW, 0o600))
            self._sync_folder(os.path.dirname(self._path(key)))
        self._write(keys.copy, document)

    def _path(self, key: str) -> str:
        return os.path.join(self._root, key)

    def _write(self, key: str, data: bytes) -> None:
        path = self._path(key)
        folder = os.path.dirname(path)
        temporary = os.path.join(folder, f".tmp-{os.urandom(8).hex()}")
        handle = os.open(temporary, _NEW, 0o600)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(handle, view) :]
            if self._sync:
                os.fsync(handle)
        finally:
            os.close(handle)
        os.rename(temporary, path)
        self._sync_folder(folder)

    def _make_folder(self, key: str) -> None:
        path = self._path(key)
        os.mkdir(path, 0o700)
        self._sync_folder(os.path.dirname(path))

    def _sync_folder(self, path: str) -> None:
        if self._sync:
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
