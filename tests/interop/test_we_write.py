"""What Limpet writes, the Strands SDK reads and lists: by our storages, and by an export."""

import pytest

from limpet import JSON, ScopeKey, Store
from tests.interop.ground import Ground, Ours
from tests.interop.sdk import SdkError, Theirs, uuid7
from tests.interop.test_they_write import RICH, exact

pytestmark = pytest.mark.timeout(300)  # the first test may have to install the SDK

SCOPE = ScopeKey("chat-42", "planner")


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


def test_each_loads_and_saves_back_what_the_other_wrote(ground: Ground) -> None:
    """Under another id, as the latest, and in another session: nothing says where it came from."""
    ours, theirs = ground.ours(*SCOPE), ground.theirs(*SCOPE)
    sides: list[tuple[Ours | Theirs, Ours | Theirs]] = [(ours, theirs), (theirs, ours)]
    for number, (writer, reader) in enumerate(sides):
        taken = writer.save(uuid7(number), RICH, second=number)
        reader.put("copy", reader.load(uuid7(number)))
        reader.put(None, reader.load("copy"))
        for id in (None, "copy", uuid7(number)):
            assert exact(writer.load(id)) == exact(taken)
        ground.theirs("chat-43").put("copy", reader.load())
        assert exact(ground.ours("chat-43").load("copy")) == exact(taken)


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


def test_states_that_are_no_objects_are_read_as_they_are(ground: Ground) -> None:
    """The SDK's storage hands them over; only its agents want an object."""
    states: list[JSON] = [[1, 2], "text", 7, 0.5, True, None, {}]
    for state in states:
        ground.ours(*SCOPE).save_latest(state)
        assert ground.theirs(*SCOPE).load()["data"] == state


def test_javascript_rounds_what_we_keep_exactly(ground: Ground) -> None:
    """Integers beyond 2^53 are rounded by any reader in JavaScript, and 1.0 is 1 there."""
    ours, theirs = ground.ours(*SCOPE), ground.theirs(*SCOPE)
    state: JSON = {"wide": [2**53 + 1, 2**70 + 1, -(2**64) - 1], "float": 1.0}
    ours.save_latest(state)
    read = theirs.load()["data"]
    assert [float(number) for number in read["wide"]] == [float(n) for n in state["wide"]]
    assert read["float"] == 1
    assert exact(ours.load()["data"]) == exact(state)


def test_names_that_the_sdk_refuses_are_left_out_of_an_export(ground: Ground, store: Store) -> None:
    for id in ("A", "a.b", "a b", "é", "a~", "x" * 201, "%41"):
        store.scope(id).save({"strange": True})
        with pytest.raises(SdkError, match="can only contain lowercase letters"):
            ground.theirs(id if len(id) < 200 else "é").load()
    store.scope("plain").save({"strange": False})
    went = ground.push(store)
    assert (went.count, len(went.skipped)) == (2, 14)
    assert ground.theirs("plain").load()["data"] == {"strange": False}
