"""Pages of a store that changes: by agents while someone looks, and by the pages themselves."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Page, expect

import limpet
from limpet.model import JSON
from tests.inspector.browser.ui import Ui, Window, open_window


@pytest.fixture(scope="module")
def store(writable_url: str) -> Iterator[limpet.Store]:
    """The store as an agent opens it, in another process than that of the pages."""
    with limpet.open(writable_url) as store:
        yield store


def said(*texts: str) -> dict[str, JSON]:
    roles = ("user", "assistant")
    return {"messages": [{"role": roles[at % 2], "content": each} for at, each in enumerate(texts)]}


def session(session_id: str, **params: str) -> str:
    return f"/ui/session?{urlencode({'session_id': session_id, **params})}"


def test_a_new_session_appears_in_the_list(page: Page, store: limpet.Store) -> None:
    page.goto("/ui")
    store.scope("live/new").save(said("Who is new here?"))
    expect(page.get_by_role("link", name="Who is new here?")).to_be_visible()


def test_a_new_snapshot_appears_in_the_session(page: Page, store: limpet.Store) -> None:
    scope = store.scope("live/chat")
    scope.save(said("one"))
    page.goto(session("live/chat"))
    rows = page.locator("#rows a[data-row]")
    expect(rows).to_have_count(1)
    for texts in (("one", "two"), ("one", "two", "three")):
        scope.save(said(*texts))
        expect(rows).to_have_count(len(texts))
        expect(rows.first).to_have_attribute("aria-current", "true")  # it follows
        expect(page.locator("#detail")).to_contain_text(texts[-1])


def test_who_looks_at_the_past_stays_there(page: Page, store: limpet.Store) -> None:
    scope = store.scope("live/past")
    first = scope.save(said("one"))
    scope.save(said("one", "two"))
    page.goto(session("live/past", id=first.id))
    scope.save(said("one", "two", "three"))
    rows = page.locator("#rows a[data-row]")
    expect(rows).to_have_count(3)
    expect(rows.nth(2)).to_have_attribute("aria-current", "true")
    page.get_by_role("button", name="Paused").click()
    expect(rows.first).to_have_attribute("aria-current", "true")
    expect(page.locator("#detail")).to_contain_text("three")


@pytest.mark.slow
def test_it_goes_on_after_the_server_came_back(
    browser: Browser, store: limpet.Store, writable_url: str, tmp_path: Path
) -> None:
    scope = store.scope("live/again")
    scope.save(said("one"))
    with (
        Ui(tmp_path, url=writable_url) as ui,
        open_window(browser, ui.url) as window,
    ):
        window.page.goto(session("live/again"))
        rows = window.page.locator("#rows a[data-row]")
        expect(rows).to_have_count(1)
        ui.stop()
        scope.save(said("one", "two"))
        ui.start()
        expect(rows).to_have_count(2)
        assert all("ERR_" in each for each in window.take_faults())  # of the connection alone


def test_a_fork_is_made(page: Page, store: limpet.Store) -> None:
    scope = store.scope("act/fork")
    first = scope.save(said("one"))
    scope.save(said("one", "two"))
    page.goto(session("act/fork", id=first.id))
    page.get_by_role("link", name="Fork", exact=True).click()
    expect(page.get_by_text("The head has 2 messages, this snapshot 1 message.")).to_be_visible()
    assert [each.key.scope_id for each in store.scopes("act/fork")] == ["main"], "only a preview"
    page.get_by_label("Name of the new scope").fill("other way")
    expect(page.get_by_role("contentinfo")).to_contain_text("'other way'")
    page.get_by_role("button", name="Fork").click()
    expect(page).to_have_url(re.compile("scope_id=other"))
    forked = store.scope("act/fork", "other way").load()
    assert forked is not None
    assert forked.state == said("one")
    assert forked.forked_from == limpet.SnapshotRef(first.scope, first.id)


def test_a_name_that_is_taken_is_told(window: Window, store: limpet.Store) -> None:
    page = window.page
    scope = store.scope("act/taken")
    first = scope.save(said("one"))
    scope.fork(first, scope_id="taken")
    page.goto(session("act/taken", scope_id="main"))
    page.keyboard.press("f")
    page.get_by_label("Name of the new scope").fill("taken")
    page.get_by_role("button", name="Fork").click()
    expect(page.get_by_role("alert")).to_be_visible()
    assert all("status of 409" in each for each in window.take_faults())
    page.get_by_label("Name of the new scope").fill("free")
    page.get_by_role("button", name="Fork").click()
    expect(page).to_have_url(re.compile("scope_id=free"))


def test_a_snapshot_is_restored(page: Page, store: limpet.Store) -> None:
    scope = store.scope("act/restore")
    first = scope.save(said("one"))
    scope.save(said("one", "two"))
    page.goto(session("act/restore", id=first.id))
    page.get_by_role("link", name="Restore", exact=True).click()
    page.get_by_role("button", name="Restore").click()
    expect(page.locator("#rows a[data-row]")).to_have_count(3)
    head = scope.load()
    assert head is not None
    assert head.state == said("one")
