"""`JsonFileSessionStore`: the real store's files, its tests by name, and its defects."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from limpet.compat.genkit import SessionSnapshot
from limpet.compat.genkit.node_files.format import decode, encode
from limpet.compat.genkit.node_files.store import JsonFileSessionStore
from limpet.errors import AlreadyExists, Conflict, Corrupt, InvalidInput
from tests.compat.genkit.kit import FIXTURES, always, fixture, row

Files = JsonFileSessionStore[Any]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def files(folder: Path) -> Files:
    return JsonFileSessionStore(folder)


async def put(files: Files, id: str, session_id: str = "s", second: int = 0, **facts: Any) -> None:
    given = row(session_id, second, **facts)
    assert await files.save_snapshot(id, always(given)) == id


async def latest(files: Files, session_id: str = "s", context: Any = None) -> str | None:
    found = await files.get_snapshot(session_id=session_id, context=context)
    return None if found is None else found.snapshot_id


async def codes(files: Files) -> list[str]:
    return sorted([found.code async for found in files.check()])


def tree(folder: Path) -> dict[str, bytes]:
    paths = [each for each in folder.rglob("*") if each.is_file()]
    return {str(each.relative_to(folder)): each.read_bytes() for each in paths}


def pointed(folder: Path, session_id: str = "s") -> str:
    pointer = json.loads((folder / f"global/.pointers/{session_id}.json").read_text())
    id: str = pointer["currentSnapshotId"]
    return id


# What the real store wrote


@pytest.fixture
def real(folder: Path) -> Path:
    shutil.copytree(FIXTURES / "store", folder)
    return folder


async def test_what_the_real_store_wrote_is_read_back_verbatim(real: Path) -> None:
    files: Files = JsonFileSessionStore(real)
    before = tree(real)
    paths = [*real.glob("*/*.json")]
    assert len(paths) == 14
    for path in paths:
        context = None if path.parent.name == "global" else path.parent.name
        found = await files.get_snapshot(snapshot_id=path.stem, context=context)
        assert found is not None
        written = json.loads(path.read_text("utf-8"))
        assert found.to_json() == written
        if list(written) == list(found.to_json()):
            assert encode(found) == path.read_bytes()
    assert await latest(files, "linear", "alice") == fixture("store.expected.json")["aliceLinear"]
    assert await codes(files) == []
    assert tree(real) == before


@pytest.mark.parametrize("session_id", fixture("store.expected.json")["bySession"])
@pytest.mark.parametrize("has_pointers", [True, False])
async def test_sessions_answer_as_the_real_store(
    real: Path, session_id: str, has_pointers: bool
) -> None:
    expected = fixture("store.expected.json")["bySession"][session_id]
    if not has_pointers:
        shutil.rmtree(real / "global/.pointers")
    assert await latest(JsonFileSessionStore(real), session_id) == expected["default"]["value"]
    strict: Files = JsonFileSessionStore(real, reject_branching_sessions=True)
    wanted = expected["rejectBranchingSessions"]
    if session_id == "statuses":
        # An aborted turn that was tried again is no branch: theirs would be refused for ever.
        assert await latest(strict, session_id) == "st-3"
    elif "error" in wanted:
        with pytest.raises(Conflict, match="several branches"):
            await latest(strict, session_id)
    else:
        assert await latest(strict, session_id) == wanted["value"]


# Their tests of the file store, by name


async def test_flat_files_below_global_that_their_owner_alone_reads(
    files: Files, folder: Path
) -> None:
    await put(files, "a1", "s", state={"custom": 1})
    await put(files, "a2", "s", 1, parent_id="a1")
    assert sorted(tree(folder)) == ["global/.pointers/s.json", "global/a1.json", "global/a2.json"]
    assert (folder / "global/a1.json").read_text() == (
        '{\n  "snapshotId": "a1",\n  "sessionId": "s",\n'
        '  "createdAt": "2026-01-01T00:00:00.000Z",\n  "status": "completed",\n'
        '  "state": {\n    "custom": 1\n  }\n}'
    )
    assert (folder / "global/a1.json").stat().st_mode & 0o777 == 0o600
    assert await latest(files) == "a2"
    assert await latest(files, "unknown") is None
    assert await files.get_snapshot(snapshot_id="unknown") is None


async def test_a_branch_is_the_latest_unless_that_is_refused(files: Files, folder: Path) -> None:
    await put(files, "root")
    await put(files, "x", second=1, parent_id="root")
    await put(files, "y", second=2, parent_id="root")
    assert await latest(files) == "y"
    with pytest.raises(Conflict, match="several branches"):
        await latest(JsonFileSessionStore(folder, reject_branching_sessions=True))


async def test_the_newest_is_another_policy(files: Files, folder: Path) -> None:
    await put(files, "late", second=9)
    await put(files, "early", second=1, parent_id="late")
    assert await latest(files) == "early"
    assert await latest(JsonFileSessionStore(folder, latest="newest")) == "late"
    assert pointed(folder) == "early"


async def test_the_pointer_goes_to_what_is_new_and_not_to_what_is_changed(
    files: Files, folder: Path
) -> None:
    await put(files, "a1", status="pending")
    await put(files, "a2", second=1, parent_id="a1")
    assert pointed(folder) == "a2"
    await files.save_snapshot("a1", always({"status": "aborted", "sessionId": "s"}))
    assert (pointed(folder), await latest(files)) == ("a2", "a2")
    (folder / "global/a1.json").write_text("{")  # by the pointer nobody looks at others
    assert await latest(files) == "a2"


@pytest.mark.parametrize("wrong", [None, b"{", b"[]", b'{"currentSnapshotId": "gone"}', b"\xff"])
async def test_a_pointer_that_is_missing_or_wrong_is_written_again(
    files: Files, folder: Path, wrong: bytes | None
) -> None:
    await put(files, "a1")
    await put(files, "a2", second=1, parent_id="a1")
    pointer = folder / "global/.pointers/s.json"
    pointer.unlink()
    if wrong is not None:
        pointer.write_bytes(wrong)
        assert await codes(files) == ["pointer_wrong"]
    assert await latest(files) == "a2"
    assert pointed(folder) == "a2"
    assert await codes(files) == []


async def test_a_pointer_that_cannot_be_written_fails_no_save(files: Files, folder: Path) -> None:
    (folder / "global").mkdir(parents=True)
    (folder / "global/.pointers").write_text("no folder")
    await put(files, "a1")
    await put(files, "a2", second=1, parent_id="a1")
    assert await latest(files) == "a2"


BAD_IDS = ["../escape", "../../escape", "foo/bar", "foo\\bar", "..", ".", "a\0b", " ", "x" * 201]


@pytest.mark.parametrize("id", [*BAD_IDS, ".limpet-x", "\ud800"])
async def test_ids_that_are_no_plain_names_are_refused_everywhere(
    files: Files, folder: Path, id: str
) -> None:
    verbs: list[Any] = [
        lambda: files.get_snapshot(snapshot_id=id),
        lambda: files.get_snapshot(session_id=id),
        lambda: files.save_snapshot(id, always(row())),
        lambda: files.save_snapshot(None, always(row(snapshot_id=id))),
        lambda: files.save_snapshot("fine", always(row(id))),
    ]
    for verb in verbs:
        with pytest.raises(InvalidInput):
            await verb()
    with pytest.raises(InvalidInput):
        files.on_snapshot_state_change(id, lambda found: None)
    assert not folder.exists()


async def test_plain_names_of_all_kinds_are_accepted(files: Files) -> None:
    for id in ("...", ".hidden", "a b", "ünï 🎉", "a:*?", "x" * 200, "a.json"):
        await put(files, id, f"session {id}"[:200])
        assert await latest(files, f"session {id}"[:200]) == id
    assert await codes(files) == []


# Tenants


async def test_tenants_see_nothing_of_each_other(files: Files, folder: Path) -> None:
    given = row("s")
    for tenant in ("alice", None):
        await files.save_snapshot("a1", always(given), context=tenant)
    await files.save_snapshot("b1", always(given), context={"auth": {"uid": "bob"}})
    assert await latest(files, context={"auth": {"uid": "alice"}}) == "a1"
    assert await files.get_snapshot(snapshot_id="a1", context="bob") is None
    assert await files.get_snapshot(snapshot_id="b1") is None
    assert sorted(each.name for each in folder.iterdir()) == ["alice", "bob", "global"]
    nested: Files = JsonFileSessionStore(folder, prefix_of=lambda context: f"org/{context}")
    await nested.save_snapshot("c1", always(given), context="carol")
    assert (folder / "org/carol/c1.json").exists()


BAD_PREFIXES = ["", " ", "../x", "a/../b", "/etc", "a//b", "a/", "a\\b", ".pointers", "a/b.json"]


@pytest.mark.parametrize("prefix", [*BAD_PREFIXES, 7, "a/.pointers", "x/" * 16 + "x"])
async def test_prefixes_that_lead_elsewhere_are_refused(folder: Path, prefix: Any) -> None:
    files: Files = JsonFileSessionStore(folder, prefix_of=lambda context: prefix)
    for verb in (
        lambda: files.get_snapshot(snapshot_id="a"),
        lambda: files.save_snapshot("a", always(row())),
    ):
        with pytest.raises(InvalidInput):
            await verb()
    with pytest.raises(InvalidInput):
        files.on_snapshot_state_change("a", lambda found: None)
    assert not folder.exists()


async def test_no_tenant_has_that_name(files: Files) -> None:
    with pytest.raises(InvalidInput, match="cannot be named"):
        await files.get_snapshot(snapshot_id="a", context="global")


async def test_a_link_does_not_lead_out_of_the_folder(files: Files, folder: Path) -> None:
    await put(files, "secret")
    (folder / "mallory").symlink_to(folder / "global")
    assert await files.get_snapshot(snapshot_id="secret", context="mallory") is None
    assert await latest(files, context="mallory") is None


# Saving


async def test_save_lets_the_mutator_decide(files: Files, folder: Path) -> None:
    seen: list[Any] = []

    async def change(current: SessionSnapshot[Any] | None) -> Any:
        seen.append(current)
        await asyncio.sleep(0)
        return row(state={"n": len(seen)})

    def fails(current: Any) -> Any:
        raise KeyError("mine")

    minted = await files.save_snapshot(None, change)
    assert minted is not None
    assert await files.save_snapshot(minted, change) == minted
    assert [each and each.state for each in seen] == [None, {"n": 1}]
    before = tree(folder)
    assert await files.save_snapshot(minted, always(None)) is None
    with pytest.raises(KeyError, match="mine"):
        await files.save_snapshot(minted, fails)
    with pytest.raises(InvalidInput, match="mapping"):
        await files.save_snapshot(minted, always("nonsense"))
    with pytest.raises(InvalidInput, match=r"\$|state"):
        await files.save_snapshot(minted, always(row(state={"x": float("nan")})))
    with pytest.raises(InvalidInput, match="cannot move to another session"):
        await files.save_snapshot(minted, always(row("other")))
    with pytest.raises(AlreadyExists):
        await files.save_snapshot(None, always(row(snapshot_id=minted)))
    assert tree(folder) == before


async def test_exactly_one_id_is_asked_for(files: Files) -> None:
    for given in ({}, {"snapshot_id": "a", "session_id": "s"}, {"snapshot_id": ""}):
        with pytest.raises(InvalidInput, match="either"):
            await files.get_snapshot(**given)


async def test_reading_creates_nothing(files: Files, folder: Path) -> None:
    assert await files.get_snapshot(snapshot_id="a") is None
    assert await latest(files) is None
    assert await codes(files) == []
    end = files.on_snapshot_state_change("a", lambda found: None)
    await asyncio.sleep(0.05)
    end()
    assert not folder.exists()


async def test_a_pending_one_expires_for_readers_alone(files: Files, folder: Path) -> None:
    heard = "2026-01-01T00:00:00.000Z"
    await put(files, "a", status="pending", heartbeat_at=heard)
    found = await files.get_snapshot(snapshot_id="a")
    assert found is not None
    assert found.status == "expired"
    assert b'"pending"' in (folder / "global/a.json").read_bytes()
    statuses: list[Any] = []
    await files.save_snapshot("a", lambda current: statuses.append(current and current.status))
    assert statuses == ["pending"]


def test_numbers_and_halves_of_characters_are_read_as_they_stand() -> None:
    data = b'{"state": {"wide": 123456789012345678901, "one": 1.0, "half": "\\ud800"}}'
    assert decode(data).state == {"wide": 123456789012345678901, "one": 1.0, "half": "\ud800"}
    state: Any = {"wide": 2**70, "one": 1.0}
    again = decode(encode(row(state=state))).state
    assert again == state
    assert [type(each) for each in again.values()] == [int, float]


# Damage


async def test_what_cannot_be_read_is_skipped_and_reported(files: Files, folder: Path) -> None:
    await put(files, "a1")
    here = folder / "global"
    whole = (here / "a1.json").read_text()
    (here / "torn.json").write_text(whole[:-5])
    (here / "list.json").write_text("[]")
    (here / "types.json").write_text('{"sessionId": 7}')
    (here / "renamed.json").write_text(whole)
    (here / "self.json").write_text('{"snapshotId": "self", "sessionId": "t", "parentId": "self"}')
    (here / "a1.json.123.0a-b.tmp").write_text("{")
    (here / ".limpet-0123").write_text("{")
    (here / f"{'x' * 210}.json").write_text(whole)
    (here / ".pointers/s.json").unlink()
    assert await latest(files) == "renamed"
    assert await latest(files, "t") == "self"
    before = tree(folder)
    assert await codes(files) == [
        "name_wrong",
        "parent_is_itself",
        "snapshot_damaged",
        "snapshot_damaged",
        "snapshot_damaged",
        "snapshot_id_differs",
        "temporary_left",
        "temporary_left",
    ]
    for verb in (
        lambda: files.get_snapshot(snapshot_id="torn"),
        lambda: files.save_snapshot("torn", always(row())),
    ):
        with pytest.raises(Corrupt, match=r"torn\.json"):
            await verb()
    assert tree(folder) == before


async def test_a_circle_of_parents_is_reported_and_ends(files: Files, folder: Path) -> None:
    (folder / "global").mkdir(parents=True)
    for id, parent in (("a", "b"), ("b", "a")):
        wire = {"snapshotId": id, "sessionId": "s", "parentId": parent}
        (folder / f"global/{id}.json").write_text(json.dumps(wire))
    with pytest.raises(Conflict, match="circle"):
        await latest(files)
    short: Files = JsonFileSessionStore(folder, max_persisted_chain_length=1)
    await put(short, "c", parent_id="a")
    assert await latest(files) == "c"
