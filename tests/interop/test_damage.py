"""Documents that neither side could have meant: reported, contained, never overwritten."""

import pytest

from limpet import Corrupt, ScopeKey, Store
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


def test_bad_copies_harm_no_other(ground: Ground, store: Store) -> None:
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    theirs.save(uuid7(1), {"number": 1}, second=1)
    mine = ours.save({"number": 2})
    keys = {bad: f"{folder(ground)}immutable_history/snapshot_{bad}.json" for bad in BAD}
    for bad, key in keys.items():
        ground.files.write(key, BAD[bad])

    for bad in BAD:
        with pytest.raises(Corrupt):
            ours.load(bad)
    assert [info.id for info in ours.history()] == [mine.id, uuid7(1)]
    assert set(ours.ids()) - BAD.keys() == {uuid7(1), mine.id}
    assert list(store.sessions()) == ["chat-42"]
    third = ours.save({"number": 3})
    assert [info.id for info in ours.history()] == [third.id, mine.id, uuid7(1)]
    for bad, key in keys.items():
        assert ground.files.read(key) == BAD[bad]

    theirs.save("cut", {"number": "good again"}, second=2)
    healed = ours.load("cut")
    assert healed is not None
    assert healed.state == {"number": "good again"}
    store.delete_session("chat-42")
    assert ground.documents("chat-42") == []


def test_bad_copies_are_reported(ground: Ground, store: Store) -> None:
    store.scope(*SCOPE).save({"number": 2})
    for bad, data in BAD.items():
        ground.files.write(f"{folder(ground)}immutable_history/snapshot_{bad}.json", data)
    found = [(finding.id, finding.severity, finding.scope) for finding in store.check()]
    assert sorted(found, key=str) == sorted(((bad, "error", SCOPE) for bad in BAD), key=str)


def test_a_bad_latest_is_reported_and_not_overwritten(ground: Ground, store: Store) -> None:
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    mine = ours.save({"number": 1})
    store.scope("other").save({"number": 9})
    key = f"{folder(ground)}snapshot_latest.json"
    for bad, data in BAD.items():
        ground.files.write(key, data)
        with ground.open() as fresh:
            for each in (store, fresh):
                with pytest.raises(Corrupt):
                    each.scope(*SCOPE).load()
                with pytest.raises(Corrupt):
                    each.scope(*SCOPE).save({"number": bad})
                assert list(each.sessions()) == ["chat-42", "other"]
                assert {info.key for info in each.scopes()} >= {ScopeKey("other")}
                assert each.scope("other").load() is not None
        assert ground.files.read(key) == data

    theirs.save_latest({"number": "good again"}, second=3)
    healed = ours.load()
    assert healed is not None
    assert healed.state == {"number": "good again"}
    second = ours.save({"number": 2})
    assert [info.id for info in ours.history()] == [second.id, mine.id]
    assert theirs.load()["data"] == {"number": 2}


def test_a_bad_latest_does_not_hide_what_is_kept(ground: Ground, store: Store) -> None:
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    theirs.save(uuid7(1), {"number": 1}, second=1)
    theirs.save_latest({"number": 1}, second=1)
    first, second = ours.save({"number": 2}), ours.save({"number": 3})
    ground.files.write(f"{folder(ground)}snapshot_latest.json", BAD["cut"])
    with ground.open() as fresh:
        for each in (store, fresh):
            seen = each.scope(*SCOPE)
            assert list(seen.ids()) == [uuid7(1), first.id, second.id]
            assert [info.id for info in seen.history()] == [second.id, first.id, uuid7(1)]
            numbers = [found.state["number"] for found in seen.load_many(seen.ids())]
            assert numbers == [1, 2, 3]


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


def test_our_documents_written_back_by_them_as_history(ground: Ground, store: Store) -> None:
    """Under another id it is nobody's; the one that it was made from is as it was."""
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    first, second = ours.save({"number": 1}), ours.save({"number": 2})
    theirs.put("copy", theirs.load(first.id))
    with pytest.raises(Corrupt):
        ours.load("copy")
    assert [info.id for info in ours.history()] == [second.id, first.id]
    assert ours.delete_snapshot("copy") == 1
    assert list(ours.ids()) == [first.id, second.id]


def test_our_documents_written_back_by_them_as_latest(ground: Ground, store: Store) -> None:
    """Some of their storages put white space in. What it says is proved all the same."""
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    first = ours.save({"number": 1, "z": ["é", 0.5]}, labels={"a": "b"}, metadata={"z": 1, "a": 2})
    second = ours.save({"number": 2})
    theirs.put(None, theirs.load(first.id))
    for found in (ours.load(), ours.load(first.id)):
        assert found is not None
        assert (found.id, found.state) == (first.id, {"number": 1, "z": ["é", 0.5]})
        assert (found.labels, found.metadata) == (first.labels, first.metadata)
    third = ours.save({"number": 3})
    assert [info.id for info in ours.history()] == [third.id, second.id, first.id]
    assert list(ours.ids()) == [first.id, second.id, third.id]
    assert theirs.load()["data"] == {"number": 3}


def test_our_documents_written_back_by_them_elsewhere(ground: Ground, store: Store) -> None:
    """So is a whole session taken from one of their storages to another."""
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    kept = [ours.save({"number": number}).id for number in range(3)]
    copies = ground.theirs("chat-43", "planner")
    copies.put(None, theirs.load())
    for id in theirs.ids():
        copies.put(id, theirs.load(id))
    copy = store.scope(*copies.scope)
    assert list(copy.ids()) == kept
    assert [info.id for info in copy.history()] == kept[::-1]
    assert [found.state for found in copy.load_many(kept)] == [{"number": n} for n in range(3)]
    last = copy.save({"number": 3})
    assert copies.ids() == [*kept, last.id]
    assert list(ours.ids()) == kept


def test_what_javascript_cannot_carry_is_noticed(ground: Ground, store: Store) -> None:
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    first = ours.save({"number": 1})
    for lossy in ({"float": 1.0}, {"wide": 2**53 + 1}, {"wide": 2**70}):
        rounded = ours.save(lossy)
        theirs.put(None, theirs.load(rounded.id))
        with pytest.raises(Corrupt):
            ours.load()
        copy = ours.load(first.id)
        assert copy is not None
        assert copy.state == {"number": 1}
        theirs.save_latest({"number": "theirs"})
        again = ours.load(rounded.id)
        assert again is not None
        assert again.state == lossy


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
    saved = ours.save({"number": 1})
    assert {info.id for info in ours.history()} == {uuid7(1), uuid7(2), saved.id} == set(ours.ids())


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
