"""`limpet completion`: the scripts, and what the Tab key offers."""

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

import limpet
from limpet.cli._app import app, run
from tests.cli.conftest import EXECUTABLE, Command
from tests.each_case import each_case

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


@each_case("shell", ["bash", "zsh", "fish"])
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


def test_at_most_fifty(url: str) -> None:
    with limpet.open(url) as store:
        for number in range(60):
            store.scope(f"many-{number}").save(1)
    assert len(here("rm", "--url", url, "many-")) == 50


@each_case(
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


def test_verbs_and_options_are_completed() -> None:
    assert here("pru") == ["prune"]
    assert "--older-than" in here("prune", "--o")


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
