"""The folder of Genkit's own `FileSessionStore`: what imports read and exports write.

    <tenant>/<snapshot_id>.json            JSON.stringify(snapshot, null, 2)
    <tenant>/.pointers/<session_id>.json   names the latest snapshot of a session

Without a tenant the folder is `global`. The name of a file counts, not the id inside.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from limpet.api.integrations import TEMPORARY, Bucket, failure, is_text, times
from limpet.compat.genkit import rules
from limpet.compat.genkit.records import Row, SessionSnapshot
from limpet.compat.json_files import dump_indented, is_file_name, json_of, read_files
from limpet.compat.wire import ABSENT, shown, wire_time
from limpet.errors import Corrupt, InvalidInput
from limpet.model import ANY
from limpet.opening import draw, open_files

GLOBAL = "global"  # the folder without a tenant

_ENDING = ".json"
_POINTERS = ".pointers"
_NAME_BYTES_MAX = 200  # of 255: the temporary names of Node have up to 54 bytes more
_PREFIX_PARTS_MAX = 16


class FileRow(NamedTuple):
    """The row in a file, and the version of the file."""

    row: Row
    version: str | None


class TenantFolder:
    """The snapshots of one tenant, below the folder that `files` is open on.

    `names` are those of its files. Without a prefix it is that folder itself.
    """

    def __init__(self, files: Bucket, root: str, prefix: str, names: Sequence[str] = ()) -> None:
        self.prefix = prefix
        self._files = files
        self._root = root
        self._names = names

    def path_of(self, id: str = "") -> str:
        """Return the path of the file of a snapshot, or without an id of the folder."""
        return os.path.join(self._root, self._key(id) if id else self.prefix)

    def ids(self) -> Iterator[str]:
        for name in self._names:
            id = name.removesuffix(_ENDING)
            if id != name and is_name(id):
                yield id

    def read(self, id: str) -> FileRow | None:
        """Return a snapshot, None if there is none, or only a link.

        Raises:
            Corrupt: the file is not that of a snapshot. The message has its path.
        """
        (stored,) = read_files(self._files, [self._key(id)])
        if stored is None:
            return None
        try:
            value = json_of(stored)
            if not isinstance(value, dict):
                raise Corrupt("the file is not a snapshot: its JSON is not an object")
            row: Row = SessionSnapshot.from_json(value)
        except (Corrupt, InvalidInput) as cause:
            raise Corrupt(f"{cause}. path=`{self.path_of(id)}`") from cause
        return FileRow(replace(row, snapshot_id=id), stored.version)

    def write(self, row: Row, *, expect: str | None) -> None:
        """Store a row as Node does, if its file is at the version `expect`; else raise Moved."""
        data = dump_indented(row.to_json(), what="snapshot")
        self._files.put(self._key(row.snapshot_id or ""), data, expect=expect)

    def pointer(self, session_id: str) -> str | None:
        """Return the snapshot that the pointer of a session names; None if it names none."""
        (stored,) = read_files(self._files, [self._key(f"{_POINTERS}/{session_id}")])
        try:
            value = None if stored is None else json_of(stored)
        except Corrupt:
            return None
        named = value.get("currentSnapshotId") if isinstance(value, dict) else None
        return named if isinstance(named, str) else None

    def point(self, session_id: str, snapshot_id: str) -> None:
        """Let the pointer of a session name a snapshot."""
        now = wire_time(times.from_us(draw().now))
        data = dump_indented({"currentSnapshotId": snapshot_id, "updatedAt": now}, what="pointer")
        self._files.put(self._key(f"{_POINTERS}/{session_id}"), data, expect=ANY)

    def _key(self, name: str) -> str:
        return f"{self.prefix}/{name}{_ENDING}" if self.prefix else name + _ENDING


def folders_of(root: str) -> list[TenantFolder]:
    """Return the folders that may hold snapshots: those of tenants, and last `root` itself."""
    files, found = open_files(root), list[TenantFolder]()

    def refuse(cause: OSError) -> None:
        if not isinstance(cause, FileNotFoundError):
            raise failure(cause, cause.filename or root) from cause

    for path, below, names in os.walk(root, onerror=refuse):
        below[:] = sorted(each for each in below if each != _POINTERS and is_text(each))
        prefix = "" if path == root else os.path.relpath(path, root)
        found.append(TenantFolder(files, root, prefix, sorted(names)))
    return [*found[1:], *found[:1]]


def bare(row: Row) -> Row:
    """Return a row without its state, error and unknown fields, and with its session."""
    known = replace(row, session_id=rules.session_of(row), state=ABSENT, error=None, extra={})
    return rules.repaired(known)


def is_name(id: object) -> bool:
    """Return whether an id can be a file name that no temporary file has."""
    return is_file_name(id, bytes_max=_NAME_BYTES_MAX) and not str(id).startswith(TEMPORARY)


def check_name(name: str, id: str) -> str:
    if not is_name(id) or not id.strip():
        raise InvalidInput(f"{name} must be usable as a file name. {name}=`{shown(id)}`")
    return id


def check_prefix(prefix: str) -> str:
    """Return the folder of a tenant: one name, or several with `/` between.

    No name may lead out of the store's folder, or be one that tenant folders use themselves.
    """
    parts = prefix.split("/")
    if len(parts) > _PREFIX_PARTS_MAX or not all(map(_is_folder, parts)):
        raise InvalidInput(f"the prefix must be names of folders. prefix=`{shown(prefix)}`")
    return prefix


def _is_folder(name: str) -> bool:
    return is_name(name) and bool(name.strip()) and name != _POINTERS and not name.endswith(_ENDING)
