"""What failed among others is run once more, alone: only what fails twice fails the run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import again

ROOT = Path(__file__).resolve().parents[2]
FIRST = """
import os, pathlib, pytest

def first(name):
    path = pathlib.Path(name)
    return not path.exists() and path.write_text("") == 0

@pytest.fixture
def server(): assert not first("server")

def test_passes(): pass
def test_fails_once(): assert not first("test")
def test_fails_once_in_a_fixture(server): pass
def test_kills_its_process_once(): first("process") and os._exit(1)
"""
ONCE = ("test_fails_once", "test_fails_once_in_a_fixture", "test_kills_its_process_once")
MANY = f"""
import pathlib, pytest
@pytest.mark.parametrize("at", range({again.AGAIN_MAX + 1}))
def test_fails_once(at, seen=pathlib.Path("seen")): assert seen.exists() and seen.write_text("")
"""

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("program", "unstable", "code"),
    [
        (FIRST, ONCE, 0),
        (f"{FIRST}def test_fails(): assert False\n", (), 1),
        (f"{FIRST}assert False\n", (), 1),  # nothing is collected
        (MANY, (), 1),
    ],
    ids=("once", "twice", "collected", "many"),
)
def test_only_what_fails_twice_fails_a_run(
    tmp_path: Path, program: str, unstable: tuple[str, ...], code: int
) -> None:
    (tmp_path / "test_it.py").write_text(program, encoding="utf-8")
    command = [sys.executable, "-m", "tests.again", "-n", "1", "-c", str(ROOT / "pyproject.toml")]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout
    lines = done.stdout.splitlines()
    named = sorted(each for each in lines if each.startswith("UNSTABLE"))
    assert [each.split()[1] for each in named] == [f"test_it.py::{each}:" for each in unstable]
    assert ("again, alone" in done.stdout) == ("passed" in done.stdout)
    assert ("UNSTABLE" in lines[-1]) == bool(unstable)
