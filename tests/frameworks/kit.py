"""Stores on every engine, examples that are killed, and pages that are true: for each framework."""

import itertools
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest

import limpet
from limpet.views import overview
from tests import snippets
from tests.environments import ROOT
from tests.frameworks.catalogue import FRAMEWORKS

FRAMEWORK = "LIMPET_TEST_FRAMEWORK"
"""The variable that says whose environment this is."""

ENGINES = ("memory", "sqlite", "directory", "postgres")
"""Those on which the contracts of a framework are tested: S3 keeps objects as directories do."""

FAST = ("sqlite",)
"""Those of the fast tests. What an adapter does besides is the same on all, and tested on this."""

PYTHON = Path(sys.executable)
RUN_S_MAX = 300
_count = itertools.count(1)


class Places:
    """URLs of new stores, by the name of the engine."""

    def __init__(self, request: pytest.FixtureRequest, folder: Path) -> None:
        self._request = request
        self._folder = folder

    def url(self, engine: str) -> str:
        number = next(_count)
        if engine == "postgres":
            return str(self._request.getfixturevalue("schemas").url(f"s{number}"))
        places = {"memory": "memory:", "sqlite": f"sqlite:///{self._folder}/{number}.db"}
        return places.get(engine, f"file://{self._folder}/{number}")


def standing(store: limpet.Store, session_id: str = "") -> tuple[str, bool, int]:
    """Return the status of a session, whether it needs attention, and its tokens, as lists do."""
    (found,) = overview.sessions(store, prefix=session_id, attention=True, usage=True).read()
    used = found.about.usage
    tokens = 0 if used is None else used.input + used.output
    return found.about.status, bool(found.attention), tokens


def quiet() -> dict[str, str]:
    """Return the environment in which CrewAI reports nothing, and stores nothing at home."""
    return {
        "CREWAI_DISABLE_TELEMETRY": "true",
        "CREWAI_DISABLE_TRACKING": "true",
        "CREWAI_STORAGE_DIR": tempfile.mkdtemp(prefix="limpet-crewai-"),
        "CREWAI_TRACING_ENABLED": "false",
        "OTEL_SDK_DISABLED": "true",
    }


class Runs(NamedTuple):
    """What an example printed until it was killed, and what it printed after that."""

    killed: str
    resumed: str


def run_twice(example: str, url: str, python: Path = PYTHON) -> Runs:
    """Run `examples/<example>.py` with a URL: it must die of SIGKILL, and the next time finish."""
    killed = _run(python, ROOT / "examples" / f"{example}.py", url)
    assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr
    return Runs(killed.stdout, run_once(example, url, python))


def run_once(example: str, url: str, python: Path = PYTHON) -> str:
    done = _run(python, ROOT / "examples" / f"{example}.py", url)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def shown(url: str, *reference: str) -> str:
    """Return what `limpet show` prints: the chat of a session."""
    done = _run(PYTHON.with_name("limpet"), "show", *reference, "--url", url)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check_page(name: str, folder: Path, python: Path = PYTHON) -> None:
    """Run the examples of a framework's guide, from top to bottom."""
    page = ROOT / "docs" / "guides" / f"{FRAMEWORKS[name].page}.md"
    snippets.run(page, folder, programs=python.parent, warnings="ignore")


def _run(*command: str | Path) -> "subprocess.CompletedProcess[str]":
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=RUN_S_MAX, check=False
    )
