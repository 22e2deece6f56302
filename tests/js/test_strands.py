"""Agents of the Strands SDK for TypeScript that keep their sessions on a server of ours."""

from typing import Any

import pytest

from limpet import Store
from limpet.compat.strands import SnapshotLocation, StoreStorage
from limpet.errors import InvalidInput
from limpet.model import ScopeKey
from tests.interop.ground import Ours
from tests.interop.sdk import Sdk, SdkError, Theirs, snapshot, uuid7
from tests.interop.test_agents import said
from tests.js.serving import Processes, Served

pytestmark = [
    pytest.mark.slow,
]  # the first test may have to install the SDK

RICH: dict[str, Any] = {
    **snapshot({"messages": [{"role": "user", "content": [{"text": "é😀\u2028\0"}]}], "n": 1.5}),
    "appData": {"tenant": "acme", "nested": {"a": [1, None]}},
    "later": {"field": True},
}


def both(sdk: Sdk, shared: Served, store: Store, *scope: str) -> tuple[Theirs, Ours]:
    key = ScopeKey(*scope)
    theirs = Theirs(sdk, {"family": "limpet", "url": shared.url}, key)
    location = SnapshotLocation(key.session_id, key.kind, key.scope_id)
    return theirs, Ours(StoreStorage(store), location)


def test_a_killed_agent_goes_on(sdks: Processes[Sdk], shared: Served, store: Store) -> None:
    first = sdks.start()
    theirs, ours = both(first, shared, store, "killed", "planner")
    known = theirs.converse("one", "add 2 3", history=True, app_state={"z": 1})
    storm = {"name": "s", "location": theirs.location, "snapshot": {**RICH, "data": known}}
    theirs.ask("startStorm", **storm)
    theirs.ask("watchStorm", name="s", calls=8)
    first.kill()
    left = ours.load()["data"]
    assert left.pop("turn") >= 7  # the last one was under way
    assert left == known
    assert [len(said(ours.load(id)["data"])) for id in ours.ids()] == [2, 4]
    line = list(store.scope("killed", "planner").history())
    assert [info.parent_id for info in line] == [*(info.id for info in line[1:]), None]

    theirs, ours = both(sdks.start(), shared, store, "killed", "planner")
    again = theirs.converse("three")
    assert said(again) == [*said(known), "three", "echo: three"]
    assert again["state"] == {"z": 1}
    assert ours.load()["data"] == again


def test_each_side_replaces_what_the_other_wrote(sdk: Sdk, shared: Served, store: Store) -> None:
    theirs, ours = both(sdk, shared, store, "both", "planner", "multiAgent")
    assert theirs.load() is None
    sides: list[tuple[Ours | Theirs, Ours | Theirs]] = [(theirs, ours), (ours, theirs)]
    for number, (writer, reader) in enumerate(sides):
        writer.put(None, {**RICH, "scope": "multiAgent"})
        assert reader.load() == {**RICH, "scope": "multiAgent"}
        writer.put(uuid7(number), RICH)
        assert reader.load(uuid7(number)) == RICH
        other = {**RICH, "createdAt": "2026-03-01T13:00:00.001Z", "data": []}
        reader.put(uuid7(number), other)  # replaced, its time too
        assert writer.load(uuid7(number)) == other
        manifest = {"schemaVersion": "1.0", "updatedAt": f"2026-01-0{number + 1}T00:00:00.000Z"}
        writer.save_manifest(manifest)
        assert reader.manifest() == manifest
    theirs.save("by_hand", 1)
    store.scope(*theirs.scope).save({}, id="NOT STRANDS", head=False)
    listed = [uuid7(0), uuid7(1), "by_hand"]
    for side in (theirs, ours):
        assert list(side.ids()) == listed
        assert list(side.ids(limit=1)) == listed[:1]
        assert list(side.ids(limit=0)) == []
        assert list(side.ids(after=uuid7(0))) == listed[1:]
        assert list(side.ids(after=uuid7(1), limit=5)) == listed[2:]
    theirs.delete_session()
    for side in (theirs, ours):
        assert (side.load(), list(side.ids())) == (None, [])


def test_bad_arguments_are_refused_as_in_python(sdk: Sdk, shared: Served, store: Store) -> None:
    theirs, ours = both(sdk, shared, store, "bad", "planner")
    for id in ("UPPER", "a/b", "", "x" * 201):
        for put in (theirs.put, ours.put):
            if id:
                with pytest.raises((SdkError, InvalidInput), match="an identifier has 1 to 200"):
                    put(id, RICH)
    for after in ("nothing", "A"):
        with pytest.raises(SdkError) as refusal:
            theirs.ids(after=after)
        assert refusal.value.name == "InvalidInput"
    with pytest.raises(SdkError, match="scope must be agent or multiAgent"):
        theirs.ask("loadSnapshot", location={**theirs.location, "scope": "tool"})


def test_a_server_that_is_gone_is_a_session_error(sdk: Sdk, store: Store) -> None:
    spec = {"family": "limpet", "url": "http://127.0.0.1:1", "retryMs": 0}
    with pytest.raises(SdkError) as failure:
        Theirs(sdk, spec, ScopeKey("gone", "planner")).load()
    assert (failure.value.name, str(failure.value.cause)[:11]) == ("SessionError", "Unavailable")
