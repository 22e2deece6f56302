"""A process is killed between `put_writes` and `put`: another goes on, and repeats nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.compat.langgraph.kit import Places

SCRIPT = Path(__file__).with_name("mortal.py")


@pytest.mark.parametrize(
    "engine",
    ["sqlite", *(pytest.param(each, marks=pytest.mark.slow) for each in ("directory", "postgres"))],
)
def test_another_process_goes_on_where_one_was_killed(places: Places, engine: str) -> None:
    url = places.url(engine)
    command = [sys.executable, str(SCRIPT), url]
    died = subprocess.run([*command, "die"], capture_output=True, text=True, check=False)
    assert died.returncode == -9, died.stderr
    assert sorted(died.stdout.split()) == ["costly", "deadly", "plan"]
    again = subprocess.run([*command, "go on"], capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    said = again.stdout.splitlines()
    assert said == ["deadly", "['costly', 'deadly', 'plan'] ['hi', 'a plan']"]
