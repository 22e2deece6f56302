"""From the folder of Genkit's own store into a store, and back."""

import json
import os
import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet import InvalidInput, NotFound, Store
from limpet.compat.genkit import (
    ABSENT,
    SessionSnapshot,
    SessionStore,
    export_sessions,
    import_sessions,
    rules,
)
from tests.compat.genkit.kit import FIXTURES, Row, at, row
from tests.effort import times
from tests.present import present
from tests.runs.hands import Place

REAL = FIXTURES / "store"
STATUSES = ["completed", "pending", "aborting", "failed", "aborted"]
NOW = 4_000_000_000_000_000  # long after all of it


@pytest.fixture
def memory() -> Iterator[Store]:
    with limpet.open("memory:") as store:
        yield store


def tree(folder: Path) -> dict[str, bytes]:
    paths = [each for each in folder.rglob("*") if each.is_file()]
    return {str(each.relative_to(folder)): each.read_bytes() for each in paths}


def write(folder: Path, id: str, **fields: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    wire = {"snapshotId": id, **fields}
    (folder / f"{id}.json").write_text(json.dumps(wire), "utf-8")


def whole(row: Row) -> Row:
    """Return a row as a store has it: always of a session, and with a status."""
    return replace(row, session_id=rules.session_of(row), status=row.status or "completed")


def rows_of(folder: Path) -> dict[str | None, list[Row]]:
    """Return what the files say, for each tenant, as a reader sees it."""
    found: dict[str | None, list[Row]] = {}
    for path in sorted(folder.rglob("*.json")):
        if path.parent.name != ".pointers":
            tenant = str(path.parent.relative_to(folder))
            row = replace(
                SessionSnapshot[Any].from_json(json.loads(path.read_text("utf-8"))),
                snapshot_id=path.stem,
            )
            context = None if tenant == "global" else tenant
            found.setdefault(context, []).append(rules.as_read(row, NOW))
    return found


async def assert_same(store: Store, folder: Path, *, missing: int = 0) -> int:
    """Assert that a store answers as the files do; return how many snapshots there are."""
    sessions, count = SessionStore[Any](store), 0
    for context, rows in rows_of(folder).items():
        for there in rows:
            session_id = rules.session_of(there)
            found = await sessions.get_snapshot(snapshot_id=there.snapshot_id, context=context)
            if session_id is None:
                assert found is None
                missing -= 1
                continue
            assert found == whole(there)
            latest = present(rules.latest(rows, session_id))
            here = await sessions.get_snapshot(session_id=session_id, context=context)
            assert here == whole(latest)
            head = present(await sessions.scope(session_id, context=context).info())
            assert head.id == latest.snapshot_id
            count += 1
    assert missing == 0
    return count


# What the real store wrote


async def test_the_real_folder_arrives_exactly(place: Place, tmp_path: Path) -> None:
    folder = tmp_path / "source"
    shutil.copytree(REAL, folder)
    before = tree(folder)
    with place.open() as store:
        revisions: list[str] = []
        for face, counts in ((store, (13, 0)), (store.aio, (0, 13))):
            done = import_sessions(face, folder)
            assert (done.count, done.unchanged) == counts
            assert [(each.code, each.id) for each in done.skipped] == [
                ("snapshot_skipped", "minimal")
            ]
            assert "has no session" in done.skipped[0].message
            assert "minimal.json" in done.skipped[0].message
            assert await assert_same(store, folder, missing=1) == 13
            assert tree(folder) == before
            found = [each.revision for each in store.scope("linear").history()]
            assert revisions in ([], found)
            revisions = found
        assert sorted(store.sessions()) == [
            "alice/linear",
            "branched",
            "legacy",
            "linear",
            "statuses",
            "séss 🎉",
        ]
        told = {each.id: each for each in store.scope("statuses").history()}
        assert [*told] == ["st-3", "st-2", "st-1"]
        assert told["st-2"].parent_id == "st-1"
        assert told["st-2"].status == "aborted"
        assert told["st-2"].created_at.isoformat() == "2026-01-01T00:00:02+00:00"
        assert told["st-2"].metadata["genkit"] == {
            "createdAt": "2026-01-01T00:00:02.000Z",
            "updatedAt": "2026-01-01T00:00:02.000Z",
            "heartbeatAt": "2026-01-01T00:00:32.000Z",
        }


def test_a_prefix_chooses_sessions_by_the_names_they_get(memory: Store) -> None:
    assert import_sessions(memory, REAL, prefix="alice/").count == 1
    assert [*memory.sessions()] == ["alice/linear"]
    assert import_sessions(memory, REAL, prefix="l").count == 4
    assert [*memory.sessions()] == ["alice/linear", "legacy", "linear"]


# What is made up


def make(folder: Path, seed: int) -> None:
    """Write sessions of several tenants: branches, runs in every status, parents that are gone."""
    chance = random.Random(seed)
    for tenant in ("global", "bob", "acme/eu %2F"):
        for session_id in ("s", "100%", "ü 🎉"):
            ids: list[str] = []
            for turn in range(chance.randrange(1, 9)):
                id = f"{chance.randrange(16**4):04x}-{session_id}-{turn}"
                given = row(
                    session_id,
                    turn,
                    parent_id=chance.choice([*ids, ids[-1], "gone"]) if ids else None,
                    status=chance.choice(STATUSES),
                    heartbeat_at=chance.choice([None, at(turn)]),
                    state=chance.choice([ABSENT, None, {}, {"n": turn}, ["é", 1.0, 10**30]]),
                    error=chance.choice([None, {"status": "INTERNAL", "message": "no"}]),
                    extra=chance.choice([{}, {"mood": ["calm"]}]),
                )
                wire = given.to_json()
                write(folder / tenant, id, **wire)
                ids.append(id)
            if len(ids) > 2 and chance.random() < 0.5:
                (folder / tenant / f"{ids[1]}.json").unlink()


async def test_rows_with_missing_or_odd_fields_arrive(memory: Store, tmp_path: Path) -> None:
    here = tmp_path / "global"
    write(here, "z-timeless", sessionId="s", parentId="", state={"a": 1})
    write(here, "b", sessionId="s", parentId="z-timeless", createdAt=at(1), status="resting")
    write(here, "c", sessionId="s", parentId="c", createdAt="one day", status="expired")
    write(here, "d", sessionId="s", parentId="b", createdAt=at(9), status="pending", mood=[1])
    write(here, "e", sessionId="one/two", createdAt=at(2))
    assert import_sessions(memory, tmp_path).count == 5
    sessions = SessionStore[Any](memory)
    for there in rows_of(tmp_path)[None]:
        assert await sessions.get_snapshot(snapshot_id=there.snapshot_id) == whole(there)
    assert [each.id for each in memory.scope("s").history()] == ["d", "b", "z-timeless", "c"]
    latest = present(await sessions.get_snapshot(session_id="s"))
    assert latest.snapshot_id == "d"
    assert [*memory.sessions()] == ["one%2Ftwo", "s"]


def test_parents_come_first_whatever_the_times_say(memory: Store, tmp_path: Path) -> None:
    here = tmp_path / "global"
    for id, parent in (("a", "b"), ("b", "c"), ("c", None)):
        write(here, id, sessionId="s", parentId=parent, createdAt=at(0))
    write(here, "x", sessionId="round", parentId="y", createdAt=at(0))
    write(here, "y", sessionId="round", parentId="x", createdAt=at(1))
    done = import_sessions(memory, tmp_path)
    assert (done.count, done.skipped) == (5, ())
    assert [each.id for each in memory.scope("s").history()] == ["a", "b", "c"]
    assert {each.id for each in memory.scope("round").history()} == {"x", "y"}


def test_a_changed_row_is_replaced_and_a_new_one_is_the_head(memory: Store, tmp_path: Path) -> None:
    here = tmp_path / "global"
    write(here, "a", sessionId="s", createdAt=at(0), status="pending")
    import_sessions(memory, tmp_path)
    write(here, "a", sessionId="s", createdAt=at(0), status="completed", state={"n": 1})
    write(here, "b", sessionId="s", parentId="a", createdAt=at(1))
    assert import_sessions(memory, tmp_path).count == 2
    first, head = memory.scope("s").load("a"), memory.scope("s").load()
    assert first is not None
    assert head is not None
    assert (first.status, first.state, head.id) == ("completed", {"n": 1}, "b")
    ours = memory.scope("s").save({"ours": 1})
    import_sessions(memory, tmp_path)
    found = present(memory.scope("s").info())
    assert found.id == ours.id


def test_what_cannot_be_carried_over_is_reported(memory: Store, tmp_path: Path) -> None:
    here = tmp_path / "global"
    write(here, "good", sessionId="s", createdAt=at(0))
    (here / "cut.json").write_text('{"snapshotId": "cu')
    (here / "empty.json").write_text("")
    (here / "list.json").write_text("[]")
    (here / "temporary.json.tmp").write_text("{}")
    write(here, "half", sessionId="s", createdAt=at(1), state={"text": "\ud83d"})
    write(here, "long", sessionId="x" * 600, createdAt=at(1))
    write(tmp_path / "odd.json", "lost", sessionId="s", createdAt=at(0))
    done = import_sessions(memory, tmp_path)
    assert done.count == 1
    assert {(each.severity, each.code, each.id) for each in done.skipped} == {
        ("error", "folder_skipped", None),
        ("error", "snapshot_skipped", "cut"),
        ("error", "snapshot_skipped", "empty"),
        ("error", "snapshot_skipped", "half"),
        ("error", "snapshot_skipped", "list"),
        ("error", "snapshot_skipped", "long"),
    }
    for each in done.skipped:
        assert str(tmp_path) in each.message
        assert "\n" not in each.message


def test_a_pointer_that_leads_elsewhere_is_reported(memory: Store, tmp_path: Path) -> None:
    here = tmp_path / "global"
    write(here, "root", sessionId="s", createdAt=at(0))
    write(here, "old", sessionId="s", parentId="root", createdAt=at(1))
    write(here, "new", sessionId="s", parentId="root", createdAt=at(2))
    (here / ".pointers").mkdir()
    (here / ".pointers" / "s.json").write_text('{"currentSnapshotId": "old"}')
    done = import_sessions(memory, tmp_path)
    assert done.count == 3
    assert [(each.severity, each.code, each.id) for each in done.skipped] == [
        ("warning", "latest_differs", "old")
    ]
    head = present(memory.scope("s").info())
    assert head.id == "new"


def test_the_folder_of_genkit_in_python(memory: Store, tmp_path: Path) -> None:
    write(tmp_path, "a", sessionId="s", createdAt=at(0))
    write(tmp_path, "b", sessionId="s", parentId="a", createdAt=at(1))
    write(tmp_path / "global", "a", sessionId="t", createdAt=at(0))
    done = import_sessions(memory, tmp_path)
    assert done.count == 2
    assert [(each.code, each.id) for each in done.skipped] == [("snapshot_skipped", "a")]
    assert [each.id for each in memory.scope("s").history()] == ["b"]
    assert [each.id for each in memory.scope("t").history()] == ["a"]


def test_there_must_be_a_folder_and_a_store(memory: Store, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no such folder"):
        import_sessions(memory, tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()
    assert import_sessions(memory, tmp_path).count == 0
    with pytest.raises(InvalidInput, match="expected a store"):
        import_sessions("memory:", tmp_path)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="prefix"):
        import_sessions(memory, tmp_path, prefix=None)  # type: ignore[arg-type]


# And back


@pytest.mark.parametrize("seed", range(times(1, full=2)))
async def test_there_and_back_again(place: Place, tmp_path: Path, seed: int) -> None:
    folder, back = tmp_path / "source", tmp_path / "back" / "deep"
    make(folder, seed)
    shutil.copytree(REAL, folder, dirs_exist_ok=True)
    (folder / "global" / "minimal.json").unlink()
    (folder / "global" / "legacy-1.json").unlink()
    (folder / "global" / ".pointers" / "legacy.json").unlink()
    with place.open() as store:
        taken = import_sessions(store, folder)
        assert taken.skipped == ()
        assert await assert_same(store, folder) == taken.count
        for _ in range(2):
            done = export_sessions(store, back)
            assert (done.count, done.skipped) == (taken.count, ())
        assert await assert_same(store, back) == done.count
    before, after = tree(folder), tree(back)
    pointers = {name for name in after if ".pointers" in name}
    assert {name for name in before if ".pointers" not in name} == after.keys() - pointers
    for name in after.keys() - pointers:
        assert {"status": "completed", **json.loads(before[name])} == json.loads(after[name])
    assert before["global/lin-2.json"] == after["global/lin-2.json"]
    for context, rows in rows_of(back).items():
        for session_id in {rules.session_of(each) for each in rows}:
            name = f"{context or 'global'}/.pointers/{session_id}.json"
            latest = present(rules.latest(rows, session_id or ""))
            assert json.loads(after[name])["currentSnapshotId"] == latest.snapshot_id
            pointers.remove(name)
    assert pointers == set()


def test_what_genkit_does_not_know_is_reported(memory: Store, tmp_path: Path) -> None:
    memory.scope("s").save({"n": 1}, id="one")
    memory.scope("s").save({"n": 2}, keep=False, id="draft")
    memory.scope("s", "planner").save({})
    memory.scope("a/b/c").save({})
    memory.scope("global/s").save({})
    memory.scope("../s").save({})
    memory.scope("t").save({}, id="one/two")
    done = export_sessions(memory, tmp_path / "out")
    assert done.count == 1
    told = [(each.code, each.scope and each.scope[:2], each.id) for each in done.skipped]
    assert sorted(told, key=str) == [
        ("scope_skipped", ("../s", "main"), None),
        ("scope_skipped", ("a/b/c", "main"), None),
        ("scope_skipped", ("global/s", "main"), None),
        ("scope_skipped", ("s", "planner"), None),
        ("snapshot_skipped", ("s", "main"), "draft"),
        ("snapshot_skipped", ("t", "main"), "one/two"),
    ]
    assert sorted(tree(tmp_path)) == ["out/global/.pointers/s.json", "out/global/one.json"]


def test_links_are_named_and_files_are_bounded(memory: Store, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    write(folder / "global", "a", sessionId="s")
    write(tmp_path / "elsewhere", "b", sessionId="s")
    (folder / "global" / "b.json").symlink_to(tmp_path / "elsewhere" / "b.json")
    (folder / "tenant").symlink_to(tmp_path / "elsewhere")
    (folder / "global" / "c.json").touch()
    os.truncate(folder / "global" / "c.json", 20 * 1024**3)
    done = import_sessions(memory, folder)
    codes = ["link_skipped", "link_skipped", "snapshot_skipped"]
    assert (done.count, [each.code for each in done.skipped]) == (1, codes)
    assert "too large" in done.skipped[-1].message
