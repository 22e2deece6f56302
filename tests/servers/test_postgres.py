"""PostgreSQL for tests: the programs of the wheel do, and no server outlives the tests."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.servers.pg_programs import in_the_wheel, processes
from tests.servers.postgres import (
    SETTINGS,
    SHARED,
    PrivatePostgres,
    one,
    sharing,
    start_postgres,
)
from tests.waiting import until

pytestmark = pytest.mark.slow  # what they serve is tested by all who use them


@pytest.mark.parametrize(
    "folder", in_the_wheel() or ["wheel"], ids=lambda each: Path(each).parent.name
)
def test_programs_of_the_wheel_do(folder: Path | str) -> None:
    with PrivatePostgres(str(folder)) as server, server.connect() as connection:
        assert one(connection, "SELECT 1") == 1
        (data,) = connection.execute("SHOW data_directory").fetchone() or ("",)
    assert Path(data).name == "data"
    assert not Path(data).parent.exists()


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


def test_a_shared_one_ends_if_the_tests_have_ended_before() -> None:
    """They were killed while it was made: nobody has the other end of the pipe."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)
        os.mkfifo(Path(folder, "alive"))
        server = PrivatePostgres(shared=Path(folder))
        with suppress(pytest.fail.Exception, OSError):  # it may end before it has started
            server.__enter__()
        until(lambda: server._process is None or server._process.poll() is not None)


def test_all_who_try_are_told_why_none_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SHARED, "")
    monkeypatch.setitem(SETTINGS, "max_connections", "none")
    with sharing():
        for _ in range(2):
            with pytest.raises(pytest.fail.Exception, match="contains errors"):
                start_postgres().__enter__()
