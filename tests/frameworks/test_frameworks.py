"""The tests of each framework pass with its newest and its lowest version.

To run those of one framework alone:

    pytest tests/frameworks/test_frameworks.py -k "newest and openai"
"""

import os
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests import effort
from tests.environments import INSTALL_S_MAX, ROOT, versions_of
from tests.frameworks.catalogue import FRAMEWORKS, TOGETHER, python_with
from tests.frameworks.kit import FRAMEWORK
from tests.servers.pg_programs import CHOICE
from tests.servers.postgres import Postgres

RUN_S_MAX = 600
HERE = Path(__file__).parent


def run(python: Path, *arguments: str, **more: str) -> str:
    """Run a Python without the variables of the one around it; return what it printed.

    Also without PYTHONDONTWRITEBYTECODE: several processes import a framework, for seconds each.
    """
    ours = ("PYTEST_", "PYTHON")
    env = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    done = subprocess.run(
        [python, *arguments],
        cwd=ROOT,
        env={**env, **more},
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-4_000:]
    return done.stdout


def pass_in(python: Path, name: str, postgres: Postgres, *, fast: bool) -> None:
    """Run the tests of a framework; the server is that of the tests around this one."""
    chosen = ["-m", "not slow"] if fast else []
    options = ["-q", "-p", "no:randomly", "-o", "filterwarnings=", "--durations=5", *chosen]
    run(
        python,
        *("-m", "pytest", *options, str(HERE / name)),
        **{FRAMEWORK: name, CHOICE: postgres.url},
    )


# CrewAI takes half a minute to install, and each process seconds to import it, or AG2. The verbs of
# LangChain and LlamaIndex, which are over the same log as those of OpenAI, are in `test_together`.
LATER = {"crewai", "ag2", "langchain", "llama_index"}


@pytest.mark.timeout(2 * INSTALL_S_MAX + RUN_S_MAX)
@pytest.mark.parametrize("name", effort.slowly(FRAMEWORKS, but=set(FRAMEWORKS) - LATER))
def test_the_newest_version(name: str, postgres: Postgres) -> None:
    pass_in(python_with(name), name, postgres, fast=effort.only_fast_tests)


@pytest.mark.timeout(2 * INSTALL_S_MAX + RUN_S_MAX)
def test_together(postgres: Postgres) -> None:
    python = python_with(TOGETHER[0])
    pass_in(python, "together", postgres, fast=effort.only_fast_tests)


@pytest.mark.slow
@pytest.mark.timeout(INSTALL_S_MAX)
def test_in_one_environment_no_framework_holds_another_back() -> None:
    packages = [FRAMEWORKS[name].package for name in TOGETHER]
    alone = {name: version for each in packages for name, version in versions_of(each).items()}
    assert versions_of(*packages) == alone


@pytest.mark.slow
@pytest.mark.timeout(2 * INSTALL_S_MAX + RUN_S_MAX)
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_the_lowest_version(name: str, postgres: Postgres) -> None:
    python, framework = python_with(name, lowest=True), FRAMEWORKS[name]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (required,) = (
        each
        for each in project["optional-dependencies"][framework.extra]
        if each.startswith(f"{framework.package}>=")
    )
    look = f"from importlib.metadata import version; print(version({framework.package!r}))"
    assert run(python, "-c", look).strip() == required.partition(">=")[2]
    # What the engines and other processes do is the same as with the newest version.
    pass_in(python, name, postgres, fast=True)
