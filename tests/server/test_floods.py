"""Small requests that would take much: each is refused or bounded, and the others are answered."""

import gzip
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.server.process import Server, head
from tests.waiting import until

pytestmark = pytest.mark.slow
ANSWERED_S_MAX = 1.0
RSS_BYTES_MAX = 300_000_000
JSON = "Content-Type: application/json"
SAVE = "/v1/scope/save?session_id=s"
LOAD_MANY = "/v1/scope/load_many?session_id=s"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Server]:
    """A server with the limits that it has by default, and pages."""
    with Server(tmp_path, "--ui", url=f"sqlite:///{tmp_path / 'served.db'}") as running:
        yield running


@contextmanager
def others_are_answered(server: Server) -> Iterator[None]:
    """Another client asks all the time; at the end, the server has held little memory."""
    taken_s: list[float] = []
    is_over = threading.Event()

    def ask() -> None:
        while not is_over.is_set():
            began = time.monotonic()
            with suppress(OSError):
                assert server.ask("GET", "/v1").status == 200
            taken_s.append(time.monotonic() - began)
            is_over.wait(0.01)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield
        count = len(taken_s)
        until(lambda: len(taken_s) > count + 20)
    finally:
        is_over.set()
        asking.join()
    assert max(taken_s) < ANSWERED_S_MAX
    assert server.rss_bytes_max < RSS_BYTES_MAX
    assert "Traceback" not in server.log, server.log[-4000:]


def test_connections_that_send_requests_and_read_nothing(served: Server) -> None:
    """GET, POST with a body, and a stream, each followed by a megabyte of requests."""
    body = b'{"targets": []}'
    posts = head("POST", "/v1/revisions", [JSON, f"Content-Length: {len(body)}"], stay=True) + body
    gets = head("GET", "/healthz", stay=True)
    stream = head("GET", "/v1/watch", stay=True)
    floods = [gets * 20_000, posts * 10_000, stream + gets * 20_000]
    with ExitStack() as closing, others_are_answered(served):
        connections = [closing.enter_context(served.connect()) for _ in range(30)]
        for at, each in enumerate(connections):
            each.setblocking(False)
            flood = memoryview(floods[at % 3])
            with suppress(BlockingIOError):
                while flood:
                    flood = flood[each.send(flood) :]
        until_s = time.monotonic() + 3
        while time.monotonic() < until_s:
            for each in connections:
                with suppress(BlockingIOError, ConnectionError):
                    each.send(gets)
