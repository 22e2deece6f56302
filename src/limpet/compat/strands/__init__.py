"""Strands Agents: its storages and its sessions on every engine.

`FileStorage(base_dir)` and `S3Storage(bucket=…)` replace those of the TypeScript SDK and share
folders and buckets with it; `StoreStorage(store)` is the same on any store::

    from limpet.compat.strands import StoreStorage

    storage = StoreStorage(limpet.open("sqlite:///agents.db"))
    await storage.save_snapshot(location, snapshot_id, is_latest=False, snapshot=snapshot)

`SessionManager` keeps the sessions of plain Python agents in any of them. `ByteStorage(store)` is
the `Storage` of the Strands SDK for Python; `to_python` and `to_typescript` translate between the
snapshots of the two SDKs; `import_sessions` and `export_sessions` read and write their files.

How the terms translate, so that each interface sees what the others save:

| Strands                    | Limpet                                                     |
|----------------------------|--------------------------------------------------------------|
| `sessionId`                | session                                                      |
| `scope`, `scopeId`         | kind (`agent`, `multiAgent`) and scope id                    |
| `snapshot_latest.json`     | the head, saved with `keep=False`                            |
| `immutable_history/<id>`   | a snapshot saved with `head=False, overwrite=True`           |
| `data`                     | the state                                                    |
| the other fields           | `metadata["strands"]`, unchanged                             |
| `manifest.json`            | the note `manifest` of the scope                             |

Where the TypeScript SDK (1.16 to 1.19) deviates from its documentation, Limpet follows the
documentation:

| the TypeScript SDK                                         | Limpet                           |
|------------------------------------------------------------|----------------------------------|
| of 50 concurrent saves of the latest 49 are rejected       | none is; the last one stays      |
| with `./rel` as the folder every save to history fails     | it works                         |
| a missing bucket reads as an empty session                 | SessionError                     |
| keys that a delete left over are not reported              | SessionError                     |
| names that are not valid ids are listed                    | only ids are                     |
| S3 lists `a-b` before `a`, in the order of keys            | after it                         |
| an empty object reads as missing                           | SessionError: it is damaged      |
| doubled slashes in the prefix of S3 are kept               | they are removed                 |
| bad ids and damaged data differ only in their messages     | InvalidInput, SessionError       |
| a cursor must be a UUID 7                                  | or an id in history              |
| ids and scopes that are not text are converted             | InvalidInput                     |
| `NaN` becomes `null`, other values vanish                  | InvalidInput, with the path      |
| a write is lost if the power fails                         | it is synced first               |
| an identifier may be as long as a file name                | up to 200 characters             |
| a damaged latest is overwritten by the next save           | so it is, but kept, and logged   |
| and so is a damaged manifest, or one in history            | SessionError: delete the session |
| a folder or link instead of a file is an error             | it is ignored, as if missing     |
"""

from limpet.compat.strands.dialects.payloads import dialect_of, to_python, to_typescript
from limpet.compat.strands.manager import Agent, Restored, SessionManager, Turn
from limpet.compat.strands.python import ByteStorage
from limpet.compat.strands.records import (
    Snapshot,
    SnapshotLocation,
    SnapshotManifest,
    SnapshotPage,
)
from limpet.compat.strands.storage import (
    FileStorage,
    S3Storage,
    SessionError,
    SnapshotStorage,
    StoreStorage,
)
from limpet.compat.strands.transfer import LayoutName, export_sessions, find_layout, import_sessions

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
    "to_typescript",
]
