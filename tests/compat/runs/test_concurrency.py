"""Many savers of one run: none fails, and no reader sees a part of a checkpoint.

Of 2,400 saves by 8 goroutines the Go store failed 605, and 216 loads beside them.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from limpet.compat.runs import GoRunStore
from limpet.compat.runs import go as go_format
from limpet.compat.runs.records import ZERO_TIME
from tests.compat.runs.worker import check, checkpoint, open_runs
from tests.processes import run_at_once

SAVERS = 8
SAVES = 10
kinds = pytest.mark.parametrize("kind", ["go", "directory"])


@kinds
def test_threads_never_fail_or_tear(kind: str, tmp_path: Path) -> None:
    runs = open_runs(kind, str(tmp_path))
    runs.save(checkpoint(0))

    def save(saver: int) -> None:
        for number in range(SAVES):
            runs.save(checkpoint(saver * 1000 + number))

    def read() -> int:
        for _ in range(4 * SAVES):
            check(runs.load("r"))
            assert [each.run_id for each in runs.list()] == ["r"]
            assert runs.has_checkpoint("r")
        return check(runs.load("r"))

    with ThreadPoolExecutor(SAVERS + 2) as pool:
        under_way: list[Future[Any]] = [pool.submit(read) for _ in range(2)]
        under_way += [pool.submit(save, saver) for saver in range(SAVERS)]
        for each in under_way:
            each.result(timeout=300)
    assert check(runs.load("r")) % 1000 == SAVES - 1


async def save_often(folder: Path, saver: int) -> None:
    runs = GoRunStore(folder)
    for number in range(SAVES):
        runs.save(checkpoint(saver * 1000 + number))
        check(runs.load("r"))
        assert len(runs.list()) == 1


@pytest.mark.slow
def test_processes_never_fail_or_tear(tmp_path: Path) -> None:
    run_at_once(save_often, [(tmp_path, saver) for saver in range(4)])
    assert check(GoRunStore(tmp_path).load("r")) % 1000 == SAVES - 1


def test_a_deletion_meanwhile_is_no_failure(tmp_path: Path) -> None:
    runs = GoRunStore(tmp_path)

    def work(number: int) -> None:
        runs.save(checkpoint(number)) if number % 2 else runs.delete("r")
        assert len(runs.list()) <= 1

    with ThreadPoolExecutor(SAVERS) as pool:
        for _ in pool.map(work, range(100)):
            pass


def test_savers_leave_nothing_but_the_checkpoint(tmp_path: Path) -> None:
    """A damaged file that they all find is set aside once, and no good one with it."""
    (tmp_path / "r.json").write_bytes(b'{"run_id": "r"')
    runs = GoRunStore(tmp_path)
    with ThreadPoolExecutor(SAVERS) as pool:
        for _ in pool.map(lambda number: runs.save(checkpoint(number)), range(4 * SAVERS)):
            pass
    assert sorted(each.name for each in tmp_path.iterdir()) == ["r.json", "r.json.corrupt-1"]
    assert (tmp_path / "r.json.corrupt-1").read_bytes() == b'{"run_id": "r"'


def test_a_go_process_at_the_same_time_is_no_failure(tmp_path: Path) -> None:
    """It writes its one temporary file and renames it, as the Go store does."""
    runs = GoRunStore(tmp_path)

    def go(number: int) -> None:
        temporary = tmp_path / "r.json.tmp"
        temporary.write_bytes(go_format.encode(replace(checkpoint(number), created_at=ZERO_TIME)))
        temporary.rename(tmp_path / "r.json")

    def ours(number: int) -> None:
        runs.save(checkpoint(number))
        check(runs.load("r"))
        assert [each.run_id for each in runs.list()] == ["r"]

    with ThreadPoolExecutor(1) as theirs, ThreadPoolExecutor(4) as pool:
        under_way: list[Future[Any]] = [theirs.submit(go, number) for number in range(200)]
        under_way += [pool.submit(ours, 1000 + number) for number in range(100)]
        for each in under_way:
            each.result(timeout=300)
    assert [each.name for each in tmp_path.iterdir()] == ["r.json"]
