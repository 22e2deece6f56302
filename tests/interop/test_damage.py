"""Documents that neither side could have meant: reported, contained, never overwritten."""

import pytest

from holdfast import Corrupt, ScopeKey, Store
from tests.interop.ground import Ground
from tests.interop.sdk import SdkError, snapshot, uuid7

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
}


def folder(ground: Ground) -> str:
    return f"{ground.layout.root}chat-42/scopes/agent/planner/snapshots/"


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_copy_harms_no_other(ground: Ground, store: Store, bad: str) -> None:
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    theirs.save(uuid7(1), {"number": 1}, second=1)
    mine = ours.save({"number": 2})
    key = f"{folder(ground)}immutable_history/snapshot_{uuid7(2)}.json"
    ground.files.write(key, BAD[bad])

    with pytest.raises(Corrupt):
        ours.load(uuid7(2))
    assert [info.id for info in ours.history()] == [mine.id, uuid7(1)]
    assert {uuid7(1), mine.id} <= set(ours.ids())
    assert list(store.sessions()) == ["chat-42"]
    found = [finding for finding in store.check() if finding.id == uuid7(2)]
    assert [(finding.severity, finding.scope) for finding in found] == [("error", SCOPE)]
    third = ours.save({"number": 3})
    assert [info.id for info in ours.history()] == [third.id, mine.id, uuid7(1)]
    assert ground.files.read(key) == BAD[bad]

    theirs.save(uuid7(2), {"number": "good again"}, second=2)
    healed = ours.load(uuid7(2))
    assert healed is not None
    assert healed.state == {"number": "good again"}
    store.delete_session("chat-42")
    assert ground.documents("chat-42") == []


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_latest_is_reported_and_not_overwritten(
    ground: Ground, store: Store, bad: str
) -> None:
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    mine = ours.save({"number": 1})
    theirs.save(uuid7(1), {"number": 2}, second=2)
    store.scope("other").save({"number": 9})
    key = f"{folder(ground)}snapshot_latest.json"
    ground.files.write(key, BAD[bad])

    with ground.open() as fresh:
        for each in (store, fresh):
            with pytest.raises(Corrupt):
                each.scope(*SCOPE).load()
            with pytest.raises(Corrupt):
                each.scope(*SCOPE).save({"number": 3})
            assert list(each.sessions()) == ["chat-42", "other"]
            assert {info.key for info in each.scopes()} >= {ScopeKey("other")}
            assert each.scope("other").load() is not None
    assert ground.files.read(key) == BAD[bad]

    theirs.save_latest({"number": "good again"}, second=3)
    healed = ours.load()
    assert healed is not None
    assert healed.state == {"number": "good again"}
    assert {info.id for info in ours.history()} == {mine.id, uuid7(1)}
    ours.save({"number": 3})
    assert theirs.load()["data"] == {"number": 3}


def test_a_lone_surrogate_of_theirs_is_contained(ground: Ground, store: Store) -> None:
    """JavaScript stores half a character, which is no text anywhere else."""
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    theirs.save(uuid7(1), {"text": "\ud83d"}, second=1)
    theirs.save(uuid7(2), {"text": "whole"}, second=2)
    assert theirs.load(uuid7(1))["data"] == {"text": "\ud83d"}
    with pytest.raises(Corrupt):
        ours.load(uuid7(1))
    assert [info.id for info in ours.history()] == [uuid7(2)]


def test_bad_documents_of_ours_do_not_pass_for_theirs(ground: Ground, store: Store) -> None:
    """The SDK hands over what is no longer as we wrote it; we do not."""
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    info = ours.save({"text": "as it was"})
    ours.save({"text": "another"})
    key = f"{folder(ground)}immutable_history/snapshot_{info.id}.json"
    ground.files.write(key, ground.files.read(key).replace(b"as it was", b"as it wes"))
    assert theirs.load(info.id)["data"] == {"text": "as it wes"}
    with pytest.raises(Corrupt):
        ours.load(info.id)


def test_the_smallest_snapshots_of_theirs_are_no_tombstones(ground: Ground, store: Store) -> None:
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    theirs.put(uuid7(1), {"data": {}})
    theirs.put(uuid7(2), snapshot({}, second=1))
    theirs.put(None, {"data": {}})
    assert list(ours.ids()) == [uuid7(1), uuid7(2)]
    assert {info.id for info in ours.history()} == {uuid7(1), uuid7(2)}
    for found in (ours.load(), ours.load(uuid7(1)), ours.load(uuid7(2))):
        assert found is not None
        assert found.state == {}


def test_the_python_sdk_and_theirs_do_not_read_each_other(ground: Ground, store: Store) -> None:
    """Same keys, other words. We read both; an agent in TypeScript refuses the other one."""
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    other = {
        "scope": "agent",
        "schema_version": "1.0",
        "created_at": "2026-03-01T12:00:00.123456Z",
        "data": {"messages": [], "state": {"n": 1}, "system_prompt": None},
        "app_data": {},
    }
    theirs.put(uuid7(1), other)
    found = ours.load(uuid7(1))
    assert found is not None
    assert found.state == other["data"]
    assert found.created_at.microsecond == 123456
    with pytest.raises(SdkError, match="Unsupported snapshot schema version: undefined"):
        theirs.restore(uuid7(1))
    # Once it is ours, it stands in an envelope that both the storage and the agent accept.
    saved = ours.save(found.state)
    assert theirs.restore(saved.id)["state"] == {"n": 1}
