"""`limpet ui` and `limpet serve --ui`, as processes."""

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

import pytest

import limpet
from tests.cli.conftest import Command
from tests.server.process import Server
from tests.waiting import until

DEFAULT_PORT = 7421


class Ui(Server):
    """A process of `limpet ui`."""

    verb: ClassVar = ("ui", "--no-open", "--json")

    @property
    def start_page(self) -> str:
        """The address that it printed: with a token if it may write."""
        # It accepts requests before it says so.
        lines = until(lambda: [each for each in self.log.split("\n")[:-1] if each[:1] == "{"])
        return str(json.loads(lines[0])["url"])


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'agents.db'}"
    with limpet.open(url) as store:
        store.scope("chat-1").save({"messages": [{"role": "user", "content": "hello there"}]})
    return url


def test_it_shows_a_store_and_only_reads(tmp_path: Path, store_url: str) -> None:
    with Ui(tmp_path, url=store_url) as ui:
        assert ui.start_page == f"{ui.url}/ui"
        page = ui.ask("GET", "/ui")
        assert (page.status, b"hello there" in page.body) == (200, True)
        assert ui.ask("GET", "/").headers["location"] == "/ui"
        assert ui.ask("GET", "/ui/fork?session_id=chat-1").status == 403
        assert ui.ask("GET", "/ui", Host="evil.example").status == 403
        # Ctrl+C ends it at once, although a stream is open.
        with ui.connect() as watching:
            watching.sendall(b"GET /v1/watch HTTP/1.1\r\nHost: localhost\r\n\r\n")
            until(lambda: b": watching" in watching.recv(2**16))
            ui.stop(signal.SIGINT)
        assert len(ui.log.splitlines()) == 1


def test_writing_needs_the_address_that_was_printed(tmp_path: Path, store_url: str) -> None:
    with Ui(tmp_path, "--write", url=store_url) as ui:
        page = urlsplit(ui.start_page)
        assert ui.ask("GET", "/ui").status == 401
        answer = ui.ask("GET", f"/ui/login?{page.query}")
        assert (answer.status, answer.headers["location"]) == (303, "/ui")
        cookie = answer.headers["set-cookie"].partition(";")[0]
        for path, status in (("/ui", 200), ("/ui/fork?session_id=chat-1", 200), ("/v1", 401)):
            assert ui.ask("GET", path, cookie=cookie).status == status
        assert ui.log.count(page.query) == 1  # where it is printed


def test_a_port_that_is_taken(tmp_path: Path, store_url: str, command: Command) -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", DEFAULT_PORT))
            taken.listen()
        except OSError:
            pass  # by another program, which is as good
        words = [sys.executable, "-m", "limpet", "ui", store_url, "--no-open", "--json"]
        pipe = subprocess.PIPE
        with subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, cwd=tmp_path) as ui:
            assert ui.stdout is not None
            assert urlsplit(json.loads(ui.stdout.readline())["url"]).port != DEFAULT_PORT
            ui.kill()
            assert "port 7421 is taken" in ui.communicate()[1]
        done = command("ui", store_url, "--port", str(DEFAULT_PORT), "--no-open")
        assert done.returncode == 4
        assert "cannot listen" in done.stderr


@pytest.mark.slow
def test_a_store_behind_a_server(tmp_path: Path, store_url: str) -> None:
    (tmp_path / "ui").mkdir()
    with (
        Server(tmp_path, "--ui", url=store_url) as server,
        Ui(tmp_path / "ui", url=server.url) as ui,
    ):
        assert b"hello there" in ui.ask("GET", "/ui").body
        assert b"hello" in ui.ask("GET", "/ui/search?q=there&session_id=chat-1").body
        assert ui.ask("GET", "/ui/export?session_id=chat-1&format=jsonl").status == 200
        # The server has pages of its own, and without tokens they may write.
        assert b"hello there" in server.ask("GET", "/ui").body
        assert server.ask("GET", "/ui/fork?session_id=chat-1").status == 200
        assert server.ask("GET", "/ui", Host="evil.example").status == 403
