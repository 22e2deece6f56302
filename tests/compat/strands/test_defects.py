"""What goes wrong with the storages of the SDK, and does not with ours."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from limpet import Corrupt, InvalidInput, Unavailable
from limpet.compat.strands import (
    FileStorage,
    S3Storage,
    SessionError,
    Snapshot,
    SnapshotLocation,
    StoreStorage,
)
from tests.compat.strands.kit import (
    At,
    Grounds,
    all_calls,
    documents,
    make_location,
    make_snapshot,
    uuid7,
)
from tests.present import present
from tests.processes import run_at_once
from tests.servers.stub import Stub

SLOW = [pytest.param(each, marks=pytest.mark.slow) for each in ("postgres", "S3Storage")]


@pytest.fixture(params=["memory", "sqlite", "FileStorage", *SLOW])
def at(request: pytest.FixtureRequest, grounds: Grounds) -> At:
    return At(grounds[request.param])


@pytest.fixture(params=["FileStorage", "S3Storage"])
def filed(request: pytest.FixtureRequest, grounds: Grounds) -> At:
    return At(grounds[request.param])


def write(filed: At, key: str, data: bytes) -> None:
    filed.files.write(filed.root + key, data)


# Lineage


@pytest.mark.parametrize("engine", ["memory", "sqlite", "directory"])
async def test_each_snapshot_in_history_follows_the_one_before(
    engine: str, grounds: Grounds, location: SnapshotLocation
) -> None:
    """A manager saves each turn twice, in history and as the latest: one line, not a star."""
    storage = grounds[engine].storage
    assert isinstance(storage, StoreStorage)
    for number in range(4):
        await storage.save_snapshot(location, uuid7(number), False, make_snapshot(number))
        await storage.save_snapshot(location, "latest", True, make_snapshot(number))
    scope = storage._store.scope(location.session_id, location.scope_id, location.scope)
    parents = {info.id: info.parent_id async for info in scope.history()}
    assert parents == {uuid7(0): None, **{uuid7(n): uuid7(n - 1) for n in (1, 2, 3)}}
    head = present(await scope.info())
    assert head.parent_id == uuid7(3)


# Writers at the same time


async def test_history_and_latest_together(at: At) -> None:
    """As a session manager does; readers meanwhile see what was saved, or nothing yet."""
    saves = [
        at.save(uuid7(number), is_latest, make_snapshot(number))
        for number in range(8)
        for is_latest in (True, False)
    ]
    reads = [at.load() for _ in range(8)]
    found = await asyncio.gather(*saves, *reads)
    assert {type(each) for each in found[len(saves) :]} <= {Snapshot, type(None)}
    assert await at.ids() == [uuid7(each) for each in range(8)]


async def save_often(folder: Path, location: SnapshotLocation, number: int) -> None:
    async with FileStorage(folder) as storage:
        for index in range(10):
            snapshot = make_snapshot(data={"by": number, "index": index})
            await storage.save_snapshot(location, "latest", True, snapshot)


@pytest.mark.slow
async def test_of_latest_saves_by_four_processes_none_is_rejected(
    tmp_path: Path, location: SnapshotLocation
) -> None:
    """There they are, for they share one temporary name. One of the last stays, whole."""
    run_at_once(save_often, [(tmp_path, location, number) for number in range(4)])
    assert [each.name for each in tmp_path.rglob("*.*")] == ["snapshot_latest.json"]
    async with FileStorage(tmp_path) as storage:
        found = present(await storage.load_snapshot(location))
    assert found.data in [{"by": number, "index": 9} for number in range(4)]


# Folders


async def test_relative_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There every save to history fails below `./rel`, or a path with `..`."""
    (tmp_path / "here").mkdir()
    for base in ("./rel", "rel", "a/../rel", "../here/rel", "rel/"):
        location = make_location()
        monkeypatch.chdir(tmp_path / "here")
        async with FileStorage(base) as storage:
            os.chdir(tmp_path)  # it stays where it was
            await storage.save_snapshot(location, uuid7(1), False, make_snapshot())
            assert await storage.load_snapshot(location, uuid7(1)) == make_snapshot()
            assert await storage.list_snapshot_ids(location) == [uuid7(1)]
        path = tmp_path / "here" / "rel" / documents(location) / "immutable_history"
        assert [each.name for each in path.iterdir()] == [f"snapshot_{uuid7(1)}.json"], base


async def test_a_folder_with_two_slashes(tmp_path: Path, location: SnapshotLocation) -> None:
    async with FileStorage(f"/{tmp_path}") as storage:
        await storage.save_snapshot(location, "x", True, make_snapshot())
    assert (tmp_path / documents(location) / "snapshot_latest.json").is_file()


