"""Storage on which the Strands SDK and Limpet work side by side."""

import asyncio
from pathlib import Path
from typing import Any, NamedTuple

from limpet.api.store import Store
from limpet.compat.strands import (
    FileStorage,
    S3Storage,
    SnapshotLocation,
    SnapshotStorage,
    export_sessions,
    import_sessions,
)
from limpet.compat.wire import Transfer
from limpet.model import JSON, ScopeKey
from tests.interop.places import Files, Folder, Objects, Place
from tests.interop.sdk import Sdk, Side, Theirs


class Layout(NamedTuple):
    """Where sessions stand, and which of the SDK's storages puts them there.

    The classic storages write below their folder or prefix, the unified ones below `session/` in
    it, or below a namespace.
    """

    root: str
    family: str
    namespace: str = ""


LAYOUTS = {
    "classic": Layout("", "classic"),
    "unified": Layout("session/", "unified"),
}
NAMED = Layout("sessions/", "unified", namespace="sessions")


class Ground:
    """One address that both sides know. `files` shows what is really there."""

    def __init__(self, sdk: Sdk, layout: Layout, at: Place) -> None:
        self.layout = layout
        self._sdk = sdk
        self._spec: dict[str, Any] = {"family": layout.family, "namespace": layout.namespace}
        self.files: Files
        options: dict[str, Any] = {}
        if isinstance(at, Path):
            self.files = Folder(at)
            self._spec["folder"] = str(at)
            address = str(at)
        else:
            self.files = Objects(at)
            options = dict(at.service.options)
            self._spec["s3"] = {
                "endpoint": options["endpoint_url"],
                "region": options["region"],
                "bucket": at.service.name,
                "prefix": at.prefix,
                "accessKeyId": at.service.access_key_id,
                "secretAccessKey": at.service.secret_access_key,
            }
            address = f"s3://{at.service.name}/{at.prefix}"
        is_unified = layout.root == "session/"
        self._layout: Any = "unified" if is_unified else "classic"
        self._address = address if is_unified else f"{address}/{layout.root}"
        self._options = options
        self.storage: FileStorage | S3Storage
        """Ours, where the SDK has its own."""
        if isinstance(at, Path):
            self.storage = FileStorage(at / layout.root)
        else:
            prefix = f"{at.prefix}/{layout.root}"
            self.storage = S3Storage(at.service.name, prefix, **options)

    def ours(self, session_id: str, scope_id: str = "main", kind: str = "agent") -> "Ours":
        """Return a scope as we see it."""
        return Ours(self.storage, SnapshotLocation(session_id, kind, scope_id))

    def theirs(self, session_id: str, scope_id: str = "main", kind: str = "agent") -> Theirs:
        """Return a scope as the SDK sees it."""
        return Theirs(self._sdk, self._spec, ScopeKey(session_id, scope_id, kind))

    def pull(self, store: Store, **options: Any) -> Transfer:
        """Import what is here into a store."""
        given = {**self._options, **options}
        return import_sessions(store, self._address, layout=self._layout, **given)

    def push(self, store: Store, **options: Any) -> Transfer:
        """Export a store to here."""
        given = {**self._options, **options}
        return export_sessions(store, self._address, layout=self._layout, **given)

    def documents(self, session_id: str) -> list[str]:
        """Return the keys of a session as they stand below the root."""
        start = f"{self.layout.root}{session_id}/"
        found = (key for key in self.files.list_keys() if key.startswith(start))
        return [key.removeprefix(start) for key in found]


class Ours(Side):
    """One scope in our storage, with the methods of `Theirs`."""

    def __init__(self, storage: SnapshotStorage, location: SnapshotLocation) -> None:
        self.storage, self.location, self.kind = storage, location, location.scope

    def put(self, id: str | None, taken: JSON) -> None:
        asyncio.run(self.storage.save_snapshot(self.location, id or "latest", id is None, taken))

    def load(self, id: str | None = None) -> JSON:
        found = asyncio.run(self.storage.load_snapshot(self.location, id))
        return None if found is None else found.to_json()

    def ids(self, *, limit: int | None = None, after: str | None = None) -> list[str]:
        return asyncio.run(self.storage.list_snapshot_ids(self.location, limit, after))

    def manifest(self) -> JSON:
        return asyncio.run(self.storage.load_manifest(self.location)).to_json()

    def save_manifest(self, manifest: JSON) -> None:
        asyncio.run(self.storage.save_manifest(self.location, manifest))

    def delete_session(self) -> None:
        asyncio.run(self.storage.delete_session(self.location.session_id))
