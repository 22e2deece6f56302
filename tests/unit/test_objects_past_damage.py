"""Over a head that cannot be read its scope goes on: nothing else is lost, and it is kept."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import limpet
from limpet import Corrupt, Scope, Store
from limpet.core import document, prepare
from limpet.model import JSON
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
        with limpet.open(f"file://{tmp_path}") as store:
            yield store, Folder(tmp_path)
        return
    service: Service = request.getfixturevalue("seaweedfs")
    below = Below(service, tmp_path.name)
    with limpet.open(f"s3://{service.name}/{below.prefix}", **service.options) as store:
        yield store, Objects(below)


def replace_head(scope: Scope, state: JSON) -> None:
    """Save a draft that may take the place of a damaged head."""
    tools = scope._tools
    commit = prepare.save(
        scope.key,
        state,
        parent=None,
        keep=False,
        stamp=tools.draw(),
        state_bytes_max=tools.state_bytes_max,
    )._replace(past_damage=True)
    scope.driver.run(lambda backend: backend.commit(commit))


def state_of(scope: Scope, id: str | None = None) -> object:
    found = scope.load(id)
    return None if found is None else found.state


@pytest.mark.parametrize("damage", DAMAGES)
def test_all_of_history_stays(place: tuple[Store, Files], damage: str) -> None:
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
    assert not [key for key in files.list_keys() if ".damaged-" in key]

    replace_head(scope, {"n": 6})
    assert state_of(scope) == {"n": 6}
    assert list(scope.ids()) == ["before", "beside", "kept-2"]  # what was deleted stays away
    kept = [key for key in files.list_keys() if ".damaged-" in key]
    assert [files.read(key) for key in kept] == [damaged]

    scope.save({"n": 5}, id="after")
    assert [info.id for info in scope.history()] == ["after", "beside", "kept-2", "before"]
    assert {found.code for found in store.check()} == {"foreign_file"}
    store.delete_session("s")
    assert not [key for key in files.list_keys() if key.startswith("sessions/s/")]


def test_a_save_that_is_only_kept_needs_no_head(place: tuple[Store, Files]) -> None:
    store, files = place
    scope = store.scope("s")
    head = scope.save({"n": 1}, id="a")
    files.write(HEAD, b"{")
    scope.save({"n": 2}, id="b", head=False)
    assert files.read(HEAD) == b"{"
    assert [info.id for info in scope.history()] == ["b", "a"]
    for guarded in ({"expect": head.revision}, {"expect": None}):
        with pytest.raises(Corrupt):
            scope.save({"n": 3}, id="c", head=False, **guarded)
    replace_head(scope, {"n": 4})
    assert list(scope.ids()) == ["a", "b"]


def test_a_head_that_is_whole_is_replaced_as_ever(place: tuple[Store, Files]) -> None:
    store, files = place
    scope = store.scope("s")
    replace_head(scope, {"n": 1})
    replace_head(scope, {"n": 2})
    assert state_of(scope) == {"n": 2}
    assert not [key for key in files.list_keys() if ".damaged-" in key]


def test_many_at_the_same_time(tmp_path: Path) -> None:
    files = Folder(tmp_path)
    stores = [limpet.open(f"file://{tmp_path}") for _ in range(4)]
    scopes = [store.scope("s") for store in stores]
    for number in range(5):
        scopes[0].save({"n": number}, id=f"id-{number}")
    files.write(HEAD, b"{")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda scope: replace_head(scope, {"n": 9}), scopes * 5))
    assert len(list(scopes[0].ids())) == 5
    assert document.read(files.read(HEAD)).header is not None
    assert len([key for key in files.list_keys() if ".damaged-" in key]) == 1
    for store in stores:
        store.close()
