"""Sessions move between a store and the files of the SDKs, and come out as they went in."""

import json
import os
import shutil
from pathlib import Path
from typing import Any, get_args

import pytest

import limpet
from limpet import Store
from limpet.compat.strands import LayoutName, export_sessions, import_sessions, to_python
from limpet.errors import InvalidInput, NotFound
from limpet.model import ScopeKey
from tests.present import present

FIXTURES = Path(__file__).parents[2] / "interop" / "fixtures"
LAYOUTS: dict[str, Any] = {
    "ts_filestorage": "classic",
    "ts_raw_storage": "classic",
    "ts_unified_localfile": "unified",
    "py_snapshot": "unified",
}
SNAPSHOTS = "raw-session/scopes/agent/a-1/snapshots"


def files_below(folder: Path) -> dict[str, bytes]:
    found = (each for each in folder.rglob("*") if each.is_file())
    return {each.relative_to(folder).as_posix(): each.read_bytes() for each in found}


@pytest.mark.parametrize("name", LAYOUTS)
def test_files_of_the_sdks_come_out_exactly(store: Store, name: str, tmp_path: Path) -> None:
    written = files_below(FIXTURES / name)
    snapshots = [key for key in written if not key.endswith("manifest.json")]
    for new in (True, False):
        came = import_sessions(store, FIXTURES / name, layout=LAYOUTS[name])
        counts = (came.count, came.unchanged)
        assert counts == ((len(snapshots), 0) if new else (0, len(snapshots)))
        assert came.skipped == ()
    went = export_sessions(store, tmp_path / "out", layout=LAYOUTS[name])
    assert (went.count, went.skipped) == (len(snapshots), ())
    assert files_below(tmp_path / "out") == written


def test_a_payload_is_turned_into_that_of_python(memory: Store, tmp_path: Path) -> None:
    went = import_sessions(memory, FIXTURES / "ts_filestorage", payload="python")
    assert (went.count, went.skipped) == (7, ())
    export_sessions(memory, tmp_path / "out", layout="unified")
    path = "demo-invocation/scopes/agent/support-bot/snapshots/snapshot_latest.json"
    found = json.loads((tmp_path / "out/session" / path).read_bytes())
    assert found == to_python(json.loads((FIXTURES / "ts_filestorage" / path).read_bytes()))
    assert found["schema_version"] == "1.0"


def test_message_logs_become_what_their_manager_would_restore(store: Store, tmp_path: Path) -> None:
    log = tmp_path / "log"
    shutil.copytree(FIXTURES / "py_legacy_file", log)
    agent = log / "session_demo-legacy/agents/agent_support-bot"
    record = json.loads((agent / "agent.json").read_bytes())
    record["conversation_manager_state"]["removed_message_count"] = 2
    (agent / "agent.json").write_text(json.dumps(record))
    for number in range(6, 12):  # after ten, the order of names is another
        said = {"message": {"role": "user", "content": [{"text": str(number)}]}}
        (agent / f"messages/message_{number}.json").write_text(json.dumps(said))
    redacted = {"message": {"text": "secret"}, "redact_message": {"role": "user", "content": []}}
    (agent / "messages/message_12.json").write_text(json.dumps(redacted))

    came = import_sessions(store, log, layout="messages")
    assert (came.count, came.skipped) == (1, ())
    found = present(store.scope("demo-legacy", "support-bot").load())
    state: Any = found.state
    assert len(state["messages"]) == 11
    assert [each["content"][0]["text"] for each in state["messages"][4:10]] == [
        str(number) for number in range(6, 12)
    ]
    assert state["messages"][-1] == {"role": "user", "content": []}
    assert state["state"] == {"userId": "u-42"}
    assert state["interrupt_state"]["activated"] is False
    assert len(found.metadata["strands"]["app_data"]["removed_messages"]) == 2
    assert not list(store.scope("demo-legacy", "support-bot").ids())


def test_damage_is_reported_and_does_not_stop_the_rest(memory: Store, tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "ts_raw_storage", tmp_path / "in")
    history = tmp_path / "in/raw-session/scopes/agent/a-1/snapshots/immutable_history"
    small, large, _ = sorted(history.iterdir())
    small.write_bytes(b"{")
    large.write_bytes(large.read_bytes()[:-1])
    came = import_sessions(memory, tmp_path / "in")
    assert came.count == 2
    assert {f"snapshot_{each.id}.json" for each in came.skipped} == {small.name, large.name}


