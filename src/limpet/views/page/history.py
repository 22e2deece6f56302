"""The history of a scope as a table, with a graph of its branches."""

from collections.abc import Iterator

from limpet.model import SnapshotInfo, SnapshotRef
from limpet.views.document import ScopePage, labels_text
from limpet.views.format import address_text, moment_text, short_id, size_text
from limpet.views.page.chat import escaped
from limpet.views.tree import GraphRow, LaneCell, Node, build_forest, graph_rows

_CELL_PX = 9
_LANES = 6  # colours
_SIDE, _NODE = _CELL_PX / 2, 4
_UPWARDS, _THROUGH, _LEFT, _RIGHT = "┴╯", "│├", "─┴╯", "─┴├"
_GOOD = ("completed", "done", "succeeded")
_BAD = ("failed", "error", "aborted", "cancelled", "expired")


def history_html(page: ScopePage, anchor: str) -> Iterator[str]:
    heads = [] if page.head is None else [SnapshotRef(page.key, page.head.id)]
    forest = build_forest(reversed(page.history), heads)
    anchors = {info.id: f"{anchor}-{number}" for number, info in enumerate(page.history)}
    roots = {id(node) for node in forest}
    rows = graph_rows(forest)
    width = _CELL_PX * (1 + max(len(row.lanes) for row in rows))
    yield f'<table class="history"><colgroup><col width="{width}"></colgroup><thead><tr>'
    yield "<th></th><th>saved (UTC)</th><th>snapshot</th><th>status</th><th>follows</th>"
    yield "<th>size</th></tr></thead><tbody>\n"
    for row in rows:
        yield _row(row, anchors, is_root=id(row.node) in roots)
    yield "</tbody></table>\n"


def _row(row: GraphRow, anchors: dict[str, str], *, is_root: bool) -> str:
    info = row.node.info
    kind = ' class="head"' if row.node.is_head else ""
    labels = f'<div class="labels">{escaped(labels_text(info))}</div>' if info.labels else ""
    return (
        f'<tr id="{anchors[info.id]}"{kind}>'
        f'<td class="lines">{_drawing(row, is_root=is_root)}</td>'
        f'<td><time datetime="{info.created_at.isoformat()}">'
        f"{moment_text(info.created_at)}</time></td>"
        f'<td><code class="id">{escaped(info.id)}</code>{labels}</td>'
        f'<td><span class="status {tone_of(info.status)}">{escaped(info.status)}</span></td>'
        f"<td>{_follows(info, anchors)}</td>"
        f'<td class="size">{size_text(info.size)}</td></tr>\n'
    )


def _follows(info: SnapshotInfo, anchors: dict[str, str]) -> str:
    found = []
    if info.parent_id is not None:
        name = f'<code title="{escaped(info.parent_id)}">{escaped(short_id(info.parent_id))}</code>'
        there = anchors.get(info.parent_id)
        found.append(f'<a href="#{there}">{name}</a>' if there else name)
    if info.forked_from is not None:
        found.append(f"forked from <code>{escaped(address_text(*info.forked_from))}</code>")
    return "<br>".join(found)


def tone_of(status: str) -> str:
    return "good" if status in _GOOD else "bad" if status in _BAD else "open"


def _drawing(row: GraphRow, *, is_root: bool) -> str:
    """Draw the lanes of a row as SVG, with relative heights."""
    shapes = [_shape(cell, at) for at, cell in enumerate(row.lanes)]
    middle = next(at for at, cell in enumerate(row.lanes) if cell.char in "●◆◇")
    joins = middle > 1 and row.lanes[middle - 2].char == "├"
    shapes += _node(row.node, row.lane, middle, is_root=is_root, joins=joins)
    width = len(row.lanes) * _CELL_PX
    return f'<svg width="{width}" height="100%" aria-hidden="true">{"".join(shapes)}</svg>'


def _shape(cell: LaneCell, at: int) -> str:
    left, x, right = at * _CELL_PX, at * _CELL_PX + _SIDE, (at + 1) * _CELL_PX
    lane = (cell.lane or 0) % _LANES
    drawn = ""
    if cell.char in _THROUGH:
        drawn += _line(lane, x, "0", x, "100%")
    if cell.char in _UPWARDS:
        drawn += _line(lane, x, "0", x, "50%")
    if cell.char in _LEFT:
        drawn += _line(lane, left, "50%", x, "50%")
    if cell.char in _RIGHT:
        drawn += _line(lane, x, "50%", right, "50%")
    return drawn


def _node(node: Node, lane: int, at: int, *, is_root: bool, joins: bool) -> Iterator[str]:
    x, lane = at * _CELL_PX + _SIDE, lane % _LANES
    if node.children:
        yield _line(lane, x, "0", x, "50%")
    if not is_root and not joins:
        yield _line(lane, x, "50%", x, "100%")
    kind = "n" if node.info.kept else "n draft"
    ring = f'<circle class="ring" cx="{x}" cy="50%" r="{_NODE + 2.5}"/>' if node.is_head else ""
    yield f'<g class="l{lane}">{ring}<circle class="{kind}" cx="{x}" cy="50%" r="{_NODE}"/></g>'


def _line(lane: int, x1: float, y1: str, x2: float, y2: str) -> str:
    return f'<line class="l{lane}" x1="{x1:g}" y1="{y1}" x2="{x2:g}" y2="{y2}"/>'
