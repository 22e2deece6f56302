"""What holds on every page: accessible, readable on a phone, light and dark, quiet."""

from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Page, expect

from docs._make import garden
from tests.inspector.browser.accessibility import violations
from tests.inspector.browser.ui import (
    NARROW,
    WIDE,
    Ui,
    Window,
    open_window,
    overflow,
    unfold,
    unseen,
)

GARDEN = urlencode({"session_id": garden.SESSION})
PAGES = {
    "list": "/ui",
    "chat": f"/ui/session?{GARDEN}",
}
MORE_PAGES = {
    "state": f"/ui/session?{GARDEN}&view=state",
    "changes": f"/ui/session?{GARDEN}&view=changes",
    "found": "/ui/search?q=basil",
    "fork": f"/ui/fork?{GARDEN}",
    "attention": "/ui?attention=true",
    "search": "/ui/search",
    "found in a history": f"/ui/search?q=basil&{GARDEN}",
    "restore": f"/ui/restore?{GARDEN}",
    "prune": f"/ui/prune?{GARDEN}&keep_last=2",
    "export": f"/ui/export?{GARDEN}",
}


def check(page: Page, within: str = "html") -> None:
    """Check a page on a wide screen in the light, and on a phone in the dark."""
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(WIDE)
    assert violations(page, within=within) == []
    assert overflow(page) == []
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size(NARROW)
    assert overflow(page) == []
    assert violations(page, "color-contrast", within=within) == []


def check_at(page: Page, address: str, within: str = "html") -> None:
    response = page.goto(address)
    assert response is not None
    assert response.status == 200
    unfold(page)
    check(page, within)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_accessible_and_fits_a_phone(page: Page, name: str) -> None:
    check_at(page, PAGES[name])
    if name == "list":
        page.keyboard.press("?")
        expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
        check(page, within="dialog[open]")


@pytest.mark.slow
@pytest.mark.parametrize("name", MORE_PAGES)
def test_each_other_page_is_accessible_and_fits_a_phone(page: Page, name: str) -> None:
    # What is around a view is the same as around the chat.
    check_at(page, MORE_PAGES[name], within="#detail" if name in ("state", "changes") else "html")


def test_each_other_page_fits_a_phone(page: Page) -> None:
    page.set_viewport_size(NARROW)
    for name, address in MORE_PAGES.items():
        page.goto(address)
        unfold(page)
        assert overflow(page) == [], name


def test_an_error_is_accessible(window: Window) -> None:
    page = window.page
    page.goto("/ui/session?session_id=unknown")
    expect(page.get_by_role("heading", name="Not found")).to_be_visible()
    check(page)
    assert all("status of 404" in each for each in window.take_faults())


def test_the_question_for_a_token_is_accessible(browser: Browser, writable: Ui) -> None:
    with open_window(browser, writable.url) as window:
        window.page.goto("/ui")
        expect(window.page.get_by_label("Token")).to_be_visible()
        check(window.page)
        assert all("status of 401" in each for each in window.take_faults())


def test_what_matters_is_seen_at_once(page: Page) -> None:
    """The styles of one page are not spoilt by those of another."""
    page.goto("/ui")
    for size in (NARROW, WIDE):
        page.set_viewport_size(size)
        assert unseen(page, "a.title, .session .last, .session .status, .session time") == []
    box = page.locator("tr.session").first.bounding_box()
    assert box is not None
    assert box["width"] > 800
    assert box["height"] < 150
    page.goto(PAGES["chat"])
    expect(page.locator(".chat .turn").first).to_be_in_viewport()
    expect(page.locator(".said[data-read]").first).to_be_visible()
    for size in (WIDE, NARROW):
        page.set_viewport_size(size)
        assert unseen(page, "#rows .said, #rows time, #rows .status") == []