def test_names_that_the_sdk_refuses_are_reported(memory: Store, tmp_path: Path) -> None:
    memory.scope("alice/chat", "planner").save({"messages": []})
    memory.scope("chat", "planner").save({"messages": []}, id="A.1")
    memory.scope("chat", "planner").save({"messages": []}, id="a-1")
    memory.scope("chat", "thread", "thread").save({})  # no place for it, and nothing to tell
    went = export_sessions(memory, tmp_path / "out")
    assert sorted(files_below(tmp_path / "out")) == [
        "chat/scopes/agent/planner/snapshots/immutable_history/snapshot_a-1.json",
        "chat/scopes/agent/planner/snapshots/snapshot_latest.json",
    ]
    assert went.count == 2
    assert {each.code for each in went.skipped} == {"refused"}
    assert len(went.skipped) == 3  # one in history twice over, as the latest too


def test_names_of_the_python_sdk_are_taken_as_they_are(memory: Store, tmp_path: Path) -> None:
    """It takes nearly any name for a session and an agent, and writes it as it is."""
    told = json.loads(
        (FIXTURES / "py_snapshot/session/demo-py/scopes/agent/support-bot/snapshots")
        .joinpath("snapshot_latest.json")
        .read_bytes()
    )
    envelope = {name: value for name, value in told.items() if name != "data"}
    for session, agent in (("S 1.X", "Bot A"), ("é", "日本"), ("plain", "Upper")):
        scope = memory.scope(session, agent)
        for id in ("01a1dc8a-81ea-75e0-a6d1-b642f715f554", "01a1dc8a-8206-77b5-a4ac-3162530b17a3"):
            scope.save(told["data"], id=id, head=False, metadata={"strands": envelope})
        scope.save(told["data"], keep=False, metadata={"strands": envelope})
    went = export_sessions(memory, tmp_path / "out", layout="unified")
    assert (went.count, went.skipped) == (9, ())
    assert (
        tmp_path / "out/session/S 1.X/scopes/agent/Bot A/snapshots/snapshot_latest.json"
    ).exists()
    with limpet.open("memory:") as other:
        for count in (9, 0):
            came = import_sessions(other, tmp_path / "out", layout="unified")
            assert (came.count, came.skipped) == (count, ())
        assert set(other.sessions()) == {"S 1.X", "é", "plain"}
        scope = other.scope("S 1.X", "Bot A")
        newest = max(scope.ids())
        assert len(list(scope.ancestors(newest))) == 2
        export_sessions(other, tmp_path / "again", layout="unified")
    assert files_below(tmp_path / "again") == files_below(tmp_path / "out")


def test_what_is_refused_does_not_stop_the_rest(tmp_path: Path) -> None:
    for layout, name in (("classic", "ts_raw_storage"), ("messages", "py_legacy_file")):
        folder = tmp_path / layout
        shutil.copytree(FIXTURES / name, folder)
    deep = json.dumps({"state": {"deep": json.loads("[" * 300 + "]" * 300)}})
    bad = tmp_path / "messages/session_a/agents/agent_x/agent.json"
    bad.parent.mkdir(parents=True)
    bad.write_text(deep)
    large = tmp_path / "classic/a/scopes/agent/x/snapshots/snapshot_latest.json"
    large.parent.mkdir(parents=True)
    large.write_text(json.dumps({"createdAt": "", "data": {"x": "y" * 20_000}}))
    with limpet.open("memory:", state_bytes_max=10_000) as store:
        came = import_sessions(store, tmp_path / "classic")
        assert (came.count, [each.code for each in came.skipped]) == (4, ["refused"])
        came = import_sessions(store, tmp_path / "messages", layout="messages")
        assert (came.count, len(came.skipped)) == (1, 1)


def test_a_scope_that_strands_does_not_have_is_reported(memory: Store, tmp_path: Path) -> None:
    place = tmp_path / "s/scopes/Tool/a/snapshots"
    place.mkdir(parents=True)
    (place / "snapshot_latest.json").write_text('{"data": {}}')
    came = import_sessions(memory, tmp_path)
    assert came.count == 0
    assert [each.scope for each in came.skipped] == [ScopeKey("s", "a", "Tool")]


def test_a_prefix_chooses_sessions(memory: Store, tmp_path: Path) -> None:
    assert import_sessions(memory, FIXTURES / "ts_filestorage", prefix="demo-m").count == 2
    assert list(memory.sessions()) == ["demo-message"]
    memory.scope("other").save({})
    export_sessions(memory, tmp_path / "out", prefix="oth")
    assert {key.split("/")[0] for key in files_below(tmp_path / "out")} == {"other"}


