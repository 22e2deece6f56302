"""Slow clients, many clients, large answers: each is limited, and the others are served."""

import asyncio
import logging
import re
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import orjson
import pytest

import limpet
from limpet.core import limits
from limpet.errors import Unavailable
from limpet.inspector.pages import PAGES
from limpet.server import app as app_module
from limpet.server import bodies as bodies_module
from limpet.server.access import Access
from limpet.server.app import App
from limpet.server.bodies import Memory
from limpet.server.call import FORM_TYPE
from tests.cases import for_each
from tests.server.asgi import ask
from tests.server.process import Server, head, read_all
from tests.waiting import WAIT_S_MAX

JSON = "Content-Type: application/json"
SAVE = "/v1/scope/save?session_id=s"


@asynccontextmanager
async def serving(url: str = "memory:") -> AsyncIterator[App]:
    async with limpet.open_async(url) as store:
        yield App(store, Access())


# In this process


def test_memory_is_given_in_turn() -> None:
    async def run() -> list[str]:
        memory, order = Memory(100), []

        async def use(name: str, count: int) -> None:
            async with memory.reserved(count):
                order.append(name)
                await asyncio.sleep(0)

        tasks = [asyncio.ensure_future(use(*each)) for each in (("a", 60), ("b", 60), ("c", 10))]
        tasks.append(asyncio.ensure_future(use("more than there is", 1000)))
        await asyncio.sleep(0)
        tasks.pop(1).cancel()
        await asyncio.gather(*tasks)
        async with memory.reserved(100):
            order.append("all is given back")
        return order

    assert asyncio.run(run()) == ["a", "c", "more than there is", "all is given back"]


async def test_who_waits_too_long_for_memory_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setattr(bodies_module, "_QUEUE_S_MAX", 0.01)
    memory = Memory(100)
    async with memory.reserved(100):
        with pytest.raises(Unavailable) as refused:
            async with memory.reserved(1):
                pass
        assert refused.value.outcome_known
    async with memory.reserved(100):
        pass


@pytest.mark.parametrize(
    ("module", "name", "target", "body"),
    [
        (app_module, "_REQUESTS_MAX", "/v1", None),
        (app_module, "_SENDING_BYTES_MAX", "/v1", None),
        (app_module, "_STREAMS_MAX", "/v1/watch", None),
        (bodies_module, "_READING_MAX", "/v1/revisions", {"targets": []}),
    ],
)
async def test_who_comes_too_many_is_told_to_come_later(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, target: str, body: Any
) -> None:

    monkeypatch.setattr(module, name, -1 if name.startswith("_SENDING") else 0)
    async with serving() as app:
        answer = await ask(app, "POST" if body else "GET", target, None, body)
        assert answer.status == 503
        assert answer.headers["retry-after"] == "1"
        assert answer.json["outcome_known"] is True
        assert (await ask(app, "GET", "/healthz")).status == 200


@for_each(
    ("body", "headers", "status", "why"),
    [
        (b"token=" + b"x" * 33_000, {}, 413, "too large"),
        (b"token=x", {"content_encoding": "gzip"}, 415, "no Content-Encoding"),
        (b"a=&" * 16 + b"token=x", {}, 400, "too many fields"),
        (b"token=%ff", {}, 400, "not UTF-8"),
        (b"token=" + b"%F0%9F%98%80" * 2048, {}, 303, ""),
    ],
)
async def test_a_form_is_small(body: bytes, headers: dict[str, str], status: int, why: str) -> None:
    async with limpet.open_async("memory:") as store:
        sent = {"content_type": FORM_TYPE, "origin": "http://localhost:7420", **headers}
        answer = await ask(App(store, Access(), PAGES), "POST", "/ui/login", None, body, **sent)
        assert answer.status == status
        assert why in answer.body.decode()


@for_each(
    ("target", "body", "status"),
    [
        ("/v1/revisions", b'{"targets": []}' + b" " * 2**22, 413),
        ("/v1/revisions", b'{"targets": [%b0]}' % (b"[]," * 200_000), 413),
        ("/v1/revisions", b'{"targets": [%b0]}' % (b"[]," * 2_000), 400),
        ("/v1/scope/save", b'{"state": [%b0]}' % (b"[]," * 600_000), 413),
        ("/v1/scope/save", b'{"state": ["%b"]}' % (b'\\"[],' * 180_000), 200),  # a text
        ("/v1/scope/save", b'{"state": [%b0]}' % (b"1.5," * 200_000), 200),
    ],
)
async def test_values_are_counted_before_they_are_parsed(
    target: str, body: bytes, status: int
) -> None:
    async with serving(f"memory:?state_bytes_max={2**20}") as app:
        query = {"session_id": "s"} if "scope" in target else None
        answer = await ask(app, "POST", target, query, body)
        assert answer.status == status, answer.body