def test_what_cannot_be_a_folder_a_bucket_or_a_prefix() -> None:
    bad: list[tuple[Any, dict[str, Any]]] = [
        *((FileStorage, {"base_dir": each}) for each in ("", b"bytes", None, 5, "a\0b")),
        *((S3Storage, {"bucket": each}) for each in ("", "a/b", "a b", "../a", "a@b", None, 5)),
        *(
            (S3Storage, {"bucket": "b", "prefix": each})
            for each in ("..", "a/../b", "a\\b", "a\nb", 5)
        ),
    ]
    for storage, given in bad:
        with pytest.raises(InvalidInput):
            storage(**given)


async def test_a_folder_that_is_a_file(tmp_path: Path, location: SnapshotLocation) -> None:
    (tmp_path / "file").write_bytes(b"not a folder")
    async with FileStorage(tmp_path / "file") as storage:
        for name, call in all_calls(storage, location).items():
            with pytest.raises(SessionError) as caught:
                await call()
            assert caught.value.__cause__ is not None, name
    assert (tmp_path / "file").read_bytes() == b"not a folder"


# Buckets


class Stubborn(Stub):
    """Keeps an object that it is told to delete, and says so in its answer, as S3 does: by key."""

    keeps = "snapshot_x.json"

    def _delete(self, body: bytes) -> bytes:
        before, reply = dict(self.objects), super()._delete(body).decode()
        for key in before.keys() - self.objects.keys():
            if self.keeps and key.endswith(self.keeps):
                self.objects[key] = before[key]
                named, why = f"<Key>{key}</Key>", "<Code>AccessDenied</Code><Message>no</Message>"
                reply = reply.replace(f"<Deleted>{named}</Deleted>", f"<Error>{named}{why}</Error>")
        return reply.encode()


@pytest.mark.parametrize("keeps", ["snapshot_x.json", "snapshot_latest.json"])
async def test_a_delete_that_is_refused_in_part_is_an_error(
    location: SnapshotLocation, keeps: str
) -> None:
    """There it is believed, as the answer is a success. It can be repeated."""
    with Stubborn(ignores=()) as stub:
        stub.keeps = keeps
        options = {**stub.service.options, "retry_s": 0.3}
        async with S3Storage(bucket=stub.service.name, **options) as storage:
            await storage.save_snapshot(location, "x", True, make_snapshot())
            for id in ("x", "y"):
                await storage.save_snapshot(location, id, False, make_snapshot())
            with pytest.raises(SessionError) as caught:
                await storage.delete_session(location.session_id)
            assert isinstance(caught.value.__cause__, Unavailable)
            assert any(key.endswith(keeps) for key in stub.objects)
            stub.keeps = ""
            await storage.delete_session(location.session_id)
            assert stub.objects == {}


async def test_a_delete_stays_below_the_prefix(location: SnapshotLocation) -> None:
    with Stub(ignores=()) as stub:
        for prefix in ("team", "team2", "team/s"):
            async with S3Storage(stub.service.name, prefix, **stub.service.options) as storage:
                await storage.save_snapshot(location, "x", True, make_snapshot())
        async with S3Storage(stub.service.name, "team", **stub.service.options) as storage:
            await storage.delete_session(location.session_id)
        latest = f"{documents(location)}/snapshot_latest.json"
        assert stub.objects.keys() == {f"team2/{latest}", f"team/s/{latest}"}


class NoListing(Stub):
    """Answers each LIST with `page` instead, as often as `times`."""

    page = ""
    times = 0

    def _list(self, query: dict[str, list[str]]) -> bytes:
        self.times -= 1
        return super()._list(query) if self.times < 0 else self.page.encode()


PAGES = {
    "a login page": "<!DOCTYPE html><html><body>Please log in.</body></html>",
    "an error": "<Error><Code>InternalError</Code></Error>",
    "no keys": "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
    "cut": "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>s1/sco",
}


async def test_a_session_of_the_sdk_is_not_taken_for_deleted(location: SnapshotLocation) -> None:
    """Where Limpet has never written: a deletion begins as any write does."""
    for page in PAGES.values():
        with NoListing(ignores=()) as stub:
            key = f"{documents(location)}/snapshot_latest.json"
            stub.objects[key] = b"{}"
            options = {**stub.service.options, "retry_s": 0.3}
            async with S3Storage(bucket=stub.service.name, **options) as storage:
                stub.page, stub.times = page, 1_000
                with pytest.raises(SessionError):
                    await storage.delete_session(location.session_id)
                assert stub.objects.keys() == {key}
                stub.times = 1
                await storage.delete_session(location.session_id)
                assert stub.objects == {}


async def test_deletions_at_once_do_not_disturb_each_other(location: SnapshotLocation) -> None:
    """Each removes also what the others have put to be listed."""
    with Stub(ignores=()) as stub:
        options = stub.service.options
        async with (
            S3Storage(bucket=stub.service.name, **options) as one,
            S3Storage(bucket=stub.service.name, **options) as other,
        ):
            for _ in range(5):
                for number in range(3):
                    await one.save_snapshot(location, uuid7(number), False, make_snapshot())
                calls = [each.delete_session(location.session_id) for each in (one, other) * 4]
                await asyncio.gather(*calls)
                assert stub.objects == {}


