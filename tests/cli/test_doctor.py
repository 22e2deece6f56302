"""`limpet doctor`: what it examines, and that it leaves no trace."""

import json
import tomllib
from pathlib import Path

import pytest

import limpet
from limpet.cli import setup as doctor
from limpet.cli._app import run
from tests.cli.conftest import Command
from tests.each_case import each_case

ROOT = Path(__file__).resolve().parents[2]


def test_a_healthy_store(command: Command, url: str, tmp_path: Path) -> None:
    before = (tmp_path / "agents.db").read_bytes()
    done = command("doctor", "--url", url)
    assert (done.returncode, done.stderr) == (0, "")
    assert limpet.__version__ in done.stdout
    assert "✓ the store can be opened" in done.stdout
    assert "✓ compare-and-set works" in done.stdout
    assert "ms (median of 20" in done.stdout
    # The data is as it was, and of what was tried out nothing is left.
    assert (tmp_path / "agents.db").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["agents.db"]


def test_json(command: Command, url: str) -> None:
    shape = json.loads(command("doctor", "--json", "--url", url).stdout)
    assert shape.keys() == {"versions", "extras", "url", "checks", "durable_save_ms"}
    libraries = ["limpet", "python", "sqlite", "orjson", "zstandard", "xxhash"]
    assert list(shape["versions"]) == libraries
    assert shape["extras"] == {
        extra: extra not in {"adk", "agent-framework", "claude", "crewai", "openai", "pydantic-ai"}
        for extra in doctor.EXTRAS
    }
    assert shape["url"] == url
    assert [each["check"] for each in shape["checks"]] == [
        "open",
        "compare-and-set",
        "durable-save",
    ]
    assert all(each["ok"] for each in shape["checks"])
    assert shape["durable_save_ms"] > 0


def test_memory_and_a_file_that_is_not_there_yet(command: Command, tmp_path: Path) -> None:
    assert command("doctor", "--url", "memory:").returncode == 0
    done = command("doctor", "--url", "sqlite:///new.db?synchronous=normal")
    assert done.returncode == 0
    assert "the file does not exist yet" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there(command: Command) -> None:
    done = command("doctor", "--url", "sqlite:///nowhere/new.db", "--json")
    assert done.returncode == 4
    assert [each["ok"] for each in json.loads(done.stdout)["checks"]] == [True, False]


def test_an_engine_that_does_not_compare_is_found_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save = limpet.Scope.save

    def careless(scope: limpet.Scope, state: object, *, expect: object = None) -> object:
        return save(scope, state)

    monkeypatch.setattr(limpet.Scope, "save", careless)
    assert run(["doctor", "--url", "memory:"]) == 1
    assert "compare-and-set does NOT work" in capsys.readouterr().out


def test_an_url_that_is_not_understood_is_2_and_keeps_its_secret(command: Command) -> None:
    for arguments in ([], ["--json"]):
        done = command("doctor", *arguments, "--url", "postgres://bob:hunter2@host/db?token=t0k")
        assert done.returncode == 2
        assert "hunter2" not in done.stdout + done.stderr
        assert "t0k" not in done.stdout + done.stderr
        assert "postgres://***@host/db?token=" in done.stdout


@each_case(
    "url",
    [
        "postgresql:/bob:hunter2@h/db",
        "//bob:hunter2@h",
        "bob:hunter2@h/db",
        "postgresql//bob:hunter2@h/db",
        "postgresql;//bob:hunter2@h",
        " postgresql://bob:hunter2@h/db",
        "file:/bob:hunter2@h/x",
        "host=h passwd=hunter2",
    ],
)
def test_a_mistyped_url_keeps_its_secret(url: str, command: Command, tmp_path: Path) -> None:
    for verb in (["doctor"], ["doctor", "--json"], ["ls"]):
        done = command(*verb, "--url", url)
        assert done.returncode != 0
        assert "hunter2" not in done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []


def test_it_knows_every_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert doctor.EXTRAS.keys() == project["optional-dependencies"].keys() - {"all"}


def test_a_server(command: Command, postgres_url: str) -> None:
    done = command("doctor", "--url", postgres_url)
    assert done.returncode == 4
    assert "limpet schema postgres" in done.stdout
    limpet.open(postgres_url).close()
    for url in (postgres_url, f"{postgres_url}&setup=false"):
        done = command("doctor", "--url", url, "--json")
        assert [each["ok"] for each in json.loads(done.stdout)["checks"]] == [True, True, True]
    with limpet.open(postgres_url) as store:
        assert list(store.sessions()) == []
