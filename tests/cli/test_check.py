"""`limpet check`: findings, repair, and the exit codes that follow from them."""

import json
import sqlite3
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from tempfile import gettempdir

import pytest

import limpet
from limpet.cli._app import run
from tests.buckets.test_directory_faults import unprivileged
from tests.cli.conftest import Command

SCOPE = limpet.ScopeKey("alice", "planner")
ERROR = limpet.Finding("error", "body-checksum", "the body fails its check", SCOPE, "a1")
MENDED = limpet.Finding("error", "label-index", "a label is missing", SCOPE, repaired=True)
WARNING = limpet.Finding("warning", "foreign-table", "this table is not ours")


@pytest.fixture
def findings(monkeypatch: pytest.MonkeyPatch) -> list[limpet.Finding]:
    """Let every store find what the test puts into this list."""
    found: list[limpet.Finding] = []

    def told(store: limpet.Store) -> Iterator[limpet.Finding]:
        return iter(found)

    monkeypatch.setattr(limpet.Store, "check", told)
    monkeypatch.setattr(limpet.Store, "repair", told)
    return found


def test_nothing_wrong_is_0(command: Command, url: str) -> None:
    for arguments in ([], ["--repair"]):
        done = command("check", *arguments, "--url", url)
        assert (done.returncode, done.stdout, done.stderr) == (0, "✓ no errors\n", "")
    done = command("check", "--json", "--url", url)
    assert (done.returncode, done.stdout) == (0, "")


def test_an_error_is_5(
    findings: list[limpet.Finding], url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    findings[:] = [WARNING, ERROR]
    assert run(["check", "--url", url]) == 5
    assert capsys.readouterr().out.splitlines() == [
        "warning  foreign-table  this table is not ours",
        "error    body-checksum  the body fails its check",
        "         alice · planner · agent · a1",
        "1 error, 1 warning",
    ]


def test_a_warning_is_1(findings: list[limpet.Finding], url: str) -> None:
    findings[:] = [WARNING]
    assert run(["check", "--url", url]) == 1
    assert run(["check", "--json", "--url", url]) == 1


def test_what_is_repaired_does_not_count(
    findings: list[limpet.Finding], url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    findings[:] = [MENDED]
    assert run(["check", "--repair", "--url", url]) == 0
    shown = capsys.readouterr().out
    assert "a label is missing  repaired\n" in shown
    assert shown.endswith("1 error, 0 warnings, 1 repaired, 0 left\n")
    findings[:] = [MENDED, ERROR]
    assert run(["check", "--repair", "--url", url]) == 5


def test_json_is_a_line_for_each_finding(
    findings: list[limpet.Finding], url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    findings[:] = [ERROR, WARNING]
    assert run(["check", "--json", "--url", url]) == 5
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first == {
        "severity": "error",
        "code": "body-checksum",
        "message": "the body fails its check",
        "scope": {"session_id": "alice", "scope_id": "planner", "kind": "agent"},
        "id": "a1",
        "repaired": False,
    }
    assert (second["scope"], second["id"]) == (None, None)


def test_a_file_that_is_no_store(command: Command, url: str) -> None:
    path = url.removeprefix("sqlite:///")
    with open(path, "wb") as file:
        file.write(b"not a database at all, but long enough to be looked at" * 10)
    done = command("check", "--url", url)
    assert done.returncode in (2, 5)
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr


def test_real_damage_is_found_through_the_real_command(command: Command, url: str) -> None:
    with sqlite3.connect(url.removeprefix("sqlite:///")) as conn:
        conn.execute("UPDATE tails SET body = x'7b7d' WHERE seq = (SELECT max(seq) FROM tails)")
    conn.close()
    done = command("check", "--url", url)
    assert done.returncode == 5
    assert done.stdout.startswith("error ")
    assert "bob/chat-2 · main · agent" in done.stdout
    finding = json.loads(command("check", "--json", "--url", url).stdout.splitlines()[0])
    assert finding["severity"] == "error"
    assert finding["scope"]["session_id"] == "bob/chat-2"
    # What cannot be read any more cannot be mended without losing it.
    assert command("check", "--repair", "--url", url).returncode == 5


@pytest.mark.parametrize("verb", ["check", "check --repair", "ls"])
@pytest.mark.parametrize("place", ["agents.db", "./agents", "closed/agents.db"])
def test_a_missing_permission_is_said_in_plain_words(
    tmp_path: Path, command: Command, verb: str, place: str
) -> None:
    own = takewhile(lambda folder: folder != Path(gettempdir()), tmp_path.parents)
    for folder in (tmp_path, *own):
        folder.chmod(0o755)  # pytest's own folders, in which `nobody` must find the store
    (tmp_path / "closed").mkdir()
    with limpet.open(f"{tmp_path}/{place}") as store:
        store.scope("s").save(1)
    command(*verb.split(), "--url", place)  # what it imports can be read
    (tmp_path / place).chmod(0o000)
    (tmp_path / "closed").chmod(0o000)
    with unprivileged():
        done = command(*verb.split(), "--url", place)
    (tmp_path / place).parent.chmod(0o700)
    (tmp_path / place).chmod(0o700)
    assert (done.returncode, done.stdout) == (4, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("limpet: permission denied")


@pytest.mark.parametrize("size", [5, 60, 99, 100, 5000])
@pytest.mark.parametrize("header", [b"", b"something else"])
def test_a_file_that_cannot_be_read_leads_to_the_way_to_salvage_it(
    tmp_path: Path, command: Command, size: int, header: bytes
) -> None:
    path = tmp_path / "agents.db"
    with limpet.open(str(path)) as store:
        store.scope("s").save(1)
    path.write_bytes((header + path.read_bytes()[len(header) :])[:size])
    done = command("check", "--url", "agents.db")
    assert done.returncode in (2, 5)
    (line,) = done.stderr.splitlines()
    assert "docs/check.md#salvage" in line
