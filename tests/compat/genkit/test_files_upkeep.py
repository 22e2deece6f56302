"""What `JsonFileSessionStore` removes of long lines, and whom it tells of changes."""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from limpet.compat.genkit.node_files.folder import plan_pruning
from limpet.compat.genkit.node_files.store import JsonFileSessionStore
from limpet.compat.genkit.rules import Row
from limpet.errors import InvalidInput
from tests.compat.genkit.kit import always, eventually, row, watchers

Files = JsonFileSessionStore[Any]


def names(folder: Path) -> set[str]:
    return {each.stem for each in folder.glob("global/*.json")}


# Pruning


async def grow(files: Files, *line: str, session_id: str = "s") -> None:
    """Save new snapshots, each the child of the one before; the first may be there already."""
    for parent, id in zip((None, *line), line, strict=False):
        if await files.get_snapshot(snapshot_id=id) is None:
            given = row(session_id, parent_id=parent)
            assert await files.save_snapshot(id, always(given)) == id


async def test_of_a_line_so_many_are_kept(tmp_path: Path) -> None:
    files: Files = JsonFileSessionStore(tmp_path, max_persisted_chain_length=3)
    await grow(files, *"abcde")
    assert names(tmp_path) == set("cde")
    one: Files = JsonFileSessionStore(tmp_path, max_persisted_chain_length=1)
    await grow(one, *"ef")
    assert names(tmp_path) == set("f")
    found = await one.get_snapshot(session_id="s")
    assert found is not None
    assert found.snapshot_id == "f"


async def test_what_another_branch_is_based_on_is_kept(tmp_path: Path) -> None:
    """The real store removes a parent that a sibling still has."""
    everything: Files = JsonFileSessionStore(tmp_path)
    await grow(everything, *"abcd")
    await grow(everything, *"bx")
    short: Files = JsonFileSessionStore(tmp_path, max_persisted_chain_length=2)
    await grow(short, *"de")
    assert names(tmp_path) == set("abdex")
    await grow(short, *"xyz")
    assert names(tmp_path) == set("deyz")  # nothing that is left led to them any more


async def test_a_snapshot_that_is_its_own_parent_ends_the_line(tmp_path: Path) -> None:
    """In the real store such a save never returns."""
    files: Files = JsonFileSessionStore(tmp_path, max_persisted_chain_length=1)
    (tmp_path / "global").mkdir()
    wire = {"snapshotId": "a", "sessionId": "s", "parentId": "a", "createdAt": ""}
    (tmp_path / "global/a.json").write_text(json.dumps(wire))
    await asyncio.wait_for(grow(files, *"abc"), 20)
    assert names(tmp_path) == set("c")


@pytest.mark.parametrize("length", [0, -1, 1.5, True])
def test_lengths_that_are_none_are_refused(tmp_path: Path, length: Any) -> None:
    with pytest.raises(InvalidInput, match="max_persisted_chain_length"):
        JsonFileSessionStore(tmp_path, max_persisted_chain_length=length)


@pytest.mark.parametrize("options", [{"poll_s": 0}, {"poll_s": -1}, {"latest": "last"}])
def test_options_that_make_no_sense_are_refused(tmp_path: Path, options: Any) -> None:
    with pytest.raises(InvalidInput, match=next(iter(options))):
        JsonFileSessionStore(tmp_path, **options)


def test_pruning_is_planned_within_a_session_and_ends() -> None:
    def line(*pairs: tuple[str, str | None], session_id: str = "s") -> list[Row]:
        return [row(session_id, snapshot_id=id, parent_id=parent) for id, parent in pairs]

    circle = line(("a", "c"), ("b", "a"), ("c", "b"))
    assert plan_pruning(circle, circle[-1], keep=1) == ["b", "a"]
    forked = [*line(("a", None)), *line(("b", "a"), ("c", "b"), session_id="t")]
    assert plan_pruning(forked, forked[-1], keep=1) == ["b"]
    dangling = line(("b", "gone"), ("c", "b"))
    assert plan_pruning(dangling, dangling[-1], keep=1) == ["b"]
    assert plan_pruning(dangling, dangling[-1], keep=2) == []


