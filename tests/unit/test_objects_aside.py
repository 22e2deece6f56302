"""A head that cannot be read is put out of the way: nothing is lost, and the scope goes on."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import holdfast
from holdfast import Corrupt, Scope, Store
from holdfast.core import document
from tests.interop.places import Below, Files, Folder, Objects
from tests.servers.service import Service

HEAD = "sessions/s/scopes/agent/main/snapshots/snapshot_latest.json"
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut": lambda data: data[:200],
    "changed": lambda data: data.replace(b'"n":', b'"m":'),
    "garbage": lambda data: b"\xff" * 300,
}


@pytest.fixture(params=["directory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Store, Files]]:
    if request.param == "directory":
        with holdfast.open(f"file://{tmp_path}") as store:
            yield store, Folder(tmp_path)
        return
    service: Service = request.getfixturevalue("seaweedfs")
    below = Below(service, tmp_path.name)
    with holdfast.open(f"s3://{service.name}/{below.prefix}", **service.options) as store:
        yield store, Objects(below)


def set_aside(scope: Scope) -> bool:
    return scope._store._run(lambda backend: backend.set_aside(scope.key))


def state(scope: Scope, id: str | None = None) -> object:
    found = scope.load(id)
    return None if found is None else found.state


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_newest_that_can_be_read_is_shown(place: tuple[Store, Files], damage: str) -> None:
    store, files = place
    scope = store.scope("s")
    scope.save({"n": 0}, id="before", head=False)  # has no line: there was no head yet
    for number in (1, 2):
        scope.save({"n": number}, id=f"kept-{number}")
    scope.save({"n": 3}, id="beside", head=False)
    scope.delete_snapshot("kept-1")
    scope.save({"n": 4}, keep=False)
    damaged = DAMAGES[damage](files.read(HEAD))
    files.write(HEAD, damaged)
    with pytest.raises(Corrupt):
        scope.save({"n": 5})
    assert set_aside(scope)
    assert not set_aside(scope)  # it is whole by now
    assert state(scope) == {"n": 3}
    assert list(scope.ids()) == ["before", "beside", "kept-2"]  # what was deleted stays away
    kept = [key for key in files.list_keys() if ".damaged-" in key]
    assert [files.read(key) for key in kept] == [damaged]

    scope.save({"n": 5}, id="after")
    assert [info.id for info in scope.history()] == ["after", "beside", "kept-2", "before"]
    assert {found.code for found in store.check()} == {"foreign_file"}
    store.delete_session("s")
    assert not [key for key in files.list_keys() if key.startswith("sessions/s/")]


def test_nothing_else_is_there(place: tuple[Store, Files]) -> None:
    store, files = place
    scope = store.scope("s")
    scope.save({"n": 1}, keep=False)
    files.write(HEAD, b"")
    assert set_aside(scope)
    assert scope.load() is None
    scope.save({"n": 2})
    assert state(scope) == {"n": 2}


@pytest.mark.parametrize("url", ["memory:", "sqlite:///{}/a.db", "file://{}"])
def test_a_head_that_is_whole_stays(url: str, tmp_path: Path) -> None:
    with holdfast.open(url.format(tmp_path)) as store:
        scope = store.scope("s")
        assert not set_aside(scope)
        saved = scope.save({"n": 1})
        assert not set_aside(scope)
        assert scope.info() == saved


def test_many_at_the_same_time(tmp_path: Path) -> None:
    files = Folder(tmp_path)
    stores = [holdfast.open(f"file://{tmp_path}") for _ in range(4)]
    scopes = [store.scope("s") for store in stores]
    for number in range(5):
        scopes[0].save({"n": number}, id=f"id-{number}")
    files.write(HEAD, b"{")

    def go_on(scope: Scope) -> None:
        set_aside(scope)
        scope.save({"n": 9})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(go_on, scopes))
    assert len(list(scopes[0].ids())) == 9
    assert document.read(files.read(HEAD)).header is not None
    for store in stores:
        store.close()
