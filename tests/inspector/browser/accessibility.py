"""Findings of axe-core in a page."""

from typing import Any

from axe_playwright_python.base import AXE_SCRIPT  # type: ignore[import-untyped]
from playwright.sync_api import Page


def violations(page: Page, *rules: str, within: str = "html") -> list[str]:
    """Return what axe-core finds in a part of a page, by all of its rules or only by some."""
    options: dict[str, Any] = {"resultTypes": ["violations"], "iframes": False}
    if rules:
        options["runOnly"] = list(rules)
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    found = page.evaluate(
        "async ([within, options]) => (await axe.run(within, options)).violations",
        [within, options],
    )
    return [
        f"{each['id']}: {node['html'][:160]} ({node['failureSummary'].splitlines()[-1].strip()})"
        for each in found
        for node in each["nodes"]
    ]
