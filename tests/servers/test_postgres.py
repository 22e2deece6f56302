"""PostgreSQL for tests: the programs of the wheel do, and no server outlives the tests."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.servers.pg_programs import processes
from tests.servers.postgres import (
    SHARED,
    one,
    sharing,
    start_postgres,
)
from tests.waiting import until

pytestmark = pytest.mark.slow  # what they serve is tested by all who use them


@contextmanager
def child(start: str) -> Iterator[Path]:
    """Start a server in a process that is killed at the end; yield where its data are."""
    script = f"""
import time
from tests.servers.postgres import PrivatePostgres, sharing, start_postgres
with {start} as server, server.connect() as connection:
    print(*connection.execute("SHOW data_directory").fetchone(), flush=True)
    time.sleep(60)
"""
    root, command = Path(__file__).parent.parent.parent, [sys.executable, "-c", script]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout is not None
        yield Path(tests.stdout.readline().strip())
        tests.kill()


def pid_of(data: Path) -> int:
    return int((data / "postmaster.pid").read_text().split()[0])


def check_gone(data: Path, pid: int) -> None:
    until(lambda: not data.parent.exists())
    assert processes().get(pid, (0, "Z"))[1].startswith("Z")


@pytest.mark.parametrize("start", ["PrivatePostgres()", "sharing(), start_postgres()"])
def test_it_does_not_outlive_tests_that_are_killed(start: str) -> None:
    with child(start) as data:
        pid = pid_of(data)
    check_gone(data, pid)


def test_a_shared_one_outlives_who_started_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the tests that may share it end it."""
    monkeypatch.setenv(SHARED, "")  # and is put back after the test
    with sharing():
        with child("start_postgres()") as data:
            pid = pid_of(data)
        with start_postgres() as server, server.connect() as connection:
            assert one(connection, "SHOW data_directory") == str(data)
    check_gone(data, pid)
