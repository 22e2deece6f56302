"""Imports and exports the folder of a Go store. One checkpoint is in memory at a time."""

import os

from limpet.api.integrations import finding
from limpet.compat.json_files import links_below
from limpet.compat.runs.go import GoRunStore
from limpet.compat.runs.records import scope_of
from limpet.compat.runs.store import RunStore, StoreAddress
from limpet.compat.wire import Transfer, folder_of
from limpet.errors import Corrupt, InvalidInput, LimpetError, NotFound
from limpet.model import Finding


def import_runs(store: StoreAddress, dir: str | os.PathLike[str]) -> Transfer:
    """Import every checkpoint of a Go store's folder, each under the name of its file.

    It replaces the checkpoint of the run in the store. May be repeated. A file that cannot be read,
    or that the store refuses, is skipped and reported, and so is a link.

    Raises:
        NotFound: there is no such folder.
    """
    folder = folder_of(dir)
    if not os.path.isdir(folder):
        raise NotFound(f"there is no such folder. path=`{folder}`")
    files = GoRunStore(folder)
    number, skipped = 0, [*links_below(folder)]
    with RunStore(store) as target:
        for run_id in files._run_ids():
            try:
                found = files.load(run_id)
            except NotFound:
                continue  # deleted meanwhile
            except LimpetError as error:
                skipped.append(_finding(run_id, error))
                continue
            try:
                target.save(found)
            except InvalidInput as error:
                skipped.append(_finding(run_id, error))
                continue
            number += 1
    return Transfer(number, tuple(skipped))


def export_runs(store: StoreAddress, dir: str | os.PathLike[str]) -> Transfer:
    """Export the checkpoint of every run to a Go store's folder, which may be new.

    It replaces the run's file. May be repeated. A run that cannot be read, or whose id cannot be a
    file name, is skipped and reported.
    """
    number, skipped = 0, []
    with RunStore(store) as source:
        files = GoRunStore(dir)
        for run_id in source._run_ids():
            try:
                files.save(source.load(run_id))
            except NotFound:
                continue  # it has no head, or was deleted meanwhile
            except (Corrupt, InvalidInput) as error:
                skipped.append(_finding(run_id, error))
                continue
            number += 1
    return Transfer(number, tuple(skipped))


def _finding(run_id: str, error: LimpetError) -> Finding:
    return finding("error", "run_skipped", str(error), scope=scope_of(run_id))
