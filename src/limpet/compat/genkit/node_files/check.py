"""What is wrong with the files of Genkit's own store. Nothing is changed."""

import os
import re
from collections import defaultdict
from collections.abc import Iterator

from limpet.backends.buckets.directory.folders import TEMPORARY, failure, is_text
from limpet.compat.genkit.node_files.folder import Shelf
from limpet.compat.genkit.node_files.format import ENDING, POINTERS, is_name
from limpet.core.findings import finding
from limpet.errors import Corrupt, LimpetError
from limpet.model import Finding

# Ours; those of Node; those of Genkit in Python.
_TEMPORARY = re.compile(rf"{re.escape(TEMPORARY)}.*|.*\.json(\.\d+\.[0-9a-f-]+)?\.tmp", re.S)


def folders_below(root: str) -> list[str]:
    """Return the folders in which snapshots may stand, as prefixes."""
    found: list[str] = []

    def refuse(cause: OSError) -> None:
        if not isinstance(cause, FileNotFoundError):
            raise failure(cause, cause.filename or root) from cause

    for path, folders, _ in os.walk(root, onerror=refuse):
        folders[:] = sorted(each for each in folders if each != POINTERS and is_text(each))
        if path != root:
            found.append(os.path.relpath(path, root))
    return found


def judge(shelf: Shelf) -> list[Finding]:
    """Return what is wrong in the folder of a tenant."""
    found: list[Finding] = []
    for name in shelf.names():
        id = name.removesuffix(ENDING)
        path = os.path.join(shelf.path, name)
        if _TEMPORARY.fullmatch(name):
            fact = "a temporary file of a save that is under way or never ended"
            found.append(finding("info", "temporary_left", fact, path=path))
        elif id != name and not is_name(id):
            fact = "the name of a file is not that of a snapshot"
            found.append(finding("warning", "name_wrong", fact, path=path))
        elif id != name:
            found += _judged(shelf, id)
    return [*found, *_pointers(shelf)]


def _judged(shelf: Shelf, id: str) -> Iterator[Finding]:
    path = shelf.path_of(id)
    try:
        held = shelf.read(id)
    except Corrupt as damage:
        yield finding("error", "snapshot_damaged", str(damage), id=id)
        return
    except LimpetError as error:
        yield finding("error", "snapshot_unreadable", str(error), id=id)
        return
    if held is None:
        return
    if held.inner_id != id:
        fact = "the file names another snapshot than its own name does"
        yield finding("warning", "snapshot_id_differs", fact, id=id, path=path)
    if held.row.parent_id == id:
        fact = "the snapshot is its own parent, so what came before it is not known"
        yield finding("warning", "parent_is_itself", fact, id=id, path=path)


def _pointers(shelf: Shelf) -> Iterator[Finding]:
    """Tell of pointers that lead nowhere, elsewhere, or to what is no leaf."""
    owned: defaultdict[str | None, set[str | None]] = defaultdict(set)
    parents: defaultdict[str | None, set[str | None]] = defaultdict(set)
    for row in shelf.rows():
        owned[row.session_id].add(row.snapshot_id)
        parents[row.session_id].add(row.parent_id)
    for name in shelf.names(POINTERS):
        session_id = name.removesuffix(ENDING)
        if session_id == name or not is_name(session_id):
            continue
        named = shelf.pointer(session_id).snapshot_id
        fact = None
        if named not in owned[session_id]:
            fact = "a pointer does not lead to a snapshot of its session"
        elif named in parents[session_id]:
            fact = "a pointer leads to a snapshot that others follow"
        if fact is not None:
            path = os.path.join(shelf.path, POINTERS, name)
            yield finding("warning", "pointer_wrong", fact, path=path)
