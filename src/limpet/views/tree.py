"""The tree of a session's snapshots across its scopes, and how it is drawn."""

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from limpet.model import ScopeInfo, ScopeKey, SnapshotInfo, SnapshotRef

_OWN_LANES_MAX = 4  # children of a snapshot with a lane of their own; the rest share the last
_NEWEST_FIRST_LANES = 8  # to the right of them the longest branch comes first: fewer lanes


@dataclass(slots=True)
class Node:
    """A snapshot in the tree. The first of its children continues its line.

    One that `is_lone` does not name what is above it, which was only saved before it.
    """

    info: SnapshotInfo
    is_head: bool
    is_fork: bool = False
    is_lone: bool = False
    children: list["Node"] = field(default_factory=list)


def newest_of(
    histories: Iterable[Iterator[SnapshotInfo]], limit: int | None
) -> tuple[list[SnapshotInfo], bool]:
    """Return the newest snapshots of several histories, and whether there are older ones."""
    newest = heapq.merge(*histories, key=lambda info: info.created_at, reverse=True)
    return list(islice(newest, limit)), next(newest, None) is not None


def session_forest(newest_first: Sequence[SnapshotInfo], scopes: Iterable[ScopeInfo]) -> list[Node]:
    """Return the roots of the snapshots of some scopes, with the heads that are drafts."""
    heads = [each.head for each in scopes if each.head is not None]
    drafts = [head for head in heads if not head.kept]
    refs = {SnapshotRef(head.scope, head.id) for head in heads}
    return build_forest([*newest_first[::-1], *drafts], refs)


