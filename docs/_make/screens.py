"""Writes docs/images/inspector-*.webp: the pages of the inspector. Run by `make docs`."""

import base64
import tempfile
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import urlencode

from playwright.sync_api import Browser, Page, ViewportSize

from limpet.inspector.demo import fill
from tests.inspector.browser.ui import NARROW, WIDE, Ui, open_window
from tests.servers.chromium import start_chromium

FOLDER = Path(__file__).resolve().parent.parent / "images"
_SCALE = 1.5  # sharp on most screens
_QUALITY = 82
_BUG, _REPORT = "fix-flaky-checkout", "annual-report-2026"
_FETCHED_MS = 400  # what scripts read once a page is there


class Screen(NamedTuple):
    """A picture of a page, and a description of it."""

    name: str
    address: str
    about: str
    size: ViewportSize = WIDE
    colours: Literal["light", "dark"] = "light"
    click: str = ""


def _session(session_id: str, **params: str) -> str:
    return f"/ui/session?{urlencode({'session_id': session_id, **params})}"


_LIST = "the sessions of a store, the newest first"
_CHAT = "the history of a session as a graph, and one snapshot as a chat"
SCREENS = (
    Screen("list", "/ui", _LIST),
    Screen("list-dark", "/ui", _LIST, colours="dark"),
    Screen("list-narrow", "/ui", _LIST, NARROW),
    Screen("session", _session(_BUG), _CHAT),
    Screen("session-dark", _session(_BUG), _CHAT, colours="dark"),
    Screen("session-narrow", _session(_BUG), _CHAT, NARROW),
    Screen("changes", _session(_BUG, view="changes"), "what changed in a step"),
    Screen(
        "state",
        _session(_REPORT, view="state"),
        "a state as a tree of values",
        click="summary:has-text('artifacts')",
    ),
    Screen("search", "/ui/search?q=cabin", "what a search found"),
)


def write(folder: Path = FOLDER) -> None:
    """Fill a store with the demo, and write a picture of each page."""
    with tempfile.TemporaryDirectory() as made:
        url = f"sqlite:///{made}/agents.db"
        fill(url)
        # The header shows the URL: a short one, as people use it.
        with Ui(Path(made), url="sqlite:///agents.db") as ui, start_chromium() as browser:
            for screen in SCREENS:
                (folder / f"inspector-{screen.name}.webp").write_bytes(_taken(browser, ui, screen))


def _taken(browser: Browser, ui: Ui, screen: Screen) -> bytes:
    with open_window(
        browser,
        ui.url,
        viewport=screen.size,
        color_scheme=screen.colours,
    ) as window:
        window.page.goto(screen.address)
        if screen.click:
            window.page.click(screen.click)
        window.page.wait_for_timeout(_FETCHED_MS)
        window.page.evaluate("scrollTo(0, 0)")  # a long chat opens at its end
        return _webp(window.page, screen.size)


def _webp(page: Page, size: ViewportSize) -> bytes:
    """Return what a window shows; Playwright itself has no format as small as this."""
    clip = {"x": 0, "y": 0, "scale": _SCALE, **size}
    given = {"format": "webp", "quality": _QUALITY, "clip": clip}
    taken = page.context.new_cdp_session(page).send("Page.captureScreenshot", given)
    return base64.b64decode(taken["data"])


if __name__ == "__main__":
    write()
