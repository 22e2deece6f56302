"""The terminal: styles, console and pager."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, cast

from rich.console import Console
from rich.theme import Theme

from limpet.opening import environment

if TYPE_CHECKING:
    import subprocess

_COLUMNS_MAX = 100  # prose in longer lines is hard to read
THEME = Theme(
    {
        "title": "bold",
        "quiet": "dim",
        "good": "green",
        "bad": "bold red",
        "odd": "yellow",
        "more": "green",
        "less": "red",
        "accent": "cyan",
        "fork": "magenta",
        "size": "cyan",
        "user": "bold cyan",
        "assistant": "bold green",
        "system": "bold yellow",
        "tool": "bold magenta",
    }
)


class _Console(Console):
    """A console that prints text as it is, without markup."""

    def __init__(self, **options: Any) -> None:
        super().__init__(theme=THEME, markup=False, highlight=False, emoji=False, **options)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # the default would end the process


def make_console(*, stderr: bool = False, wide: bool = False) -> Console:
    """Return a console of at most 100 columns, or as wide as the terminal for a table."""
    console = _Console(stderr=stderr)
    if not wide:
        console.width = min(console.width, _COLUMNS_MAX)
    return console


@contextmanager
def output(*, pager: bool = True, wide: bool = False) -> Iterator[Console]:
    """Yield a console for stdout, through a pager if that is a terminal.

    `$LIMPET_PAGER` or `$PAGER` names the pager; `cat` is none. If the user leaves the pager, the
    rest of the output is dropped.
    """
    console = make_console(wide=wide)
    is_interactive = console.is_terminal and not console.is_dumb_terminal and sys.stdout.isatty()
    command = _pager() if pager and is_interactive else None
    if command is None:
        yield console
        return
    import subprocess  # most calls need no pager

    # -F: quit if it fits on one screen, -R: show colours, -X: keep the text on the screen.
    env = {"LESS": "FRX", **environment(LESSCHARSET="utf-8")}
    process = subprocess.Popen(  # noqa: S603  # the user names the program
        command, stdin=subprocess.PIPE, env=env, text=True, encoding="utf-8"
    )
    paged = _Console(
        file=cast(IO[str], process.stdin),
        force_terminal=True,
        width=console.width,
        no_color=console.no_color,
    )
    try:
        yield paged
    except BrokenPipeError:
        pass  # the user left the pager
    finally:
        _leave(process)


def _pager() -> list[str] | None:
    import shlex
    import shutil

    env = environment()
    named = env.get("LIMPET_PAGER", env.get("PAGER", "less"))
    try:
        words = shlex.split(named)
    except ValueError:  # a quote that is not closed
        return None
    if not words or words[0] == "cat" or shutil.which(words[0]) is None:
        return None
    return words


def _leave(process: "subprocess.Popen[str]") -> None:
    """Wait for the pager; Ctrl-C meanwhile is meant for it."""
    try:
        if process.stdin is not None:
            process.stdin.close()
    except BrokenPipeError:
        pass
    while True:
        try:
            process.wait()
            return
        except KeyboardInterrupt:
            continue
