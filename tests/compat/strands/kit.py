"""What the tests of `SnapshotStorage` share: places of each kind, and something to store in them.

The storages of one process are shared, so each test has sessions of its own.
"""

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import obstore
import pytest

import limpet
from limpet.api.store import AsyncStore
from limpet.compat.strands import (
    FileStorage,
    S3Storage,
    Snapshot,
    SnapshotLocation,
    SnapshotManifest,
    SnapshotPage,
    SnapshotStorage,
    StoreStorage,
)
from limpet.compat.strands.documents import DocumentStorage
from limpet.compat.strands.store import AnyManifest, AnySnapshot, BaseStorage
from tests.interop.places import Below, Files, Folder, Objects
from tests.present import present
from tests.runs.hands import Place
from tests.servers.service import Service

OURS = "sessions/"
FILED = ["FileStorage", "S3Storage"]
# All engines prove these in the conformance suite; here the storages are shown on the quick ones.
SLOW = [pytest.param(each, marks=pytest.mark.slow) for each in ("directory", "postgres", "s3")]
SLOW_S3 = pytest.param("S3Storage", marks=pytest.mark.slow)
ENGINES = ["memory", "sqlite", "FileStorage", *SLOW, SLOW_S3]


def uuid7(number: int) -> str:
    """Return a UUID 7: the greater the number, the later."""
    return f"0190a000-{number:04x}-7000-8000-000000000000"


def fresh_id() -> str:
    return f"s-{secrets.token_hex(6)}"


def make_location(
    session_id: str | None = None, *, scope: str = "agent", scope_id: str = "a1"
) -> SnapshotLocation:
    """Return a location, in a session of its own unless one is given."""
    return SnapshotLocation(session_id or fresh_id(), scope, scope_id)


def make_snapshot(number: int = 0, **changes: Any) -> Snapshot:
    facts: dict[str, Any] = {
        "scope": "agent",
        "schema_version": "1.0",
        "created_at": f"2026-01-01T00:00:{number % 60:02}.000Z",
        "data": {"messages": [{"role": "user", "content": [{"text": f"hello {number}"}]}]},
        "app_data": {"turn": number},
    }
    return Snapshot(**{**facts, **changes})


def documents(location: SnapshotLocation) -> str:
    """Return the folder of a location, as it is documented."""
    return f"{location.session_id}/scopes/{location.scope}/{location.scope_id}/snapshots"


@dataclass(frozen=True)
class Ground:
    """A storage, and what can be known of it without its code.

    `files` is what is stored, if it is files or objects, and `root` what stands before a session.
    """

    storage: BaseStorage
    open: Callable[[], BaseStorage]
    files: Files | None = None
    root: str = ""
    place: Place | None = None
    """Where the store is, if it is one."""

    def keys(self, session_id: str) -> list[str]:
        """Return the keys of a session, below the root."""
        assert self.files is not None
        start = f"{self.root}{session_id}/"
        found = [key for key in self.files.list_keys() if key.startswith(start)]
        return [key.removeprefix(self.root) for key in found]


@dataclass(frozen=True)
class At:
    """A location in a session that only one test uses, in a storage."""

    ground: Ground
    location: SnapshotLocation = field(default_factory=lambda: make_location())

    @property
    def storage(self) -> BaseStorage:
        return self.ground.storage

    @property
    def open(self) -> Callable[[], BaseStorage]:
        return self.ground.open

    @property
    def root(self) -> str:
        return self.ground.root

    @property
    def files(self) -> Files:
        return present(self.ground.files)

    @property
    def documents(self) -> str:
        return documents(self.location)

    def keys(self) -> list[str]:
        return self.ground.keys(self.location.session_id)

    async def save(self, id: str, is_latest: bool, snapshot: AnySnapshot) -> None:
        await self.storage.save_snapshot(self.location, id, is_latest, snapshot)

    async def load(self, id: str | None = None) -> Snapshot | None:
        return await self.storage.load_snapshot(self.location, id)

    async def ids(self, limit: int | None = None, start_after: str | None = None) -> list[str]:
        return await self.storage.list_snapshot_ids(self.location, limit, start_after)

    async def page(self, limit: int | None = None, start_after: str | None = None) -> SnapshotPage:
        return await self.storage.list_snapshots(self.location, limit, start_after)

    async def manifest(self) -> SnapshotManifest:
        return await self.storage.load_manifest(self.location)

    async def save_manifest(self, manifest: AnyManifest) -> None:
        await self.storage.save_manifest(self.location, manifest)


