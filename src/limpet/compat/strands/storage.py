"""`SnapshotStorage` over any engine.

A location is a scope: the session, the scope's id, and its kind. The latest snapshot is a head that
is not kept, and history is what is kept without becoming the head, so that the two are independent.
The state is `data`; what stands around it is `metadata["strands"]`; the manifest is a note.
"""

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Protocol, TypeAlias, runtime_checkable

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
from limpet.compat.wire import wire_time
from limpet.core import document, prepare, times
from limpet.core.document import FACADE
from limpet.errors import Corrupt, InvalidInput, LimpetError
from limpet.model import HEAD, JSON, Parent
from limpet.model import Snapshot as Stored

MANIFEST = "manifest"
FORM = "form"  # the metadata by which `python` remembers how bytes were laid out
GONE = "gone"  # there, the mark of a deleted latest: else the newest of history would show

_log = logging.getLogger(__name__)

AnyLocation: TypeAlias = SnapshotLocation | Mapping[str, Any]
AnySnapshot: TypeAlias = Snapshot | Mapping[str, Any]
AnyManifest: TypeAlias = SnapshotManifest | Mapping[str, Any]


class SessionError(LimpetError):
    """The storage failed, or what it holds is damaged. The reason is its cause."""


@runtime_checkable
class SnapshotStorage(Protocol):
    """Where sessions keep the snapshots of their agents.

    Wherever a record is taken, its wire dict is taken too. What is not acceptable is InvalidInput,
    and what the storage cannot do is SessionError, with its cause.
    """

    async def save_snapshot(
        self, location: AnyLocation, snapshot_id: str, is_latest: bool, snapshot: AnySnapshot
    ) -> None:
        """Store a snapshot, durably: as the latest, or in history under its id.

        The latest takes the place of the one before it, and `snapshot_id` is then not looked at.
        The two are independent of each other. An id that is there already is replaced.
        """
        ...

    async def load_snapshot(
        self, location: AnyLocation, snapshot_id: str | None = None
    ) -> Snapshot | None:
        """Return a snapshot of history, without an id the latest; None if there is none."""
        ...

    async def list_snapshot_ids(
        self, location: AnyLocation, limit: int | None = None, start_after: str | None = None
    ) -> list[str]:
        """Return the ids in history in ascending order, which is that of time for UUIDs 7.

        Those greater than `start_after`: a UUID 7, which need not exist, or an id that does. With
        a `limit` of 0 or less there are none.
        """
        ...

    async def list_snapshots(
        self, location: AnyLocation, limit: int | None = None, start_after: str | None = None
    ) -> SnapshotPage:
        """Return ids as `list_snapshot_ids` does, and from where to go on if there are more."""
        ...

    async def load_manifest(self, location: AnyLocation) -> SnapshotManifest:
        """Return the manifest; if there is none, a default one with the present time."""
        ...

    async def save_manifest(self, location: AnyLocation, manifest: AnyManifest) -> None:
        """Store the manifest."""
        ...

    async def delete_session(self, session_id: str) -> None:
        """Delete everything of a session; nothing happens if there is nothing."""
        ...


