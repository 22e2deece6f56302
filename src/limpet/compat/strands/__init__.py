"""Strands Agents: its storages and its sessions on every engine.

`FileStorage(base_dir)` and `S3Storage(bucket=…)` replace those of the TypeScript SDK and share
folders and buckets with it; `StoreStorage(store)` is the same on any store::

    from limpet.compat.strands import StoreStorage

    storage = StoreStorage(limpet.open("sqlite:///agents.db"))
    await storage.save_snapshot(location, snapshot_id, is_latest=False, snapshot=snapshot)

`SessionManager` keeps the sessions of plain Python agents in any of them. `ByteStorage(store)` is
the `Storage` of the Strands SDK for Python; `to_python` translates snapshots of the one for
TypeScript; `import_sessions` and `export_sessions` read and write the files of both.

`docs/guides/strands.md` lists where each thing is stored, so that other programs see it.
"""

from limpet.api.integrations import LayoutName
from limpet.compat.strands.dialects import dialect_of, to_python
from limpet.compat.strands.documents import FileStorage, S3Storage
from limpet.compat.strands.manager import Agent, Restored, SessionManager, Turn
from limpet.compat.strands.python import ByteStorage
from limpet.compat.strands.records import (
    Snapshot,
    SnapshotLocation,
    SnapshotManifest,
    SnapshotPage,
)
from limpet.compat.strands.store import SessionError, SnapshotStorage, StoreStorage
from limpet.compat.strands.transfer import export_sessions, find_layout, import_sessions

__all__ = [
    "Agent",
    "ByteStorage",
    "FileStorage",
    "LayoutName",
    "Restored",
    "S3Storage",
    "SessionError",
    "SessionManager",
    "Snapshot",
    "SnapshotLocation",
    "SnapshotManifest",
    "SnapshotPage",
    "SnapshotStorage",
    "StoreStorage",
    "Turn",
    "dialect_of",
    "export_sessions",
    "find_layout",
    "import_sessions",
    "to_python",
]
