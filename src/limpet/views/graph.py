"""The graph of a session from top to bottom: a row for each snapshot, the newest first."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from limpet.views.tree import Node, walk

_TOGETHER_MAX = 4  # lanes that run down to one snapshot side by side; the rest join the last
_NEWEST_FIRST_LANES = 8  # right of so many the longest branch comes first, which saves lanes


class Cell(NamedTuple):
    """One character of a row. `lane` numbers the line that it belongs to; None for a gap.

    What a root or a fork begins and first children continue is one line, and has one number all the
    way.
    """

    char: str
    lane: int | None = None


class Row(NamedTuple):
    """The row of one snapshot: the lanes that pass it, itself, and the lanes that end in it.

    `lane` is the number of its own.
    """

    lanes: list[Cell]
    node: Node
    lane: int


def graph_rows(forest: Sequence[Node]) -> list[Row]:
    """Lay a forest out from top to bottom, a parent below all of its children.

    `●` is a snapshot, `◆` a head, and `◇` a head that is a draft. What branches off has a lane of
    its own, down to what it left::

        ◆
        ●
        │ ◆
        │ ●
        ●─╯
        ●

    Of several branches the one with the newest snapshot comes first, and each stays in one piece.
    Many branches of one snapshot share a lane::

        ◆
        │ ●
        │ │ ●
        │ │ │ ●
        │ │ │ ├─●
        │ │ │ ├─●
        ●─┴─┴─╯

    There are never more than a few dozen lanes: where there are many already, the longest branch
    comes first, so that what is to the right of it is at most half as long.
    """
    newest, sizes = _measured(forest)
    numbers = _numbered(forest)
    rows: list[Row] = []
    # From the bottom to the top, since a parent tells where its children stand.
    waiting = [_Place(root, ()) for root in _ordered(forest, newest)]
    while waiting:
        place = waiting.pop()
        node, passing, _ = place
        weights = newest if len(passing) < _NEWEST_FIRST_LANES else sizes
        children = _ordered(node.children, weights)
        lanes = tuple(numbers[id(child)] for child in children[:_TOGETHER_MAX])
        lane = numbers[id(node)]
        rows.append(Row(_cells(place, lane, lanes[1:]), node, lane))
        waiting += [
            _Place(child, passing + lanes[:before])
            for before, child in enumerate(children[:_TOGETHER_MAX])
        ]
        waiting += _joining(children[_TOGETHER_MAX:], passing + lanes, sizes)
    return rows[::-1]


class _Place(NamedTuple):
    """Where a node stands: right of the lanes that pass it, and of columns that are empty (None).

    It may join the last of the lanes, which is so many columns to the left.
    """

    node: Node
    passing: tuple[int | None, ...]
    joins: int = 0


def _joining(
    children: Sequence[Node], passing: tuple[int | None, ...], sizes: Mapping[int, float]
) -> Iterator[_Place]:
    """Yield the places of branches that share a lane, from the top to the bottom.

    The newest of a branch must not stand right below the oldest of another one, as if it were its
    parent: then there is an empty column before it. If it is alone it has its own line to the left.
    """
    joins = 2
    for child in children:
        joins = 2 if joins == 1 and sizes[id(child)] > 1 else 1
        yield _Place(child, passing + (None,) * (joins - 1), joins)


def _ordered(nodes: Iterable[Node], weights: Mapping[int, float]) -> list[Node]:
    """Return the heaviest first, and those of the same weight as they come."""
    return sorted(nodes, key=lambda node: weights[id(node)], reverse=True)


def _measured(forest: Sequence[Node]) -> tuple[dict[int, float], dict[int, float]]:
    """Return for each node when the newest of its branch was made, and how many there are."""
    newest: dict[int, float] = {}
    sizes: dict[int, float] = {}
    for node in reversed(list(walk(forest))):  # children before their parent
        below = [id(child) for child in node.children]
        moment = node.info.created_at.timestamp()
        newest[id(node)] = max([moment, *(newest[each] for each in below)])
        sizes[id(node)] = 1 + sum(sizes[each] for each in below)
    return newest, sizes


def _numbered(forest: Sequence[Node]) -> dict[int, int]:
    """Return the number of each node's line: its parent's for a first child, unless it forks."""
    numbers: dict[int, int] = {}
    lines = 0
    for node in walk(forest):
        if id(node) not in numbers:
            numbers[id(node)] = lines
            lines += 1
        if node.children and not node.children[0].is_fork:
            numbers[id(node.children[0])] = numbers[id(node)]
    return numbers


def _cells(place: _Place, lane: int, ending: Sequence[int]) -> list[Cell]:
    """Draw a row: what passes, the node, and what ends in it from the right."""
    node, passing, joins = place
    cells = [
        cell for each in passing for cell in (Cell(" " if each is None else "│", each), Cell(" "))
    ]
    if joins:
        cells[-2 * joins] = Cell("├", passing[-joins])
        cells[1 - 2 * joins :] = [Cell("─", lane)] * (2 * joins - 1)
    cells.append(Cell(_mark(node), lane))
    for each in ending:
        cells += Cell("─", each), Cell("┴", each)
    if ending:
        cells[-1] = Cell("╯", ending[-1])
    return cells


def _mark(node: Node) -> str:
    if not node.is_head:
        return "●"
    return "◆" if node.info.kept else "◇"
