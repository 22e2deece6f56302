"""`limpet runs`: what is running, aborting it, and taking over from a worker that was killed."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet import runs
from limpet.cli._app import run
from limpet.views import overview
from limpet.views.runs import read_run
from tests.cases import for_each
from tests.cli.conftest import EXECUTABLE, Command, mind_ctrl_c
from tests.concurrency.crew import Worker
from tests.concurrency.sleepers import go_on, stop_between_writes
from tests.runs.hands import desert, ends_with
from tests.waiting import until

TTL_S = 0.5
WAIT = ("--wait", "20")
ODD = "r u'n\n\x1b[2J"


def killed(url: str, run_id: str) -> None:
    """Leave the run of a worker that saved the state "dozing" and was killed."""
    worker = Worker("tests.runs.worker", url, "{}")
    assert worker.ask(["doze", run_id, TTL_S]) == "ready"
    worker.process.kill()
    worker.end()


def found(url: str, run_id: str) -> runs.RunInfo:
    with limpet.open(url) as store:
        info = runs.get(store, run_id)
    assert info is not None
    return info


def state(url: str, run_id: str) -> Any:
    with limpet.open(url) as store:
        head = store.scope(run_id, kind="run").load()
    assert head is not None
    return head.state


def test_list(command: Command, any_url: str) -> None:
    with limpet.open(any_url) as store:
        desert(store, ODD, {"n": 1}, {"n": 2}, task="report")
        with runs.start(store, "done", on_success="keep", owner="w1"):
            pass
        with pytest.raises(ValueError, match="no"), runs.start(store, "sad", owner="w2"):
            raise ValueError("no\n\x1b[2J")
        with runs.start(store, "live", owner="w3"):
            done = command("runs", "--url", any_url, COLUMNS="100")
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split("  ") for line in map(squeezed, done.stdout.splitlines())] == [
        ["run", "status", "task", "owner", "attempt", "steps", "age"],
        ["done", "completed", "w1", "1", "0", "now"],
        ["live", "running", "w3", "1", "0", "now"],
        ["r u'n\\n\\x1b[2J", "expired", "report", "the dead one", "1", "2", "now"],
        ["sad", "failed", "w2", "1", "0", "now"],
        ["ValueError: no\\n\\x1b[2J"],
    ]


def test_show_says_why_it_failed(command: Command, any_url: str) -> None:
    """The terminal and the page of the session show the same; nothing of an error is cut."""
    message = "the model is down " * 20
    with limpet.open(any_url) as store:
        desert(store, ODD, {"n": 1}, task="report")
        with ends_with(ValueError), runs.start(store, ODD, owner="w2", traceback=True) as run:
            run.step({"n": 2})
            raise ValueError(message)
        panel = read_run(store, ODD)
    done = command("runs", "show", ODD, "--url", any_url, COLUMNS="80")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[:2] == ["r u'n\\n\\x1b[2J  failed", f"ValueError: {message}"]
    assert lines[2] == "Traceback (most recent call last):"
    assert f'  File "{__file__}"' in lines[3]
    facts = dict(line.split(maxsplit=1) for line in lines if line.startswith(("task", "owner")))
    assert facts == {"task": "report", "owner": "w2"}
    assert "lease     no worker holds it" in lines
    assert panel is not None
    (last,) = panel.attempts
    names = ("attempt", "owner", "status", "error")
    assert [last[name] for name in names] == ["2", "w2", "failed", "ValueError"]
    assert squeezed(lines[-1]).split("  ") == [*last.values()]
    told = json.loads(command("runs", "show", ODD, "--json", "--url", any_url).stdout)
    assert told["traceback"].splitlines()[-1] == f"ValueError: {message}".rstrip()
    assert told["attempts"][-1]["owner"] == "w2"
    assert command("runs", "show", "none", "--url", any_url).returncode == 1


def test_ids_and_errors_are_whole_in_a_narrow_terminal(command: Command, url: str) -> None:
    name, message = "a-run-with-a-long-name/" * 4, "the model is down " * 12
    with limpet.open(url) as store:
        with ends_with(ValueError), runs.start(store, name):
            raise ValueError(message)
        runs.enqueue(store, "second")
        for verb in ("runs", "ls"):
            done = command(verb, "--url", url, COLUMNS="60")
            assert name in done.stdout
            assert (f"ValueError: {message}" in done.stdout) == (verb == "runs")
        # What waits for a worker needs nobody.
        heads = [overview.ScopeHead(each.key, each.head) for each in store.scopes("second")]
        assert overview.reasons(store, heads) == []


def squeezed(line: str) -> str:
    """Return a row with two spaces between its columns, whatever their widths; ages are `now`."""
    cells = [cell.strip() for cell in line.split("  ") if cell.strip()]
    return "  ".join("now" if cell in ("1s", "2s", "3s") else cell for cell in cells)


def test_list_for_programs(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["runs", "--url", url]) == 0
    assert capsys.readouterr() == ("", "no run matches\n")
    with limpet.open(url) as store:
        desert(store, "a/1", {"n": 1}, task="report")
        desert(store, "b/1")
    assert run(["runs", "--json", "--task", "report", "--url", url]) == 0
    (told,) = map(json.loads, capsys.readouterr().out.splitlines())
    info = found(url, "a/1")
    assert told == {
        "run_id": "a/1",
        "task": "report",
        "status": "expired",
        "owner": "the dead one",
        "attempt": 1,
        "steps": 1,
        "error": None,
        "started_at": info.started_at.isoformat().replace("+00:00", "Z"),
        "updated_at": info.updated_at.isoformat().replace("+00:00", "Z"),
        "id": info.info.id,
    }
    for wanted, names in (
        (["--prefix", "b"], ["b/1"]),
        (["--status", "expired"], ["a/1", "b/1"]),
        (["--status", "running"], []),
    ):
        assert run(["runs", "--json", *wanted, "--url", url]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [json.loads(line)["run_id"] for line in lines] == names
    assert run(["runs", "--status", "odd", "--url", url]) == 2


def test_abort(command: Command, any_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with limpet.open(any_url) as store:
        desert(store, ODD)
        desert(store, "second")
    # The options of the group count for what is below it.
    done = command("runs", "--url", any_url, "abort", ODD, "second")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["r u'n\\n\\x1b[2J  aborted", "second  aborted"]
    assert found(any_url, ODD).status == "aborted"
    assert run(["runs", "--json", "abort", "second", "--url", any_url]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "aborted"
    with limpet.open(any_url) as store, runs.start(store, "done", on_success="keep"):
        pass
    done = command("runs", "abort", "done", "--url", any_url)
    assert done.stdout == "done  completed  it was not running, and was not changed\n"
    assert run(["runs", "abort", "secon", "--url", any_url]) == 1
    assert run(["runs", "abort", "--url", any_url]) == 2


def test_adopt_to_look(command: Command, any_url: str) -> None:
    killed(any_url, ODD)
    before = found(any_url, ODD).info
    done = command("runs", "adopt", ODD, *WAIT, "--url", any_url)
    assert (done.returncode, json.loads(done.stdout)) == (0, "dozing")
    assert "r u'n\\n\\x1b[2J  expired  attempt 1;" in done.stderr
    # Nothing was written, and whoever is next can have it.
    assert found(any_url, ODD).info == before
    with limpet.open(any_url) as store, runs.start(store, ODD) as taken:
        assert (taken.resumed, taken.state) == (True, "dozing")


def test_a_worker_that_was_only_asleep_is_shut_out(
    any_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with Worker("tests.runs.worker", any_url, "{}") as asleep:
        assert asleep.ask(["doze", "r", TTL_S]) == "ready"
        assert run(["runs", "adopt", "r", "--url", any_url]) == 3  # it lives
        stop_between_writes(asleep, any_url, "r", "main", "run")
        try:
            assert run(["runs", "adopt", "r", *WAIT, "--json", "--url", any_url]) == 0
        finally:
            go_on(asleep)
        told = json.loads(capsys.readouterr().out)
        assert (told["status"], told["state"]) == ("expired", "dozing")
        assert asleep.ask("wake up") == "Conflict"
    assert state(any_url, "r") == "dozing"


FINISH = """
import json, os
from pathlib import Path
import limpet
from limpet import runs
path = Path(os.environ["LIMPET_RUN_STATE"])
state = json.loads(path.read_text())
with limpet.open() as store:
    info = runs.get(store, os.environ["LIMPET_RUN_ID"])
    print(info.status, info.owner, info.attempt, path.parent.stat().st_mode & 0o77)
