"""What the Strands SDK writes, our storages load and list, and an import takes into a store."""

import base64
import json
from datetime import UTC, datetime

import pytest

from limpet import JSON, ScopeKey, Store
from tests.interop.ground import Ground
from tests.interop.sdk import snapshot, uuid7

pytestmark = pytest.mark.timeout(300)  # the first test may have to install the SDK

SCOPE = ScopeKey("chat-42", "planner")

RICH: JSON = {
    "zulu": [1, -2, 0.5, 1e-7, 1e21, 2**53 - 1, True, False, None],
    "alpha": {"z": {"y": [[], {}, [[{"x": ""}]]]}, "": "no name", 'a "quote"\\': "\n\t\x00\u2028"},
    "messages": [
        {"role": "user", "content": [{"text": "Grüße, 世界 👩‍🚀"}], "trackingId": "t-1"},
        {
            "role": "assistant",
            "content": [
                {"reasoning": {"text": "hm", "signature": "s=="}},
                {"toolUse": {"name": "add", "toolUseId": "u-1", "input": {"b": 2, "a": 1}}},
                {"image": {"format": "png", "source": {"bytes": ""}}},
            ],
        },
    ],
    "systemPrompt": None,
    "modelState": {},
}
RICH["messages"][1]["content"][2]["image"]["source"]["bytes"] = base64.b64encode(
    bytes(range(256)) * 20
).decode()


def exact(value: JSON) -> str:
    """Return a text that tells apart what `==` does not: the order of keys, and 1 from 1.0."""
    return json.dumps(value)


