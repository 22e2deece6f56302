"""What all verbs share: help, errors in one line, secrets, colour, Ctrl-C, the missing extra."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

import limpet
from limpet.cli import _exits
from limpet.cli._app import VERBS, run
from tests.cli.conftest import EXECUTABLE, Command
from tests.each_case import each_case

SECRET = "hunter2"

WITHOUT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
sys.argv = ["limpet", *{arguments!r}]
from limpet.cli import main
sys.exit(main())
"""


def test_help(command: Command) -> None:
    done = command("--help")
    assert (done.returncode, done.stderr) == (0, "")
    for verb in VERBS:
        assert f"\n  {verb} " in done.stdout
    for verb in ("stats", "import"):
        assert command(verb, "-h").stdout.startswith(f"Usage: limpet {verb} ")


def test_version(process: Command) -> None:
    assert process("--version").stdout == f"limpet {limpet.__version__}\n"


def test_without_a_verb_is_usage(command: Command) -> None:
    done = command()
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Usage: limpet ")


@each_case("arguments", [["nonsense"], ["stats", "--nonsense"], ["stats", "a", "b"]])
def test_what_is_not_understood_is_2(command: Command, arguments: list[str]) -> None:
    done = command(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 2
    assert done.stderr.startswith("Usage: ")


@each_case(
    ("missing", "arguments"),
    [(["click"], []), (["rich"], ["stats"]), (["click", "rich"], ["--help"])],
)
def test_without_the_extra_one_line_tells_how_to_get_it(
    missing: list[str], arguments: list[str]
) -> None:
    script = WITHOUT.format(missing=missing, arguments=arguments)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "the command line is not installed: pip install 'limpet[cli]'\n"


def test_another_missing_module_is_not_blamed_on_the_extra() -> None:
    script = WITHOUT.format(missing=["orjson"], arguments=[])
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "orjson" in done.stderr
    assert "pip install" not in done.stderr


@each_case(
    ("error", "code"),
    [
        (limpet.NotFound, 1),
        (limpet.InvalidInput, 2),
        (limpet.Unsupported, 2),
        (limpet.AlreadyExists, 3),
        (limpet.Conflict, 3),
        (limpet.Unavailable, 4),
        (limpet.Corrupt, 5),
    ],
)
def test_each_error_has_its_exit_code_and_one_line(
    error: type[limpet.LimpetError],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(store: limpet.Store, session_id: str | None = None) -> None:
        raise error(f"this\nfailed. url=`s3://key:{SECRET}@bucket/x` id=`\x1b[2J`")

    monkeypatch.setattr(limpet.Store, "stats", fail)
    assert run(["stats", "--url", "memory:"]) == code
    assert capsys.readouterr().err == (
        "limpet: this failed. url=`s3://***@bucket/x` id=`\\x1b[2J`\n"
    )


def test_every_error_has_an_exit_code() -> None:
    tree = limpet.LimpetError.__subclasses__()
    # Those of foreign interfaces never reach the command line.
    ours = {each for each in tree if each.__module__ == "limpet.errors"}
    assert ours == _exits._CODES.keys()


@each_case(
    "arguments",
    [
        ["stats", "--url", f"postgres://bob:{SECRET}@127.0.0.1:1/db"],
        ["stats", "--url", f"sqlite://bob:{SECRET}@host/db"],
        ["check", "--url", f"sqlite:///x.db?password={SECRET}"],
        ["stats", "--url", "memory:", f"postgres://bob:{SECRET}@host/db"],
        ["schema", f"postgres://bob:{SECRET}@host/db"],
        [f"postgres://bob:{SECRET}/{SECRET}@host/db"],
    ],
)
def test_secrets_never_appear(command: Command, arguments: list[str]) -> None:
    done = command(*arguments)
    assert done.returncode in (1, 2, 4)
    assert SECRET not in done.stdout + done.stderr


def test_secrets_in_the_environment_never_appear(command: Command) -> None:
    for arguments in (["stats"], ["stats", "--help"], ["doctor"]):
        done = command(*arguments, LIMPET_URL=f"postgres://bob:{SECRET}@127.0.0.1:1/db")
        assert SECRET not in done.stdout + done.stderr


def through_a_terminal(*arguments: str, **env: str) -> str:
    """Run the command in a pseudo-terminal of 80 columns; return what was drawn."""
    ours, theirs = pty.openpty()
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")}
    process = subprocess.Popen(
        [EXECUTABLE, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**kept, "TERM": "xterm-256color", "COLUMNS": "80", **env},
    )
    os.close(theirs)
    drawn = b""
    try:
        while some := os.read(ours, 65536):
            drawn += some
    except OSError:  # how Linux tells that the other side is closed
        pass
    finally:
        os.close(ours)
        process.wait(timeout=60)
    return drawn.decode()


CYAN = "\x1b[36m"


def test_colour_is_for_terminals_that_want_it(command: Command, url: str) -> None:
    asked = ["stats", "--url", url]
    assert CYAN in through_a_terminal(*asked)
    assert CYAN not in through_a_terminal(*asked, NO_COLOR="1")
    assert "\x1b" not in through_a_terminal(*asked, TERM="dumb")
    assert "\x1b" not in command(*asked).stdout


def test_a_terminal_gets_whole_lines_of_sql(command: Command) -> None:
    drawn = through_a_terminal("schema").replace("\r\n", "\n")
    assert "\x1b[" in drawn
    assert re.sub(r"\x1b\[[0-9;]*m", "", drawn) == command("schema").stdout


def test_a_terminal_that_knows_only_ascii_gets_question_marks(process: Command, url: str) -> None:
    done = process("stats", "--url", url, PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert "2 sessions ? 2 scopes" in done.stdout


def test_a_closed_pipe_ends_quietly(url: str) -> None:
    for arguments in ("stats", "schema"):
        # The reader is gone before the first line is written.
        line = f"'{EXECUTABLE}' {arguments} | true"
        done = subprocess.run(
            ["sh", "-c", line],
            env={**os.environ, "LIMPET_URL": url},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stderr == ""


def test_ctrl_c_is_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(store: limpet.Store, session_id: str | None = None) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(limpet.Store, "stats", interrupted)
    assert run(["stats", "--url", "memory:"]) == 130
    assert capsys.readouterr().err.strip() == ""


def test_the_installed_command_is_this_one() -> None:
    assert Path(EXECUTABLE).is_file()
