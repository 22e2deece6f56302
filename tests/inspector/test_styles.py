"""All pages load one stylesheet: what a part of it is for must not reach other pages."""

import re
from importlib.resources import files

import pytest

FOLDER = files("limpet.inspector") / "static"
SHEETS = ("sessions.css", "session.css", "snapshot.css", "search.css", "actions.css")


def selectors(name: str) -> list[str]:
    text = re.sub(r"/\*.*?\*/", "", (FOLDER / name).read_text(), flags=re.DOTALL)
    found = re.findall(r"([^{}]+)\{", text)
    return [one.strip() for each in found if "@" not in each for one in each.split(",")]


def classes(selector: str) -> set[str]:
    return set(re.findall(r"\.([a-z][\w-]*)", selector))


@pytest.mark.parametrize("name", SHEETS)
def test_a_sheet_does_not_style_the_classes_of_another(name: str) -> None:
    begin = set[str]().union(*(classes(each.split(" ")[0]) for each in selectors(name)))
    for other in SHEETS:
        if other != name:
            used = set[str]().union(*map(classes, selectors(other)))
            assert not begin & used, other
