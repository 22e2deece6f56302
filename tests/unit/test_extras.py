"""Without an extra, one line tells how to get it."""

import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from limpet.compat import needs
from tests.cases import for_each

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = """
import sys
sys.modules[{package!r}] = None
{program}
"""

OPEN = "import limpet; limpet.open({url!r})"
COMMAND = "from limpet.cli import main; sys.argv[1:] = {words}; sys.exit(main())"


def said_without(package: str, program: str) -> str:
    """Run a program where a package is not installed; return what it says at its end."""
    script = SCRIPT.format(package=package, program=program)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode != 0
    assert done.stdout == ""
    return done.stderr


POSTGRES, BUCKET = "postgresql://me@localhost/agents", "s3://bucket/agents"


@for_each(
    "package, extra, program",
    [
        ("psycopg", "postgres", OPEN.format(url=POSTGRES)),
        ("urllib3", "http", OPEN.format(url="http://localhost:7420")),
        ("obstore", "s3", OPEN.format(url=BUCKET)),
        ("obstore", "s3", OPEN.format(url="az://bucket/agents")),
        ("opentelemetry", "otel", OPEN.format(url="memory:?otel=true")),
        ("langgraph", "langgraph", "from limpet.compat.langgraph import LimpetSaver"),
        ("langchain_core", "langchain", "import limpet.compat.langchain"),
        ("genkit", "genkit", "import limpet.compat.genkit.python"),
        ("pytest", "testing", "import limpet.testing"),
    ],
)
def test_the_last_line_names_the_extra(package: str, extra: str, program: str) -> None:
    *_, last = said_without(package, program).splitlines()
    assert last.endswith(f": pip install 'limpet[{extra}]'")


@for_each(
    "module, extra",
    [
        ("claude", "claude"),
        ("openai", "openai"),
        ("adk", "adk"),
        ("pydantic_ai", "pydantic-ai"),
        ("crewai", "crewai"),
        ("agent_framework", "agent-framework"),
        ("llama_index", "llama-index"),
        ("ag2", "ag2"),
    ],
)
def test_a_framework_that_is_missing_names_the_extra(module: str, extra: str) -> None:
    """Those that are not in the environment of these tests."""
    with pytest.raises(ModuleNotFoundError) as raised:
        import_module(f"limpet.compat.{module}")
    assert str(raised.value).endswith(f" is not installed: pip install 'limpet[{extra}]'")


def test_another_module_that_is_missing_is_not_hidden() -> None:
    with (
        pytest.raises(ModuleNotFoundError, match=r"^No module named 'nowhere'$"),
        needs("pytest", "pytest", extra="testing"),
    ):
        import_module("nowhere")


@for_each(
    "package, extra, words",
    [
        ("click", "cli", ["ls"]),
        ("rich", "cli", ["ls"]),
        ("jinja2", "inspector", ["ui"]),
        ("uvicorn", "server", ["serve"]),
        ("langgraph", "langgraph", ["import", "langgraph-sqlite", __file__]),
    ],
)
def test_the_command_says_it_in_one_line(package: str, extra: str, words: list[str]) -> None:
    (line,) = said_without(package, COMMAND.format(words=words)).splitlines()
    assert line.endswith(f": pip install 'limpet[{extra}]'")


def test_each_extra_brings_its_package() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    packages = {
        "cli": "click>",
        "http": "urllib3>",
        "langgraph": "langgraph>",
        "postgres": "psycopg[",
        "otel": "opentelemetry-api>",
        "s3": "obstore>",
        "testing": "pytest>",
    }
    for extra, package in packages.items():
        assert any(each.startswith(package) for each in extras[extra])
    assert any(each.startswith("rich>") for each in extras["cli"])
