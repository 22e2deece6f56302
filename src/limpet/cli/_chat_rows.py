"""Long text in few rows: wrapped by cells, and folded where there is too much of it."""

import re
from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.text import Text

from limpet.views.names import visible
from limpet.views.sizes import count_text

_KEY = re.compile(r'(\s*)("(?:[^"\\]|\\.)*")(?=: )')
_TAB = 4
_CELLS_MIN = 10


def lines_of(text: str, style: str = "") -> Iterator[Text]:
    """Yield the lines of somebody's text, without escape sequences, and without empty ends."""
    for line in text.strip("\r\n").split("\n"):
        yield Text(visible(line.rstrip().expandtabs(_TAB)), style)


def code(json_text: str) -> Iterator[Text]:
    """Yield the lines of indented JSON, with its keys in colour."""
    for line in json_text.split("\n"):
        found = _KEY.match(line)
        if found is None:
            yield Text(line)
        else:
            yield Text.assemble(found[1], (found[2], "accent"), line[found.end() :])


def fold(
    console: Console,
    lines: Iterable[Text],
    margin: Text,
    rows_max: int | None,
    *,
    hanging: int = 0,
) -> Iterator[Text]:
    """Yield lines as rows that fit beside a margin, then how much was left out if it is too much.

    A line that goes on is indented by `hanging` cells. A single row too many is drawn: to say
    that it is missing would take as much room.
    """
    lines = list(lines)
    width = max(_CELLS_MIN, console.width - margin.cell_len - hanging)
    # With two rows more than allowed it is known that there are too many.
    needed = None if rows_max is None else rows_max + 2
    rows: list[tuple[int, Text]] = []
    for at, line in enumerate(lines):
        room = None if needed is None else needed - len(rows)
        if room == 0:
            break
        pieces = _wrapped(console, line, width, room)
        rows += [(at, _hung(piece, hanging if turn else 0)) for turn, piece in enumerate(pieces)]
    is_cut = needed is not None and len(rows) == needed
    shown = rows[:rows_max] if is_cut else rows
    for _, row in shown:
        row = margin + row
        row.rstrip()
        yield row
    if is_cut:
        yield margin + Text(f"… {_rest(lines, shown)} (--full)", "quiet")


def _wrapped(console: Console, line: Text, width: int, room: int | None) -> list[Text]:
    """Return the rows of a line, at most as many as there is room for, and no work for others."""
    if room is not None:
        line = line[: room * width]
    return list(line.wrap(console, width))[:room]


def _hung(row: Text, cells: int) -> Text:
    return Text(" " * cells) + row if cells else row


def _rest(lines: list[Text], shown: list[tuple[int, Text]]) -> str:
    last = shown[-1][0] if shown else -1
    if last < len(lines) - 1:
        return count_text(len(lines) - 1 - last, "more line")
    seen = sum(len(row) for at, row in shown if at == last)
    return count_text(len(lines[last]) - seen, "more character")
