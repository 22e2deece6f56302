"""The browser of the tests is found, or one line says what to install."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.servers.chromium import chromium

NOTHING: Any = SimpleNamespace(chromium=SimpleNamespace(executable_path="/nonexistent/chrome"))


@pytest.fixture(autouse=True)
def _no_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("LIMPET_CHROMIUM", raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


def test_without_a_browser_one_line_says_what_to_install() -> None:
    with pytest.raises(pytest.fail.Exception) as found:
        chromium(NOTHING)
    assert "playwright install chromium" in str(found.value)
    assert "\n" not in str(found.value)


def test_a_browser_is_found_where_it_is_said_or_on_the_path_or_where_playwright_has_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = tmp_path / "chrome-of-playwright"
    own.touch()
    has_own: Any = SimpleNamespace(chromium=SimpleNamespace(executable_path=str(own)))
    assert chromium(has_own) == str(own)
    (tmp_path / "chromium").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert chromium(has_own) == str(tmp_path / "chromium")
    monkeypatch.setenv("LIMPET_CHROMIUM", "/opt/other/chrome")
    assert chromium(has_own) == "/opt/other/chrome"
