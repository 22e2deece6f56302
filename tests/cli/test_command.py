"""What all verbs share: errors in one line, exit codes, Ctrl-C, the missing extra, a terminal."""

import os
import pty
import re
import subprocess
import sys
import time

import pytest

import limpet
from limpet.cli import _exits
from limpet.cli._app import run
from tests.cases import for_each
from tests.cli.conftest import EXECUTABLE, Command
from tests.waiting import WAIT_S_MAX

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


@for_each(
    ("missing", "arguments"),
    [(["click"], []), (["rich"], ["stats"]), (["orjson"], [])],
)
def test_without_the_extra_one_line_tells_how_to_get_it(
    missing: list[str], arguments: list[str]
) -> None:
    script = WITHOUT.format(missing=missing, arguments=arguments)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=False
    )
    if missing == ["orjson"]:  # which the extra does not bring
        assert (done.returncode, "pip install" in done.stderr) == (1, False)
        return
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "the command line is not installed: pip install 'limpet[cli]'\n"


CODES = {
    limpet.NotFound: 1,
    limpet.InvalidInput: 2,
    limpet.Unsupported: 2,
    limpet.AlreadyExists: 3,
    limpet.Conflict: 3,
    limpet.Unavailable: 4,
    limpet.Corrupt: 5,
    KeyboardInterrupt: 130,
}


@for_each(("error", "code"), CODES.items())
def test_each_error_has_its_exit_code_and_one_line(
    error: type[BaseException],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(store: limpet.Store, session_id: str | None = None) -> None:
        raise error("this\nfailed. url=`s3://key:hunter2@bucket/x` id=`\x1b[2J`")

    monkeypatch.setattr(limpet.Store, "stats", fail)
    assert run(["stats", "--url", "memory:"]) == code
    line = "limpet: this failed. url=`s3://***@bucket/x` id=`\\x1b[2J`\n"
    assert capsys.readouterr().err.lstrip() == (line if code < 130 else "")


def test_every_error_has_an_exit_code() -> None:
    tree = limpet.LimpetError.__subclasses__()
    # Those of foreign interfaces never reach the command line.
    ours = {each for each in tree if each.__module__ == "limpet.errors"}
    assert ours == _exits._CODES.keys() == CODES.keys() - {KeyboardInterrupt}


# On a real terminal


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the URL of a store with a history, and a state, that do not fit on a screen."""
    url = f"sqlite:///{tmp_path_factory.mktemp('long') / 'long.db'}"
    with limpet.open(url, synchronous="off") as store:
        lines = [f"line {number} of much text" for number in range(9000)]
        store.scope("tall").save({"text": "\n".join(lines)})
        for number in range(300):
            store.scope("long").save({"text": f"number {number} " + "x" * 300}, status="completed")
    return url


def on_terminal(*arguments: str, answer: str = "", **env: str) -> tuple[int, str]:
    """Run the command on a terminal of its own; return its exit code and all that was drawn.

    The answer is given to the question that it asks.
    """
    pid, terminal = pty.fork()
    if pid == 0:
        plain = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "LESS", "PAGER")}
        os.execve(EXECUTABLE, [str(EXECUTABLE), *arguments], {**plain, "TERM": "xterm", **env})
    drawn = b""
    while True:
        try:
            some = os.read(terminal, 65536)
        except OSError:  # the terminal of a process that has ended
            break
        if not some:
            break
        drawn += some
        if answer and b"[y/N]" in drawn:
            os.write(terminal, answer.encode())
            answer = ""
    os.close(terminal)
    _, code = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(code), drawn.decode()


def test_colour_is_for_terminals_that_want_it(command: Command) -> None:
    drawn = on_terminal("schema")[1].replace("\r\n", "\n")
    plain = command("schema").stdout
    assert "\x1b[" in drawn
    assert re.sub(r"\x1b\[[0-9;]*m", "", drawn) == plain  # whole lines
    assert "\x1b[3" not in on_terminal("schema", NO_COLOR="1")[1]
    assert "\x1b" not in plain


def test_a_terminal_that_knows_only_ascii_gets_question_marks(process: Command, url: str) -> None:
    done = process("stats", "--url", url, PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert "2 sessions ? 2 scopes" in done.stdout


@for_each("pager", ["head -3", "true"])
def test_leaving_the_pager_is_fine(long: str, pager: str) -> None:
    code, drawn = on_terminal("log", "long", "--url", long, PAGER=pager)
    assert code == 0
    assert "Traceback" not in drawn
    assert drawn.count("completed") < 100


@for_each("env", [{"PAGER": "less 'x"}, {"TERM": "dumb"}])
def test_without_a_pager_all_of_it_is_drawn(long: str, env: dict[str, str]) -> None:
    code, drawn = on_terminal("log", "long", "--url", long, **env)
    assert (code, drawn.count("completed")) == (0, 300)
    assert ("\x1b[" in drawn) == ("TERM" not in env)


@for_each(
    "arguments",
    [["grep", "number", "--history"], ["show", "tall@", "--full"], ["export"], ["tail", "-f"]],
)
def test_a_pipe_that_nobody_reads_ends_it_quietly(long: str, arguments: list[str]) -> None:
    process = subprocess.Popen(
        [EXECUTABLE, *arguments, "--url", long],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    assert process.stdout is not None
    assert process.stdout.readline()
    process.stdout.close()
    with limpet.open(long) as store:
        while arguments == ["tail", "-f"] and process.poll() is None:  # it notices when it writes
            store.scope("more").save(time.monotonic())
    _, told = process.communicate(timeout=WAIT_S_MAX)
    assert (process.returncode, told) == (141, "")
