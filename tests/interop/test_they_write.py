"""What the Strands SDK writes, Limpet reads, lists, pages and changes."""

import base64
import json
from datetime import UTC, datetime

import pytest

from limpet import JSON, NotFound, ScopeKey, Store
from tests.interop.ground import LAYOUTS, Ground
from tests.interop.places import Place
from tests.interop.sdk import Sdk, snapshot, uuid7

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


def test_latest_is_the_head(ground: Ground, store: Store) -> None:
    ours = store.scope(*SCOPE)
    assert ours.load() is None
    ground.theirs(*SCOPE).save_latest(RICH, second=7)

    head = ours.load()
    assert head is not None
    assert exact(head.state) == exact(RICH)
    assert not head.kept
    assert head.scope == SCOPE
    assert (head.created_at, head.updated_at) == (at(7), at(7))
    assert (head.parent_id, head.forked_from, head.labels) == (None, None, {})
    assert head.status == ""
    info = ours.info()
    assert info is not None
    assert (info.id, info.revision, info.size) == (head.id, head.revision, head.size)
    assert list(ours.history()) == []
    assert list(ours.ids()) == []


def test_the_envelope_is_metadata(ground: Ground, store: Store) -> None:
    taken = snapshot({"n": 1}, second=3) | {"appData": {"tag": ["a", {"b": 1}]}, "extra": 5}
    ground.theirs(*SCOPE).put(None, taken)
    ground.theirs(*SCOPE).put(uuid7(1), taken)

    envelope = {name: value for name, value in taken.items() if name != "data"}
    for found in (store.scope(*SCOPE).load(), store.scope(*SCOPE).load(uuid7(1))):
        assert found is not None
        assert exact(found.metadata) == exact({"strands": envelope})


def test_history_is_in_the_order_of_time_and_ids_in_that_of_text(
    ground: Ground, store: Store
) -> None:
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    seconds = {uuid7(3): 30, uuid7(1): 50, uuid7(2): 10}
    for id, second in seconds.items():
        theirs.save(id, {"id": id, "second": second}, second=second)
    theirs.save_latest({"latest": True}, second=55)

    assert list(ours.ids()) == theirs.ids() == [uuid7(1), uuid7(2), uuid7(3)]
    listed = list(ours.history())
    assert [info.id for info in listed] == [uuid7(1), uuid7(3), uuid7(2)]
    assert [info.created_at for info in listed] == [at(50), at(30), at(10)]
    assert all(info.kept and info.status == "" and not info.labels for info in listed)
    for info in listed:
        found = ours.load(info.id)
        assert found is not None
        assert found.state == {"id": info.id, "second": seconds[info.id]}
        assert found.revision == info.revision
        assert ours.info(info.id) == info
    assert [each.id for each in ours.load_many([uuid7(2), uuid7(9), uuid7(1)])] == [
        uuid7(2),
        uuid7(1),
    ]


def test_pages_are_the_same(ground: Ground, store: Store) -> None:
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    for number in (2, 4, 6, 8, 10):
        theirs.save(uuid7(number), {"number": number}, second=number)
    for after in (None, *map(uuid7, (0, 2, 5, 8, 10, 11))):
        for limit in (None, 1, 3, 5, 7):
            page = list(ours.ids(after=after, limit=limit))
            assert page == theirs.ids(after=after, limit=limit), (after, limit)
    assert list(ours.ids(limit=0)) == theirs.ids(limit=0) == []

    newest_first = [info.id for info in ours.history()]
    paged, cursor = [], None
    while page := [info.id for info in ours.history(limit=2, after=cursor)]:
        paged += page
        cursor = page[-1]
    assert paged == newest_first == [uuid7(number) for number in (10, 8, 6, 4, 2)]


def test_sessions_and_scopes_are_listed(ground: Ground, store: Store) -> None:
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
    scopes.append(ScopeKey("s2", "kept", "agent"))

    assert list(store.sessions()) == ["s", "s1", "s2"]
    assert list(store.sessions(prefix="s1")) == ["s1"]
    assert list(store.sessions(after="s", limit=1)) == ["s1"]
    assert sorted(info.key for info in store.scopes()) == sorted(scopes)
    assert sorted(info.key for info in store.scopes("s")) == sorted(scopes[:3])
    several = [info.key for info in store.scopes(kind="multiAgent")]
    assert sorted(several) == [scopes[1], scopes[4]]
    for info in store.scopes():
        head = store.scope(*info.key).load()
        if info.key.session_id == "s2":
            assert head is info.head is None
            continue
        assert head is not None
        assert info.head is not None
        assert head.state == {"is": list(info.key)}
        assert (info.head.id, info.head.revision) == (head.id, head.revision)


