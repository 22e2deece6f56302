"""`SnapshotStorage`, and `StoreStorage`: it on any store.

A location is a scope: session, scope id and kind. The latest snapshot is a head that is not kept;
history is kept without becoming the head. So the two are independent. The state is `data`; the
other fields are in `metadata["strands"]`; the manifest is a note.
"""

import logging
from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol, TypeAlias, runtime_checkable

from limpet import AsyncScope, AsyncStore, Store
from limpet.api.integrations import Opened, Recent, prepare, times
from limpet.compat.strands.records import (
    FACADE,
    SCHEMA_VERSION,
    Snapshot,
    SnapshotLocation,
    SnapshotManifest,
    SnapshotPage,
    Wire,
    check_identifier,
    is_identifier,
    is_uuid7,
)
from limpet.compat.wire import check_limit, check_store, moment_of, wire_time
from limpet.errors import Corrupt, InvalidInput, LimpetError
from limpet.model import HEAD, JSON, Parent, ScopeKey
from limpet.model import Snapshot as Stored
from limpet.model import SnapshotInfo as StoredInfo
from limpet.opening import draw

MANIFEST = "manifest"
FORM = "form"  # in metadata: how `ByteStorage` formats the bytes
GONE = "gone"  # this form marks a deleted latest: without it the newest of history would show

_log = logging.getLogger(__name__)
_SCOPES_MAX = 1_000

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


class BaseStorage(SnapshotStorage):
    """Checks arguments and translates errors. What is stored, and where, is up to a subclass."""

    async def save_snapshot(
        self, location: AnyLocation, snapshot_id: str, is_latest: bool, snapshot: AnySnapshot
    ) -> None:
        address = SnapshotLocation.of(location).check()
        if not isinstance(is_latest, bool):
            raise InvalidInput(f"is_latest must be a bool. type=`{type(is_latest).__name__}`")
        id = None if is_latest else check_identifier("snapshot_id", snapshot_id)
        wire = Snapshot.of(snapshot).to_json()
        async with self._errors("the snapshot was not saved", address):
            await self._save(address, id, wire)

    async def load_snapshot(
        self, location: AnyLocation, snapshot_id: str | None = None
    ) -> Snapshot | None:
        address = SnapshotLocation.of(location).check()
        if snapshot_id is not None:
            check_identifier("snapshot_id", snapshot_id)
        async with self._errors("the snapshot cannot be read", address, snapshot_id):
            return await self._load(address, snapshot_id)

    async def list_snapshot_ids(
        self, location: AnyLocation, limit: int | None = None, start_after: str | None = None
    ) -> list[str]:
        check_limit(limit)
        if limit is not None and limit <= 0:
            return []
        address = SnapshotLocation.of(location).check()
        is_first = start_after is None or start_after == ""
        after = None if is_first else check_identifier("start_after", start_after)
        async with self._errors("the snapshots cannot be listed", address):
            return await self._ids(address, limit, after)

    async def list_snapshots(
        self, location: AnyLocation, limit: int | None = None, start_after: str | None = None
    ) -> SnapshotPage:
        check_limit(limit)
        more = None if limit is None or limit <= 0 else limit + 1
        ids = await self.list_snapshot_ids(location, limit if more is None else more, start_after)
        if more is None or len(ids) < more:
            return SnapshotPage(tuple(ids))
        return SnapshotPage(tuple(ids[:-1]), next_token=ids[-2])

    async def load_manifest(self, location: AnyLocation) -> SnapshotManifest:
        address = SnapshotLocation.of(location).check()
        now = wire_time(times.from_us(draw().now))
        default = {"schemaVersion": SCHEMA_VERSION, "updatedAt": now}
        async with self._errors("the manifest cannot be read", address):
            found = await self._manifest(address)
            if found is not None and not isinstance(found, dict):
                raise Corrupt(f"the manifest is not an object. session_id=`{address.session_id}`")
        return SnapshotManifest.from_json({**default, **(found or {})})

    async def save_manifest(self, location: AnyLocation, manifest: AnyManifest) -> None:
        address = SnapshotLocation.of(location).check()
        wire = SnapshotManifest.of(manifest).to_json()
        async with self._errors("the manifest was not saved", address):
            await self._save_manifest(address, wire)

    async def delete_session(self, session_id: str) -> None:
        check_identifier("session_id", session_id)
        async with self._errors(f"the session was not deleted. session_id=`{session_id}`"):
            await self._delete(session_id)

    @abstractmethod
    async def _open(self) -> None:
        """Open what is not open yet: a place that cannot be opened is not bad input of a call."""

    @abstractmethod
    async def _save(self, address: SnapshotLocation, id: str | None, wire: Wire) -> None: ...

    @abstractmethod
    async def _load(self, address: SnapshotLocation, id: str | None) -> Snapshot | None: ...

    @abstractmethod
    async def _ids(
        self, address: SnapshotLocation, limit: int | None, after: str | None
    ) -> list[str]: ...

    @abstractmethod
    async def _manifest(self, address: SnapshotLocation) -> JSON: ...

    @abstractmethod
    async def _save_manifest(self, address: SnapshotLocation, wire: Wire) -> None: ...

    @abstractmethod
    async def _delete(self, session_id: str) -> None: ...

    @asynccontextmanager
    async def _errors(
        self, fact: str, address: SnapshotLocation | None = None, id: str | None = None
    ) -> AsyncIterator[None]:
        """Translate errors of the storage into SessionError; InvalidInput passes through."""
        if address is not None:
            fact += f". session_id=`{address.session_id}` scope_id=`{address.scope_id}`"
        if id is not None:
            fact += f" snapshot_id=`{id}`"
        try:
            await self._open()
        except LimpetError as cause:
            raise SessionError(fact) from cause
        try:
            yield
        except InvalidInput:
            raise
        except LimpetError as cause:
            raise SessionError(fact) from cause


