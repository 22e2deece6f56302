"""The tree of a session: which snapshot follows which, across its scopes, and how to lay it out."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from limpet.model import SnapshotInfo, SnapshotRef


@dataclass(slots=True)
class Node:
    """A snapshot in the tree. The first of its children continues its line."""

    info: SnapshotInfo
    is_head: bool
    is_fork: bool = False
    children: list["Node"] = field(default_factory=list)


def build_forest(
    snapshots: Iterable[SnapshotInfo], heads: Collection[SnapshotRef] = ()
) -> list[Node]:
    """Return the roots, given each scope's snapshots with the oldest first.

    A snapshot hangs on its parent, and the first of a fork on what it was forked from, wherever
    that is among the given ones; else it is a root, since both are statements that may name what
    is gone. Statements that go round in a circle are cut where it was entered first. Children of
    the same scope come first, then forks, each in the order given.
    """
    nodes: dict[SnapshotRef, Node] = {}
    for info in snapshots:
        ref = SnapshotRef(info.scope, info.id)
        nodes[ref] = Node(info, is_head=ref in heads)
    above = {
        ref: found
        for ref, node in nodes.items()
        for found in _above(node.info)
        if found in nodes and found != ref
    }
    for start in _cut(above):
        del above[start]
    roots = [node for ref, node in nodes.items() if ref not in above]
    for ref, found in above.items():
        node, parent = nodes[ref], nodes[found]
        node.is_fork = node.info.scope != parent.info.scope
        parent.children.append(node)
    for node in nodes.values():
        node.children.sort(key=lambda child: child.is_fork)
    return roots


def _above(info: SnapshotInfo) -> Iterator[SnapshotRef]:
    """Yield what a snapshot says it follows; the last that exists counts."""
    if info.forked_from is not None:
        yield info.forked_from
    if info.parent_id is not None:
        yield SnapshotRef(info.scope, info.parent_id)


def _cut(above: dict[SnapshotRef, SnapshotRef]) -> list[SnapshotRef]:
    """Return one snapshot of every circle."""
    found = []
    done: set[SnapshotRef] = set()
    for start in above:
        path: set[SnapshotRef] = set()
        at: SnapshotRef | None = start
        while at is not None and at not in done:
            done.add(at)
            path.add(at)
            at = above.get(at)
        if at in path:
            found.append(at)
    return found


def walk(forest: Iterable[Node]) -> Iterator[Node]:
    """Yield every node, a parent before its children and a line before what branches off it."""
    waiting = list(forest)[::-1]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(node.children))


class Cell(NamedTuple):
    """One character of a drawing. `node` is the one it stands for, or that it leads to."""

    char: str
    node: Node | None = None


def rails(forest: Iterable[Node]) -> list[list[Cell]]:
    """Lay a forest out as rows of characters, a line of snapshots from left to right in each.

    `●` is a snapshot and `◆` a head. What branches off goes down to a row of its own::

        ●─●─●─●─◆
            ╰─●─◆
    """
    rows: list[dict[int, Cell]] = []
    # (node, row and column of its parent, whether it continues the parent's row)
    waiting: list[tuple[Node, int, int, bool]] = [(root, -1, -2, False) for root in forest][::-1]
    while waiting:
        node, row, column, continues = waiting.pop()
        if not continues:
            if row >= 0:
                _lead_down(rows, row, column, node)
            else:
                rows.append({})
            row = len(rows) - 1
        if column >= 0:
            rows[row].setdefault(column + 1, Cell("─", node))
        rows[row][column + 2] = Cell("◆" if node.is_head else "●", node)
        waiting += [
            (child, row, column + 2, place == 0) for place, child in enumerate(node.children)
        ][::-1]
    return [[row.get(at, Cell(" ")) for at in range(max(row) + 1)] for row in rows]


def _lead_down(rows: list[dict[int, Cell]], row: int, column: int, node: Node) -> None:
    """Begin a new row that is joined to a node in an upper one."""
    for between in rows[row + 1 :]:
        # Everything below is to the right of the parent, except what else branches off it.
        here = between.setdefault(column, Cell("│", node))
        if here.char == "╰":
            between[column] = Cell("├", here.node)
    rows.append({column: Cell("╰", node)})
