"""`limpet check`: findings, repair, and the exit codes that follow from them."""

import json
import sqlite3
from itertools import takewhile
from pathlib import Path
from tempfile import gettempdir

import pytest

import limpet
from limpet.cli._app import run
from tests.buckets.test_directory_faults import unprivileged
from tests.cases import for_each
from tests.cli.conftest import Command

SCOPE = limpet.ScopeKey("alice", "planner")
ERROR = limpet.Finding("error", "body-checksum", "the body fails its check", SCOPE, "a1")
MENDED = limpet.Finding("error", "label-index", "a label is missing", SCOPE, repaired=True)
WARNING = limpet.Finding("warning", "foreign-table", "this table is not ours")
PLACE = "         alice · planner · agent · "


@for_each(
    ("findings", "more", "code", "lines"),
    [
        ([], [], 0, ["✓ no errors"]),
        ([], ["--repair"], 0, ["✓ no errors"]),
        (
            [WARNING],
            [],
            1,
            ["warning  foreign-table  this table is not ours", "0 errors, 1 warning"],
        ),
        (
            [WARNING, ERROR],
            [],
            5,
            [
                "warning  foreign-table  this table is not ours",
                "error    body-checksum  the body fails its check",
                f"{PLACE}a1",
                "1 error, 1 warning",
            ],
        ),
        (
            [MENDED],
            ["--repair"],
            0,
            [
                "error    label-index  a label is missing  repaired",
                PLACE.removesuffix(" · "),
                "1 error, 0 warnings, 1 repaired, 0 left",
            ],
        ),
    ],
)
def test_findings_and_their_exit_codes(
    findings: list[limpet.Finding],
    more: list[str],
    code: int,
    lines: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    url: str,
) -> None:
    for verb in ("check", "repair"):
        monkeypatch.setattr(limpet.Store, verb, lambda store: iter(findings))
    assert run(["check", *more, "--url", url]) == code
    assert capsys.readouterr().out.splitlines() == lines
    assert run(["check", *more, "--json", "--url", url]) == code
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["code"] for each in told] == [each.code for each in findings]
    if ERROR in findings:
        assert told[1] == {
            "severity": "error",
            "code": "body-checksum",
            "message": "the body fails its check",
            "scope": {"session_id": "alice", "scope_id": "planner", "kind": "agent"},
            "id": "a1",
            "repaired": False,
        }
        assert (told[0]["scope"], told[0]["id"]) == (None, None)


def test_real_damage_is_found_through_the_real_command(command: Command, url: str) -> None:
    with sqlite3.connect(url.removeprefix("sqlite:///")) as conn:
        conn.execute("UPDATE tails SET body = x'7b7d' WHERE seq = (SELECT max(seq) FROM tails)")
    conn.close()
    done = command("check", "--url", url)
    assert done.returncode == 5
    assert done.stdout.startswith("error ")
    assert "bob/chat-2 · main · agent" in done.stdout
    # What cannot be read any more cannot be mended without losing it.
    assert command("check", "--repair", "--url", url).returncode == 5


@for_each("verb", ["check", "check --repair", "ls"])
@for_each("place", ["agents.db", "./agents", "closed/agents.db"])
def test_a_missing_permission_is_said_in_plain_words(
    tmp_path: Path, command: Command, verb: str, place: str
) -> None:
    own = takewhile(lambda folder: folder != Path(gettempdir()), tmp_path.parents)
    for folder in (tmp_path, *own):
        folder.chmod(0o755)  # pytest's own folders, in which `nobody` must find the store
    (tmp_path / "closed").mkdir()
    url = f"{tmp_path}/{place}"
    with limpet.open(url) as store:
        store.scope("s").save(1)
    command(*verb.split(), "--url", url)  # what it imports can be read
    (tmp_path / place).chmod(0o000)
    (tmp_path / "closed").chmod(0o000)
    with unprivileged():
        done = command(*verb.split(), "--url", url)
    (tmp_path / place).parent.chmod(0o700)
    (tmp_path / place).chmod(0o700)
    assert (done.returncode, done.stdout) == (4, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("limpet: permission denied")


@for_each("size", [5, 60, 99, 100, 5000])
@for_each("header", [b"", b"something else"])
def test_a_file_that_cannot_be_read_leads_to_the_way_to_salvage_it(
    tmp_path: Path, command: Command, size: int, header: bytes
) -> None:
    path = tmp_path / "agents.db"
    with limpet.open(str(path)) as store:
        store.scope("s").save(1)
    path.write_bytes((header + path.read_bytes()[len(header) :])[:size])
    done = command("check", "--url", str(path))
    assert done.returncode in (2, 5)
    (line,) = done.stderr.splitlines()
    assert "docs/check.md#salvage" in line