def test_the_manifest_is_a_note(ground: Ground, store: Store) -> None:
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    assert ours.note("manifest") is None
    manifest = {"schemaVersion": "1.0", "updatedAt": "2026-03-01T12:00:00.000Z", "more": [1, {}]}
    theirs.save_manifest(manifest)

    note = ours.note("manifest")
    assert note is not None
    assert exact(note.value) == exact(manifest)
    assert [each.name for each in ours.notes()] == ["manifest"]
    assert [info.key for info in store.scopes()] == [SCOPE]
    assert ours.delete_note("manifest") == 1
    assert theirs.manifest()["updatedAt"] != manifest["updatedAt"]  # the SDK's default
    assert ground.documents(SCOPE.session_id) == []


def test_a_snapshot_of_theirs_can_be_updated(ground: Ground, store: Store) -> None:
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    for number in (1, 2, 3):
        theirs.save(uuid7(number), {"number": number, "text": "é"}, second=number)
    theirs.save_latest({"number": 3}, second=3)

    updated = ours.update(uuid7(2), lambda was: was.with_(labels={"seen": "yes"}))
    assert updated is not None
    assert updated.labels == {"seen": "yes"}
    assert theirs.load(uuid7(2))["data"] == {"number": 2, "text": "é"}
    ours.update(uuid7(2), lambda was: was.with_(state={**was.state, "more": True}))
    assert theirs.load(uuid7(2))["data"] == {"number": 2, "text": "é", "more": True}
    assert [info.id for info in ours.history()] == [uuid7(3), uuid7(2), uuid7(1)]
    assert list(ours.ids()) == theirs.ids()
    with pytest.raises(NotFound):
        ours.update(uuid7(4), lambda was: was)


def test_lines_can_begin_at_a_snapshot_of_theirs(ground: Ground, store: Store) -> None:
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    theirs.save(uuid7(1), {"mood": "calm", "n": [1]}, second=1)
    theirs.save(uuid7(2), {"mood": "bold", "n": [1, 2]}, second=2)
    theirs.save_latest({"mood": "bold", "n": [1, 2]}, second=2)

    assert {change.path for change in ours.diff(uuid7(1), uuid7(2)).changes} == {"/mood", "/n/1"}
    fork = ours.fork(uuid7(1), scope_id="other", patch={"mood": "odd"})
    first = fork.load()
    assert first is not None
    assert first.forked_from is not None
    assert first.forked_from.id == uuid7(1)
    seen = ground.theirs(SCOPE.session_id, "other")
    assert seen.load()["data"] == seen.load(first.id)["data"] == {"mood": "odd", "n": [1]}
    assert seen.ids() == [first.id]
    assert theirs.load(uuid7(1))["data"] == {"mood": "calm", "n": [1]}


def test_upkeep_leaves_theirs_alone(ground: Ground, store: Store) -> None:
    scopes = [SCOPE, ScopeKey("chat-42", "team", "multiAgent"), ScopeKey("chat-43", "planner")]
    for scope in scopes:
        theirs = ground.theirs(*scope)
        for number in (1, 2):
            theirs.save(uuid7(number), {"number": number}, second=number)
        theirs.save_latest({"number": 2}, second=2)
        theirs.save_manifest({"schemaVersion": "1.0", "updatedAt": "2026-03-01T12:00:00.000Z"})

    def stored() -> dict[str, bytes]:
        found = (key for key in ground.files.list_keys() if not key.startswith(".limpet/"))
        return {key: ground.files.read(key) for key in found}

    before = stored()
    assert len(before) == 12
    stats = store.stats()
    assert (stats.sessions, stats.scopes, stats.snapshots) == (2, 3, 9)
    assert store.stats("chat-43").snapshots == 3
    for _ in range(2):
        assert [found for found in store.check() if found.severity == "error"] == []
        assert [found for found in store.repair() if found.severity == "error"] == []
        store.compact()
    assert stored() == before
    assert [info.id for info in store.scope(*SCOPE).history()] == [uuid7(2), uuid7(1)]


def test_theirs_are_found_once_the_index_is_repaired(sdk: Sdk, place: Place) -> None:
    """They write no index. Within a scope nobody needs it; across all of them it is needed."""
    ground = Ground(sdk, LAYOUTS["ours"], place)
    ground.theirs("a").save(uuid7(1), {"by": "them"}, second=1)
    ground.theirs("b").save(uuid7(2), {"by": "them"}, second=2)
    ground.theirs("b").save_latest({"by": "them"}, second=2)
    with ground.open() as store:
        mine = store.scope("a").save({"by": "us"})
        assert [info.id for info in store.scope("a").history()] == [mine.id, uuid7(1)]
        assert {found.id for found in store.repair() if found.repaired} == {uuid7(1), uuid7(2)}
        assert list(store.repair()) == list(store.check()) == []
        for id in (uuid7(1), uuid7(2), mine.id):
            info = store.find(id)
            assert info is not None
            assert store.scope(*info.scope).load(id) is not None
        assert [info.id for info in store.history()] == [mine.id, uuid7(2), uuid7(1)]
