"""A watch in a process that forks."""

import subprocess
import sys

import pytest

from tests.concurrency.crew import ROOT
from tests.watching.scenes import SCENES


@pytest.mark.parametrize(
    "url",
    [
        "sqlite",
        *(pytest.param(each, marks=pytest.mark.slow) for each in ("directory", "postgres", "http")),
    ],
    indirect=True,
)
@pytest.mark.parametrize("scene", SCENES)
def test_in_a_process_of_its_own(url: str, scene: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.watching.scenes", scene, url],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