@contextmanager
def opened(engine: str, request: pytest.FixtureRequest) -> Iterator[Ground]:
    """Open an empty storage of a kind until the block ends."""
    folder: Path = request.getfixturevalue("tmp_path_factory").mktemp(engine)
    with _ground(engine, folder, request) as ground:
        yield ground
        close(ground.storage)


def store_of(storage: BaseStorage) -> AsyncStore:
    """Return the store that a storage is over."""
    assert isinstance(storage, StoreStorage)
    return storage._store


def close(storage: BaseStorage) -> None:
    if isinstance(storage, StoreStorage):
        storage._store.sync.close()
    else:
        assert isinstance(storage, DocumentStorage)
        if storage._bucket is not None:
            storage._bucket.close()


@contextmanager
def _ground(engine: str, folder: Path, request: pytest.FixtureRequest) -> Iterator[Ground]:
    prefix = f"team/{secrets.token_hex(6)}"
    match engine:
        case "postgres":
            with request.getfixturevalue("postgres").schemas() as schemas:
                yield _over(schemas.url())
        case "s3":
            service: Service = request.getfixturevalue("seaweedfs")
            objects = Objects(Below(service, prefix))
            options = {**service.options, "poll_s": 0.2}
            yield _over(f"s3://{service.name}/{prefix}", objects, **options)
        case "S3Storage":
            service = request.getfixturevalue("seaweedfs")

            def open_s3() -> S3Storage:
                return S3Storage(bucket=service.name, prefix=prefix, **service.options)

            yield Ground(open_s3(), open_s3, Objects(Below(service, prefix)))
        case "FileStorage":
            yield Ground(FileStorage(folder), lambda: FileStorage(folder), Folder(folder))
        case "directory":
            yield _over(f"file://{folder}", Folder(folder))
        case "sqlite":
            yield _over(f"sqlite:///{folder}/agents.db")
        case _:
            store = limpet.open("memory:")
            place = Place("memory:", {})
            yield Ground(StoreStorage(store), lambda: StoreStorage(store), place=place)


def _over(url: str, files: Files | None = None, **options: Any) -> Ground:
    place = Place(url, options)

    def open() -> StoreStorage:
        return StoreStorage(place.open())

    return Ground(open(), open, files, OURS, place)


class Grounds:
    """Storages that are opened when a test first asks for them."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._request = request
        self._open: dict[str, Ground] = {}

    def __getitem__(self, engine: str) -> Ground:
        if engine not in self._open:
            held = ExitStack()
            self._open[engine] = held.enter_context(opened(engine, self._request))
            # Now, so that it is closed before the server that was started for it.
            self._request.session.addfinalizer(held.close)
        return self._open[engine]


async def fill(objects: Objects, keys: list[str]) -> None:
    """Store a snapshot at each of some keys, as somebody else would."""
    data = json.dumps(make_snapshot().to_json()).encode()
    gate = asyncio.Semaphore(32)

    async def put(key: str) -> None:
        async with gate:
            await obstore.put_async(objects._store, key, data)

    await asyncio.gather(*map(put, keys))


def all_calls(
    storage: SnapshotStorage, location: SnapshotLocation
) -> dict[str, Callable[[], Awaitable[object]]]:
    """Return a call of each method."""
    return {
        "save latest": lambda: storage.save_snapshot(location, "x", True, make_snapshot()),
        "save history": lambda: storage.save_snapshot(location, "x", False, make_snapshot()),
        "load latest": lambda: storage.load_snapshot(location),
        "load history": lambda: storage.load_snapshot(location, "x"),
        "list ids": lambda: storage.list_snapshot_ids(location),
        "list a page": lambda: storage.list_snapshots(location, limit=1),
        "load manifest": lambda: storage.load_manifest(location),
        "save manifest": lambda: storage.save_manifest(location, SnapshotManifest("1.0", "then")),
        "delete": lambda: storage.delete_session(location.session_id),
    }
