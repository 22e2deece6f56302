"""docs/security.md: each row of its tables names tests, and they exist."""

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "security.md"
DEFINED = re.compile(r"^\s*(?:async )?def (test_\w+)", re.MULTILINE)
NAMED = re.compile(r"`([\w/.]+\.py)::(test_\w+)`")


def rows() -> list[list[str]]:
    """Return the cells of each row of a table whose last column has tests."""
    found: list[list[str]] = []
    inside = False
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [each.strip() for each in line.strip("|").split("|")]
        if not line.startswith("|"):
            inside = False
        elif inside and not set(line) <= set("|-"):
            found.append(cells)
        elif cells[-1] == "tests":
            inside = True
    return found


@cache
def names_in(path: str) -> set[str]:
    return set(DEFINED.findall((ROOT / path).read_text(encoding="utf-8")))


def test_the_tables_are_found() -> None:
    assert len(rows()) > 60
    assert all(len(row) == 3 for row in rows())


def test_each_row_names_a_test() -> None:
    assert [row[0] for row in rows() if not NAMED.search(row[-1])] == []


def test_each_test_that_is_named_exists() -> None:
    named = {each for row in rows() for each in NAMED.findall(row[-1])}
    assert {(path, name) for path, name in named if not (ROOT / path).is_file()} == set()
    assert {(path, name) for path, name in named if name not in names_in(path)} == set()
