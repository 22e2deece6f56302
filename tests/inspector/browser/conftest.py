"""A browser for each file of tests, and the store that they look at.

Not one for a whole worker: Playwright's event loop would be running in every test after it.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any, TypeAlias

import pytest
from playwright.sync_api import Browser, Page, expect

from docs._make import garden
from tests.inspector.browser.ui import Ui, Window, open_window
from tests.servers.chromium import start_chromium
from tests.waiting import WAIT_S_MAX

Visit: TypeAlias = Callable[..., Page]

expect.set_options(timeout=WAIT_S_MAX * 1000)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with start_chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def garden_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with seven sessions; one of them has three scopes."""
    url = f"sqlite:///{tmp_path_factory.mktemp('garden')}/garden.db"
    garden.build(url)
    return url


@pytest.fixture(scope="module")
def shown(garden_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ui]:
    """The pages of that store, which only read."""
    with Ui(garden_url, folder=tmp_path_factory.mktemp("ui")) as ui:
        yield ui


@pytest.fixture
def window(browser: Browser, shown: Ui) -> Iterator[Callable[..., Window]]:
    """Open windows on the pages, or on those of another server: `window(ui, viewport=NARROW)`."""
    with ExitStack() as opened:

        def open(ui: Ui | None = None, **options: Any) -> Window:
            url = (ui or shown).url
            context: AbstractContextManager[Window] = open_window(browser, url, **options)
            return opened.enter_context(context)

        yield open


@pytest.fixture
def visit(window: Callable[..., Window], shown: Ui) -> Visit:
    """Open an address in a window of its own: `visit("/ui", viewport=NARROW)`."""

    def visit(address: str, ui: Ui | None = None, **options: Any) -> Page:
        page = window(ui, **options).page
        page.goto(address)
        return page

    return visit
