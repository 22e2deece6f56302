"""What the Strands SDK writes, Limpet reads, lists and imports; and the other way round."""

import base64
import json
from datetime import UTC, datetime

import pytest

from limpet import JSON, Corrupt, ScopeKey, Store
from limpet.compat.strands import SessionError
from tests.interop.ground import Ground, Ours
from tests.interop.sdk import Theirs, snapshot, uuid7
from tests.present import present

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


def test_pages_are_the_same(ground: Ground) -> None:
    ours, theirs = ground.ours(*SCOPE), ground.theirs(*SCOPE)
    for number in (2, 4, 6, 8, 10):
        theirs.save(uuid7(number), {"number": number}, second=number)
    for after in (None, *map(uuid7, (0, 2, 5, 8, 10, 11))):
        for limit in (None, 0, 1, 3, 5, 7):
            page = ours.ids(after=after, limit=limit)
            assert page == theirs.ids(after=after, limit=limit), (after, limit)


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
    head = present(scope.load())
    assert exact(head.state) == exact(RICH)
    assert (head.kept, head.created_at, head.status, head.labels) == (False, at(55), "", {})
    envelope = {name: value for name, value in taken.items() if name != "data"}
    assert exact(head.metadata) == exact({"strands": envelope})
    assert [info.id for info in scope.history()] == [uuid7(3), uuid7(2), uuid7(1)]
    assert [info.created_at for info in scope.history()] == [at(30), at(10), at(50)]
    note = present(scope.note("manifest"))
    assert note.value == {"schemaVersion": "1.0", "updatedAt": "then", "more": [1, {}]}


def test_documents_are_the_same_byte_for_byte(ground: Ground) -> None:
    """In the layouts that the classic storages write."""
    if ground.layout.family != "classic":
        return
    written = []
    for side in (ground.theirs(*SCOPE), ground.ours(*SCOPE)):
        side.save(uuid7(1), RICH)
        side.save_latest({"empty": [{}, []], "number": 1.5})
        side.save_manifest({"schemaVersion": "1.0", "updatedAt": "then"})
        written.append({key: ground.files.read(key) for key in ground.files.list_keys()})
    assert written[0] == written[1]


def test_each_reads_what_the_other_wrote(ground: Ground) -> None:
    """Latest and history are independent, and a save replaces whatever is there."""
    ours, theirs = ground.ours(*SCOPE), ground.theirs(*SCOPE)
    sides: list[tuple[Ours | Theirs, Ours | Theirs]] = [(ours, theirs), (theirs, ours)]
    for turn, (writer, reader) in enumerate(sides * 2):
        writer.save_latest({"turn": turn}, second=turn)
        assert reader.load()["data"] == {"turn": turn}
        writer.save(uuid7(turn), RICH, second=turn)
        assert exact(reader.load(uuid7(turn))["data"]) == exact(RICH)
        writer.save(uuid7(0), {"again": turn}, second=turn)
        assert reader.load(uuid7(0))["data"] == {"again": turn}
        assert reader.load()["data"] == {"turn": turn}
        assert ours.ids() == theirs.ids() == [uuid7(number) for number in range(turn + 1)]
        writer.save_manifest({"schemaVersion": "1.0", "updatedAt": "then", "turn": turn})
        assert reader.manifest()["turn"] == turn


def test_either_deletes_what_both_saved(ground: Ground) -> None:
    siblings = [ScopeKey(id, "planner") for id in ("cha", "chat-2", "chat2")]
    for scope in siblings:
        ground.theirs(*scope).save_latest({"by": "them"})
    for deleting in (ground.ours("chat", "planner"), ground.theirs("chat", "planner")):
        for scope in (ScopeKey("chat", "planner"), ScopeKey("chat", "team", "multiAgent")):
            ground.theirs(*scope).save(uuid7(1), {"number": 1})
            ground.ours(*scope).save(uuid7(2), {"number": 2})
            ground.ours(*scope).save_latest({"number": 2})
            ground.theirs(*scope).save_manifest({"schemaVersion": "1.0", "updatedAt": "then"})
        deleting.delete_session()
        assert ground.documents("chat") == []
        ours, theirs = ground.ours("chat", "planner"), ground.theirs("chat", "planner")
        assert (ours.load(), theirs.load(), ours.ids(), theirs.ids()) == (None, None, [], [])
    for scope in siblings:
        assert ground.ours(*scope).load()["data"] == {"by": "them"}


