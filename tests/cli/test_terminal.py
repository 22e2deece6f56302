"""The verbs on a real terminal: the pager and who leaves it, and pipes that are closed."""

import os
import pty
import subprocess

import pytest

import limpet
from tests.cli.conftest import EXECUTABLE
from tests.each_case import each_case


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


def on_terminal(*arguments: str, **env: str) -> tuple[int, str]:
    """Run the command on a terminal of its own; return its exit code and all that was drawn."""
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
    os.close(terminal)
    _, code = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(code), drawn.decode()


@each_case("pager", ["head -3", "true"])
def test_leaving_the_pager_is_fine(long: str, pager: str) -> None:
    code, drawn = on_terminal("log", "long", "--url", long, PAGER=pager)
    assert code == 0
    assert "Traceback" not in drawn
    assert drawn.count("completed") < 100


@each_case("env", [{"PAGER": ""}, {"PAGER": "less 'x"}, {"TERM": "dumb"}])
def test_without_a_pager_all_of_it_is_drawn(long: str, env: dict[str, str]) -> None:
    code, drawn = on_terminal("log", "long", "--url", long, **env)
    assert (code, drawn.count("completed")) == (0, 300)
    assert ("\x1b[" in drawn) == ("TERM" not in env)


def test_rm_asks_and_no_is_no(long: str) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(EXECUTABLE, [str(EXECUTABLE), "rm", "long", "--url", long], dict(os.environ))
    drawn = b""
    while b"[y/N]" not in drawn:
        drawn += os.read(terminal, 1024)
    os.write(terminal, b"n\n")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
    os.close(terminal)
    assert "300 snapshots" in drawn.decode()
    with limpet.open(long) as store:
        assert store.stats("long").snapshots == 300


@each_case(
    "arguments",
    [["grep", "number", "--history"], ["show", "tall@", "--full"], ["export"]],
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
    _, told = process.communicate()
    assert (process.returncode, told) == (141, "")
