"""The terminal: styles, console and pager; and tables that stream, aligned."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache
from itertools import islice
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from rich.console import Console
from rich.text import Text
from rich.theme import Theme

from limpet.core.times import from_us
from limpet.model import ScopeKey, SnapshotRef
from limpet.opening import draw, environment
from limpet.views.format import age_text, short_id, status_or_dash, visible

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


# Tables: as wide as the terminal if what must be typed fits into it

_GAP = 2
_PAGE_ROWS = 50  # rows that are measured together, so that the first rows appear early
_STATUS_STYLES = {
    **dict.fromkeys(("completed", "done", "success", "succeeded"), "good"),
    **dict.fromkeys(("pending", "queued", "running", "started", "interrupted"), "accent"),
    **dict.fromkeys(("aborted", "cancelled", "damaged", "error", "failed", "timeout"), "bad"),
}


class Column(NamedTuple):
    """A column of a table.

    It may be cut down to `cells_min` cells; 0 means never. If there is still no room, columns are
    left out, the highest `rank` first; those of rank 0 never are, and are then cut further. What is
    `below` has lines of its own under its row, which are never cut.
    """

    title: str
    right: bool = False
    cells_min: int = 0
    rank: int = 0
    below: bool = False


Cells: TypeAlias = Mapping[Column, Callable[[Any], Text | datetime]]
"""The columns of a table, each with what makes its cell of an item. A time is shown as an age."""


def table(
    columns: Sequence[Column], rows: Iterable[Sequence[Text]], width: int, *, titles: bool = True
) -> Iterator[Text]:
    """Yield the lines of a table, the titles first; nothing if there are no rows.

    Holds fifty rows; later ones may make a column wider. Empty columns are left out.
    """
    heading = [Text(column.title, "quiet") for column in columns] if titles else None
    reader = iter(rows)
    widths = [0] * len(columns)
    while some := list(islice(reader, _PAGE_ROWS)):
        widths = [
            0 if columns[at].below else max(before, *(row[at].cell_len for row in some))
            for at, before in enumerate(widths)
        ]
        if heading is not None:
            widths = [
                max(cells, title.cell_len) if cells else 0
                for cells, title in zip(widths, heading, strict=True)
            ]
        fitted = _fitted(columns, widths, _chosen(columns, widths, width), width)
        if heading is not None:
            yield _line(columns, heading, fitted)
            heading = None
        for row in some:
            yield _line(columns, row, fitted)
            yield from (row[at] for at, each in enumerate(columns) if each.below and row[at])


def _chosen(columns: Sequence[Column], widths: Sequence[int], width: int) -> list[int]:
    shown = [at for at, cells in enumerate(widths) if cells]
    while _needed(columns, widths, shown) > width:
        last = max(shown, key=lambda at: columns[at].rank)
        if columns[last].rank == 0:
            break
        shown.remove(last)
    return shown


def _needed(columns: Sequence[Column], widths: Sequence[int], shown: Sequence[int]) -> int:
    least = (min(widths[at], columns[at].cells_min or widths[at]) for at in shown)
    return sum(least) + _GAP * (len(shown) - 1)


def _fitted(
    columns: Sequence[Column], widths: Sequence[int], shown: Sequence[int], width: int
) -> dict[int, int]:
    fitted = {at: widths[at] for at in shown}
    excess = sum(fitted.values()) + _GAP * (len(shown) - 1) - width
    while excess > 0:
        soft = [at for at in shown if fitted[at] > columns[at].cells_min > 0]
        # No other column can be left out: better a short text than a line that wraps.
        soft = soft or [at for at in shown if columns[at].cells_min and fitted[at] > 1]
        if not soft:
            break
        fitted[max(soft, key=fitted.__getitem__)] -= 1
        excess -= 1
    return fitted


def _line(columns: Sequence[Column], row: Sequence[Text], fitted: dict[int, int]) -> Text:
    line = Text()
    room = 0  # spaces before the next cell, so that no line ends with spaces
    for at, cells in fitted.items():
        text, length = row[at], row[at].cell_len
        if length > cells:
            text = text.copy()
            text.truncate(cells, overflow="ellipsis")
            length = text.cell_len
        left = cells - length
        if length:
            line.append(" " * (room + left if columns[at].right else room))
            line.append_text(text)
            room = _GAP if columns[at].right else left + _GAP
        else:
            room += cells + _GAP
    return line


def print_line(console: Console, line: Text) -> None:
    """Print one line as it is: an id that is wider than the terminal must be whole, too."""
    if console.color_system is None and not console.quiet:
        console.file.write(f"{line.plain}\n")  # many times faster, with the same result
    else:
        console.print(line, soft_wrap=True)


def print_table(console: Console, cells: Cells, items: Iterable[Any]) -> None:
    moment = now()  # the same for all rows

    def shown(cell: Text | datetime) -> Text:
        return cell if isinstance(cell, Text) else Text(age_text(cell, moment), "quiet")

    rows = ([shown(cell(item)) for cell in cells.values()] for item in items)
    for line in table([*cells], rows, console.width):
        print_line(console, line)


def say(*parts: str | Text | tuple[str, str], stderr: bool = False) -> None:
    """Print a line of styled parts, which is never cut."""
    _console_of(sys.stderr if stderr else sys.stdout).print(Text.assemble(*parts), soft_wrap=True)


@lru_cache(maxsize=2)
def _console_of(stream: IO[str]) -> Console:
    return _Console(file=stream)


def source_text(source: SnapshotRef, key: ScopeKey) -> str:
    """Return the source of a fork, with the session only if it is another one."""
    place = source.scope.scope_id
    if source.scope.session_id != key.session_id:
        place = f"{source.scope.session_id}:{place}"
    _, gap, end = short_id(source.id).rpartition("…")
    return visible(f"{place}@{gap}{end}")


def status_text(status: str) -> Text:
    style = _STATUS_STYLES.get(status.lower(), "odd") if status else "quiet"
    return Text(status_or_dash(status), style)


def now() -> datetime:
    return from_us(draw().now)