def test_an_export_has_all_of_it(ground: Ground, store: Store) -> None:
    scope, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    kept = [scope.save({"number": number}).id for number in range(3)]
    scope.save(RICH, keep=False, labels={"run": "7"}, metadata={"tokens": 5})
    scope.set_note("manifest", {"schemaVersion": "1.0", "updatedAt": "then"})
    scope.set_note("todo", ["tea"])
    went = ground.push(store)
    assert (went.count, went.skipped) == (4, ())
    assert theirs.ids() == kept
    assert [theirs.load(id)["data"] for id in kept] == [{"number": n} for n in range(3)]
    latest = theirs.load()
    assert exact(latest["data"]) == exact(RICH)
    assert (latest["scope"], latest["schemaVersion"], latest["appData"]) == ("agent", "1.0", {})
    assert theirs.manifest() == {"schemaVersion": "1.0", "updatedAt": "then"}
    assert len(ground.documents("chat-42")) == 5


def test_javascript_rounds_what_we_keep_exactly(ground: Ground) -> None:
    """Integers beyond 2^53 are rounded by any reader in JavaScript, and 1.0 is 1 there."""
    ours, theirs = ground.ours(*SCOPE), ground.theirs(*SCOPE)
    state: JSON = {"wide": [2**53 + 1, 2**70 + 1, -(2**64) - 1], "float": 1.0}
    ours.save_latest(state)
    read = theirs.load()["data"]
    assert [float(number) for number in read["wide"]] == [float(n) for n in state["wide"]]
    assert read["float"] == 1
    assert exact(ours.load()["data"]) == exact(state)


BOTH = [
    "a",
    "0",
    "-",
    "_",
    "a-b",
    "ab",
    "latest",
    "manifest",
    "scopes",
    "snapshot_x",
    "notes",
    "index",
    "session",
    "sessions",
    "z" * 190,  # with 200 some of their storages write no file: its temporary name is too long
]


def test_ids_that_both_allow_are_the_same(ground: Ground, store: Store) -> None:
    for number, id in enumerate(BOTH):
        ours, theirs = ground.ours(id, id), ground.theirs(id, id)
        theirs.save(id, {"by": "them", "number": number}, second=number)
        ours.save_latest({"by": "us", "number": number}, second=number)
        assert ours.load(id)["data"] == {"by": "them", "number": number}
        assert theirs.load()["data"] == {"by": "us", "number": number}
    assert ground.pull(store).skipped == ()
    assert sorted(info.key for info in store.scopes()) == sorted(ScopeKey(id, id) for id in BOTH)
    for id in BOTH:
        ground.ours(id, id).delete_session()
    assert ground.files.list_keys() == []


BAD = {
    "empty": b"",
    "cut": b'{"scope":"agent","schemaVersion":"1.0","createdAt":"2026-03-01T12:00:00.000Z","da',
    "no-json": b"<html>503 Slow Down</html>" * 10,
    "no-object": b"[1, 2, 3]",
    "null": b"null",
    "no-data": b'{"scope": "agent", "schemaVersion": "1.0", "appData": {}}',
    "nan": b'{"scope": "agent", "schema_version": "1.0", "data": {"x": NaN}, "app_data": {}}',
    "bom": b'\xef\xbb\xbf{"scope":"agent","data":{}}',
    "latin": b'{"scope":"agent","data":{"text":"\xe9"}}',
    "surrogate": b'{"scope":"agent","data":{"text":"\\ud83d"}}',
}


def test_bad_documents_harm_no_other(ground: Ground, store: Store) -> None:
    """They are listed, but not loaded or imported; and a save replaces them."""
    ours, theirs = ground.ours(*SCOPE), ground.theirs(*SCOPE)
    theirs.save(uuid7(1), {"number": 1}, second=1)
    ours.save(uuid7(2), {"number": 2})
    history = f"{ground.layout.root}chat-42/scopes/agent/planner/snapshots/immutable_history"
    for bad, data in BAD.items():
        ground.files.write(f"{history}/snapshot_{bad}.json", data)

    for bad in BAD:
        with pytest.raises(SessionError) as caught:
            ours.load(bad)
        assert isinstance(caught.value.__cause__, Corrupt)
    assert ours.ids() == sorted([*BAD, uuid7(1), uuid7(2)])
    assert [ours.load(uuid7(number))["data"] for number in (1, 2)] == [{"number": 1}, {"number": 2}]
    came = ground.pull(store)
    assert came.count == 2
    assert {(each.code, each.id) for each in came.skipped} == {("corrupt", bad) for bad in BAD}
    for bad, data in BAD.items():
        assert ground.files.read(f"{history}/snapshot_{bad}.json") == data

    theirs.save("cut", {"number": "good again"}, second=2)
    ours.save("nan", {"number": "good again"}, second=2)
    assert ours.load("cut")["data"] == theirs.load("nan")["data"] == {"number": "good again"}
    ours.delete_session()
    assert ground.documents("chat-42") == []
