"""`SnapshotStorage` on every engine: in any store, in a folder, in a bucket.

A location is a scope: session, scope id and kind. The latest snapshot is a head that is not kept;
history is kept without becoming the head. So the two are independent. The state is `data`; the
other fields are in `metadata["strands"]`; the manifest is a note.
"""

import logging
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import Any, Protocol, Self, TypeAlias, runtime_checkable

from limpet import opening
from limpet.api.aio_scope import AsyncScope
from limpet.api.opened import Opened
from limpet.api.store import AsyncStore, Store
from limpet.compat.strands.records import (
    SCHEMA_VERSION,
    Snapshot,
    SnapshotLocation,
    SnapshotManifest,
    SnapshotPage,
    check_identifier,
    is_identifier,
    is_uuid7,
)
from limpet.compat.wire import check_store, folder_of, wire_time
from limpet.core import document, prepare, times
from limpet.core.document import FACADE
from limpet.errors import Corrupt, InvalidInput, LimpetError
from limpet.model import HEAD, JSON, Parent
from limpet.model import Snapshot as Stored

MANIFEST = "manifest"
FORM = "form"  # in metadata: how `ByteStorage` formats the bytes
GONE = "gone"  # this form marks a deleted latest: without it the newest of history would show
_ROOT = ""  # sessions are directly below the folder or the prefix

_log = logging.getLogger(__name__)

AnyLocation: TypeAlias = SnapshotLocation | Mapping[str, Any]
AnySnapshot: TypeAlias = Snapshot | Mapping[str, Any]
AnyManifest: TypeAlias = SnapshotManifest | Mapping[str, Any]


class SessionError(LimpetError):
    """The storage failed, or its data is damaged. The reason is the cause."""


@runtime_checkable
class SnapshotStorage(Protocol):
    """Where sessions keep the snapshots of their agents.

    Every record may be given as its wire dict. Bad arguments raise InvalidInput, failures of the
    storage SessionError, with the cause.
    """

    async def save_snapshot(
        self, location: AnyLocation, snapshot_id: str, is_latest: bool, snapshot: AnySnapshot
    ) -> None:
        """Store a snapshot, durably: as the latest, or in history under its id.

        The latest replaces the previous one, and `snapshot_id` is then ignored. The two are
        independent. A snapshot of the same id in history is replaced.
        """

    async def load_snapshot(
        self, location: AnyLocation, snapshot_id: str | None = None
    ) -> Snapshot | None:
        """Return a snapshot of history, or without an id the latest; None if there is none."""

    async def list_snapshot_ids(
        self, location: AnyLocation, limit: int | None = None, start_after: str | None = None
    ) -> list[str]:
        """Return the ids in history in ascending order, which for UUIDs 7 is the order of time.

        Only those greater than `start_after`: a UUID 7, which need not exist, or an existing id.
        With a `limit` of 0 or less there are none.
        """

    async def list_snapshots(
        self, location: AnyLocation, limit: int | None = None, start_after: str | None = None
    ) -> SnapshotPage:
        """Return ids as `list_snapshot_ids` does, and the cursor of the next page."""

    async def load_manifest(self, location: AnyLocation) -> SnapshotManifest:
        """Return the manifest; if there is none, a default one with the current time."""

    async def save_manifest(self, location: AnyLocation, manifest: AnyManifest) -> None:
        """Store the manifest."""

    async def delete_session(self, session_id: str) -> None:
        """Delete a session. Idempotent."""