class StoreStorage:
    """A `SnapshotStorage` over an opened store, in either face. Close the store yourself."""

    def __init__(self, store: Store | AsyncStore) -> None:
        if not isinstance(store, Store | AsyncStore):
            raise InvalidInput(f"a storage needs a store. type=`{type(store).__name__}`")
        self._store = store.aio

    async def save_snapshot(
        self, location: AnyLocation, snapshot_id: str, is_latest: bool, snapshot: AnySnapshot
    ) -> None:
        """See `SnapshotStorage.save_snapshot`."""
        place = SnapshotLocation.of(location).check()
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
            facts |= {"keep": False}
        else:
            facts |= {"id": snapshot_id, "head": False, "overwrite": True}
        async with self._trying("the snapshot was not saved", place):
            scope = self._scope(place)
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
        """See `SnapshotStorage.load_snapshot`."""
        place = SnapshotLocation.of(location).check()
        if snapshot_id is not None:
            check_identifier("snapshot_id", snapshot_id)
        async with self._trying("the snapshot cannot be read", place, snapshot_id):
            found = await self._scope(place).load(snapshot_id)
        # A head that is not kept has an id too, but that is not in history.
        if found is None or is_gone(found) or (snapshot_id is not None and not found.kept):
            return None
        return snapshot_of(found)

    async def list_snapshot_ids(
        self, location: AnyLocation, limit: int | None = None, start_after: str | None = None
    ) -> list[str]:
        """See `SnapshotStorage.list_snapshot_ids`."""
        if limit is not None and _check_limit(limit) <= 0:
            return []
        place = SnapshotLocation.of(location).check()
        async with self._trying("the snapshots cannot be listed", place):
            after = await self._cursor(place, start_after)
            return await self._ids(place, limit, after)

    async def list_snapshots(
        self, location: AnyLocation, limit: int | None = None, start_after: str | None = None
    ) -> SnapshotPage:
        """See `SnapshotStorage.list_snapshots`."""
        more = None if limit is None or _check_limit(limit) <= 0 else limit + 1
        ids = await self.list_snapshot_ids(location, limit if more is None else more, start_after)
        if more is None or len(ids) < more:
            return SnapshotPage(tuple(ids))
        return SnapshotPage(tuple(ids[:-1]), next_token=ids[-2])

    async def load_manifest(self, location: AnyLocation) -> SnapshotManifest:
        """See `SnapshotStorage.load_manifest`."""
        place = SnapshotLocation.of(location).check()
        now = times.from_us(self._store.driver.tools.draw().now)
        default = {"schemaVersion": SCHEMA_VERSION, "updatedAt": wire_time(now)}
        async with self._trying("the manifest cannot be read", place):
            found = await self._scope(place).note(MANIFEST)
            if found is None or found.value is None:
                return SnapshotManifest.from_json(default)
            if not isinstance(found.value, dict):
                raise Corrupt(f"a manifest is no object. session_id=`{place.session_id}`")
        return SnapshotManifest.from_json({**default, **found.value})

    async def save_manifest(self, location: AnyLocation, manifest: AnyManifest) -> None:
        """See `SnapshotStorage.save_manifest`."""
        place = SnapshotLocation.of(location).check()
        value = SnapshotManifest.of(manifest).to_json()
        async with self._trying("the manifest was not saved", place):
            await self._scope(place).set_note(MANIFEST, value)

    async def delete_session(self, session_id: str) -> None:
        """See `SnapshotStorage.delete_session`."""
        check_identifier("session_id", session_id)
        async with self._trying(f"the session was not deleted. session_id=`{session_id}`"):
            await self._store.delete_session(session_id)

    async def _replace_damaged(
        self, scope: AsyncScope, state: JSON, facts: Mapping[str, Any], damage: Corrupt
    ) -> None:
        """Replace a latest that cannot be read: a session must be able to go on."""
        tools = self._store.driver.tools
        commit = prepare.save(
            scope.key,
            state,
            parent=None,  # what led to it cannot be told
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

    def _scope(self, place: SnapshotLocation) -> AsyncScope:
        return self._store.scope(place.session_id, place.scope_id, place.scope)

    async def _ids(
        self, place: SnapshotLocation, limit: int | None, after: str | None
    ) -> list[str]:
        """Return ids that can be loaded: other facades may have saved under other names."""
        scope, found = self._scope(place), list[str]()
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
        # Files are listed in the order of their names, where `a-b.json` comes before `a.json`. That
        # of UUIDs is the same; others are put in order, which takes all of them.
        ids = sorted([each async for each in scope.ids() if is_identifier(each)])
        return [each for each in ids if after is None or each > after][:limit]

    async def _cursor(self, place: SnapshotLocation, start_after: str | None) -> str | None:
        if start_after is None or start_after == "":
            return None
        check_identifier("start_after", start_after)
        if not is_uuid7(start_after) and not await self._is_there(place, start_after):
            raise InvalidInput(
                f"start_after is neither a UUID 7 nor an id in history. id=`{start_after}`"
            )
        return start_after

    async def _is_there(self, place: SnapshotLocation, id: str) -> bool:
        try:
            return await self._scope(place).info(id) is not None
        except Corrupt:
            return True  # damaged as it is, a page may end with it

    @asynccontextmanager
    async def _trying(
        self, fact: str, place: SnapshotLocation | None = None, id: str | None = None
    ) -> AsyncIterator[None]:
        """Turn what the storage raises into SessionError; bad input stays what it is."""
        if place is not None:
            fact += f". session_id=`{place.session_id}` scope_id=`{place.scope_id}`"
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

    async def _open(self) -> None:
        """Open what may fail to be opened, so that no such failure passes for bad input."""
        engine = self._store.driver.opened
        if not engine.is_open and not engine.closed:
            await self._store.__aenter__()


def is_database(engine: Opened) -> bool:
    """Tell whether there is another order in a storage than that of the names of files."""
    return "atomic" in engine.backend.capabilities


def parent_in(engine: Opened) -> Parent:
    """Return what a snapshot follows from, of which Strands says nothing: the newest one.

    Among files there is none, since to find the newest would be to look at all of them.
    """
    return HEAD if is_database(engine) else None


def snapshot_of(found: Stored) -> Snapshot:
    """Return a stored snapshot as it was given, or with defaults if others wrote it."""
    default = {
        "scope": found.scope.kind,
        "schemaVersion": SCHEMA_VERSION,
        "createdAt": wire_time(found.created_at),
    }
    return Snapshot.from_json({**default, **_envelope(found), "data": found.state})


def wire_of(found: Stored) -> dict[str, JSON]:
    """Return a stored snapshot as the document that it was: TypeScript's, or Python's."""
    envelope = _envelope(found)
    if "schema_version" not in envelope:
        return snapshot_of(found).to_json()
    app_data = {"app_data": envelope.pop("app_data")} if "app_data" in envelope else {}
    return {**envelope, "data": found.state, **app_data}


def _envelope(found: Stored) -> dict[str, JSON]:
    envelope = found.metadata.get(FACADE)
    return dict(envelope) if isinstance(envelope, dict) else {}


def is_gone(found: Stored) -> bool:
    """Tell whether a head only marks that there is no latest."""
    return found.metadata.get(FORM) == GONE


def moment_of(envelope: Mapping[str, JSON]) -> datetime | None:
    """Return when a snapshot says that it was made, if it does: from then its age counts."""
    created = document.created_us(envelope)
    return None if created is None else times.from_us(created)


def _check_limit(limit: object) -> int:
    if not isinstance(limit, int) or isinstance(limit, bool):
        raise InvalidInput(f"the limit must be a whole number. type=`{type(limit).__name__}`")
    return limit
