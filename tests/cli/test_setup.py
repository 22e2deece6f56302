"""`limpet doctor`, `schema` and `completion`."""

import json
import os
import shlex
import sqlite3
import subprocess
import tomllib
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

import limpet
from limpet.cli import setup as doctor
from limpet.cli._app import app, run
from tests.cases import for_each
from tests.cli.conftest import EXECUTABLE, Command
from tests.frameworks.catalogue import FRAMEWORKS
from tests.servers.postgres import Postgres, Schemas

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
        extra: extra not in {each.extra for each in FRAMEWORKS.values()} - {"genkit", "langchain"}
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
    (tmp_path / "empty.db").touch()
    command("doctor", "--url", "empty.db")
    assert (tmp_path / "empty.db").stat().st_size == 0


def test_an_engine_that_does_not_compare_is_found_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save = limpet.Scope.save

    def careless(scope: limpet.Scope, state: object, *, expect: object = None) -> object:
        return save(scope, state)

    monkeypatch.setattr(limpet.Scope, "save", careless)
    assert run(["doctor", "--url", "memory:"]) == 1
    assert "compare-and-set does NOT work" in capsys.readouterr().out


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


def test_the_sql_makes_the_tables(command: Command) -> None:
    done = command("schema")
    assert (done.returncode, done.stderr) == (0, "")
    with sqlite3.connect(":memory:") as conn:
        conn.executescript(done.stdout)
        tables = {name for (name,) in conn.execute("SELECT name FROM sqlite_schema")}
    conn.close()
    assert {"scopes", "snapshots", "tails", "segments", "labels", "notes"} <= tables
    assert command("schema", "sqlite").stdout == done.stdout
    done = command("schema", "postgres", "--schema", 'x"; DROP SCHEMA public; --')
    assert (done.returncode, done.stdout) == (2, "")


def test_json_has_the_migrations_in_order(command: Command) -> None:
    shape = json.loads(command("schema", "sqlite", "--json").stdout)
    assert shape["engine"] == "sqlite"
    versions = [each["version"] for each in shape["migrations"]]
    assert versions == [*range(4, 4 + len(versions))]
    assert shape["migrations"][0]["name"] == "tables"
    assert "CREATE TABLE scopes" in shape["migrations"][0]["sql"]


def test_the_sql_for_a_server(command: Command, postgres: Postgres, schemas: Schemas) -> None:
    """A role that may create runs it; others then open the store without setup."""
    name = schemas.name("made")
    done = command("schema", "postgres", "--schema", name)
    assert (done.returncode, done.stderr) == (0, "")
    with postgres.connect() as conn:
        conn.execute(done.stdout.encode())
    with limpet.open(schemas.url("made"), setup=False) as store:
        store.scope("s").save({"n": 1})
    shape = json.loads(command("schema", "postgres", "--json").stdout)
    assert [each["version"] for each in shape["migrations"]] == [0, 4]


HOSTILE = [
    "a b",
    "a$(reboot)",
    "a;reboot",
    "a`x`",
    "a\nplain,b",
    "a*",
    "a'",
    "a\x1b[2J",
    "-a",
    "~a",
]


def offered(command: Command, line: str, **env: str) -> list[str]:
    """Return what is offered behind the last word of a line."""
    words = shlex.split(f"{line}|")  # the last word may be empty
    done = command(
        _LIMPET_COMPLETE="bash_complete",
        COMP_WORDS=line,
        COMP_CWORD=str(len(words) - 1),
        **env,
    )
    assert done.stderr == ""
    return [each.removeprefix("plain,") for each in done.stdout.splitlines() if each]


@for_each("shell", ["bash", "zsh", "fish"])
def test_the_scripts(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"_LIMPET_COMPLETE={shell}_complete" in script
    assert run(["completion", shell, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"shell": shell, "script": script[:-1]}
    assert run(["completion", "csh"]) == 2


def test_sessions_are_completed(command: Command, any_url: str) -> None:
    with limpet.open(any_url) as store:
        for session in ("alice/chat-1", "alice/chat-2", "bob@home", *HOSTILE):
            store.scope(session).save(1)
    asked = f"limpet prune --url {shlex.quote(any_url)} a"
    assert offered(command, asked) == ["alice/chat-1", "alice/chat-2"]
    # What could harm a shell is never offered, nor taken for an option.
    everything = offered(command, "limpet grep fox ", LIMPET_URL=any_url)
    assert everything == ["alice/chat-1", "alice/chat-2", "bob@home"]


def here(*words: str) -> list[str]:
    """Return what is offered behind the last word, asked in this process."""
    shell = ShellComplete(app, {}, "limpet", "_LIMPET_COMPLETE")
    return [item.value for item in shell.get_completions([*words[:-1]], words[-1])]


@for_each(
    "address",
    ["sqlite:///nowhere.db", "odd://bob:hunter2@host", "postgresql://bob:hunter2@127.0.0.1:1/x"],
)
def test_what_fails_is_quiet(
    address: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for verb in (["grep", "fox"], ["runs", "abort"], ["prune"]):
        assert here(*verb, "--url", address, "") == []
    assert capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []


def test_runs_are_completed_where_the_group_names_the_store(url: str) -> None:
    assert here("runs", "--url", url, "abort", "al") == ["alice/chat-1"]


def test_a_real_shell_completes(url: str) -> None:
    script = (
        f'PATH="{EXECUTABLE.parent}:$PATH"; eval "$(limpet completion bash)";'
        " COMP_WORDS=(limpet grep fox al); COMP_CWORD=3;"
        ' _limpet_completion limpet; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", script],
        env={**os.environ, "LIMPET_URL": url},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("alice/chat-1\n", "")