# Watching


class Seen:
    """What a watcher was told."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Row] = asyncio.Queue()
        self.rows: list[Row] = []

    def __call__(self, found: Row) -> None:
        self.rows.append(found)
        self._queue.put_nowait(found)

    async def next(self) -> str | None:
        return (await asyncio.wait_for(self._queue.get(), 20)).status


def watched(folder: Path) -> Files:
    return JsonFileSessionStore(folder, poll_s=0.01)


async def test_watchers_get_the_present_and_every_change(tmp_path: Path) -> None:
    files, writer = watched(tmp_path), watched(tmp_path)
    before, after = Seen(), Seen()
    ends = [files.on_snapshot_state_change("a", before)]
    await writer.save_snapshot("a", always(row(status="pending")))
    assert await before.next() == "pending"
    ends.append(files.on_snapshot_state_change("a", after))
    assert await after.next() == "pending"
    await writer.save_snapshot("other", always(row(status="failed")))
    await writer.save_snapshot("a", always(row(status="aborted")))
    assert [await before.next(), await after.next()] == ["aborted", "aborted"]
    for end in (*ends, *ends):
        end()
    await eventually(lambda: watchers() == 0)
    await writer.save_snapshot("a", always(row(state={"more": 1})))
    assert (len(before.rows), len(after.rows)) == (2, 2)


async def test_watchers_see_nothing_of_other_tenants(tmp_path: Path) -> None:
    files = watched(tmp_path)
    alice, bob = Seen(), Seen()
    ends = [
        files.on_snapshot_state_change("a", alice, context="alice"),
        files.on_snapshot_state_change("a", bob, context="bob"),
    ]
    await files.save_snapshot("a", always(row(status="failed")), context="alice")
    await files.save_snapshot("a", always(row()))
    assert await alice.next() == "failed"
    await files.save_snapshot("a", always(row(status="aborted")), context="bob")
    assert await bob.next() == "aborted"
    assert (len(alice.rows), len(bob.rows)) == (1, 1)
    for end in ends:
        end()


async def test_what_a_callback_raises_is_contained(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files, seen = watched(tmp_path), Seen()

    async def fails(found: Row) -> None:
        seen(found)
        raise KeyError("mine")

    with caplog.at_level(logging.ERROR):
        end = files.on_snapshot_state_change("a", fails)
        for status in ("pending", "completed"):
            assert await files.save_snapshot("a", always(row(status=status))) == "a"
            assert await seen.next() == status
        end()
        await eventually(lambda: watchers() == 0)
    assert [each.message for each in caplog.records] == [
        "a callback has failed. snapshot_id=`a`"
    ] * 2


async def test_a_watcher_that_ends_ends_no_other(tmp_path: Path) -> None:
    files = watched(tmp_path)
    first, second = Seen(), Seen()

    def once(found: Row) -> None:
        first(found)
        ends[0]()

    ends = [
        files.on_snapshot_state_change("a", once),
        files.on_snapshot_state_change("a", second),
    ]
    await files.save_snapshot("a", always(row(status="pending")))
    assert [await first.next(), await second.next()] == ["pending", "pending"]
    await files.save_snapshot("a", always(row(status="aborted")))
    assert await second.next() == "aborted"
    assert len(first.rows) == 1
    ends[1]()


async def test_a_damaged_file_is_not_announced_until_it_is_repaired(tmp_path: Path) -> None:
    files, seen = watched(tmp_path), Seen()
    (tmp_path / "global").mkdir()
    (tmp_path / "global/a.json").write_text("{")
    end = files.on_snapshot_state_change("a", seen)
    await asyncio.sleep(0.05)
    (tmp_path / "global/a.json").write_text('{"sessionId": "s", "status": "failed"}')
    assert await seen.next() == "failed"
    end()


def test_there_is_a_loop_to_watch_in(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no event loop"):
        watched(tmp_path).on_snapshot_state_change("a", lambda found: None)
