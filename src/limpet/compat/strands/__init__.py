"""Strands Agents: its storages and its sessions on every engine.

`FileStorage(base_dir)` and `S3Storage(bucket=…)` stand in for those of the TypeScript SDK and
share folders and buckets with it; `StoreStorage(store)` is the same on any store::

    from limpet.compat.strands import StoreStorage

    storage = StoreStorage(limpet.open("sqlite:///agents.db"))
    await storage.save_snapshot(location, snapshot_id, is_latest=False, snapshot=snapshot)

`SessionManager` keeps the sessions of plain Python agents in any of them. `ByteStorage(store)` is
the `Storage` of the Strands SDK for Python; `to_python` and `to_typescript` translate between what
the two SDKs save; `import_sessions` and `export_sessions` move sessions in and out of their files.

How the words translate, and where what is saved through one interface is seen by the others:

| Strands                    | Limpet                                                     |
|----------------------------|--------------------------------------------------------------|
| `sessionId`                | session                                                      |
| `scope`, `scopeId`         | kind (`agent`, `multiAgent`) and scope id                    |
| `snapshot_latest.json`     | the head, saved with `keep=False`                            |
| `immutable_history/<id>`   | a snapshot saved with `head=False, overwrite=True`           |
| `data`                     | the state                                                    |
| the other fields           | `metadata["strands"]`, word for word                         |
| `manifest.json`            | the note `manifest` of the scope                             |

Where the TypeScript SDK (1.16 to 1.19) does something else than it documents, we keep to the
documents:

| there                                                      | here                             |
|------------------------------------------------------------|----------------------------------|
| of 50 latest saves at a time 49 are rejected               | none is; one of them stays       |
| with `./rel` as the folder every save to history fails     | it works                         |
| a bucket that is missing reads as an empty session         | SessionError                     |
| keys that a delete left behind are not reported            | SessionError                     |
| names that no id can have are listed                       | only ids are                     |
| S3 lists `a-b` before `a`, in the order of keys            | after it                         |
| an empty object reads as none                              | SessionError: it is damaged      |
| the prefix of S3 is taken as it is, with doubled slashes   | it is made regular               |
| bad ids and damaged data are told apart by their text      | InvalidInput, SessionError       |
| a cursor must be a UUID 7                                  | or an id that is in history      |
| ids and scopes that are no text are turned into text       | InvalidInput                     |
| `NaN` becomes `null`, other values vanish                  | InvalidInput, with the path      |
| a write is lost if the power fails                         | it is synced first               |
| an identifier may have any length that a file name can     | up to 200 characters             |
| a damaged latest is overwritten by the next save           | so it is, but kept, and logged   |
| and so is a damaged manifest, or one in history            | SessionError: delete the session |
| a folder or link in the place of a file is an error        | it is left alone, as if missing  |
"""

from limpet.compat.strands.dialects.payloads import dialect_of, to_python, to_typescript
from limpet.compat.strands.manager import Agent, Restored, SessionManager, Turn
from limpet.compat.strands.places import FileStorage, S3Storage
from limpet.compat.strands.python import ByteStorage
from limpet.compat.strands.records import (
    Snapshot,
    SnapshotLocation,
    SnapshotManifest,
    SnapshotPage,
)
from limpet.compat.strands.storage import SessionError, SnapshotStorage, StoreStorage
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
