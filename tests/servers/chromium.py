"""A Chromium for tests: one that the machine has, or else Debian's."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

try:
    from playwright.sync_api import Browser, Playwright, sync_playwright
except ImportError:
    pytest.fail("these tests need a browser: pip install playwright", pytrace=False)

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_INSTALL_S_MAX = 300


@contextmanager
def start_chromium() -> Iterator[Browser]:
    """Start a browser without windows, until the block ends.

    Meanwhile nothing else in this thread can run an event loop: Playwright's own is running in it.
    """
    with sync_playwright() as playwright:
        # Without hinting, texts are as wide on one machine as on another.
        browser = playwright.chromium.launch(
            executable_path=chromium(playwright), args=["--font-render-hinting=none"]
        )
        yield browser
        browser.close()


def chromium(playwright: Playwright) -> str:
    """Return the path of a Chromium; root of a Debian or Ubuntu gets one installed."""
    found = _found(playwright)
    if found is None and os.geteuid() == 0 and shutil.which("apt-get") is not None:
        with _lock():
            found = _found(playwright) or _installed()
    if found is None:
        pytest.fail(
            "Chromium is missing: run `playwright install chromium`, or install your system's and"
            " set LIMPET_CHROMIUM to its path if it is not on the PATH",
            pytrace=False,
        )
    return found


def _found(playwright: Playwright) -> str | None:
    named = os.environ.get("LIMPET_CHROMIUM")
    own = playwright.chromium.executable_path
    on_path = next(filter(None, map(shutil.which, _NAMES)), None)
    return named or on_path or (own if Path(own).exists() else None)


@contextmanager
def _lock() -> Iterator[None]:
    """Let one worker of the tests install it, while the others wait."""
    with (Path(tempfile.gettempdir()) / "limpet-chromium.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _installed() -> str | None:
    command = "apt-get update -q && apt-get install -qy --no-install-recommends chromium"
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(
        ["sh", "-c", command], env=environ, capture_output=True, timeout=_INSTALL_S_MAX, check=False
    )
    return next(filter(None, map(shutil.which, _NAMES)), None)