# Damage


async def test_a_corrupt_latest_is_an_error_and_stays_alone(filed: At) -> None:
    """What lies beside it can be read and saved."""
    await filed.save("x", False, make_snapshot())
    write(filed, f"{filed.documents}/snapshot_latest.json", b'{"scope": "agent"')
    with pytest.raises(SessionError) as caught:
        await filed.load()
    assert isinstance(caught.value.__cause__, Corrupt)
    assert "hello" not in str(caught.value)
    await filed.save("y", False, make_snapshot())
    for id in ("x", "y"):
        assert await filed.load(id) == make_snapshot()
    assert await filed.ids() == ["x", "y"]
    with pytest.raises(SessionError):  # what is in history does not take its place
        await filed.load()
    beside = make_location(filed.location.session_id, scope_id="a2")
    await filed.storage.save_snapshot(beside, "latest", True, make_snapshot())
    assert await filed.storage.load_snapshot(beside) == make_snapshot()
    await filed.storage.delete_session(filed.location.session_id)
    assert filed.keys() == []


async def test_what_is_damaged_is_replaced_by_the_next_save(filed: At) -> None:
    """As there: each document is independent, and a save does not read what it replaces."""
    history, latest, manifest = (
        f"{filed.documents}/{name}.json"
        for name in ("immutable_history/snapshot_x", "snapshot_latest", "manifest")
    )
    for key in (history, latest, manifest):
        write(filed, key, b'{"scope": "agent"')
    calls = all_calls(filed.storage, filed.location)
    for name in ("save latest", "save history", "save manifest"):
        await calls[name]()
    assert filed.keys() == sorted((history, latest, manifest))
    for id in (None, "x"):
        assert await filed.load(id) == make_snapshot()
    assert (await filed.manifest()).updated_at == "then"


async def test_documents_can_be_copied_and_edited(filed: At) -> None:
    """By hand, to another id and to another session."""
    await filed.save("x", False, make_snapshot(1))
    document = filed.files.read(f"{filed.documents}/immutable_history/snapshot_x.json")
    edited = document.replace(b"hello 1", b"hello 2")
    other = make_location(f"{filed.location.session_id}-2")
    for key in (
        f"{filed.documents}/snapshot_latest.json",
        f"{filed.documents}/immutable_history/snapshot_x-copy.json",
        f"{documents(other)}/immutable_history/snapshot_x.json",
    ):
        write(filed, key, edited)
    expected = make_snapshot(1, data=make_snapshot(2).data)
    for where, id in ((filed.location, None), (filed.location, "x-copy"), (other, "x")):
        assert await filed.storage.load_snapshot(where, id) == expected
    assert await filed.ids() == ["x", "x-copy"]


FOREIGN = [
    "xsnapshot_junk.json",
    "snapshot_UPPER.json",
    "snapshot_0.json.tmp",
    "snapshot_with blank.json",
    "snapshot_.json",
    "0",
    "~",
]


@pytest.mark.parametrize("latest", [True, False], ids=["latest", "no latest"])
async def test_foreign_files_are_not_listed_and_not_in_the_way(filed: At, latest: bool) -> None:
    """There some are listed that no load accepts."""
    history = f"{filed.documents}/immutable_history"
    if latest:
        await filed.save("latest", True, make_snapshot())
    for number in range(3):
        await filed.save(uuid7(number), False, make_snapshot())
    for name in FOREIGN:
        write(filed, f"{history}/{name}", b"{}" + b" " * 200)
    write(filed, f"{history}/snapshot_dir.json/snapshot_deep.json", b"{}")
    assert await filed.ids() == [uuid7(0), uuid7(1), uuid7(2)]
    assert await filed.ids(limit=2) == [uuid7(0), uuid7(1)]
    found, token = list[str](), None
    for _ in range(3):
        page = await filed.page(limit=1, start_after=token)
        found, token = [*found, *page.snapshot_ids], page.next_token
    assert found == [uuid7(0), uuid7(1), uuid7(2)]
    assert token is None


# What the SDK wrote


async def test_documents_of_others_have_defaults(filed: At) -> None:
    """Of the SDK for Python, or of nobody: they hold only data, or have no time."""
    python = {"scope": "agent", "schema_version": "1.0", "created_at": "then", "app_data": {}}
    for id, facts in (("1", {}), ("2", python), ("3", {"createdAt": None})):
        wire = {**facts, "data": {"id": id}}
        key = f"{filed.documents}/immutable_history/snapshot_{id}.json"
        write(filed, key, json.dumps(wire).encode())
        found = present(await filed.load(id))
        assert found.data == {"id": id}
