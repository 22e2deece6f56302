"""Documents that neither side could have meant: each is an error of its own and of no other."""

import pytest

from limpet import Corrupt, ScopeKey, Store
from limpet.compat.strands import SessionError
from tests.interop.ground import Ground
from tests.interop.sdk import SdkError, uuid7

pytestmark = pytest.mark.timeout(300)  # the first test may have to install the SDK

SCOPE = ScopeKey("chat-42", "planner")
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


def folder(ground: Ground) -> str:
    return f"{ground.layout.root}chat-42/scopes/agent/planner/snapshots/"


def test_bad_documents_harm_no_other(ground: Ground, store: Store) -> None:
    ours, theirs = ground.ours(*SCOPE), ground.theirs(*SCOPE)
    theirs.save(uuid7(1), {"number": 1}, second=1)
    ours.save(uuid7(2), {"number": 2})
    keys = {bad: f"{folder(ground)}immutable_history/snapshot_{bad}.json" for bad in BAD}
    for bad, key in keys.items():
        ground.files.write(key, BAD[bad])

    for bad in BAD:
        with pytest.raises(SessionError) as caught:
            ours.load(bad)
        assert isinstance(caught.value.__cause__, Corrupt)
    assert ours.ids() == sorted([*BAD, uuid7(1), uuid7(2)])
    assert [ours.load(uuid7(number))["data"] for number in (1, 2)] == [{"number": 1}, {"number": 2}]
    came = ground.pull(store)
    assert came.count == 2
    assert {(each.code, each.id) for each in came.skipped} == {("corrupt", bad) for bad in BAD}
    for bad, key in keys.items():
        assert ground.files.read(key) == BAD[bad]

    theirs.save("cut", {"number": "good again"}, second=2)
    ours.save("nan", {"number": "good again"}, second=2)
    assert ours.load("cut")["data"] == theirs.load("nan")["data"] == {"number": "good again"}
    ours.delete_session()
    assert ground.documents("chat-42") == []


def test_a_bad_latest_harms_nothing_else(ground: Ground) -> None:
    ours, theirs = ground.ours(*SCOPE), ground.theirs(*SCOPE)
    theirs.save(uuid7(1), {"number": 1}, second=1)
    ground.ours("other").save_latest({"number": 9})
    for data in BAD.values():
        ground.files.write(f"{folder(ground)}snapshot_latest.json", data)
        with pytest.raises(SessionError) as caught:
            ours.load()
        assert isinstance(caught.value.__cause__, Corrupt)
        assert (ours.ids(), ours.load(uuid7(1))["data"]) == ([uuid7(1)], {"number": 1})
        assert ground.ours("other").load()["data"] == {"number": 9}
        ours.save_latest({"number": "good again"})
        assert theirs.load()["data"] == {"number": "good again"}


def test_the_python_sdk_and_theirs_do_not_read_each_other(ground: Ground, store: Store) -> None:
    """Same keys, other words. We read both, and an export changes neither."""
    ours, theirs = ground.ours(*SCOPE), ground.theirs(*SCOPE)
    other = {
        "scope": "agent",
        "schema_version": "1.0",
        "created_at": "2026-03-01T12:00:00.123456Z",
        "data": {"messages": [], "state": {"n": 1}, "system_prompt": None},
        "app_data": {},
    }
    theirs.put(uuid7(1), other)
    assert ours.load(uuid7(1))["data"] == other["data"]
    with pytest.raises(SdkError, match="Unsupported snapshot schema version: undefined"):
        theirs.restore(uuid7(1))
    ground.pull(store)
    found = store.scope(*SCOPE).load(uuid7(1))
    assert found is not None
    assert (found.state, found.created_at.microsecond) == (other["data"], 123456)
    assert ground.push(store).count == 1
    assert theirs.load(uuid7(1)) == other
