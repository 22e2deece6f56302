"""The graph from top to bottom: exact drawings, and what holds for every forest."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from limpet.model import ScopeKey, SnapshotInfo, SnapshotRef
from limpet.views.page.svg import bars, graph_svg, grouped, sparkline
from limpet.views.tree import Node, build_forest, graph_rows, join_lone, walk
from tests.cases import for_each

MAIN = ScopeKey("s")
SIDE = ScopeKey("s", "main~side")
START = datetime(2024, 1, 1, tzinfo=UTC)


def info(
    id: str,
    parent: str | None = None,
    *,
    scope: ScopeKey = MAIN,
    fork: SnapshotRef | None = None,
    minute: int = 0,
    kept: bool = True,
) -> SnapshotInfo:
    now = START + timedelta(minutes=minute)
    return SnapshotInfo(scope, id, parent, fork, "", {}, {}, now, now, "", kept, 0)


def grown(*lines: str) -> list[Node]:
    """Return the forest of lines such as `a b c`: each follows the one before, a minute later."""
    snapshots: dict[str, SnapshotInfo] = {}
    for line in lines:
        ids = line.split()
        for parent, id in pairwise([None, *ids]):
            if id is not None and id not in snapshots:
                snapshots[id] = info(id, parent, minute=len(snapshots))
    return build_forest(snapshots.values())


def drawn(forest: list[Node]) -> list[str]:
    """Return the rows as text, each with the id of its snapshot."""
    return [
        f"{''.join(cell.char for cell in row.lanes)} {row.node.info.id}"
        for row in graph_rows(forest)
    ]


@for_each(
    ("lines", "rows"),
    [
        ([], []),
        # The branch with the newest comes first.
        (["a b c", "b d e", "c f"], ["● f", "● c", "│ ● e", "│ ● d", "●─╯ b", "● a"]),
        (["a b c", "c f", "b d e"], ["● e", "● d", "│ ● f", "│ ● c", "●─╯ b", "● a"]),
        (["a b", "x y", "b c"], ["● c", "● b", "● a", "● y", "● x"]),
        (
            ["a b c d", "c e", "b f g", "f h", "a i"],
            [
                "● i",
                "│ ● h",
                "│ │ ● g",
                "│ ●─╯ f",
                "│ │ ● e",
                "│ │ │ ● d",
                "│ │ ●─╯ c",
                "│ ●─╯ b",
                "●─╯ a",
            ],
        ),
        # Many branches of one snapshot share a lane, and do not look like one.
        (
            ["a b", "a c", "a d", "a e", "a f", "f g", "a h"],
            [
                "● h",
                "│ ● g",
                "│ ● f",
                "│ │ ● e",
                "│ │ │ ● d",
                "│ │ │ ├─● c",
                "│ │ │ ├─● b",
                "●─┴─┴─╯ a",
            ],
        ),
        (
            ["a b c", "b d", "a e", "a f", "a g", "a h"],
            [
                *("● h", "│ ● g", "│ │ ● f", "│ │ │ ● e"),
                *("│ │ │ │ ● d", "│ │ │ │ │ ● c", "│ │ │ ├─●─╯ b", "●─┴─┴─╯ a"),
            ],
        ),
        (
            ["a b c", "a d e", "a f", "a g h", "a i", "a j", "a k", "a l"],
            [
                *("● l", "│ ● k", "│ │ ● j", "│ │ │ ● i", "│ │ │ │ ● h", "│ │ │ ├─● g"),
                *("│ │ │ ├─● f", "│ │ │ │   ● e", "│ │ │ ├───● d", "│ │ │ │ ● c"),
                *("│ │ │ ├─● b", "●─┴─┴─╯ a"),
            ],
        ),
    ],
)
def test_drawings(lines: list[str], rows: list[str]) -> None:
    assert drawn(grown(*lines)) == rows


def test_a_fork_has_a_lane_down_to_what_it_left() -> None:
    snapshots = [
        info("a"),
        info("b", "a", minute=1),
        info("c", "b", minute=2),
        info("d", "c", minute=9, kept=False),
        info("x", scope=SIDE, fork=SnapshotRef(MAIN, "b"), minute=3),
        info("y", "x", scope=SIDE, minute=4),
    ]
    heads = [SnapshotRef(MAIN, "d"), SnapshotRef(SIDE, "y")]
    forest = build_forest(snapshots, heads)
    assert drawn(forest) == ["◇ d", "● c", "│ ◆ y", "│ ● x", "●─╯ b", "● a"]
    lanes = [[cell.lane for cell in row.lanes] for row in graph_rows(forest)]
    assert lanes == [[0], [0], [0, None, 1], [0, None, 1], [0, 1, 1], [0]]


def test_a_line_keeps_its_number_wherever_it_stands() -> None:
    # The first line is `a b c f`, though what left it stands to the left of it.
    found = {row.node.info.id: row.lanes for row in graph_rows(grown("a b c f", "b d e"))}
    numbers = {
        id: next(cell.lane for cell in cells if cell.char == "●") for id, cells in found.items()
    }
    assert numbers == {"a": 0, "b": 0, "c": 0, "f": 0, "d": 1, "e": 1}


def test_what_names_something_gone_is_a_root() -> None:
    elsewhere = SnapshotRef(ScopeKey("another"), "q")
    forest = build_forest(
        [info("b", "gone", minute=1), info("x", scope=SIDE, fork=elsewhere, minute=2)]
    )
    assert drawn(forest) == ["● x", "● b"]


def test_thousands_in_a_line_and_in_a_comb() -> None:
    line = [info("0"), *(info(str(n), str(n - 1), minute=n) for n in range(1, 3_000))]
    assert drawn(build_forest(line))[-1] == "● 0"
    # Every tooth of this comb is newer than all that is behind it, so that all want to be first.
    comb = [info("0", minute=6_000)]
    for n in range(1, 1_500):
        comb += [info(f"{n}", f"{n - 1}"), info(f"side {n}", f"{n - 1}", minute=6_000 - n)]
    forest = build_forest(comb)
    assert max(len(row.lanes) for row in graph_rows(forest)) < 30
    many = build_forest([info("0"), *(info(str(n), "0", minute=n) for n in range(1, 3_000))])
    assert max(len(row.lanes) for row in graph_rows(many)) == 9


def test_what_names_no_parent_and_has_no_child_is_one_line_in_its_order() -> None:
    snapshots = [
        info("a", minute=1),
        info("x", scope=SIDE, minute=2),
        info("b", minute=3),
        info("fork", scope=SIDE, fork=SnapshotRef(MAIN, "b"), minute=4),
        info("c", minute=5),
        info("y", scope=SIDE, minute=6),
    ]
    roots = join_lone(build_forest(snapshots))
    assert drawn(roots) == ["● y", "● x", "● c", "│ ● fork", "●─╯ b", "● a"]
    rows = {row.node.info.id: row for row in graph_rows(roots)}
    assert [id for id, row in rows.items() if row.node.is_lone] == ["y", "c", "b"]
    assert {id for id, row in rows.items() if row.lane in row.lone} == {"y", "x", "c", "b", "a"}


def test_what_has_a_parent_or_a_child_is_not_lone() -> None:
    forest = grown("a b", "x y", "z")
    forest += build_forest([info("after", "gone")])
    assert join_lone(forest) == forest


def test_a_drawing_has_as_many_cells_as_asked_for() -> None:
    rows = graph_rows(grown("a b c", "b d", "a e", "a f", "a g", "a h"))
    for row in rows:
        assert row.width == len(row.lanes)
        svg = graph_svg(row, is_root=False, cells_shown=3)
        assert 'width="27"' in svg
        assert svg.count("<circle") == 1


def test_a_line_has_the_colour_of_the_branch_that_it_belongs_to() -> None:
    rows = {row.node.info.id: row for row in graph_rows(grown("a b c f", "b d e"))}
    assert (rows["b"].lane, rows["b"].above, rows["b"].ending) == (0, 1, (0,))  # `d e` is newer
    assert rows["f"].above is None


def test_a_root_that_follows_something_has_the_beginning_of_a_line() -> None:
    (row,) = graph_rows(build_forest([info("b", "gone")]))
    assert "<line" not in graph_svg(row, is_root=True)
    assert graph_svg(row, is_root=True, follows=True).count("<line") == 1


def test_a_sparkline_loses_no_peak() -> None:
    values = [1.0] * 10_000
    values[7_777] = 9.0
    assert len(grouped(values, 100)) == 100
    assert max(grouped(values, 100)) == 9
    assert grouped([1, 2], 100) == [1, 2]
    for draw in (sparkline, bars):
        drawn_text = draw([0, 0, 0], 'sizes "<b>"')
        assert 'aria-label="sizes &quot;&lt;b&gt;&quot;"' in drawn_text
        assert "nan" not in drawn_text
        assert len(draw(values, "")) < 8_000


# What holds for every forest.

_UP, _DOWN, _LEFT, _RIGHT = (-1, 0), (1, 0), (0, -1), (0, 1)
_OPEN = {
    " ": set(),
    "│": {_UP, _DOWN},
    "─": {_LEFT, _RIGHT},
    "├": {_UP, _DOWN, _RIGHT},
    "┴": {_UP, _LEFT, _RIGHT},
    "╯": {_UP, _LEFT},
}
_MARKS = tuple("●◆◇")
_OPEN_UPWARDS = [char for char, ways in _OPEN.items() if _UP in ways]


def reached(grid: list[str], start: tuple[int, int]) -> set[tuple[int, int]]:
    """Return the marks that a pen comes to from a mark, never going up, and never through one."""
    found: set[tuple[int, int]] = set()
    row, column = start
    ways = [(start, _DOWN)]
    if column and grid[row][column - 1] == "─":
        ways = [(start, _LEFT)]  # it joins a lane
        below = grid[row + 1]
        # Neither a mark that has no line of its own nor a lane may begin right below.
        assert below[column : column + 1] not in _OPEN_UPWARDS
        assert below[column : column + 1] not in _MARKS or below[column - 1] == "─"
    while ways:
        (row, column), (down, right) = ways.pop()
        row, column = row + down, column + right
        char = grid[row][column] if row < len(grid) and column < len(grid[row]) else " "
        if char in _MARKS:
            found.add((row, column))
            continue
        came_from = (-down, -right)
        assert came_from in _OPEN[char], f"the line breaks off at {(row, column)}"
        if char == "├":
            ways.append(((row, column), _DOWN))
        elif char in "┴╯":
            ways.append(((row, column), _LEFT))
        else:
            ways.append(((row, column), (down, right)))
    return found


@given(st.data())
def test_every_snapshot_has_a_row_and_every_line_leads_to_its_parent(data: st.DataObject) -> None:
    """Whatever the parents say and whenever they were made, also in circles."""
    names = [str(n) for n in range(data.draw(st.integers(0, 30)))]
    few = data.draw(st.integers(1, 30))  # so that some have many children
    parent = st.none() | st.sampled_from([*names[:few], "gone"])
    minutes = st.integers(0, 5)
    forest = build_forest(
        [info(name, data.draw(parent), minute=data.draw(minutes)) for name in names]
    )
    laid_out = graph_rows(forest)
    assert sorted(row.node.info.id for row in laid_out) == sorted(names)
    grid = ["".join(cell.char for cell in row.lanes) for row in laid_out]
    places = {}
    for at, row in enumerate(laid_out):
        (column,) = (column for column, char in enumerate(grid[at]) if char in _MARKS)
        places[id(row.node)] = at, column
    roots = {id(root) for root in forest}
    for parent_node in walk(forest):
        for child in parent_node.children:
            assert places[id(child)] < places[id(parent_node)]
            assert reached(grid, places[id(child)]) == {places[id(parent_node)]}
    for row in laid_out:
        at, column = places[id(row.node)]
        below = grid[at + 1][column : column + 1] if at + 1 < len(grid) else ""
        if id(row.node) in roots:
            assert column == 0
            assert below in ("", *_MARKS)  # the next root, which begins anew
    assert all(cell.lane is None for row in laid_out for cell in row.lanes if cell.char == " ")