class StoreStorage(SnapshotStorage):
    """A `SnapshotStorage` in an opened store, sync or async. The caller closes the store."""

    def __init__(self, store: Store | AsyncStore) -> None:
        self._store = check_store(store).aio

    async def save_snapshot(
        self, location: AnyLocation, snapshot_id: str, is_latest: bool, snapshot: AnySnapshot
    ) -> None:
        address = SnapshotLocation.of(location).check()
        if not isinstance(is_latest, bool):
            raise InvalidInput(f"is_latest must be a bool. type=`{type(is_latest).__name__}`")
        if not is_latest:
            check_identifier("snapshot_id", snapshot_id)
        envelope = Snapshot.of(snapshot).to_json()
        state = envelope.pop("data")
        facts: dict[str, Any] = {
            "metadata": {FACADE: envelope},
            "created_at": moment_of(envelope),
        }
        if is_latest:
            facts["keep"] = False
        else:
            facts |= {"id": snapshot_id, "head": False, "overwrite": True}
        async with self._errors("the snapshot was not saved", address):
            scope = self._scope(address)
            facts["parent"] = parent_in(self._store.driver.opened)
            try:
                await scope.save(state, **facts)
            except Corrupt as damage:
                if not is_latest:
                    raise
                await self._replace_damaged(scope, state, facts, damage)

    async def load_snapshot(
        self, location: AnyLocation, snapshot_id: str | None = None
    ) -> Snapshot | None:
        address = SnapshotLocation.of(location).check()
        if snapshot_id is not None:
            check_identifier("snapshot_id", snapshot_id)
        async with self._errors("the snapshot cannot be read", address, snapshot_id):
            found = await self._scope(address).load(snapshot_id)
        # A head that is not kept has an id too, but is not in history.
        if found is None or is_gone(found) or (snapshot_id is not None and not found.kept):
            return None
        return snapshot_of(found)

    async def list_snapshot_ids(
        self, location: AnyLocation, limit: int | None = None, start_after: str | None = None
    ) -> list[str]:
        if limit is not None and _check_limit(limit) <= 0:
            return []
        address = SnapshotLocation.of(location).check()
        async with self._errors("the snapshots cannot be listed", address):
            after = await self._cursor(address, start_after)
            return await self._ids(address, limit, after)

    async def list_snapshots(
        self, location: AnyLocation, limit: int | None = None, start_after: str | None = None
    ) -> SnapshotPage:
        more = None if limit is None or _check_limit(limit) <= 0 else limit + 1
        ids = await self.list_snapshot_ids(location, limit if more is None else more, start_after)
        if more is None or len(ids) < more:
            return SnapshotPage(tuple(ids))
        return SnapshotPage(tuple(ids[:-1]), next_token=ids[-2])

    async def load_manifest(self, location: AnyLocation) -> SnapshotManifest:
        address = SnapshotLocation.of(location).check()
        now = times.from_us(self._store.driver.tools.draw().now)
        default = {"schemaVersion": SCHEMA_VERSION, "updatedAt": wire_time(now)}
        async with self._errors("the manifest cannot be read", address):
            found = await self._scope(address).note(MANIFEST)
            if found is None or found.value is None:
                return SnapshotManifest.from_json(default)
            if not isinstance(found.value, dict):
                raise Corrupt(f"the manifest is not an object. session_id=`{address.session_id}`")
        return SnapshotManifest.from_json({**default, **found.value})

    async def save_manifest(self, location: AnyLocation, manifest: AnyManifest) -> None:
        address = SnapshotLocation.of(location).check()
        value = SnapshotManifest.of(manifest).to_json()
        async with self._errors("the manifest was not saved", address):
            await self._scope(address).set_note(MANIFEST, value)

    async def delete_session(self, session_id: str) -> None:
        check_identifier("session_id", session_id)
        async with self._errors(f"the session was not deleted. session_id=`{session_id}`"):
            await self._store.delete_session(session_id)

    async def _replace_damaged(
        self, scope: AsyncScope, state: JSON, facts: Mapping[str, Any], damage: Corrupt
    ) -> None:
        """Replace a latest that cannot be read, so that the session can continue."""
        tools = self._store.driver.tools
        commit = prepare.save(
            scope.key,
            state,
            parent=None,  # unknown
            keep=False,
            metadata=facts["metadata"],
            created_at=facts["created_at"],
            stamp=tools.draw(),
            state_bytes_max=tools.state_bytes_max,
        )._replace(past_damage=True)
        await self._store.driver.run(lambda backend: backend.commit(commit))
        _log.warning(
            "the latest snapshot was damaged and is replaced. session_id=`%s` scope_id=`%s`",
            scope.session_id,
            scope.scope_id,
            exc_info=damage,
        )

    def _scope(self, address: SnapshotLocation) -> AsyncScope:
        return self._store.scope(address.session_id, address.scope_id, address.scope)

    async def _ids(
        self, address: SnapshotLocation, limit: int | None, after: str | None
    ) -> list[str]:
        """Return ids that Strands accepts: other programs may have saved other ones."""
        scope, found = self._scope(address), list[str]()
        start = after
        while True:
            wanted = None if limit is None else limit - len(found)
            page = [each async for each in scope.ids(after=start, limit=wanted)]
            found += filter(is_identifier, page)
            if wanted is None or len(page) < wanted or len(found) == limit:
                break
            start = page[-1]
        uuids = all(map(is_uuid7, found)) and (after is None or is_uuid7(after))
        if uuids or is_database(self._store.driver.opened):
            return found
        # Files are listed by name, where `a-b.json` comes before `a.json`. For UUIDs that is the
        # same order; other ids are all read and sorted.
        ids = sorted([each async for each in scope.ids() if is_identifier(each)])
        return [each for each in ids if after is None or each > after][:limit]

    async def _cursor(self, address: SnapshotLocation, start_after: str | None) -> str | None:
        if start_after is None or start_after == "":
            return None
        check_identifier("start_after", start_after)
        with suppress(Corrupt):  # a page may end with a damaged snapshot
            if not is_uuid7(start_after) and await self._scope(address).info(start_after) is None:
                raise InvalidInput(
                    f"start_after is neither a UUID 7 nor an id in history. id=`{start_after}`"
                )
        return start_after

    @asynccontextmanager
    async def _errors(
        self, fact: str, address: SnapshotLocation | None = None, id: str | None = None
    ) -> AsyncIterator[None]:
        """Translate errors of the storage into SessionError; InvalidInput passes through."""
        if address is not None:
            fact += f". session_id=`{address.session_id}` scope_id=`{address.scope_id}`"
        if id is not None:
            fact += f" snapshot_id=`{id}`"
        opened = self._store.driver.opened
        try:
            # Opened first, so that a URL that cannot be opened is not taken for bad input.
            if not opened.is_open and not opened.closed:
                await self._store.__aenter__()
        except LimpetError as cause:
            raise SessionError(fact) from cause
        try:
            yield
        except InvalidInput:
            raise
        except LimpetError as cause:
            raise SessionError(fact) from cause


