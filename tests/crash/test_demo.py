"""The demonstration is a promise too: it runs, it kills, it resumes, it forks, it verifies."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import limpet
from limpet.cli._app import run

LIMPET = Path(sys.executable).with_name("limpet")


def run_demo(folder: Path, *, pace: str = "0.1") -> "subprocess.CompletedProcess[str]":
    """Run the demonstration as a person would, but through pipes and faster."""
    return subprocess.run(
        [LIMPET, "demo", "--pace", pace],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder), "PYTHONWARNINGS": "error", "COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_demo_kills_resumes_forks_and_verifies(tmp_path: Path) -> None:
    """A killed agent resumes at the step after the last one that the file holds.

    A pipe gets plain lines of 80 columns, and nothing is left in the temporary folder.
    """
    done = run_demo(tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    killed = re.search(r"killed with SIGKILL after step (\d+) was acknowledged", done.stdout)
    found = re.search(r"^ +head  step (\d+), \d+ messages?, ", done.stdout, re.MULTILINE)
    began = re.findall(r"process \d+ begins at step (\d+)", done.stdout)
    assert killed is not None
    assert found is not None
    assert int(killed[1]) >= 3
    assert int(found[1]) in (int(killed[1]), int(killed[1]) + 1)
    assert began == ["1", str(int(found[1]) + 1), "8"]  # the first, the second, and the fork's
    assert "FAILED" not in done.stdout
    assert done.stdout.count("✓ ") == 14
    assert "All checks passed." in done.stdout
    lines = done.stdout.splitlines()
    assert len(lines) > 60
    assert [line for line in lines if len(line) > 80 or "\x1b" in line or "\r" in line] == []
    assert list(tmp_path.iterdir()) == []


def test_for_programs_it_prints_json_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--pace", "0.01", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["holds"] is True


@pytest.mark.slow
def test_demo_shows_the_fork_the_diff_the_tree_and_the_sizes(tmp_path: Path) -> None:
    shown = run_demo(tmp_path).stdout

    fork = re.search(r"╰─ (main~[a-z0-9]{8}) from step 7 of main, with lunch = river", shown)
    assert fork is not None
    assert re.search(r"^~ lunch  garden → river$", shown, re.MULTILINE)
    assert re.search(r"^  - 11  boats  ", shown, re.MULTILINE)
    # The fork with its seven snapshots, and the fourteen of the line that it left at the seventh.
    tree = re.findall(r"^([●◆│╯─ ]+)  \w+…\w{4} .*step=(\d\d)$", shown, re.MULTILINE)
    fork_line = [lanes for lanes, _ in tree[:7]]
    assert fork_line == ["◆  ", *["●  "] * 6]
    assert [lanes for lanes, _ in tree[7:15]] == ["│ ◆", *["│ ●"] * 6, "●─╯"]
    assert [int(step) for _, step in tree[14:]] == [7, 6, 5, 4, 3, 2, 1]
    assert re.search(rf"^◆ .*  {fork[1]}  step=13$", shown, re.MULTILINE)
    assert re.search(r"^ +21 states, as JSON +[\d.]+ KiB  █+$", shown, re.MULTILINE)
    assert re.search(r"^ +the same, as stored +[\d.]+ KiB  ", shown, re.MULTILINE)


@pytest.mark.parametrize("whom", ["the command alone", "the whole terminal"])
def test_an_interrupted_demo_leaves_nothing(tmp_path: Path, whom: str) -> None:
    """Ctrl-C ends it with 130: no traceback, no agent left at work, no file."""
    demo = subprocess.Popen(
        [LIMPET, "demo", "--pace", "0.1"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A terminal does not ignore Ctrl-C; who runs these tests in the background may.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert demo.stdout is not None
    agent = 0
    for line in demo.stdout:
        if found := re.search(r"process (\d+) begins", line):
            agent = int(found[1])
            break
    target = demo.pid if whom == "the command alone" else -demo.pid
    os.kill(target, signal.SIGINT)
    _, told = demo.communicate(timeout=300)

    assert demo.returncode == 130
    assert told.strip() == ""
    with pytest.raises(ProcessLookupError):
        os.kill(agent, 0)
    assert list(tmp_path.iterdir()) == []


def test_one_fact_that_does_not_hold_is_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = limpet.Finding("error", "damaged", "a row is damaged")
    monkeypatch.setattr(limpet.Store, "check", lambda store: iter([found]))
    assert run(["demo", "--pace", "0.01"]) == 1
    shown = capsys.readouterr().out
    assert shown.count("✓ ") == 13
    assert "✗ FAILED: limpet check finds no errors" in shown
    assert "1 check failed." in shown