def test_a_later_import_has_what_they_did_since(memory: Store, tmp_path: Path) -> None:
    folder = shutil.copytree(FIXTURES / "ts_raw_storage", tmp_path / "in")
    import_sessions(memory, folder)
    scope, place = memory.scope("raw-session", "a-1"), folder / SNAPSHOTS
    before = list(scope.history())
    assert [each.id for each in scope.ancestors(before[0].id)] == [each.id for each in before]
    latest = json.loads((place / "snapshot_latest.json").read_bytes())
    later = json.dumps({**latest, "createdAt": "2027-01-01T00:00:00.000Z", "data": {"turn": 4}})
    for name in (
        "snapshot_latest",
        "immutable_history/snapshot_019fffff-0000-7000-8000-000000000000",
    ):
        (place / f"{name}.json").write_text(later)
    import_sessions(memory, folder)
    head, after = scope.load(), list(scope.history())
    assert head is not None
    assert (head.state, head.kept) == ({"turn": 4}, False)
    assert (len(after), after[1:]) == (len(before) + 1, before)
    import_sessions(memory, folder)  # to repeat it moves nothing
    assert (scope.load(), list(scope.history())) == (head, after)


def test_a_folder_that_is_missing(memory: Store, tmp_path: Path) -> None:
    for layout in get_args(LayoutName):
        with pytest.raises(NotFound):
            import_sessions(memory, tmp_path / "misspelt", layout=layout)
    assert not list(tmp_path.iterdir())


def test_bad_input(memory: Store, tmp_path: Path) -> None:
    wrong: list[dict[str, Any]] = [
        {"layout": "other"},
        {"source": "postgresql://x/y"},
        {"source": 7},
        {"source": ""},
        {"source": "memory:"},
        {"root": "sessions/"},
        {"layout": []},
        {"store": 5},
    ]
    for each in wrong:
        source, store = each.pop("source", tmp_path), each.pop("store", memory)
        for function in (export_sessions, import_sessions):
            with pytest.raises(InvalidInput):
                function(store, source, **each)
    payloads: list[Any] = ["java", "typescript", []]
    for payload in payloads:
        with pytest.raises(InvalidInput, match="payload"):
            import_sessions(memory, tmp_path, payload=payload)


LINKS = ["snapshots/snapshot_latest.json", "snapshots", "", ".."]
HISTORY = "snapshots/immutable_history/snapshot_019c9bf1-14e5-7eef-96fb-cc07ae54210f.json"


@pytest.mark.parametrize("root", ["", "session/"])
def test_links_are_named_and_not_followed(tmp_path: Path, root: str) -> None:
    layout: Any = "unified" if root else "classic"
    for number, what in enumerate([*LINKS, HISTORY]):
        place = tmp_path / str(number)
        shutil.copytree(FIXTURES / "ts_raw_storage", place / "in" / root)
        path = Path(os.path.normpath(place / "in" / root / "raw-session/scopes/agent/a-1" / what))
        path.rename(place / "elsewhere")
        path.symlink_to(place / "elsewhere")
        with limpet.open("memory:") as memory:
            came = import_sessions(memory, place / "in", layout=layout)
            assert came.count == (3 if what.endswith(".json") else 0), what
            assert [each.code for each in came.skipped] == ["link_skipped"], what
            assert str(path) in came.skipped[0].message
            named = import_sessions(memory, place / "in", layout=layout, prefix="raw")
            assert [each.code for each in named.skipped] == ["link_skipped"], what
            assert import_sessions(memory, place / "in", layout=layout, prefix="b").skipped == ()


def test_files_are_bounded_and_links_are_named(memory: Store, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    shutil.copytree(FIXTURES / "py_legacy_file", folder)
    good = import_sessions(memory, folder, layout="messages").count
    agents = next(folder.glob("session_*")) / "agents"
    (agents / "agent_link").symlink_to(tmp_path)
    sparse = agents / "agent_sparse" / "agent.json"
    sparse.parent.mkdir()
    sparse.touch()
    os.truncate(sparse, 20 * 1024**3)
    done = import_sessions(memory, folder, layout="messages")
    assert (done.count, done.unchanged) == (0, good)
    assert [each.code for each in done.skipped] == ["link_skipped", "corrupt"]
    large = folder / "s/scopes/agent/a/snapshots/snapshot_latest.json"
    large.parent.mkdir(parents=True)
    sparse.rename(large)
    done = import_sessions(memory, folder)
    assert [(each.code, each.scope) for each in done.skipped] == [
        ("link_skipped", None),
        ("corrupt", ScopeKey("s", "a")),
    ]