def test_values_in_texts_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["", "[{,:", '"', "\\", '\\"', '\\\\"[', "ü,"] * 3
    value = [texts, {"a,": 1, '"{': [2.5, None]}]
    plain = [["x"] * len(texts), {"a": 1, "b": [2.5, None]}]

    def counted(value: Any) -> int:
        found = bodies_module._Values(10**9)
        found.add(orjson.dumps(value))
        return found.bytes

    for size in (1, 2, 3, 5, 8, 1000):
        monkeypatch.setattr(bodies_module, "LARGE", size)
        assert counted(value) == counted(plain)


async def test_a_body_that_stalls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies_module, "_STALL_S_MAX", 0.1)
    async with serving() as app:
        sent: list[Any] = []

        async def trickle() -> dict[str, Any]:
            await asyncio.sleep(0.02)
            return {"type": "http.request", "body": b" ", "more_body": True}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/revisions",
            "query_string": b"",
            "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
        }
        await app(scope, trickle, send)
        assert sent[0]["status"] == 408
        assert (b"connection", b"close") in sent[0]["headers"]


async def test_storage_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is asked once, however many ask; when it answers again, so does /readyz."""
    asked, released = [], threading.Event()

    def stuck(backend: object) -> None:
        asked.append(backend)
        released.wait(300)

    monkeypatch.setattr(app_module, "_READY_S_MAX", 0.05)
    async with serving(f"sqlite:///{tmp_path / 'a.db'}") as app:
        monkeypatch.setattr(app_module, "_probe", stuck)
        found = await asyncio.gather(*(ask(app, "GET", "/readyz") for _ in range(20)))
        assert {each.status for each in found} == {503}
        assert len(asked) == 1
        assert (await ask(app, "GET", "/healthz")).status == 200
        released.set()
        while (await ask(app, "GET", "/readyz")).status != 200:
            await asyncio.sleep(0.01)


async def test_a_list_that_is_cut_off_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the server stops: it must not look complete."""
    async with serving() as app:
        for n in range(3):
            await ask(app, "POST", "/v1/scope/save", {"session_id": f"s{n}"}, {"state": n})
        monkeypatch.setattr(limits, "PAGE_ITEMS_MAX", 1)
        sent: list[Any] = []
        first = asyncio.Event()

        async def receive() -> Any:
            await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message)
            if message["type"] == "http.response.body" and not first.is_set():
                first.set()
                await asyncio.Event().wait()  # the client takes nothing

        scope = {
            "type": "http",
            "method": "GET",
            "path": "/v1/sessions",
            "query_string": b"",
            "headers": [(b"host", b"localhost"), (b"accept", b"application/jsonl")],
        }
        task = asyncio.ensure_future(app(scope, receive, send))
        await first.wait()
        app.stop()  # which lets it finish
        await asyncio.sleep(0.01)
        assert not task.done()
        task.cancel()
        await task
        assert b'"title":"Unavailable"' in sent[-1]["body"]


def test_the_log_and_the_metrics(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> bytes:
        async with serving() as app:
            secret = {"session_id": "secret-session"}
            state = {"state": "secret-state" + "x" * 5000}
            await ask(app, "POST", "/v1/scope/save", secret, state, x_secret="secret-header")
            await ask(app, "GET", "/v1/scope/snapshot", secret, accept_encoding="gzip")
            await ask(app, "GET", "/v1/watch", secret)
            await ask(app, "GET", "/v1/no%0asuch\x80path" + "x" * 1000)
            return (await ask(app, "GET", "/metrics")).body

    caplog.set_level(logging.INFO)
    text = asyncio.run(run()).decode()
    lines = [each.getMessage() for each in caplog.records if each.name == "limpet.access"]
    assert re.fullmatch(r"127\.0\.0\.1 POST /v1/scope/save 200 \d+ \d+\.\dms", lines[0])
    assert len(lines) == 5
    assert max(map(len, lines)) < 300
    assert "secret" not in caplog.text + text
    assert 'limpet_http_requests_total{operation="save",status="200"} 1' in text
    assert 'limpet_http_requests_total{operation="watch",status="200"} 1' in text
    assert 'limpet_http_requests_total{operation="other",status="404"} 1' in text
    assert 'limpet_http_request_seconds_count{operation="save"} 1' in text
    assert 'request_seconds_count{operation="watch"}' not in text
    assert "limpet_http_received_bytes_total 5024" in text
    assert "limpet_http_in_flight 1" in text
    assert "limpet_http_streams 0" in text
    for line in text.splitlines():
        labels = r'(\{\w+="[^"]*"(,\w+="[^"]*")*\})?'
        assert re.fullmatch(rf"# (HELP|TYPE) \w+ .+|\w+{labels} [\d.]+", line)


# Over a connection


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path) as running:
        yield running


