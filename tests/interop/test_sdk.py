"""What these tests presuppose of the SDK, so that a newer one that differs says so here first."""

import json

import pytest

from limpet import ScopeKey
from tests.interop.ground import LAYOUTS, NAMED, Ground
from tests.interop.places import Place
from tests.interop.sdk import Sdk, SdkError, snapshot, uuid7

pytestmark = pytest.mark.timeout(300)  # the first test may have to install the SDK

SCOPE = ScopeKey("chat-42", "planner")


@pytest.fixture(params=[*LAYOUTS.values(), NAMED], ids=[*LAYOUTS, "named"])
def ground(sdk: Sdk, place: Place, request: pytest.FixtureRequest) -> Ground:
    return Ground(sdk, request.param, place)


def test_each_storage_writes_where_its_layout_says(ground: Ground) -> None:
    theirs = ground.theirs(*SCOPE)
    latest = theirs.save_latest({"z": 1, "a": "é"})
    kept = theirs.save(uuid7(1), {"z": 2})
    theirs.save_manifest({"schemaVersion": "1.0"})
    ground.theirs("chat-42", "team", "multiAgent").save_latest({})

    folder = f"{ground.layout.root}chat-42/scopes/agent/planner/snapshots/"
    expected = {
        f"{folder}immutable_history/snapshot_{uuid7(1)}.json": kept,
        f"{folder}manifest.json": {"schemaVersion": "1.0"},
        f"{folder}snapshot_latest.json": latest,
    }
    team = f"{ground.layout.root}chat-42/scopes/multiAgent/team/snapshots/snapshot_latest.json"
    assert ground.files.list_keys() == sorted([*expected, team])
    for key, value in expected.items():
        stored = ground.files.read(key)
        spaced = {"indent": 2} if ground.layout.family == "classic" else {"separators": (",", ":")}
        assert stored == json.dumps(value, ensure_ascii=False, **spaced).encode()


def test_it_overwrites_without_asking(ground: Ground) -> None:
    theirs = ground.theirs(*SCOPE)
    theirs.save(uuid7(1), {"first": True})
    theirs.save(uuid7(1), {"first": False})
    assert theirs.load(uuid7(1))["data"] == {"first": False}
    assert theirs.load() is None


def test_it_checks_nothing_that_it_stores(ground: Ground) -> None:
    theirs = ground.theirs(*SCOPE)
    for number, odd in enumerate([[1], "text", {"scope": "other"}, snapshot(None)]):
        theirs.put(uuid7(number), odd)
        assert theirs.load(uuid7(number)) == odd


def test_a_cursor_must_be_a_uuid_of_version_seven(ground: Ground) -> None:
    theirs = ground.theirs(*SCOPE)
    theirs.save("plain", {})
    assert theirs.ids() == ["plain"]
    with pytest.raises(SdkError, match="'plain' is not a valid UUID v7 snapshot ID") as caught:
        theirs.ids(after="plain")
    assert caught.value.name == "Error"
    assert theirs.ids(after=uuid7(1)) == ["plain"]


def test_a_session_goes_and_its_siblings_stay(ground: Ground) -> None:
    for session in ("s", "s1"):
        ground.theirs(session).save_latest({})
        ground.theirs(session).save(uuid7(1), {})
    ground.theirs("s").delete_session()
    ground.theirs("never").delete_session()
    assert ground.documents("s") == []
    assert len(ground.documents("s1")) == 2