class Lines:
    """Makes a latest follow what was kept just before it, so that history is one line.

    By default a draft has the parent of the draft that it replaces: all of history would follow
    its first snapshot.
    """

    def __init__(self, opened: Opened) -> None:
        self._kept: Recent[ScopeKey, str] = Recent(_SCOPES_MAX)

    def kept(self, key: ScopeKey, id: str) -> None:
        self._kept.put(key, id)

    def parent(self, key: ScopeKey) -> Parent | str:
        """Return the parent of the next latest. Another process may save in between: only once."""
        return self._kept.pop(key) or HEAD

    def close(self) -> None:
        self._kept.clear()


class StoreStorage(BaseStorage):
    """A `SnapshotStorage` in an opened store, sync or async. The caller closes the store."""

    def __init__(self, store: Store | AsyncStore) -> None:
        self._store = check_store(store).aio

    async def _open(self) -> None:
        opened = self._store.driver.opened
        if not opened.is_open and not opened.closed:
            await self._store.__aenter__()

    async def _save(self, address: SnapshotLocation, id: str | None, wire: Wire) -> None:
        state, scope = wire.pop("data"), self._scope(address)
        options = save_options(wire)
        lines = self._store.driver.opened.service(Lines)
        if id is not None:
            await scope.save(state, id=id, head=False, overwrite=True, **options)
            lines.kept(scope.key, id)
            return
        try:
            await scope.save(state, keep=False, parent=lines.parent(scope.key), **options)
        except Corrupt as damage:
            await self._replace_damaged(scope, state, options, damage)

    async def _load(self, address: SnapshotLocation, id: str | None) -> Snapshot | None:
        found = await self._scope(address).load(id)
        # A head that is not kept has an id too, but is not in history.
        if found is None or is_gone(found) or (id is not None and not found.kept):
            return None
        return snapshot_of(found)

    async def _manifest(self, address: SnapshotLocation) -> JSON:
        found = await self._scope(address).note(MANIFEST)
        return None if found is None else found.value

    async def _save_manifest(self, address: SnapshotLocation, wire: Wire) -> None:
        await self._scope(address).set_note(MANIFEST, wire)

    async def _delete(self, session_id: str) -> None:
        await self._store.delete_session(session_id)

    async def _replace_damaged(
        self, scope: AsyncScope, state: JSON, options: Mapping[str, Any], damage: Corrupt
    ) -> None:
        """Replace a latest that cannot be read, so that the session can continue."""
        tools = self._store.driver.tools
        commit = prepare.save(
            scope.key,
            state,
            parent=None,  # unknown
            keep=False,
            **options,
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
        if after is not None and not is_uuid7(after):
            with suppress(Corrupt):  # a page may end with a damaged snapshot
                if await scope.info(after) is None:
                    raise unknown_cursor(after)
        async for id in scope.ids(after=after):
            if len(found) == limit:
                break
            if is_identifier(id):
                found.append(id)
        return found


def unknown_cursor(after: str) -> InvalidInput:
    return InvalidInput(f"start_after is neither a UUID 7 nor an id in history. id=`{after}`")


def snapshot_of(found: Stored) -> Snapshot:
    """Return a stored snapshot; fields that another program did not write have defaults."""
    default = {
        "scope": found.scope.kind,
        "schemaVersion": SCHEMA_VERSION,
        "createdAt": wire_time(found.created_at),
    }
    return Snapshot.from_json({**default, **_envelope(found), "data": found.state})


def wire_of(found: Stored) -> Wire:
    """Return a stored snapshot as the document that was given: TypeScript's, or Python's."""
    envelope = _envelope(found)
    if "schema_version" not in envelope:
        return snapshot_of(found).to_json()
    app_data = {"app_data": envelope.pop("app_data")} if "app_data" in envelope else {}
    return {**envelope, "data": found.state, **app_data}


def _envelope(found: Stored) -> Wire:
    envelope = found.metadata.get(FACADE)
    return dict(envelope) if isinstance(envelope, dict) else {}


def is_gone(found: StoredInfo) -> bool:
    return found.metadata.get(FORM) == GONE


def save_options(envelope: Wire, **metadata: JSON) -> dict[str, Any]:
    """Return the options of `Scope.save` for a snapshot whose fields except `data` are given."""
    # The two SDKs spell the time of creation differently.
    created_at = moment_of(envelope.get("createdAt", envelope.get("created_at")))
    return {"metadata": {FACADE: envelope, **metadata}, "created_at": created_at}
