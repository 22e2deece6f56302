"""What a person does with the pages: look, filter, walk, compare, search, copy."""

import re
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Page, expect

import limpet
from docs._make import garden
from tests.inspector.browser.conftest import Visit
from tests.inspector.browser.ui import Ui, open_window

SESSION = f"/ui/session?{urlencode({'session_id': garden.SESSION})}"
CLIPBOARD = ["clipboard-read", "clipboard-write"]


def ground(page: Page) -> int:
    """Return how light the page is, from 0 to 255."""
    colour: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return int(re.findall(r"\d+", colour)[0])


def clipboard(page: Page) -> str:
    return str(page.evaluate("navigator.clipboard.readText()"))


# The frame.


@pytest.mark.slow
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


# The list.


def titles(page: Page) -> list[str]:
    return page.locator("a.title").all_inner_texts()


def test_the_list_is_filtered_and_sorted(visit: Visit) -> None:
    page = visit("/ui")
    assert len(titles(page)) == 7
    page.get_by_label("Title or last message").fill("flaky")  # filtered while it is typed
    expect(page.locator("a.title")).to_have_count(0)
    expect(page).to_have_url(re.compile("text=flaky"))
    page.get_by_label("Title or last message").fill("test_refund")
    page.keyboard.press("Enter")
    expect(page.locator("a.title")).to_have_count(1)
    page.get_by_role("link", name="Clear").click()
    expect(page.locator("a.title")).to_have_count(7)
    newest = titles(page)
    page.get_by_label("Sort by").select_option("name")
    expect(page).to_have_url(re.compile("sort=name"))
    assert sorted(titles(page)) == sorted(newest)
    assert titles(page) != newest
    expect(page.locator("a.title").first).to_have_text(re.compile("Plan my balcony"))


def test_the_list_is_walked_by_keyboard(visit: Visit) -> None:
    page = visit("/ui")
    links = page.locator("a.title")
    for key, at in (("j", 0), ("j", 1), ("j", 2), ("k", 1)):
        page.keyboard.press(key)
        expect(links.nth(at)).to_be_focused()
    name = links.nth(1).inner_text()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/ui/session"))
    expect(page.get_by_role("heading", level=1)).to_have_text(name)


# A session.


def current(page: Page) -> str:
    """Return the short id of the snapshot that is shown, when both sides agree on it."""
    row = page.locator("#rows a[aria-current]")
    expect(row).to_have_count(1)
    found = row.locator(".more code").inner_text()
    expect(page.locator("#snapshot-title code")).to_have_text(found)
    return found


def test_a_history_is_walked_by_keyboard(visit: Visit, garden_url: str) -> None:
    with limpet.open(garden_url) as store:
        scope = store.scope(*garden.SHADE)
        head = scope.info()
        assert head is not None
        parents = [each.id for each in scope.ancestors(head)][1:]  # without itself
    page = visit(f"{SESSION}&scope_id=shade&id={head.id}")
    start = current(page)
    page.keyboard.press("h")
    expect(page).to_have_url(re.compile(parents[0]))
    page.keyboard.press("h")
    expect(page).to_have_url(re.compile(parents[1]))
    page.keyboard.press("h")  # where it was forked from, in the main scope
    expect(page).to_have_url(re.compile("scope_id=main"))
    page.goto(f"{SESSION}&scope_id=shade&id={parents[1]}")
    page.keyboard.press("l")
    expect(page).to_have_url(re.compile(parents[0]))
    page.keyboard.press("l")
    expect(page).to_have_url(re.compile(head.id))
    assert current(page) == start
    page.keyboard.press("j")
    expect(page).not_to_have_url(re.compile(head.id))
    page.keyboard.press("k")
    expect(page).to_have_url(re.compile(head.id))


@pytest.mark.slow
def test_changes_are_shown_to_the_parent_and_to_a_marked_snapshot(visit: Visit) -> None:
    page = visit(SESSION)
    changes = page.get_by_role("link", name="Changes")
    page.keyboard.press("m")
    expect(page.locator("#marked")).to_be_visible()
    for _ in range(2):
        before = page.url
        page.keyboard.press("j")
        expect(page).not_to_have_url(before)
    page.keyboard.press("d")
    expect(changes).to_have_attribute("aria-current", "page")
    expect(page).to_have_url(re.compile("base_id="))
    page.get_by_text("Compare with another", exact=True).click()
    page.get_by_role("link", name="The snapshot before").click()
    expect(page).not_to_have_url(re.compile("base_id="))
    expect(page.locator(".compare")).to_contain_text("the snapshot before")


