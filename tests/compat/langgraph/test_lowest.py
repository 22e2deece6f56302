"""The lowest versions that the extra allows: the same tests, in an environment of its own."""

import os
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.environments import INSTALL_S_MAX, ROOT, limpet_with, python_of

RUN_S_MAX = 600

# What the tests need.
BESIDE = (
    "langgraph-checkpoint-conformance==0.0.2",
    "hypothesis>=6.100",
    "numpy>=1.26",
    "pytest>=9",
    "pytest-timeout>=2.3",
)
# Not here: what is about channels that keep deltas and about importing, for which newer ones are
# needed. Of the engines those that need no server.
FILES = (
    "test_conformance.py",
    "test_expiring.py",
    "test_foreign.py",
    "test_graphs.py",
    "test_saver.py",
)


def done(*command: str, timeout_s: int) -> "subprocess.CompletedProcess[str]":
    # As in a shell: a worker of the tests around this one says who it is by variables.
    env = {name: each for name, each in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**env, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.timeout(2 * INSTALL_S_MAX + RUN_S_MAX)
def test_the_lowest_versions_do() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    wanted = (*limpet_with("langgraph", "postgres"), *BESIDE)
    python = str(python_of("langgraph-lowest", wanted, lowest=True))
    for required in project["optional-dependencies"]["langgraph"]:
        name, _, lowest = required.partition(">=")
        look = f"from importlib.metadata import version; print(version({name!r}))"
        assert done(python, "-c", look, timeout_s=60).stdout.strip() == lowest
    files = [str(Path(__file__).with_name(each)) for each in FILES]
    found = done(python, "-m", "pytest", "-q", "-m", "not slow", *files, timeout_s=RUN_S_MAX)
    assert found.returncode == 0, found.stdout + found.stderr