@pytest.mark.slow
def test_slow_heads_and_bodies_are_closed_and_hinder_nobody(own: Server) -> None:
    """200 connections each: that say nothing, send a head by the byte, a body by the byte."""
    groups = {name: [own.connect() for _ in range(200)] for name in ("silent", "head", "body")}
    began = time.monotonic()
    for each in groups["head"]:
        each.sendall(b"GET /v1 HTTP/1.1\r\nX: ")
    for each in groups["body"]:
        each.sendall(head("POST", SAVE, [JSON, "Content-Length: 10000"], stay=True))
    closed_s: dict[str, float] = {}
    longest_s = 0.0
    for step in range(300):
        for each in (*groups["head"], *groups["body"]):
            with suppress(OSError):
                each.sendall(b" ")
        asked = time.monotonic()
        assert own.ask("POST", SAVE, {"state": step}).status == 200
        longest_s = max(longest_s, time.monotonic() - asked)
        for name, group in groups.items():
            if name not in closed_s and all(is_closed(each) for each in group):
                closed_s[name] = time.monotonic() - began
        if len(closed_s) == 3:
            break
        time.sleep(1)
    for each in (each for group in groups.values() for each in group):
        each.close()
    # Heads have 10 seconds and bodies 30; the rest is for a busy machine.
    assert closed_s.keys() == groups.keys()
    assert max(closed_s["silent"], closed_s["head"]) < closed_s["body"]
    assert longest_s < 10
    assert "Traceback" not in own.log, own.log[-4000:]
    assert own.log.count(" 408 ") == 200


@pytest.mark.slow
def test_a_client_that_takes_nothing_is_left(own: Server) -> None:
    """A large answer waits for it for 30 seconds."""
    assert own.ask("POST", SAVE, {"state": "x" * 900_000}).status == 200
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", own.port))
        connection.sendall(head("GET", "/v1/scope/snapshot?session_id=s", stay=True) * 50)
        until_s = time.monotonic() + WAIT_S_MAX
        while b"limpet_http_connections 1\n" not in own.ask("GET", "/metrics").body:
            assert time.monotonic() < until_s
            time.sleep(1)
        assert len(read_all(connection)) < 45 * 900_000
    assert "Traceback" not in own.log, own.log[-4000:]


def is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        while connection.recv(2**16):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass
    finally:
        connection.setblocking(True)
    return True


@pytest.mark.slow
def test_memory_stays_flat(own: Server) -> None:
    """8,000 good and bad requests, streams, and clients that leave."""
    bomb = b'{"state": ' + b"[" * 50_000
    connection = HTTPConnection("127.0.0.1", own.port)
    good = b'{"state": {"text": "' + b"x" * 2000 + b'"}, "id": "same", "overwrite": true}'

    def round_(count: int) -> None:
        for n in range(count):
            connection.request("POST", SAVE, good, {"content-type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200
            if n % 10 == 0:
                assert own.ask("POST", SAVE, bomb).status == 400
                assert own.ask("GET", f"/v1/nothing-{n}").status == 404
                own.raw(b"NO HTTP\r\n\r\n")
                own.ask("POST", SAVE, {"state": n}, idempotency_key=f"{count}-{n}")
                with own.connect() as leaving:
                    leaving.sendall(head("GET", "/v1/watch", stay=True))
                    leaving.recv(100)

    round_(1500)
    before = own.rss_bytes
    for _ in range(3):
        round_(1500)
    grown = own.rss_bytes - before
    connection.close()
    print(f"after 4,500 requests more: {grown / 2**20:.1f} MiB")  # noqa: T201
    assert grown < 8 * 2**20
    assert "Traceback" not in own.log, own.log[-4000:]
