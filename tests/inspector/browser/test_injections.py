"""Nothing that a store holds becomes part of a page."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Page, expect

import limpet
from limpet.inspector.pages import PAGES
from tests.effort import times
from tests.inspector.browser import injections
from tests.inspector.browser.ui import Ui, Window, open_window, unfold

# What an injection leaves in a page: an element of its own, a handler, an address that runs.
_TRACES = """(computed, page = document) => {
  const found = [];
  const all = (css) => [...page.querySelectorAll(css)];
  const note = (what, each) => found.push(`${what}: ${each.outerHTML.slice(0, 200)}`);
  if (window.__hit !== undefined || {}.isAdmin) found.push("it ran");
  for (const each of all("[data-hit], iframe, object, embed, base, frameset, portal, plaintext"))
    note("element", each);
  for (const each of all("*")) {
    for (const name of each.getAttributeNames())
      if (/^on/i.test(name) || name === "style" && /url/.test(each.getAttribute(name)))
        note(name, each);
  }
  for (const each of all("script"))
    if (!each.getAttribute("src")?.startsWith("/ui/static/")) note("script", each);
  for (const each of all("meta[http-equiv=refresh], link:not([href^='/ui/static/'])"))
    note("element", each);
  for (const each of all("form, [formaction]"))
    if (!["", location.origin].includes(new URL(each.action || location).origin))
      note("form", each);
  for (const each of all("a[href], area[href]"))
    if (!["http:", "https:", "mailto:"].includes(each.protocol)) note("link", each);
  for (const each of all("img[src], source[src]"))
    if (!/^(\\/ui\\/static\\/|data:image\\/(png|jpeg|gif|webp);)/.test(each.getAttribute("src")))
      note("picture", each);
  for (const id of ["theme", "help", "main"])
    if (all(`[id="${id}"], [name="${id}"]`).length > 1) found.push(`twice: ${id}`);
  if (page.body.innerText.includes(computed)) found.push("it was computed");
  if (/[\\u202a-\\u202e\\u2066-\\u2069\\u200b\\ufeff\\u0001\\u001b]/.test(page.body.innerText))
    found.push("an invisible character is as it was");
  return found;
}"""


# Puts what each address answers into the page that is open, where its policy and its scripts are.
_VISITS = f"""async ([addresses, computed]) => {{
  const traces = {_TRACES};
  const found = [];
  for (const address of addresses) {{
    const answer = await (await fetch(address)).text();
    const page = new DOMParser().parseFromString(answer, "text/html");
    const seen = traces(computed, page);
    for (const each of page.querySelectorAll("script")) each.remove(); // they have run
    for (const each of page.querySelectorAll("details")) each.open = true;
    document.body.replaceWith(document.importNode(page.body, true));
    await new Promise((done) => setTimeout(done, 20)); // in which an injection would act
    found.push(...[...seen, ...traces(computed)].map((each) => `${{address}}: ${{each}}`));
  }}
  return found;
}}"""


class Injected(Ui):
    """The pages of a store that is full of injections."""

    store_url: str
    addresses: list[dict[str, str]]


@pytest.fixture(scope="module")
def injected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Injected]:
    folder = tmp_path_factory.mktemp("injected")
    url = f"sqlite:///{folder}/injected.db"
    with limpet.open(f"{url}?synchronous=off") as store:
        addresses = injections.write(store)
    with Injected(folder, "--write", url=url) as ui:
        ui.store_url, ui.addresses = url, addresses
        yield ui


@pytest.fixture(scope="module")
def window(browser: Browser, injected: Injected) -> Iterator[Window]:
    with open_window(browser, injected.url) as window:
        window.page.goto(injected.start_page)
        yield window


@pytest.fixture
def page(window: Window) -> Iterator[Page]:
    """A page in which nothing runs, loads or goes elsewhere."""
    yield window.page
    assert window.take_faults() == []


Visited = tuple[str, dict[str, str]]
"""The path of a page, and its parameters."""


def check(page: Page, path: str, /, **params: str) -> None:
    """Open a page and look for traces, also in what is folded at first."""
    address = f"{path}?{urlencode(params)}"
    page.goto(address)
    title = page.title()
    unfold(page)
    page.wait_for_timeout(20)  # in which an injection would act
    assert page.evaluate(_TRACES, injections.COMPUTED) == [], (path, params)
    assert page.url.endswith(address), (page.url, address)
    assert page.title() == title


def visit(page: Page, visited: list[Visited]) -> None:
    """Look for traces in many pages, which takes a tenth of opening each of them."""
    page.goto("/ui/search")
    addresses = [f"{path}?{urlencode(params)}" for path, params in visited]
    assert page.evaluate(_VISITS, [addresses, injections.COMPUTED]) == []


@pytest.mark.slow
def test_an_injection_that_gets_through_is_found(browser: Browser) -> None:
    """Otherwise the tests below would pass because they see nothing."""
    window = Window(browser, "about:blank", offline=True)
    raw = (*injections.SCRIPTS, *injections.HANDLERS, *injections.BREAKS, *injections.LOADS)
    unseen = []
    for text in filter(lambda each: each.startswith("<"), raw):
        window.page.set_content(f"<p>{text}</p>")
        if not window.page.evaluate(_TRACES, injections.COMPUTED):
            unseen.append(text)
    window.close()
    assert unseen == []


def test_in_the_list(page: Page) -> None:
    check(page, "/ui")
    page.get_by_role("link", name="Next page").click()
    expect(page.get_by_text("</textarea>").first).to_be_visible()  # as a text
    assert page.evaluate(_TRACES, injections.COMPUTED) == []


@pytest.mark.parametrize("view", ["chat", "state", "changes"])
def test_in_a_snapshot(page: Page, injected: Injected, view: str) -> None:
    check(page, "/ui/session", view=view, **injected.addresses[-1])


def test_in_ids_statuses_labels_titles_and_searches(page: Page, injected: Injected) -> None:
    some = injected.addresses[4:-1:20]
    for path in ("/ui/session", "/ui/fork"):
        check(page, path, **some[0])
    visited = [(path, each) for path in ("/ui/session", "/ui/fork") for each in some]
    check(page, "/ui/search", q="data-hit")
    visit(page, visited + [("/ui/search", {"q": each}) for each in injections.INJECTIONS[3::20]])


_STREAMS = ("/ui/events", "/ui/export")  # no pages
_ADDRESSES = [
    (each.path, name)
    for each in PAGES.operations
    if each.method == "GET" and not each.public and each.path not in _STREAMS
    for name in each.params
]


def test_in_addresses(window: Window) -> None:
    """A page that repeats what its address says, or refuses it, says it as a text."""
    text = '"><img data-hit src=x onerror="window.__hit=1">'
    visit(
        window.page, [(path, {"session_id": "__proto__", name: text}) for path, name in _ADDRESSES]
    )
    assert [each for each in window.take_faults() if "status of 4" not in each] == []


def test_in_an_exported_page(browser: Browser, injected: Injected, tmp_path: Path) -> None:
    file = tmp_path / "all.html"
    command = ["export", "all", "-o", str(file), "--images", "--url", injected.store_url]
    subprocess.run([sys.executable, "-m", "limpet", *command], check=True)
    with open_window(browser, f"file://{tmp_path}") as window:
        check(window.page, f"file://{file}")


def pages_of(address: dict[str, str]) -> list[Visited]:
    session_id = address["session_id"]
    line = session_id.partition("\n")[0]  # a search is for a text in one line
    return [
        *(("/ui/session", {"view": view, **address}) for view in ("chat", "state", "changes")),
        *((path, address) for path in ("/ui/fork", "/ui/restore")),
        ("/ui/search", {"q": line, "session_id": session_id}),
        ("/ui", {"prefix": session_id}),
    ]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("at", range(7))
def test_each_on_every_page(page: Page, injected: Injected, at: int) -> None:
    """Each is opened on one of the pages, and visited on all of them."""
    share = times(1, full=4, torture=1)  # which is visited: each is, on one of the pages or two
    visited = [pages_of(each)[at] for each in injected.addresses[:-1]]
    visited = visited[at % share :: share]
    for path, params in visited[at::7]:
        check(page, path, **params)
    visit(page, visited)
