"""docs/cli.md and its pictures are what the verbs say and draw today."""

import re
from xml.etree import ElementTree

import pytest

from docs._make import cli, pictures
from limpet.cli import _exits
from limpet.cli._app import GROUPS

PICTURE_BYTES_MAX = 60_000
ROWS_MAX = 33  # a picture is seen at a glance
OLD = "it is old: run `make docs`"


@pytest.fixture(scope="module")
def drawn() -> dict[str, str]:
    return pictures.draw_all()


def test_the_page_is_what_the_verbs_say() -> None:
    assert cli.PAGE.read_text(encoding="utf-8") == cli.page(), OLD


def test_the_page_has_every_verb_in_its_group() -> None:
    told = cli.page().partition("## All verbs")[2]
    for title, verbs in GROUPS.items():
        group = told.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
        assert re.findall(r"^### limpet (\S+)$", group, re.M) == list(verbs)


def test_the_page_has_every_exit_code() -> None:
    table = cli.page().partition("## Exit codes")[2].partition("\n## ")[0]
    told = [int(code) for code in re.findall(r"^\| (\d+) \|", table, re.M)]
    known = [value for name, value in vars(_exits).items() if name.isupper() and name[0] != "_"]
    assert told == sorted(known)


def test_every_picture_stands_in_the_page() -> None:
    shown = re.findall(r"\(images/(\S+)\)", cli.page())
    assert sorted(shown) == sorted(path.name for path in pictures.FOLDER.glob("*.svg"))


def test_pictures_show_what_the_verbs_draw(drawn: dict[str, str]) -> None:
    # Their text, not their bytes: another version of Rich may draw the same in other words.
    for name, svg in drawn.items():
        kept = (pictures.FOLDER / name).read_text(encoding="utf-8")
        assert pictures.text_of(kept) == pictures.text_of(svg), OLD


def test_pictures_are_small_and_need_nothing_else(drawn: dict[str, str]) -> None:
    for name, svg in drawn.items():
        root = ElementTree.fromstring(svg)
        assert len(svg.encode()) < PICTURE_BYTES_MAX, name
        # The one address is the name of the language, which is not fetched.
        assert re.findall(r"\w+://[^\"]*", svg) == ["http://www.w3.org/2000/svg"], name
        assert not re.search(r"@import|@font-face|url\(|href|<script", svg), name
        assert root.findtext("{http://www.w3.org/2000/svg}title"), name


def test_pictures_look_the_same_in_librsvg(drawn: dict[str, str]) -> None:
    """It drops spaces around a text and between words, and does not know textLength."""
    for name, svg in drawn.items():
        texts = [each.text or "" for each in ElementTree.fromstring(svg).iter() if each.text]
        assert not any(re.search(r"\xa0|^ | $|\S  ", text) for text in texts[2:]), name
