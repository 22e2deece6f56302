"""What the long verbs hold in memory: not more than a page, whatever the store holds."""

import subprocess
import sys
from pathlib import Path

import pytest

import limpet
from tests.cli.conftest import EXECUTABLE

MEMORY_BYTES_MAX = 150 * 1024 * 1024
# A small process in between: on Linux a new process begins with the peak of its parent.
MEASURED = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(peak * (1 if sys.platform == "darwin" else 1024))
"""


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_50_000_snapshots_fit_into_150_megabytes(tmp_path: Path) -> None:
    """Export and copy, of one long history and of many sessions."""
    source = f"sqlite:///{tmp_path}/source.db?synchronous=off"
    with limpet.open(source) as store:
        long = store.scope("long")
        for number in range(25_000):
            long.save({"n": number, "messages": ["hello " * 20]})
        for session in range(500):
            scope = store.scope(f"many/{session:03}")
            for number in range(50):
                scope.append("messages", [f"message {number} of {session}"])
    target = f"sqlite:///{tmp_path}/target.db?synchronous=off"
    for arguments in (["export", "--url", source, "-o", "x.jsonl"], ["copy", source, target]):
        measured = [sys.executable, "-c", MEASURED, str(EXECUTABLE), *arguments]
        done = subprocess.run(measured, cwd=tmp_path, stdout=subprocess.PIPE, check=True)
        assert int(done.stdout) < MEMORY_BYTES_MAX, arguments
    with limpet.open(target) as store:
        assert store.stats().snapshots == 50_000
    lines = (tmp_path / "x.jsonl").read_bytes().count(b"\n")
    assert lines == 1 + 501 + 50_000 + 1