def build_forest(
    snapshots: Iterable[SnapshotInfo], heads: Collection[SnapshotRef] = ()
) -> list[Node]:
    """Return the roots, given each scope's snapshots with the oldest first.

    A snapshot is below its parent, and the first of a fork below its source, if that is among the
    given ones; else it is a root, for what it names may be deleted. A cycle is cut where it was
    entered first. Children of the same scope come first, then forks, each in the order given.
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
    for start in _cycles(above):
        del above[start]
    roots = [node for ref, node in nodes.items() if ref not in above]
    for ref, found in above.items():
        node, parent = nodes[ref], nodes[found]
        node.is_fork = node.info.scope != parent.info.scope
        parent.children.append(node)
    for node in nodes.values():
        if len(node.children) > 1:
            node.children.sort(key=lambda child: child.is_fork)
    return roots


def join_lone(forest: Sequence[Node]) -> list[Node]:
    """Put snapshots without a parent and without a child in their scope below each other.

    Other tools save histories in which nothing has a parent. They are drawn as one line, in the
    order given, of nodes that are `is_lone`. Changes the nodes; returns the remaining roots.
    """
    last: dict[ScopeKey, Node] = {}
    roots = []
    for node in forest:
        info = node.info
        names_nothing = info.parent_id is None and info.forked_from is None
        if not names_nothing or (node.children and not node.children[0].is_fork):
            roots.append(node)
            continue
        before = last.get(info.scope)
        last[info.scope] = node
        if before is None:
            roots.append(node)
        else:
            node.is_lone = True
            before.children.insert(0, node)
    return roots


def _above(info: SnapshotInfo) -> Iterator[SnapshotRef]:
    """Yield what a snapshot follows; the last one that exists counts."""
    if info.forked_from is not None:
        yield info.forked_from
    if info.parent_id is not None:
        yield SnapshotRef(info.scope, info.parent_id)


def _cycles(above: dict[SnapshotRef, SnapshotRef]) -> list[SnapshotRef]:
    """Return one snapshot of every cycle."""
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
    """Yield every node, a parent before its children."""
    waiting = list(forest)[::-1]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(node.children))


class LaneCell(NamedTuple):
    """One character of a row, and the number of its lane; None for a gap.

    A root or a fork begins a lane, and first children continue it.
    """

    char: str
    lane: int | None = None


class GraphRow(NamedTuple):
    """The row of one snapshot: passing lanes, its node in `lane`, and the lanes that end in it.

    `passing` has None for an empty column. With `joins` the node joins the last passing lane, that
    many columns to the left. `above` is the lane that comes straight down to the node, and those of
    `ending` come from the right. The lanes of `lone` connect nodes that are `is_lone`.
    """

    node: Node
    lane: int
    passing: tuple[int | None, ...]
    joins: int
    above: int | None
    ending: tuple[int, ...]
    lone: Collection[int]

    @property
    def width(self) -> int:
        """The number of its cells."""
        return 1 + 2 * (len(self.passing) + len(self.ending))

    @property
    def lanes(self) -> list[LaneCell]:
        """Its cells, made now: a long history has many, and few of them are looked at."""
        return _cells(self)


def graph_rows(forest: Sequence[Node]) -> list[GraphRow]:
    """Draw a forest from top to bottom, a parent below all of its children.

    `●` is a snapshot, `◆` a head, and `◇` a head that is a draft. A branch has a lane of its own
    down to its parent::

        ◆
        ●
        │ ◆
        │ ●
        ●─╯
        ●

    The branch with the newest snapshot comes first, and the rows of a branch stay together. Many
    branches of one snapshot share a lane::

        ◆
        │ ●
        │ │ ●
        │ │ │ ●
        │ │ │ ├─●
        │ │ │ ├─●
        ●─┴─┴─╯

    With many lanes the longest branch comes first, so that each branch to the right of it is at
    most half as long: there are never more than a few dozen lanes.
    """
    nodes = list(walk(forest))
    newest, sizes = _measured(nodes)
    numbers = _numbered(nodes)
    lone = frozenset(numbers[id(node)] for node in nodes if node.is_lone)
    rows: list[GraphRow] = []
    # From bottom to top, since the position of a parent decides those of its children.
    waiting = [_Position(root, ()) for root in _ordered(forest, newest)]
    while waiting:
        node, passing, joins = waiting.pop()
        weights = newest if len(passing) < _NEWEST_FIRST_LANES else sizes
        children = _ordered(node.children, weights)
        lanes = tuple(numbers[id(child)] for child in children[:_OWN_LANES_MAX])
        above = lanes[0] if lanes else None
        rows.append(GraphRow(node, numbers[id(node)], passing, joins, above, lanes[1:], lone))
        waiting += [
            _Position(child, passing + lanes[:before])
            for before, child in enumerate(children[:_OWN_LANES_MAX])
        ]
        waiting += _joining(children[_OWN_LANES_MAX:], passing + lanes, sizes)
    return rows[::-1]


class _Position(NamedTuple):
    node: Node
    passing: tuple[int | None, ...]
    joins: int = 0


def _joining(
    children: Sequence[Node], passing: tuple[int | None, ...], sizes: Mapping[int, float]
) -> Iterator[_Position]:
    """Yield the positions of branches that share a lane, from top to bottom.

    An empty column keeps the newest of a branch from looking like the parent of the one above.
    """
    joins = 2
    for child in children:
        joins = 2 if joins == 1 and sizes[id(child)] > 1 else 1
        yield _Position(child, passing + (None,) * (joins - 1), joins)


def _ordered(nodes: Sequence[Node], weights: Mapping[int, float]) -> Sequence[Node]:
    if len(nodes) < 2:
        return nodes
    return sorted(nodes, key=lambda node: weights[id(node)], reverse=True)


def _measured(nodes: Sequence[Node]) -> tuple[dict[int, float], dict[int, float]]:
    """Return for each node the time of the newest snapshot below it, and how many there are."""
    newest: dict[int, float] = {}
    sizes: dict[int, float] = {}
    for node in reversed(nodes):  # children before their parent
        moment, size = node.info.created_at.timestamp(), 1.0
        for child in node.children:
            moment, size = max(moment, newest[id(child)]), size + sizes[id(child)]
        newest[id(node)], sizes[id(node)] = moment, size
    return newest, sizes


def _numbered(nodes: Sequence[Node]) -> dict[int, int]:
    """Return the lane of each node: its parent's for a first child, unless that is a fork."""
    numbers: dict[int, int] = {}
    lines = 0
    for node in nodes:
        if id(node) not in numbers:
            numbers[id(node)] = lines
            lines += 1
        if node.children and not node.children[0].is_fork:
            numbers[id(node.children[0])] = numbers[id(node)]
    return numbers


def _cells(row: GraphRow) -> list[LaneCell]:
    node, lane, passing, joins, _, ending, _ = row
    cells = [
        cell
        for each in passing
        for cell in (LaneCell(" " if each is None else "│", each), LaneCell(" "))
    ]
    if joins:
        cells[-2 * joins] = LaneCell("├", passing[-joins])
        cells[1 - 2 * joins :] = [LaneCell("─", lane)] * (2 * joins - 1)
    cells.append(LaneCell(_mark(node), lane))
    for each in ending:
        cells += LaneCell("─", each), LaneCell("┴", each)
    if ending:
        cells[-1] = LaneCell("╯", ending[-1])
    return cells


def _mark(node: Node) -> str:
    if not node.is_head:
        return "●"
    return "◆" if node.info.kept else "◇"
