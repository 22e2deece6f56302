"""What the long verbs hold in memory: not more than a page, whatever the store holds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from tests.cli.conftest import EXECUTABLE

MEMORY_BYTES_MAX = 150 * 1024 * 1024
_UNIT = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_100_000_snapshots_fit_into_150_megabytes(tmp_path: Path) -> None:
    """Export and copy, of one long history and of many sessions."""
    source = f"sqlite:///{tmp_path}/source.db?synchronous=off"
    with holdfast.open(source) as store:
        long = store.scope("long")
        for number in range(50_000):
            long.save({"n": number, "messages": ["hello " * 20]})
        for session in range(500):
            scope = store.scope(f"many/{session:03}")
            for number in range(100):
                scope.append("messages", [f"message {number} of {session}"])
    target = f"sqlite:///{tmp_path}/target.db?synchronous=off"
    for arguments in (["export", "--url", source, "-o", "x.jsonl"], ["copy", source, target]):
        process = subprocess.Popen([EXECUTABLE, *arguments], cwd=tmp_path)
        _, code, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(code)
        assert process.returncode == 0
        assert usage.ru_maxrss * _UNIT < MEMORY_BYTES_MAX, arguments
    with holdfast.open(target) as store:
        assert store.stats().snapshots == 100_000
    assert sum(1 for _ in (tmp_path / "x.jsonl").open("rb")) == 1 + 501 + 100_000 + 1
