"""`limpet ui` as a process, and a browser window that notes what must not happen in it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Dialog,
    Page,
    Request,
    ViewportSize,
    WebError,
)

from tests.cli.test_ui import Ui as Ui
from tests.waiting import WAIT_S_MAX

WIDE = ViewportSize(width=1280, height=800)
NARROW = ViewportSize(width=380, height=740)

# A page that is refused something says so in this event, also where the console is silent.
_REPORT = """
addEventListener("securitypolicyviolation", (event) => {
  console.error(`refused by ${event.violatedDirective}: ${event.blockedURI}`);
});
"""


class Window:
    """A page in a browser of its own cookies; `faults` is what must not happen in any page."""

    def __init__(self, browser: Browser, url: str, **options: Any) -> None:
        self.url = url
        self.faults: list[str] = []
        self.requests: list[str] = []
        self._context = browser.new_context(
            base_url=url, reduced_motion="reduce", **{"viewport": WIDE, **options}
        )
        self._context.set_default_timeout(WAIT_S_MAX * 1000)
        self._context.add_init_script(_REPORT)
        self._context.on("console", self._note_console)
        self._context.on("weberror", self._note_error)
        self._context.on("request", self._note_request)
        self._context.on("dialog", self._note_dialog)
        self.page: Page = self._context.new_page()
        self._context.on("page", lambda page: self.faults.append(f"window: {page.url}"))

    def take_faults(self) -> list[str]:
        """Return what happened, and forget it."""
        faults, self.faults = self.faults, []
        return faults

    def close(self) -> None:
        self._context.close()

    def _note_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.faults.append(f"console: {message.text}")

    def _note_error(self, error: WebError) -> None:
        self.faults.append(f"script: {error.error}")

    def _note_request(self, request: Request) -> None:
        self.requests.append(request.url)
        if not request.url.startswith((f"{self.url}/", "data:", "blob:")):
            self.faults.append(f"request: {request.url}")

    def _note_dialog(self, dialog: Dialog) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()


@contextmanager
def open_window(browser: Browser, url: str, **options: Any) -> Iterator[Window]:
    """Open a window on a server; afterwards nothing may have happened that must not."""
    window = Window(browser, url, **options)
    try:
        yield window
    finally:
        window.close()
    assert window.faults == [], window.faults


def unfold(page: Page) -> None:
    """Open all that is folded."""
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")


def overflow(page: Page) -> list[str]:
    """Return nothing, or if the page scrolls sideways its width and what is too wide."""
    return list(
        page.evaluate(
            """() => {
              const whole = document.scrollingElement.scrollWidth;
              if (whole <= innerWidth) return [];
              const wide = [...document.querySelectorAll("body *")]
                .filter((each) => each.getBoundingClientRect().right > innerWidth + 1)
                .map((each) => `${each.tagName}.${each.getAttribute("class")}`);
              return [`${whole} > ${innerWidth}`, ...wide.slice(0, 8)];
            }"""
        )
    )


def unseen(page: Page, css: str) -> list[str]:
    """Return the texts of elements that are cut off or covered by another row."""
    return list(
        page.evaluate(
            """(css) => [...document.querySelectorAll(css)].filter((each) => {
              const { left, top, width, height } = each.getBoundingClientRect();
              if (top < 0 || top + height > innerHeight) return false;
              const seen = document.elementFromPoint(left + 4, top + height / 2);
              return width < 10 || seen?.closest("tr, li") !== each.closest("tr, li");
            }).map((each) => each.textContent.trim())""",
            css,
        )
    )
