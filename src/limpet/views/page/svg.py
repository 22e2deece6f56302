"""Pictures as SVG: the rows of a graph, and rows of numbers."""

from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise

from limpet.views.tree import GraphRow, LaneCell

CELL_PX = 9
"""The width of a cell; a lane has two."""

_SIDE, _NODE, _CORNER = 5, 4, 7  # lines at whole pixels are sharp
_COLOURS = 6
_MARKS = "●◆◇"
_DOTTED = ' stroke-dasharray="0.1 5" stroke-linecap="round"'  # saved after, but naming no parent
_BROKEN = ' stroke-dasharray="3 3"'


def graph_svg(
    row: GraphRow, *, is_root: bool, follows: bool = False, cells_shown: int | None = None
) -> str:
    """Draw a row. Heights are relative: it may have any.

    A root that `follows` something that is not drawn has the beginning of a line to it. With
    `cells_shown` the drawing is that wide. A wider row is cut at its right, or at its left if its
    node would not be seen.
    """
    cells_shown = cells_shown or row.width
    middle = 2 * len(row.passing)
    cut = max(0, middle + 1 - cells_shown)
    cells = row.lanes[cut : cut + cells_shown]
    shapes = [_shape(row, cell, at) for at, cell in enumerate(cells)]
    shapes += _node(row, middle - cut, is_root=is_root, follows=follows)
    width = cells_shown * CELL_PX
    return f'<svg width="{width}" height="100%" aria-hidden="true">{"".join(shapes)}</svg>'


def _shape(row: GraphRow, cell: LaneCell, at: int) -> str:
    left, x, right = at * CELL_PX, at * CELL_PX + _SIDE, (at + 1) * CELL_PX
    if cell.lane is None or cell.char in _MARKS:
        return ""
    look = _look(row, cell.lane)
    if cell.char == "│":
        return _line(look, x, "0", x, "100%")
    if cell.char == "─":
        return _line(look, left, "50%", right, "50%")
    if cell.char == "├":
        # What is to the right of it joins this lane, which leads down to the parent of both.
        joining = _corner(_look(row, row.lane), f"M{right:g} 0Q{x:g} 0 {x:g} {_CORNER}")
        return _line(look, x, "0", x, "100%") + joining
    through = ""
    if cell.char == "┴":
        # The line of the next lane that ends goes through below this one.
        further = row.ending[row.ending.index(cell.lane) + 1]
        through = _line(_look(row, further), left, "50%", right, "50%")
    upwards = _line(look, x, "0", x, "50%", f' transform="translate(0 {-_CORNER})"')
    return through + upwards + _corner(look, f"M{x:g} {-_CORNER}Q{x:g} 0 {left:g} 0")


def _node(row: GraphRow, at: int, *, is_root: bool, follows: bool) -> Iterator[str]:
    node, x = row.node, at * CELL_PX + _SIDE
    if row.above is not None:
        yield _line(_look(row, row.above), x, "0", x, "50%")
    if is_root and follows:
        yield _line(_look(row, row.lane), x, "50%", x, "90%", _BROKEN)
    elif not is_root and not row.joins:
        yield _line(_look(row, row.lane), x, "50%", x, "100%")
    kind = "n" if node.info.kept else "n draft"
    ring = f'<circle class="ring" cx="{x:g}" cy="50%" r="{_NODE + 2.5}"/>' if node.is_head else ""
    drawn = f'{ring}<circle class="{kind}" cx="{x:g}" cy="50%" r="{_NODE}"/>'
    yield f'<g class="{lane_class(row.lane)}">{drawn}</g>'


def lane_class(lane: int) -> str:
    """Return the class that gives a lane its colour."""
    return f"l{lane % _COLOURS}"


def _look(row: GraphRow, lane: int) -> str:
    return f'class="{lane_class(lane)}"' + (_DOTTED if lane in row.lone else "")


def _line(look: str, x1: float, y1: str, x2: float, y2: str, more: str = "") -> str:
    return f'<line {look} x1="{x1:g}" y1="{y1}" x2="{x2:g}" y2="{y2}"{more}/>'


def _corner(look: str, way: str) -> str:
    """Draw around a corner; 0 is the middle of the row, which the path itself cannot name."""
    path = f'<path {look} fill="none" stroke-width="2" d="{way}"/>'
    return f'<svg y="50%" overflow="visible">{path}</svg>'


# Rows of numbers

_POINTS_MAX = 120
_WIDTH, _HEIGHT, _MARGIN = 160, 32, 3


def sparkline(values: Sequence[float], text: str) -> str:
    """Draw values from left to right, as an area from 0 up; `text` says what they are.

    Of many values, the largest of each group is drawn: no peak is lost.
    """
    points = _places(grouped(values, _POINTS_MAX))
    line = " ".join(f"{x:g},{y:g}" for x, y in points)
    area = f"{_MARGIN},{_HEIGHT} {line} {points[-1][0]:g},{_HEIGHT}"
    x, y = points[-1]
    return _svg(
        f'<polygon class="area" points="{area}"/><polyline class="curve" points="{line}"/>'
        f'<circle class="last" cx="{x:g}" cy="{y:g}" r="2.5"/>',
        text,
    )


def bars(values: Sequence[float], text: str) -> str:
    """Draw values as bars, like `sparkline`."""
    points = _places(grouped(values, _POINTS_MAX // 3))
    drawn = "".join(
        f'<line class="column" x1="{x:g}" x2="{x:g}" y1="{_HEIGHT}" y2="{y:g}"/>' for x, y in points
    )
    return _svg(drawn, text)


def _svg(drawn: str, text: str) -> str:
    return (
        f'<svg class="spark" width="{_WIDTH}" height="{_HEIGHT}" role="img"'
        f' viewBox="0 0 {_WIDTH} {_HEIGHT}" aria-label="{escape(text)}">{drawn}</svg>'
    )


def grouped(values: Sequence[float], count_max: int) -> list[float]:
    """Return at most so many values: the largest of each group of neighbours."""
    count = min(count_max, len(values))
    bounds = [len(values) * number // count for number in range(count + 1)]
    return [max(values[start:end]) for start, end in pairwise(bounds)]


def _places(values: Sequence[float]) -> list[tuple[float, float]]:
    largest = max([*values, 0]) or 1
    step = (_WIDTH - 2 * _MARGIN) / max(1, len(values) - 1)
    high = _HEIGHT - 2 * _MARGIN
    return [
        (round(_MARGIN + at * step, 1), round(_MARGIN + high * (1 - value / largest), 1))
        for at, value in enumerate(values)
    ]
