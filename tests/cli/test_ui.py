"""`limpet ui` and `limpet serve --ui`, as processes."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

import limpet
from tests.cli.conftest import Command, mind_ctrl_c
from tests.server.process import Server
from tests.waiting import WAIT_S_MAX, until

DEFAULT_PORT = 7421
STOPS_S_MAX = 10  # far below the 30 s that requests have to finish


class Shown(NamedTuple):
    """A process of `limpet ui`, and the address that it printed."""

    process: "subprocess.Popen[str]"
    url: str
    errors: Path

    def get(self, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        place = urlsplit(self.url)
        connection = HTTPConnection(str(place.hostname), int(place.port or 0), timeout=20)
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            named = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, named, answer.read()
        finally:
            connection.close()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(STOPS_S_MAX)


@contextmanager
def shown(folder: Path, *arguments: str) -> Iterator[Shown]:
    command = [sys.executable, "-m", "limpet", "ui", *arguments, "--no-open", "--json"]
    errors = folder / "ui.log"
    with errors.open("w") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={k: v for k, v in os.environ.items() if k != "LIMPET_URL"},
            preexec_fn=mind_ctrl_c,
        )
    try:
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], WAIT_S_MAX)
        line = process.stdout.readline() if ready else ""
        assert line, errors.read_text()
        yield Shown(process, json.loads(line)["url"], errors)
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'agents.db'}"
    with limpet.open(url) as store:
        store.scope("chat-1").save({"messages": [{"role": "user", "content": "hello there"}]})
    return url


def test_it_shows_a_store_and_only_reads(tmp_path: Path, store_url: str) -> None:
    with shown(tmp_path, store_url, "--port", "0") as ui:
        assert ui.url.startswith("http://127.0.0.1:")
        assert ui.url.endswith("/ui")
        status, headers, body = ui.get("/ui")
        assert status == 200
        assert b"hello there" in body
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert ui.get("/")[1]["location"] == "/ui"
        assert ui.get("/ui/fork?session_id=chat-1")[0] == 403
        assert ui.get("/ui", host="evil.example")[0] == 403
        # Ctrl+C ends it at once, although a stream is open.
        port = int(urlsplit(ui.url).port or 0)
        with socket.create_connection(("127.0.0.1", port), 20) as watching:
            watching.sendall(b"GET /v1/watch HTTP/1.1\r\nHost: localhost\r\n\r\n")
            until(lambda: b": watching" in watching.recv(2**16))
            assert ui.stop() == 0
        assert ui.errors.read_text() == ""


def test_writing_needs_the_address_that_was_printed(tmp_path: Path, store_url: str) -> None:
    with shown(tmp_path, store_url, "--port", "0", "--write") as ui:
        page = urlsplit(ui.url)
        assert page.path == "/ui/login"
        assert ui.get("/ui")[0] == 401
        status, headers, _ = ui.get(f"{page.path}?{page.query}")
        assert (status, headers["location"]) == (303, "/ui")
        cookie = headers["set-cookie"].partition(";")[0]
        assert ui.get("/ui", cookie=cookie)[0] == 200
        assert ui.get("/ui/fork?session_id=chat-1", cookie=cookie)[0] == 200
        assert ui.get("/v1/sessions", cookie=cookie)[0] == 401
        assert ui.stop() == 0
        assert page.query not in ui.errors.read_text()


def test_a_port_that_is_taken(tmp_path: Path, store_url: str, command: Command) -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", DEFAULT_PORT))
            taken.listen()
        except OSError:
            pass  # by another program, which is as good
        with shown(tmp_path, store_url) as ui:
            assert urlsplit(ui.url).port != DEFAULT_PORT
            assert ui.get("/ui")[0] == 200
            assert "port 7421 is taken" in ui.errors.read_text()
        done = command("ui", store_url, "--port", str(DEFAULT_PORT), "--no-open")
        assert done.returncode == 4
        assert "cannot listen" in done.stderr


def test_what_is_not_there(command: Command, tmp_path: Path) -> None:
    done = command("ui", "sqlite:///nothing.db", "--no-open")
    assert (done.returncode, done.stdout) == (1, "")
    assert "there is no such file" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_store_behind_a_server(tmp_path: Path, store_url: str) -> None:
    with (
        Server(tmp_path, "--ui", url=store_url) as server,
        shown(tmp_path, server.url, "--port", "0") as ui,
    ):
        assert b"hello there" in ui.get("/ui")[2]
        assert b"hello" in ui.get("/ui/search?q=there&session_id=chat-1")[2]
        assert ui.get("/ui/export?session_id=chat-1&format=jsonl")[0] == 200
        # The server has pages of its own, and without tokens they may write.
        assert b"hello there" in server.ask("GET", "/ui").body
        assert server.ask("GET", "/ui/fork?session_id=chat-1").status == 200
        assert server.ask("GET", "/ui", Host="evil.example").status == 403
        assert ui.stop() == 0