class _OwnStoreStorage(StoreStorage):
    """A storage that opened its store itself. An async context manager."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    @property
    def store(self) -> AsyncStore:
        """The store, with all that `SnapshotStorage` does not offer."""
        return self._store

    async def close(self) -> None:
        """Close the store. May be repeated."""
        await self._store.close()


class FileStorage(_OwnStoreStorage):
    """A `SnapshotStorage` that keeps its files below a folder.

    `<base_dir>/<session_id>/scopes/<scope>/<scope_id>/snapshots/` holds `snapshot_latest.json`,
    `immutable_history/snapshot_<id>.json` and `manifest.json`. The folder is created by the first
    save. A relative path is resolved at once.
    """

    def __init__(self, base_dir: str | os.PathLike[str]) -> None:
        super().__init__(opening.open_async(folder_of(base_dir), root=_ROOT))


class S3Storage(_OwnStoreStorage):
    """A `SnapshotStorage` that keeps its objects in a bucket, below a prefix if one is given.

    The keys are `[<prefix>/]<session_id>/scopes/…` as in `FileStorage`. `client` is an opened
    obstore store with its own region and credentials; otherwise these come from the environment,
    or from the options that `limpet.open` takes for S3.

    Raises:
        InvalidInput: neither a bucket nor a client is given, or a client together with options.
        Unsupported: obstore is not installed.
    """

    def __init__(
        self,
        bucket: str | None = None,
        prefix: str | None = None,
        region: str | None = None,
        endpoint_url: str | None = None,
        client: Any = None,
        **options: Any,
    ) -> None:
        given = {"region": region, "endpoint_url": endpoint_url, **options}
        chosen = {name: value for name, value in given.items() if value is not None}
        below = "" if prefix is None else prefix
        if "root" in chosen:
            raise InvalidInput("an S3Storage takes no root: its layout is fixed")
        if client is not None:
            if chosen:
                names = ", ".join(sorted(chosen))
                raise InvalidInput(f"a client has its own settings. given=`{names}`")
            name = bucket or "the client's"
            store = opening.open_client(client, name=name, prefix=below, root=_ROOT)
        elif bucket is None:
            raise InvalidInput("an S3Storage needs a bucket or a client")
        else:
            store = opening.open_bucket(bucket, prefix=below, root=_ROOT, **chosen)
        super().__init__(store)


def is_database(opened: Opened) -> bool:
    """Return whether the engine is a database: others list snapshots by file name."""
    return "atomic" in opened.backend.capabilities


def parent_in(opened: Opened) -> Parent:
    """Return the parent of a new snapshot, which Strands does not name: the newest one.

    In files there is none, since finding the newest would mean reading all of them.
    """
    return HEAD if is_database(opened) else None


def snapshot_of(found: Stored) -> Snapshot:
    """Return a stored snapshot; fields that another program did not write have defaults."""
    default = {
        "scope": found.scope.kind,
        "schemaVersion": SCHEMA_VERSION,
        "createdAt": wire_time(found.created_at),
    }
    return Snapshot.from_json({**default, **_envelope(found), "data": found.state})


def wire_of(found: Stored) -> dict[str, JSON]:
    """Return a stored snapshot as the document that was given: TypeScript's, or Python's."""
    envelope = _envelope(found)
    if "schema_version" not in envelope:
        return snapshot_of(found).to_json()
    app_data = {"app_data": envelope.pop("app_data")} if "app_data" in envelope else {}
    return {**envelope, "data": found.state, **app_data}


def _envelope(found: Stored) -> dict[str, JSON]:
    envelope = found.metadata.get(FACADE)
    return dict(envelope) if isinstance(envelope, dict) else {}


def is_gone(found: Stored) -> bool:
    """Return whether a head only marks that the latest was deleted."""
    return found.metadata.get(FORM) == GONE


def moment_of(envelope: Mapping[str, JSON]) -> datetime | None:
    created = document.created_us(envelope)
    return None if created is None else times.from_us(created)


def _check_limit(limit: object) -> int:
    if not isinstance(limit, int) or isinstance(limit, bool):
        raise InvalidInput(f"limit must be a whole number. type=`{type(limit).__name__}`")
    return limit
