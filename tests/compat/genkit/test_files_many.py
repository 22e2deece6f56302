"""Many writers of one folder: nothing is lost, and pointers lead to where they should.

Of 50 increments at once the real store kept one; of 400 in two processes 345.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from limpet.backends.buckets.protocol import Bucket
from limpet.compat.genkit.node_files.store import JsonFileSessionStore
from limpet.model import Expect
from tests.compat.genkit.files_worker import counted
from tests.compat.genkit.kit import always, row
from tests.concurrency.crew import Worker

Files = JsonFileSessionStore[Any]

TIMES = 50
PROCESSES = 4


async def number(files: Files) -> int:
    found = await files.get_snapshot(snapshot_id="n")
    assert found is not None
    n: int = found.state["n"]
    return n


async def pointed(folder: Path, session_id: str) -> str | None:
    """Fail if the pointer is not one to a leaf; return where it leads."""
    files: Files = JsonFileSessionStore(folder)
    assert [each async for each in files.check()] == []
    pointer = json.loads((folder / f"global/.pointers/{session_id}.json").read_text())
    id: str = pointer["currentSnapshotId"]
    return id


async def test_increments_at_once_are_exact(tmp_path: Path) -> None:
    files: Files = JsonFileSessionStore(tmp_path)
    other: Files = JsonFileSessionStore(tmp_path)
    saves = [each.save_snapshot("n", counted) for each in (files, other) for _ in range(TIMES // 2)]
    assert await asyncio.gather(*saves) == ["n"] * TIMES
    assert await number(files) == TIMES


async def test_processes_are_exact(tmp_path: Path) -> None:
    with ExitStack() as stack:
        crew = [
            stack.enter_context(Worker("tests.compat.genkit.files_worker", tmp_path, f"w{number}"))
            for number in range(PROCESSES)
        ]
        for each in crew:
            each.tell(TIMES)
        assert [await asyncio.to_thread(each.hear) for each in crew] == ["done"] * PROCESSES
    files: Files = JsonFileSessionStore(tmp_path)
    assert await number(files) == PROCESSES * TIMES
    assert len([*tmp_path.glob("global/w*.json")]) == PROCESSES * TIMES // 5
    leaf = await pointed(tmp_path, "grow")
    assert leaf in {f"w{number}-{TIMES - 5}" for number in range(PROCESSES)}
    names = {each.name for each in (tmp_path / "global").iterdir()}
    assert not any(name.startswith(".limpet-") for name in names)


async def test_an_abort_is_never_overwritten_by_an_end(tmp_path: Path) -> None:
    files: Files = JsonFileSessionStore(tmp_path)

    def ends(status: str) -> Any:
        def change(current: Any) -> Any:
            return None if current.status != "pending" else row(status=status)

        return change

    for number in range(20):
        await files.save_snapshot(f"r{number}", always(row(status="pending")))
        answers = await asyncio.gather(
            files.save_snapshot(f"r{number}", ends("aborted")),
            files.save_snapshot(f"r{number}", ends("completed")),
        )
        found = await files.get_snapshot(snapshot_id=f"r{number}")
        assert found is not None
        assert answers.count(None) == 1
        assert found.status == ("completed" if answers[0] is None else "aborted")


class Interrupted:
    """A bucket in which something else happens just before the first pointer is written."""

    def __init__(self, bucket: Bucket, meanwhile: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self._bucket = bucket
        self._meanwhile = [meanwhile]

    def put(self, key: str, data: bytes, *, expect: Expect) -> str:
        if ".pointers" in key and self._meanwhile:
            asyncio.run(self._meanwhile.pop()())  # this is a thread without a loop
        return self._bucket.put(key, data, expect=expect)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bucket, name)


def interrupted(folder: Path, id: str, parent_id: str) -> Files:
    """Return a store beside which a snapshot is saved, before its own pointer is written."""
    files: Files = JsonFileSessionStore(folder)
    other: Files = JsonFileSessionStore(folder)

    def save() -> Coroutine[Any, Any, Any]:
        return other.save_snapshot(id, always(row(second=9, parent_id=parent_id)))

    files._bucket = Interrupted(files._bucket, save)
    return files


async def test_a_child_that_was_faster_stays_the_latest(tmp_path: Path) -> None:
    """The real store's pointer leads to whichever was written last."""
    files = interrupted(tmp_path, "child", "parent")
    assert await files.save_snapshot("parent", always(row())) == "parent"
    assert await pointed(tmp_path, "s") == "child"


async def test_a_reader_does_not_take_back_what_was_saved_since(tmp_path: Path) -> None:
    await JsonFileSessionStore(tmp_path).save_snapshot("parent", always(row()))
    (tmp_path / "global/.pointers/s.json").unlink()
    found = await interrupted(tmp_path, "child", "parent").get_snapshot(session_id="s")
    assert found is not None
    assert found.snapshot_id == "parent"
    assert await pointed(tmp_path, "s") == "child"


@pytest.mark.parametrize("others_write", [True, False])
async def test_a_mutator_blocks_no_other_caller(tmp_path: Path, others_write: bool) -> None:
    files: Files = JsonFileSessionStore(tmp_path)
    calls: list[int] = []

    async def slowly(current: Any) -> Any:
        calls.append(1)
        if others_write and len(calls) == 1:
            await files.save_snapshot("n", counted)  # would wait for ever if there were a lock
        return counted(current)

    await files.save_snapshot("n", slowly)
    assert (len(calls), await number(files)) == ((2, 2) if others_write else (1, 1))