def test_two_dots_are_compared_and_the_link_is_copied(visit: Visit) -> None:
    page = visit(SESSION, permissions=CLIPBOARD, timezone_id="Asia/Tokyo", locale="en-GB")
    saved = page.locator(".snap-head time").first
    expect(saved).to_have_text(re.compile("5 May 2026, 03:"))  # in Tokyo
    assert re.fullmatch(r"2026-05-04 18:.. ?.*UTC", saved.get_attribute("title") or "")
    dots = page.locator("#rows .lanes")
    dots.nth(3).click()
    expect(page.locator("#marked")).to_be_visible()
    dots.nth(1).click()
    expect(page.locator("#marked")).to_be_hidden()
    expect(page).to_have_url(re.compile("view=changes.*base_id="))
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert clipboard(page) == page.url
    page.goto(SESSION)  # which shows whatever is the newest
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    link = clipboard(page)
    page.goto(link)
    assert current(page) in page.locator("#snapshot-title").inner_text()


@pytest.mark.slow
def test_a_long_chat_opens_at_its_end_and_a_long_search_can_be_stopped(
    browser: Browser, tmp_path: Path
) -> None:
    messages = [{"role": "user", "content": f"line {n} " + "so on " * 200} for n in range(60)]
    url = f"sqlite:///{tmp_path / 'long.db'}"
    with limpet.open(f"{url}?synchronous=off") as store:
        for number in range(200):
            store.scope(f"long/{number:03}").save({"messages": messages})
    with Ui(tmp_path, url=url) as ui, open_window(browser, ui.url) as window:
        page = window.page
        page.goto("/ui/session?session_id=long/000")
        expect(page.locator(".chat .turn").last).to_be_in_viewport()
        page.goto("/ui/search?q=(?:so+on+){150}x&regex=true&history=true", wait_until="commit")
        page.get_by_role("button", name="Stop").click()
        expect(page.get_by_role("button", name="Stop")).to_be_hidden()
        expect(page.get_by_role("link", name="Search further")).to_be_visible()


def test_a_snapshot_has_three_views(visit: Visit) -> None:
    page = visit(f"{SESSION}&scope_id=main")
    detail = page.locator("#detail")
    expect(detail).to_contain_text("Soak the boxes on Wednesday.")
    for view, text in (("State", "cost_eur"), ("Changes", "Soak the boxes"), ("Chat", "olive")):
        page.get_by_label("Views of the snapshot").get_by_role("link", name=view).click()
        expect(detail).to_contain_text(text)
        expect(page).to_have_url(re.compile(f"view={view.lower()}"))
        page.reload()
        expect(detail).to_contain_text(text)


@pytest.mark.slow
def test_a_branch_of_the_state_opens_and_its_path_is_copied(visit: Visit) -> None:
    page = visit(f"{SESSION}&scope_id=main&view=state", permissions=CLIPBOARD)
    page.locator(".tree summary", has_text="plants").click()
    page.get_by_label("Copy the JSON Pointer of tomatoes").click()
    expect(page.get_by_text("Copied")).to_be_visible()
    assert clipboard(page) == "/plants/tomatoes"
    page.get_by_label("Copy the path of tomatoes").click()
    expect(page.get_by_text("Copied")).to_have_count(2)
    assert clipboard(page) == "plants.tomatoes"


# Search.


def test_a_search_leads_to_the_message(visit: Visit) -> None:
    page = visit("/ui")
    page.get_by_role("link", name="Search").click()
    page.get_by_role("searchbox").fill("Thursday")
    page.keyboard.press("Enter")
    hit = page.locator("a.hit").first
    expect(hit.locator("mark")).to_have_text("Thursday")
    page.wait_for_load_state()
    page.locator("h1").click()  # out of the field
    page.keyboard.press("j")
    expect(hit).to_be_focused()
    page.keyboard.press("Enter")
    turn = page.locator(".turn.reached")
    expect(turn).to_be_in_viewport()
    expect(turn).to_contain_text("delivery on Thursday")


# Without scripts, and without the right to write.


@pytest.mark.slow
def test_everything_is_reached_without_scripts(visit: Visit) -> None:
    page = visit("/ui", java_script_enabled=False)
    page.get_by_label("Title or last message").fill("balcony")
    page.get_by_role("button", name="Apply").click()
    page.get_by_role("link", name="Plan my balcony").click()
    page.locator("#rows a").nth(1).click()
    expect(page.locator("#rows a").nth(1)).to_have_attribute("aria-current", "true")
    page.get_by_role("link", name="State", exact=True).click()
    page.locator(".tree summary", has_text="plants").click()
    page.locator(".tree details[open]").get_by_role("link", name="Open").click()
    expect(page.locator("#detail")).to_contain_text("tomatoes")
    page.get_by_role("link", name="Changes", exact=True).click()
    expect(page.locator(".compare")).to_contain_text("the snapshot before")
    page.get_by_role("link", name="Search in this session").click()
    page.get_by_role("searchbox").fill("olive")
    page.get_by_role("button", name="Search").click()
    page.locator("a.hit").first.click()
    expect(page.locator("#detail")).to_contain_text("olive")
    page.get_by_role("link", name="Export", exact=True).click()
    with page.expect_download() as downloading:
        page.get_by_role("link", name="Page to read").click()
    assert downloading.value.suggested_filename.endswith(".html")
