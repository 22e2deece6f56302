"""The rows of a graph as SVG: lanes, forks, and a node for each snapshot."""

from collections.abc import Iterator

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
    """Return the attributes of a lane's lines."""
    return f'class="{lane_class(lane)}"' + (_DOTTED if lane in row.lone else "")


def _line(look: str, x1: float, y1: str, x2: float, y2: str, more: str = "") -> str:
    return f'<line {look} x1="{x1:g}" y1="{y1}" x2="{x2:g}" y2="{y2}"{more}/>'


def _corner(look: str, way: str) -> str:
    """Draw around a corner; 0 is the middle of the row, which the path itself cannot name."""
    path = f'<path {look} fill="none" stroke-width="2" d="{way}"/>'
    return f'<svg y="50%" overflow="visible">{path}</svg>'
