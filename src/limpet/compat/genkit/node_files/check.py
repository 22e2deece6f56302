"""Finds what is wrong with the files of Genkit's own store. Changes nothing."""

import os
import re
from collections import defaultdict
from collections.abc import Iterator

from limpet.backends.buckets import TEMPORARY, failure, is_text
from limpet.compat.genkit.node_files.folder import TenantFolder
from limpet.compat.genkit.node_files.format import ENDING, POINTERS, is_name
from limpet.core.findings import finding
from limpet.errors import Corrupt, LimpetError
from limpet.model import Finding

# Ours; those of Node; those of Genkit in Python.
_TEMPORARY = re.compile(rf"{re.escape(TEMPORARY)}.*|.*\.json(\.\d+\.[0-9a-f-]+)?\.tmp", re.S)


def folders_below(root: str) -> list[str]:
    """Return the folders that may hold snapshots, as prefixes."""
    found: list[str] = []

    def refuse(cause: OSError) -> None:
        if not isinstance(cause, FileNotFoundError):
            raise failure(cause, cause.filename or root) from cause

    for path, folders, _ in os.walk(root, onerror=refuse):
        folders[:] = sorted(each for each in folders if each != POINTERS and is_text(each))
        if path != root:
            found.append(os.path.relpath(path, root))
    return found


def check_folder(folder: TenantFolder) -> list[Finding]:
    found: list[Finding] = []
    for name in folder.names():
        id = name.removesuffix(ENDING)
        path = os.path.join(folder.path, name)
        if _TEMPORARY.fullmatch(name):
            fact = "a temporary file of a save that has not finished"
            found.append(finding("info", "temporary_left", fact, path=path))
        elif id != name and not is_name(id):
            fact = "the file name is not that of a snapshot"
            found.append(finding("warning", "name_wrong", fact, path=path))
        elif id != name:
            found += _check_snapshot(folder, id)
    return [*found, *_check_pointers(folder)]


def _check_snapshot(folder: TenantFolder, id: str) -> Iterator[Finding]:
    path = folder.path_of(id)
    try:
        found = folder.read(id)
    except Corrupt as damage:
        yield finding("error", "snapshot_damaged", str(damage), id=id)
        return
    except LimpetError as error:
        yield finding("error", "snapshot_unreadable", str(error), id=id)
        return
    if found is None:
        return
    if found.inner_id != id:
        fact = "the id in the file differs from the file name"
        yield finding("warning", "snapshot_id_differs", fact, id=id, path=path)
    if found.row.parent_id == id:
        fact = "the snapshot is its own parent, so its real parent is unknown"
        yield finding("warning", "parent_is_itself", fact, id=id, path=path)


def _check_pointers(folder: TenantFolder) -> Iterator[Finding]:
    owned: defaultdict[str | None, set[str | None]] = defaultdict(set)
    parents: defaultdict[str | None, set[str | None]] = defaultdict(set)
    for row in folder.rows():
        owned[row.session_id].add(row.snapshot_id)
        parents[row.session_id].add(row.parent_id)
    for name in folder.names(POINTERS):
        session_id = name.removesuffix(ENDING)
        if session_id == name or not is_name(session_id):
            continue
        named = folder.pointer(session_id).snapshot_id
        fact = None
        if named not in owned[session_id]:
            fact = "the pointer names no snapshot of its session"
        elif named in parents[session_id]:
            fact = "the pointer names a snapshot that has children"
        if fact is not None:
            path = os.path.join(folder.path, POINTERS, name)
            yield finding("warning", "pointer_wrong", fact, path=path)