def at(second: int) -> datetime:
    return datetime(2026, 3, 1, 12, second // 60, second % 60, 250_000, UTC)


def test_snapshots_are_loaded_as_they_are(ground: Ground) -> None:
    ours, theirs = ground.ours(*SCOPE), ground.theirs(*SCOPE)
    assert ours.load() is None
    latest = theirs.save_latest(RICH, second=7)
    kept = snapshot(RICH, second=3) | {"appData": {"tag": ["a", {"b": 1}]}, "extra": 5}
    theirs.put(uuid7(1), kept)
    assert exact(ours.load()) == exact(latest)
    assert exact(ours.load(uuid7(1))) == exact(kept)


def test_pages_are_the_same(ground: Ground) -> None:
    ours, theirs = ground.ours(*SCOPE), ground.theirs(*SCOPE)
    for number in (2, 4, 6, 8, 10):
        theirs.save(uuid7(number), {"number": number}, second=number)
    for after in (None, *map(uuid7, (0, 2, 5, 8, 10, 11))):
        for limit in (None, 0, 1, 3, 5, 7):
            page = ours.ids(after=after, limit=limit)
            assert page == theirs.ids(after=after, limit=limit), (after, limit)


def test_a_long_history_is_listed_whole(ground: Ground) -> None:
    """More than one page of a listing."""
    ours, theirs = ground.ours(*SCOPE), ground.theirs(*SCOPE)
    ids = [uuid7(number) for number in range(1_030)]
    theirs.save(ids[0], {"number": 0})
    folder = f"{ground.layout.root}chat-42/scopes/agent/planner/snapshots/immutable_history/"
    one = ground.files.read(f"{folder}snapshot_{ids[0]}.json")
    for id in ids:
        ground.files.write(f"{folder}snapshot_{id}.json", one)
    assert ours.ids() == theirs.ids() == ids
    assert ours.ids(after=ids[998], limit=5) == theirs.ids(after=ids[998], limit=5)
    ours.delete_session()
    assert theirs.ids() == ground.documents("chat-42") == []


def test_an_import_has_all_of_it(ground: Ground, store: Store) -> None:
    theirs = ground.theirs(*SCOPE)
    for number, second in ((3, 30), (1, 50), (2, 10)):
        theirs.save(uuid7(number), {"number": number}, second=second)
    taken = snapshot(RICH, second=55) | {"appData": {"tag": ["a"]}, "extra": 5}
    theirs.put(None, taken)
    theirs.save_manifest({"schemaVersion": "1.0", "updatedAt": "then", "more": [1, {}]})
    came = ground.pull(store)
    assert (came.count, came.skipped) == (4, ())

    scope = store.scope(*SCOPE)
    head = scope.load()
    assert head is not None
    assert exact(head.state) == exact(RICH)
    assert (head.kept, head.created_at, head.status, head.labels) == (False, at(55), "", {})
    envelope = {name: value for name, value in taken.items() if name != "data"}
    assert exact(head.metadata) == exact({"strands": envelope})
    assert [info.id for info in scope.history()] == [uuid7(3), uuid7(2), uuid7(1)]
    assert [info.created_at for info in scope.history()] == [at(30), at(10), at(50)]
    note = scope.note("manifest")
    assert note is not None
    assert note.value == {"schemaVersion": "1.0", "updatedAt": "then", "more": [1, {}]}


def test_an_import_has_all_sessions_and_scopes(ground: Ground, store: Store) -> None:
    scopes = [
        ScopeKey("s", "planner", "agent"),
        ScopeKey("s", "planner", "multiAgent"),
        ScopeKey("s", "writer", "agent"),
        ScopeKey("s1", "planner", "agent"),
        ScopeKey("s1", "team", "multiAgent"),
    ]
    for second, scope in enumerate(scopes):
        ground.theirs(*scope).save_latest({"is": list(scope)}, second=second)
    ground.theirs("s2", "kept").save(uuid7(1), {"only": "history"})
    ground.pull(store)
    assert list(store.sessions()) == ["s", "s1", "s2"]
    assert sorted(info.key for info in store.scopes()) == [*scopes, ScopeKey("s2", "kept")]
    for scope in scopes:
        head = store.scope(*scope).load()
        assert head is not None
        assert head.state == {"is": list(scope)}


def test_a_later_import_has_what_they_did_since(ground: Ground, store: Store) -> None:
    theirs = ground.theirs(*SCOPE)
    for turn in (1, 2, 3):
        theirs.save(uuid7(turn), {"turn": turn}, second=turn)
        theirs.save_latest({"turn": turn}, second=turn)
        ground.pull(store)
        head = store.scope(*SCOPE).load()
        assert head is not None
        assert head.state == {"turn": turn}
        assert len(list(store.scope(*SCOPE).history())) == turn


def test_strange_times_are_no_trouble(ground: Ground, store: Store) -> None:
    ours, theirs = ground.ours(*SCOPE), ground.theirs(*SCOPE)
    strange: dict[str, JSON] = {
        "none": None,
        "number": 1772366400,
        "words": "yesterday",
        "past": "1969-12-31T23:59:59.999Z",
        "first": "0001-01-01T00:00:00.000Z",
        "future": "9999-12-31T23:59:59.999Z",
        "zone": "2026-03-01T14:00:00+02:00",
        "naive": "2026-03-01T12:00:00",
    }
    for id, time in strange.items():
        theirs.put(id, snapshot({"id": id}) | {"createdAt": time})
    theirs.put("absent", {"data": {"id": "absent"}})
    for id in (*strange, "absent"):
        assert ours.load(id)["data"] == {"id": id}
    assert ours.ids() == sorted((*strange, "absent"))
    assert ground.pull(store).skipped == ()
    assert set(store.scope(*SCOPE).ids()) == {*strange, "absent"}


def test_large_snapshots(ground: Ground) -> None:
    large = {"text": "é👩‍🚀" * 30_000, "more": [{"n": n} for n in range(5_000)]}
    ours, theirs = ground.ours(*SCOPE), ground.theirs(*SCOPE)
    theirs.save_latest(large)
    assert exact(ours.load()["data"]) == exact(large)
    ours.save(uuid7(1), large)
    assert exact(theirs.load(uuid7(1))["data"]) == exact(large)
