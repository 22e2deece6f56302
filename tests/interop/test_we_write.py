"""What Limpet writes, the Strands SDK reads and lists."""

import re
from datetime import datetime

import pytest

from limpet import JSON, Conflict, ScopeKey, Store
from tests.interop.ground import Ground
from tests.interop.sdk import SdkError
from tests.interop.test_they_write import RICH, exact

pytestmark = pytest.mark.timeout(300)  # the first test may have to install the SDK

SCOPE = ScopeKey("chat-42", "planner")


def test_a_kept_save_is_latest_and_history(ground: Ground, store: Store) -> None:
    scope = ScopeKey("chat-42", "planner", "multiAgent")
    info = store.scope(*scope).save(RICH, labels={"run": "7"}, metadata={"tokens": 5})
    theirs = ground.theirs(*scope)
    for found in (theirs.load(), theirs.load(info.id)):
        assert exact(found["data"]) == exact(RICH)
        assert (found["scope"], found["schemaVersion"]) == ("multiAgent", "1.0")
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", found["createdAt"])
        created = datetime.fromisoformat(found["createdAt"])
        assert 0 <= (info.created_at - created).total_seconds() < 0.001
        assert found["appData"]["limpet"]["id"] == info.id
        assert found["appData"]["limpet"]["labels"] == {"run": "7"}
    assert theirs.ids() == [info.id]


def test_ids_and_pages_are_the_same(ground: Ground, store: Store) -> None:
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    saved = [ours.save({"number": number}).id for number in range(5)]
    assert saved == list(ours.ids()) == theirs.ids()
    for after in (None, *saved):
        for limit in (None, 1, 3, 10):
            page = list(ours.ids(after=after, limit=limit))
            assert page == theirs.ids(after=after, limit=limit), (after, limit)
    for number, id in enumerate(saved):
        assert theirs.load(id)["data"] == {"number": number}
    assert theirs.load()["data"] == {"number": 4}


def test_a_draft_is_latest_and_not_in_history(ground: Ground, store: Store) -> None:
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    kept = ours.save({"number": 1})
    draft = ours.save({"number": 2}, keep=False)
    assert theirs.load()["data"] == {"number": 2}
    assert theirs.load(draft.id) is None
    assert theirs.ids() == [kept.id]
    assert theirs.load(kept.id)["data"] == {"number": 1}


def test_what_is_only_kept_is_not_latest(ground: Ground, store: Store) -> None:
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    head = ours.save({"number": 1})
    aside = ours.save({"number": 2}, head=False)
    assert theirs.load()["data"] == {"number": 1}
    assert theirs.load(aside.id)["data"] == {"number": 2}
    assert theirs.ids() == [head.id, aside.id]


def test_overwrite_update_and_append_are_seen(ground: Ground, store: Store) -> None:
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    ours.save({"messages": [1]}, id="first")
    ours.append("messages", [2, {"z": 1, "a": 2}])
    appended = theirs.load()
    assert exact(appended["data"]) == exact({"messages": [1, 2, {"z": 1, "a": 2}]})

    ours.save({"messages": ["other"]}, id="first", overwrite=True)
    assert theirs.load("first")["data"] == {"messages": ["other"]}
    assert theirs.load() == appended
    ours.update("first", lambda was: was.with_(state={"messages": ["third"]}, status="odd"))
    assert theirs.load("first")["data"] == {"messages": ["third"]}

    head = ours.info()
    assert head is not None
    ours.update(head.id, lambda was: was.with_(state={"messages": []}))
    assert theirs.load()["data"] == theirs.load(head.id)["data"] == {"messages": []}
    assert theirs.ids() == [head.id, "first"]


def test_the_manifest_is_the_note(ground: Ground, store: Store) -> None:
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    default = theirs.manifest()
    assert default["schemaVersion"] == "1.0"
    manifest = {"updatedAt": "2026-03-01T12:00:00.000Z", "schemaVersion": "1.0", "more": [{}, "é"]}
    note = ours.set_note("manifest", manifest, expect=None)
    assert note is not None
    assert exact(theirs.manifest()) == exact(manifest)
    theirs.save_manifest({**manifest, "more": None})
    found = ours.note("manifest")
    assert found is not None
    assert found.value == {**manifest, "more": None}
    assert found.revision != note.revision
    with pytest.raises(Conflict):
        ours.set_note("manifest", {}, expect=note.revision)
    assert ours.set_note("manifest", {**manifest, "more": 0}, expect=found.revision) is not None
    assert ours.set_note("manifest", lambda was: {**was, "more": was["more"] + 1}) is not None
    assert theirs.manifest() == {**manifest, "more": 1}


def test_other_notes_do_no_harm(ground: Ground, store: Store) -> None:
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    info = ours.save({"number": 1})
    ours.set_note("todo", ["tea"])
    ours.set_note("manifest", {"on": "a snapshot"}, on=info.id)
    assert theirs.ids() == [info.id]
    assert "on" not in theirs.manifest()


def test_states_that_are_no_objects_are_read_as_they_are(ground: Ground, store: Store) -> None:
    """The SDK's storage hands them over; only its agents want an object."""
    states: list[JSON] = [[1, 2], "text", 7, 0.5, True, None, {}]
    for state in states:
        info = store.scope(*SCOPE).save(state)
        assert ground.theirs(*SCOPE).load()["data"] == state
        assert ground.theirs(*SCOPE).load(info.id)["data"] == state


def test_javascript_rounds_what_we_keep_exactly(ground: Ground, store: Store) -> None:
    """Integers beyond 2^53 are rounded by any reader in JavaScript, and 1.0 is 1 there."""
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    state: JSON = {"wide": [2**53 + 1, 2**70 + 1, -(2**64) - 1], "float": 1.0}
    info = ours.save(state, metadata={"wide": 2**70 + 1})
    read = theirs.load(info.id)["data"]
    assert [float(number) for number in read["wide"]] == [float(n) for n in state["wide"]]
    assert read["float"] == 1
    found = ours.load(info.id)
    assert found is not None
    assert exact(found.state) == exact(state)


def test_a_fork_is_theirs_too_if_its_name_is(ground: Ground, store: Store) -> None:
    ours = store.scope(*SCOPE)
    first = ours.save({"number": 1})
    named = ours.fork(first.id, scope_id="other")
    assert ground.theirs("chat-42", "other").load()["data"] == {"number": 1}
    abroad = ours.fork(first.id, to="chat-43")
    assert ground.theirs("chat-43", abroad.scope_id).load()["data"] == {"number": 1}
    unnamed = ours.fork(first.id)
    assert unnamed.load() is not None
    with pytest.raises(SdkError, match="can only contain lowercase letters"):
        ground.theirs("chat-42", unnamed.scope_id).load()
    assert named.scope_id == "other"
