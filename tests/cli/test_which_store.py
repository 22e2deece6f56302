"""Which store a verb opens: --url on either side, the environment, or the only one here."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import limpet
from tests.cases import for_each
from tests.cli.conftest import Command


def fill(path: Path, session: str) -> str:
    url = f"sqlite:///{path}"
    with limpet.open(url) as store:
        store.scope(session).save({"messages": ["hello"]})
    return url


def test_the_url_stands_before_or_after_the_verb(command: Command, tmp_path: Path) -> None:
    one, other = fill(tmp_path / "one.db", "first"), fill(tmp_path / "other.db", "second")
    assert "first" in command("--url", one, "ls").stdout
    assert "first" in command("--url", one, "ls", LIMPET_URL=other).stdout
    assert "second" in command("--url", one, "ls", "--url", other).stdout
    assert "no run matches" in command("--url", one, "runs").stderr
    done = command("--url", one, "runs", "abort", "nothing")
    assert (done.returncode, "using" in done.stderr) == (1, False)
    done = command("--url", one, "schema")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, "limpet: schema takes no --url")


def test_the_only_store_in_a_folder_is_used_and_said(command: Command, tmp_path: Path) -> None:
    fill(tmp_path / "my agents.db", "first")
    (tmp_path / "notes.db").write_bytes(b"something else")
    (tmp_path / "empty.db").touch()
    for verb in (["ls"], ["--url", "", "ls"], ["log", "first"]):
        done = command(*verb)
        assert (done.returncode, "first" in done.stdout) == (0, True)
        assert done.stderr.splitlines() == [
            "limpet: using my agents.db, the only store in this folder (--url names another)"
        ]
    assert command("runs", "abort", "nothing").stderr.count("using") == 1
    assert command("ls", "--help").stderr == ""


def test_several_stores_are_named(command: Command, tmp_path: Path) -> None:
    fill(tmp_path / "a.db", "first")
    fill(tmp_path / "b.db", "second")
    before = sorted(tmp_path.iterdir())
    done = command("ls")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[1] == (
        "limpet: several stores are in this folder: name one with --url or $LIMPET_URL."
        " found=`a.db, b.db`"
    )
    assert sorted(tmp_path.iterdir()) == before
    # The default of the library wins.
    fill(tmp_path / "limpet.db", "third")
    done = command("ls")
    assert ("third" in done.stdout, done.stderr) == (True, "")


def test_it_runs_as_a_module(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "limpet", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"limpet {limpet.__version__}\n"


@for_each(
    ("words", "hint"),
    [
        ("lss", "there is no verb `lss`: did you mean `ls`?"),
        ("histroy", "there is no verb `histroy`: `limpet --help` lists the verbs"),
        ("ls --jsn", "Did you mean '--json'?"),
        ("runs abotr", "Did you mean"),
        ("ls --sort old", "'old' is not one of 'age', 'name', 'size', 'snapshots'."),
        ("ls -n few", "'few' is not a valid whole number, 0 or more."),
        ("log x --label step", "write NAME=VALUE"),
        ("prune x --older-than soon", "write"),
    ],
)
def test_what_is_not_understood_is_followed_by_what_would_be(
    command: Command, words: str, hint: str
) -> None:
    done = command(*words.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert hint in done.stderr.splitlines()[-1]


STRANDS = Path(__file__).parent.parent / "interop" / "fixtures" / "ts_filestorage"
READING = ["ls", "show demo-trigger", "show @", "log demo-trigger", "grep hello", "diff @ @~1"]
READING += ["stats", "check", "export", "tail demo-trigger", "runs"]


def test_a_folder_of_the_strands_sdk_is_named_with_the_way_to_import_it(
    command: Command, tmp_path: Path
) -> None:
    shutil.copytree(STRANDS, tmp_path / "agents")
    for verb in READING:
        done = command(*verb.split(), "--url", "./agents")
        assert done.returncode not in (0, 1), verb
        (line,) = done.stderr.splitlines()
        assert line.startswith("limpet: this is no store but sessions of the Strands SDK"), verb
        assert "`limpet import strands <this folder or URL> --url <store>`" in line, verb


@pytest.mark.parametrize("verb", ["ui", "serve"])
def test_a_verb_that_takes_the_store_as_an_argument_takes_url_too(
    command: Command, tmp_path: Path, verb: str
) -> None:
    """Shown by the path that is missing: nothing is served."""
    fill(tmp_path / "one.db", "first")
    for words in (
        ["--url", "b.db", verb],
        [verb, "--url", "b.db"],
        ["--url", "one.db", verb, "b.db"],
    ):
        done = command(*words)
        assert (done.returncode, done.stdout) == (1, "")
        assert f"path=`{tmp_path / 'b.db'}`" in done.stderr
    done = command(verb, "b.db", "--url", "one.db")
    assert (done.returncode, "name the store once" in done.stderr) == (2, True)


def test_a_server_of_a_mistyped_file_creates_none(command: Command, tmp_path: Path) -> None:
    for words in (["typo.db"], ["--url", "./typo"], []):
        done = command("serve", *words)
        assert (done.returncode, done.stdout) == (1, "")
        assert "name another, or create it with --create" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", [["--url", "agents", "ls"], ["ls", "--url", "agents"]])
def test_the_bare_name_of_a_folder_is_a_store(
    command: Command, tmp_path: Path, verb: list[str]
) -> None:
    """One that does not exist is refused: it may be a scheme without its colon."""
    assert command(*verb).returncode == 2
    with limpet.open(f"{tmp_path}/agents") as store:
        store.scope("first").save(1)
    assert "first" in command(*verb).stdout
