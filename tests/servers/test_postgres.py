"""PostgreSQL for tests: the programs of the wheel do, and no server outlives the tests."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.servers.pg_programs import in_the_wheel, processes
from tests.servers.postgres import PrivatePostgres, one

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


def test_it_does_not_outlive_tests_that_are_killed() -> None:
    script = "\n".join(
        [
            "import time",
            "from tests.servers.postgres import PrivatePostgres",
            "with PrivatePostgres() as server, server.connect() as connection:",
            "    print(*connection.execute('SHOW data_directory').fetchone(), flush=True)",
            "    time.sleep(60)",
        ]
    )
    root = Path(__file__).parent.parent.parent
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=root, stdout=subprocess.PIPE, text=True
    ) as tests:
        assert tests.stdout is not None
        data = Path(tests.stdout.readline().strip())
        pid = int((data / "postmaster.pid").read_text().split()[0])
        tests.kill()
    deadline = time.monotonic() + 20
    while data.parent.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert processes().get(pid, (0, "Z"))[1].startswith("Z")
