"""What a person does with the pages: look, filter, walk, compare, search, copy."""

import re
from collections.abc import Callable
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page, expect

import limpet
from docs._make import garden
from tests.inspector.browser.conftest import Visit
from tests.inspector.browser.ui import Ui, Window

SESSION = f"/ui/session?{urlencode({'session_id': garden.SESSION})}"
CLIPBOARD = ["clipboard-read", "clipboard-write"]


def ground(page: Page) -> int:
    """Return how light the page is, from 0 to 255."""
    colour: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return int(re.findall(r"\d+", colour)[0])


def clipboard(page: Page) -> str:
    return str(page.evaluate("navigator.clipboard.readText()"))


# The frame.


def test_colours_follow_the_system_until_the_reader_chooses(visit: Visit) -> None:
    page = visit("/ui", color_scheme="dark")
    assert ground(page) < 60
    page.get_by_role("button", name="Light or dark").click()
    assert ground(page) > 200
    page.reload()
    assert ground(page) > 200, "the choice is kept"
    page.emulate_media(color_scheme="light")
    page.get_by_role("button", name="Light or dark").click()
    page.goto("/ui/search")
    assert ground(page) < 60, "on all pages"


def test_the_command_of_a_page_is_copied(visit: Visit, garden_url: str) -> None:
    page = visit("/ui", permissions=CLIPBOARD)
    page.get_by_role("contentinfo").get_by_role("button", name="Copy").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert clipboard(page) == f"limpet ls --url {garden_url}"


def test_keys_are_listed_and_search_has_one(visit: Visit) -> None:
    page = visit("/ui")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.goto(SESSION)
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("j?/")  # in a field, keys are letters
    expect(page.get_by_role("searchbox")).to_have_value("j?/")
