"""Tables that stream: aligned by cells, never wider than the terminal, and never wrapped."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from limpet.core.times import from_us
from limpet.model import ScopeKey, SnapshotRef
from limpet.opening import draw
from limpet.views.sizes import short_id, visible

_GAP = 2
_AT_ONCE = 50  # rows that are measured together, so that the first of many are seen at once
_STATUS_STYLES = {
    **dict.fromkeys(("completed", "done", "success", "succeeded"), "good"),
    **dict.fromkeys(("pending", "queued", "running", "started", "interrupted"), "accent"),
    **dict.fromkeys(("aborted", "cancelled", "damaged", "error", "failed", "timeout"), "bad"),
}


class Column(NamedTuple):
    """A column of a table.

    `cells_min` makes it one that gives way: it may be cut down to so many cells, and 0 is one that
    must be seen whole. Where there is still no room, the columns of the highest `rank` are left
    out; those of rank 0 never are.
    """

    title: str
    right: bool = False
    cells_min: int = 0
    rank: int = 0


def table(
    columns: Sequence[Column], rows: Iterable[Sequence[Text]], width: int, *, titles: bool = True
) -> Iterator[Text]:
    """Yield the lines of a table, the titles first; nothing if there are no rows.

    Reads fifty rows ahead and holds no more; later rows may make a column wider. A column that is
    empty is left out, title and all.
    """
    heading = [Text(column.title, "quiet") for column in columns] if titles else None
    reader = iter(rows)
    widths = [0] * len(columns)
    while some := list(islice(reader, _AT_ONCE)):
        widths = [
            max(before, *(row[at].cell_len for row in some)) for at, before in enumerate(widths)
        ]
        if heading is not None:
            some.insert(0, heading)
            widths = [
                max(cells, title.cell_len) if cells else 0
                for cells, title in zip(widths, heading, strict=True)
            ]
            heading = None
        fitted = _fitted(columns, widths, _chosen(columns, widths, width), width)
        for row in some:
            yield _line(columns, row, fitted)


def _chosen(columns: Sequence[Column], widths: Sequence[int], width: int) -> list[int]:
    """Return the columns that there is room for; one that is empty needs none."""
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
    """Return the cells of each column: the widest of those that give way do so first."""
    fitted = {at: widths[at] for at in shown}
    excess = sum(fitted.values()) + _GAP * (len(shown) - 1) - width
    while excess > 0:
        soft = [at for at in shown if fitted[at] > columns[at].cells_min > 0]
        if not soft:
            break
        fitted[max(soft, key=fitted.__getitem__)] -= 1
        excess -= 1
    return fitted


def _line(columns: Sequence[Column], row: Sequence[Text], fitted: dict[int, int]) -> Text:
    line = Text()
    room = 0  # cells to leave free before what comes next, so that none are left at the end
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
    """Print one line; what does not fit is cut off."""
    if console.color_system is None and line.cell_len <= console.width:
        # Many times faster, and the same where there is nothing to colour.
        console.file.write(f"{line.plain}\n")
    else:
        console.print(line, no_wrap=True, overflow="ellipsis")


def source_text(source: SnapshotRef, key: ScopeKey) -> str:
    """Return where a fork began, with the session only if it is another, and the end of the id."""
    place = source.scope.scope_id
    if source.scope.session_id != key.session_id:
        place = f"{source.scope.session_id}:{place}"
    _, gap, end = short_id(source.id).rpartition("…")
    return visible(f"{place}@{gap}{end}")


def status_text(status: str) -> Text:
    """Return a status in the colour of what it means."""
    return Text(visible(status), _STATUS_STYLES.get(status.lower(), "odd"))


def now() -> datetime:
    """Return the moment that ages are told from."""
    return from_us(draw().now)