path.write_text(json.dumps([state, "and done"]))
"""


def test_adopt_with_a_command(process: Command, any_url: str) -> None:
    killed(any_url, "r")
    done = process(
        *("runs", "adopt", "r", "--owner", "me", *WAIT, "--url", any_url),
        *("--", sys.executable, "-c", FINISH),
    )
    assert (done.returncode, done.stdout) == (0, "running me 2 0\n")
    assert done.stderr == "r  completed  attempt 2; 2 steps\n"
    ended = found(any_url, "r")
    assert (ended.status, ended.attempt, ended.steps) == ("completed", 2, 2)
    assert state(any_url, "r") == ["dozing", "and done"]


def desert_in(url: str, run_id: str = "r") -> None:
    with limpet.open(url) as store:
        desert(store, run_id, {"n": 1})


def test_adopt_with_a_command_for_programs(url: str, capfd: pytest.CaptureFixture[str]) -> None:
    desert_in(url)
    assert run(["runs", "adopt", "r", "--json", "--url", url, "--", "echo", "-n", "hello"]) == 0
    told = capfd.readouterr()
    assert "hello" in told.err
    answer = json.loads(told.out)
    assert (answer["status"], answer["steps"], answer["state"]) == ("completed", 1, {"n": 1})


@for_each(
    ("script", "code", "message"),
    [
        ("echo '{' > $LIMPET_RUN_STATE", 1, "the command left a state that is not JSON"),
        ("echo NaN > $LIMPET_RUN_STATE; exit 4", 4, "the command left a state that is not JSON"),
        ('rm "$LIMPET_RUN_STATE"', 1, "the command left a state that is not JSON"),
        ("kill -9 $$", 137, "the command ended with 137"),
    ],
)
def test_a_command_that_goes_wrong(script: str, code: int, message: str, url: str) -> None:
    desert_in(url)
    assert run(["runs", "adopt", "r", "--url", url, "--", "sh", "-c", script]) == code
    ended = found(url, "r")
    assert (ended.status, ended.error) == ("failed", runs.RunError("CommandFailed", message))
    assert state(url, "r") == {"n": 1}


def test_what_a_command_got_done_before_it_failed_is_saved(url: str) -> None:
    desert_in(url)
    script = "echo '[1.0]' > $LIMPET_RUN_STATE; exit 7"
    assert run(["runs", "adopt", "r", "--url", url, "--", "sh", "-c", script]) == 7
    assert (found(url, "r").status, found(url, "r").steps) == ("failed", 2)
    assert state(url, "r") == [1.0]
    # A worker that starts it goes on from there.
    with limpet.open(url) as store, runs.start(store, "r") as again:
        assert again.state == [1.0]


def test_what_cannot_be_adopted(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with limpet.open(url) as store:
        with runs.start(store, "done", on_success="keep"):
            pass
        desert(store, "empty")
        desert(store, "r")
    for command in ([], ["--", "true"]):
        assert run(["runs", "adopt", "done", "--url", url, *command]) == 3
        assert run(["runs", "adopt", "nobody", "--url", url, *command]) == 1
    # A command that is mistyped does not make the run fail.
    assert run(["runs", "adopt", "r", "--url", url, "--", "no such command"]) == 2
    assert found(url, "r").status == "expired"
    capsys.readouterr()
    assert run(["runs", "adopt", "empty", "--url", url]) == 0
    assert capsys.readouterr().out == "null\n"


def begun(url: str, folder: Path) -> "subprocess.Popen[str]":
    """Adopt the run with a command that does not end by itself; return when it is under way."""
    mark = folder / "begun"
    script = f"echo $$ > '{mark}.tmp'; mv '{mark}.tmp' '{mark}'; exec sleep 60"
    process = subprocess.Popen(
        [EXECUTABLE, "runs", "adopt", "r", "--url", url, "--", "sh", "-c", script],
        preexec_fn=mind_ctrl_c,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    until(mark.exists)
    return process


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_command_is_stopped_also_while_it_begins(url: str, tmp_path: Path) -> None:
    desert_in(url)
    script = f"echo $$ > '{tmp_path / 'pid'}'; kill -TERM $PPID; exec sleep 60"
    adopt = ("runs", "adopt", "r", "--url", url, "--", "sh", "-c", script)
    assert subprocess.run([EXECUTABLE, *adopt], timeout=300).returncode == 143
    until(lambda: is_gone(int((tmp_path / "pid").read_text())))


@pytest.mark.parametrize("how", ["abort", "Ctrl-C", "terminate"])
def test_a_command_is_stopped_with_its_run(how: str, url: str, tmp_path: Path) -> None:
    desert_in(url)
    with begun(url, tmp_path) as process:
        child = int((tmp_path / "begun").read_text())
        if how == "abort":
            with limpet.open(url) as store:
                runs.abort(store, "r")
        elif how == "Ctrl-C":
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of them
        else:
            process.terminate()
        told = process.communicate(timeout=300)[1]
    expected = {"abort": (3, "aborted"), "Ctrl-C": (130, "failed"), "terminate": (143, "failed")}
    assert (process.returncode, found(url, "r").status) == expected[how]
    if how == "terminate":
        assert found(url, "r").error == runs.RunError("Terminated", "SIGTERM")
    assert "Traceback" not in told
    until(lambda: is_gone(child))  # whoever has it then reaps it soon
