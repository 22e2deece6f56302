"""The lowest versions that the extra allows: the same tests, in an environment of its own."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / ".bench" / "langgraph-lowest"
INSTALL_S_MAX = 600
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
    "test_crash.py",
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


def made(*command: str) -> None:
    try:
        found = done(*command, "--quiet", timeout_s=INSTALL_S_MAX // 2)
        reason = " ".join(found.stderr.split()) or "no reason given"
        failed = found.returncode != 0
    except (OSError, subprocess.TimeoutExpired) as cause:
        failed, reason = True, type(cause).__name__
    if failed:
        pytest.fail(f"the environment could not be made: {reason[:200]}", pytrace=False)


def python_with_lowest(project: Any) -> str:
    """Return the Python of the environment, which is kept until what is required changes."""
    python, stamp = FOLDER / "bin" / "python", FOLDER / "requirements.txt"
    facts = (sys.version, ROOT, project["dependencies"], project["optional-dependencies"], BESIDE)
    wanted = "\n".join(map(str, facts))
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted and python.exists():
        return str(python)
    beside = Path(sys.prefix) / "bin" / "uv"
    uv = str(beside) if beside.exists() else shutil.which("uv")
    if uv is None:
        pytest.fail("the environment could not be made: there is no uv", pytrace=False)
    made(uv, "venv", "--clear", "--python", sys.executable, str(FOLDER))
    install = (uv, "pip", "install", "--python", str(python), "--resolution", "lowest-direct")
    made(*install, "--editable", f"{ROOT}[langgraph,postgres]", *BESIDE)
    stamp.write_text(wanted, encoding="utf-8")
    return str(python)


@pytest.mark.slow
@pytest.mark.timeout(INSTALL_S_MAX + RUN_S_MAX)
def test_the_lowest_versions_do() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    python = python_with_lowest(project)
    for required in project["optional-dependencies"]["langgraph"]:
        name, _, lowest = required.partition(">=")
        look = f"from importlib.metadata import version; print(version({name!r}))"
        assert done(python, "-c", look, timeout_s=60).stdout.strip() == lowest
    files = [str(Path(__file__).with_name(each)) for each in FILES]
    found = done(python, "-m", "pytest", "-q", "-m", "not slow", *files, timeout_s=RUN_S_MAX)
    assert found.returncode == 0, found.stdout + found.stderr
