"""Logging in and out, by the form and by the address that was printed."""

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, expect

from tests.inspector.browser.ui import Ui, open_window
from tests.server.process import Server
from tests.servers.tls import certificate

TOKEN = "a-token-0123456789"


def test_by_the_form_and_out_again(browser: Browser, writable: Ui) -> None:
    (token,) = parse_qs(urlsplit(writable.start_page).query)["token"]
    with open_window(browser, writable.url) as window:
        page = window.page
        page.goto("/ui/search?q=garden")
        page.get_by_label("Token").fill("not-the-token-0123")
        page.get_by_role("button", name="Open").click()
        expect(page.get_by_role("alert")).to_have_text("This token is not known here.")
        page.goto("/ui/search?q=garden")
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Open").click()
        expect(page.get_by_role("button", name="Log out")).to_be_visible()
        assert page.url == f"{writable.url}/ui/search?q=garden"
        (cookie,) = page.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/ui")
        assert token not in cookie["value"]
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_label("Token")).to_be_visible()
        assert page.context.cookies() == []
        assert all("status of 401" in each for each in window.take_faults())


@pytest.mark.slow
def test_a_link_of_another_port_does_not_log_in(browser: Browser, shown: Ui, writable: Ui) -> None:
    with open_window(browser, shown.url) as window:
        page = window.page
        page.goto("/ui")
        page.evaluate("(address) => { location.href = address; }", writable.start_page)
        expect(page.get_by_text("another site led here")).to_be_visible()
        assert page.context.cookies() == []
        page.goto("about:blank")  # no request of the other page comes later
        window.take_faults()  # the other address


@pytest.mark.slow
def test_over_tls_the_browser_takes_the_cookie(browser: Browser, tmp_path: Path) -> None:
    """It refuses one with `__Host-` in its name that has another path, or is not for TLS alone."""
    cert, key = certificate(tmp_path)
    file = tmp_path / "tokens"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o600)
    arguments = ["--ui", "--token-file", str(file), "--tls-cert", str(cert), "--tls-key", str(key)]
    with Server(tmp_path, *arguments) as server:
        url = f"https://localhost:{server.port}"
        with open_window(browser, url, ignore_https_errors=True) as window:
            page = window.page
            page.goto(f"/ui/login?token={TOKEN}")
            expect(page.get_by_role("button", name="Log out")).to_be_visible()
            (cookie,) = page.context.cookies()
            assert cookie["name"] == f"__Host-limpet-{server.port}"
            assert cookie["secure"]
            page.get_by_role("button", name="Log out").click()
            expect(page.get_by_label("Token")).to_be_visible()
            assert page.context.cookies() == []
            window.take_faults()  # the status of the last page
