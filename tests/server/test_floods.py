"""Small requests that would take much: each is refused or bounded, and the others are answered."""

import gzip
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

import limpet
from tests.server.asgi import Response
from tests.server.process import Server, head
from tests.waiting import until

pytestmark = pytest.mark.slow
ANSWERED_S_MAX = 60.0  # on a busy machine, too
RSS_BYTES_MAX = 300_000_000
JSON = "Content-Type: application/json"
SAVE = "/v1/scope/save?session_id=s"
LOAD_MANY = "/v1/scope/load_many?session_id=s"
FORM = "application/x-www-form-urlencoded"
MANY = 40_000_000  # of three bytes: less than a body may have


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


def four_times(ask: Callable[[], Response]) -> set[int]:
    """Ask four times at once; return the statuses."""
    with ThreadPoolExecutor(4) as pool:
        return {each.result().status for each in [pool.submit(ask) for _ in range(4)]}


def test_forms_that_are_bombs(served: Server) -> None:
    """Nobody needs a token to send one."""
    fields = b"a=&" * MANY
    bomb = gzip.compress(fields, 1)

    def send(body: bytes, **headers: str) -> set[int]:
        sent = {"content_type": FORM, "origin": served.url, **headers}
        return four_times(lambda: served.ask("POST", "/ui/login", body, **sent))

    with others_are_answered(served):
        assert send(bomb, content_encoding="gzip") == {415}
        assert send(fields[: 33 * 1024]) == {413}
        assert send(fields[: 31 * 1024]) == {400}
        assert send(b"token=none") == {303}


@pytest.mark.parametrize(
    "values", [b"[]," * MANY, b'{"":{}},' * 1_000_000, (b"[" * 99 + b"]" * 99 + b",") * 40_000]
)
def test_json_that_is_a_bomb(served: Server, values: bytes) -> None:
    """For its size, or for what it would take: also where only ids are expected."""
    save, ids = (gzip.compress(b'{"%b": [%b0]}' % (each, values), 1) for each in (b"state", b"ids"))
    few = b'{"ids": [%b0]}' % values[:3_960_000]

    def send(target: str, body: bytes, encoding: str) -> set[int]:
        return four_times(lambda: served.ask("POST", target, body, content_encoding=encoding))

    with others_are_answered(served):
        assert send(SAVE, save, "gzip") == {413}
        assert send(LOAD_MANY, ids, "gzip") == {413}
        assert send(LOAD_MANY, few, "identity") == {413}
        assert send(SAVE, b'{"state": 1}', "identity") == {200}


def test_many_large_states(tmp_path: Path) -> None:
    """Each is sent once, and few of them are in memory, however many clients ask."""
    url = f"sqlite:///{tmp_path / 'served.db'}"
    with limpet.open(url) as store:
        for n in range(8):
            store.scope("s").save({"text": f"{n}" * 30_000_000}, id=f"{n}")
    ids = [f"{n}" for n in range(8)] * 10
    with Server(tmp_path, url=url) as served, others_are_answered(served):

        def count() -> int:
            with served.connect() as connection:
                body = b'{"ids": ["%b"]}' % '","'.join(ids).encode()
                length = f"Content-Length: {len(body)}"
                connection.sendall(head("POST", LOAD_MANY, [JSON, length]) + body)
                found = 0
                while part := connection.recv(2**20):
                    found += part.count(b'"session_id"')
                return found

        with ThreadPoolExecutor(4) as pool:
            assert [each.result() for each in [pool.submit(count) for _ in range(4)]] == [8] * 4
