"""A browser, the stores that it looks at, and windows.

They live as long as the tests of this package, not as those of a worker: Playwright's event loop
would be running in every test after them.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, TypeAlias

import pytest
from playwright.sync_api import Browser, Page, expect

from docs._make import garden
from tests.inspector.browser.ui import WIDE, Ui, Window, open_window
from tests.servers.chromium import start_chromium
from tests.waiting import WAIT_S_MAX

Visit: TypeAlias = Callable[..., Page]

expect.set_options(timeout=WAIT_S_MAX * 1000)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with start_chromium() as browser:
        yield browser


@pytest.fixture(scope="package")
def garden_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with seven sessions; one of them has three scopes."""
    url = f"sqlite:///{tmp_path_factory.mktemp('garden')}/garden.db"
    garden.build(f"{url}?synchronous=off")
    return url


@pytest.fixture(scope="package")
def shown(garden_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ui]:
    """The pages of that store, which only read."""
    with Ui(tmp_path_factory.mktemp("shown"), url=garden_url) as ui:
        yield ui


@pytest.fixture(scope="package")
def writable_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with the same sessions, to which tests add their own."""
    url = f"sqlite:///{tmp_path_factory.mktemp('writable')}/agents.db"
    garden.build(f"{url}?synchronous=off")
    return url


@pytest.fixture(scope="package")
def writable(writable_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ui]:
    """The pages of that store, which may write."""
    with Ui(tmp_path_factory.mktemp("ui"), "--write", url=writable_url) as ui:
        yield ui


@pytest.fixture(scope="package")
def _reading(browser: Browser, shown: Ui) -> Iterator[Window]:
    with open_window(browser, shown.url) as window:
        yield window


@pytest.fixture(scope="package")
def _writing(browser: Browser, writable: Ui) -> Iterator[Window]:
    with open_window(browser, writable.url) as window:
        window.page.goto(writable.start_page)
        yield window


@pytest.fixture
def visit(browser: Browser, shown: Ui, _reading: Window) -> Iterator[Visit]:
    """Open an address of the pages that only read: `visit("/ui", viewport=NARROW)`.

    With options the window is a new one.
    """
    with ExitStack() as opened:

        def visit(address: str, **options: Any) -> Page:
            window = _reading
            if options:
                window = opened.enter_context(open_window(browser, shown.url, **options))
            window.page.goto(address)
            return window.page

        yield visit
        _as_new(_reading)


@pytest.fixture
def window(_writing: Window) -> Iterator[Window]:
    """A window of the pages that may write, opened with the address in the terminal."""
    yield _writing
    _as_new(_writing)


@pytest.fixture
def page(window: Window) -> Page:
    return window.page


def _as_new(window: Window) -> None:
    """Bring a window into the state of a new one, and check what happened in it."""
    if window.page.url != "about:blank":
        window.page.evaluate("localStorage.clear(); sessionStorage.clear()")
    window.page.goto("about:blank")
    window.page.set_viewport_size(WIDE)
    window.page.emulate_media(color_scheme="light")
    assert window.take_faults() == []
