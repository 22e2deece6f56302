"""The tables of the command line: aligned by cells, and never wider than the terminal."""

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.text import Text

from limpet.cli._tables import Column, table

COLUMNS = (
    Column("name", cells_min=4),
    Column("count", right=True, rank=1),
    Column("more", cells_min=4, rank=2),
    Column("never"),
)


def drawn(rows: list[tuple[str, str, str]], width: int, *, titles: bool = True) -> list[str]:
    texts = ([*map(Text, row), Text()] for row in rows)
    return [line.plain for line in table(COLUMNS, texts, width, titles=titles)]


def test_numbers_stand_to_the_right_and_empty_columns_go() -> None:
    rows = [("a", "1", "x"), ("bcd", "1,000,000", "y")]
    assert drawn(rows, 80) == [
        "name      count  more",
        "a             1  x",
        "bcd   1,000,000  y",
    ]
    assert drawn([("a", "1", "")], 80, titles=False) == ["a  1"]
    assert drawn([], 80) == []


def test_names_give_way_before_columns_do() -> None:
    rows = [("abcdefghijkl", "10", "xyz")]
    assert drawn(rows, 19) == ["name    count  more", "abcde…     10  xyz"]
    assert drawn(rows, 14) == ["name     count", "abcdef…     10"]
    assert drawn(rows, 8) == ["name", "abcdefg…"]


def test_wide_characters_count_as_two() -> None:
    assert drawn([("世界の旅", "1", ""), ("ab", "2", "")], 80) == [
        "name      count",
        "世界の旅      1",
        "ab            2",
    ]


def test_later_rows_may_be_wider() -> None:
    rows = [("a", "1", "")] * 50 + [("abcdef", "2", "new")]
    assert drawn(rows, 80)[-2:] == ["a         1", "abcdef      2  new"]


texts = st.text(max_size=40)


@settings(max_examples=30)
@given(
    st.lists(st.tuples(texts, st.integers(0, 10**9).map(str), texts), max_size=60),
    st.integers(8, 100),
)
def test_nothing_is_wider_than_it_may_be(rows: list[tuple[str, str, str]], width: int) -> None:
    shown = [tuple("".join(filter(str.isprintable, each)) for each in row) for row in rows]
    texts = ([*map(Text, row), Text()] for row in shown)
    lines = list(table(COLUMNS, texts, width))
    assert len(lines) == (len(rows) + 1 if rows else 0)
    assert all(line.cell_len <= width for line in lines)
