"""Connections: what is too slow, or too many, is closed; with shorter times than in use."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import uvicorn
from uvicorn.server import ServerState

import limpet
from limpet.server import connection as connection_module
from limpet.server.access import Access
from limpet.server.app import App
from limpet.server.connection import Connection
from tests.cases import for_each
from tests.server.process import head

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Streams]]
GET = head("GET", "/v1", stay=True)
JSON = "Content-Type: application/json"
CLOSED_S_MAX = 300.0


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[App, Connect]]:
    async with limpet.open_async("memory:") as store:
        app = App(store, Access())
        config = uvicorn.Config(app, http=Connection, ws="none", lifespan="off", log_config=None)
        config.load()
        state = ServerState()
        server = await asyncio.get_running_loop().create_server(
            lambda: Connection(config, state, {}), "127.0.0.1", 0
        )
        port = server.sockets[0].getsockname()[1]
        opened: list[asyncio.StreamWriter] = []

        async def connect() -> Streams:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            opened.append(writer)
            return reader, writer

        async with server:
            yield app, connect
            for each in opened:
                each.close()


async def is_closed(reader: asyncio.StreamReader) -> bytes:
    """Return what comes before the server closes the connection."""
    async with asyncio.timeout(CLOSED_S_MAX):
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""


@for_each("sent", [b"", b"\r\n", b"GET /v1 HT", GET[:-2], GET + b"GET /v1 HTTP/1.1\r\n"])
async def test_a_head_that_does_not_end(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(connection_module, "_HEAD_S_MAX", 0.3)
    async with listening() as (app, connect):
        reader, writer = await connect()
        writer.write(sent)
        if sent.startswith(GET):
            await reader.readuntil(b"}")
            writer.write(b"Host:")  # what is sent after the answer counts
        found = await is_closed(reader)
        assert found == b""
        while app.metrics.connections:
            await asyncio.sleep(0.01)


async def test_a_head_by_the_byte(monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setattr(connection_module, "_HEAD_S_MAX", 0.1)
    async with listening() as (_, connect):
        reader, writer = await connect()
        closed = asyncio.ensure_future(is_closed(reader))
        while not closed.done():
            writer.write(b"G")
            await asyncio.sleep(0.02)
        # After some letters it is no method that there is.
        assert b"200 OK" not in await closed


@for_each("step", [1, 7, 10_000])
async def test_requests_behind_each_other_are_answered_in_order(step: int) -> None:
    """However they are cut into packets; with bodies, also such that begin with a newline."""
    save = [
        head("POST", f"/v1/scope/save?session_id={n}", [JSON, "Content-Length: 14"], stay=True)
        + b'\r\n{"state": %d}' % n
        for n in range(3)
    ]
    sent = b"".join(save) + b"\r\n\r\n" + GET + head("GET", "/v1/sessions")
    async with listening() as (_, connect):
        reader, writer = await connect()
        for at in range(0, len(sent), step):
            writer.write(sent[at : at + step])
            await asyncio.sleep(0)
        found = await is_closed(reader)
        assert found.count(b"HTTP/1.1 200 ") == 5
        marks = [b'"session_id":"%d"' % n for n in range(3)]
        marks += [b'"server":"limpet"', b'["0","1","2"]']
        places = [found.index(each) for each in marks]
        assert places == sorted(places)


async def test_empty_lines_before_a_request_take_no_time() -> None:
    async with listening() as (_, connect):
        reader, writer = await connect()
        begun_s = time.process_time()
        writer.write(b"\r\n" * 1_000_000 + head("GET", "/v1"))
        assert b"200 OK" in await is_closed(reader)
        assert time.process_time() - begun_s < 5


async def test_a_watch_ends_with_its_client_also_if_requests_wait_behind_it() -> None:
    async with listening() as (app, connect):
        reader, writer = await connect()
        writer.write(head("GET", "/v1/watch", stay=True) + GET * 10)
        await reader.readuntil(b": watching\n\n")
        writer.close()
        async with asyncio.timeout(CLOSED_S_MAX):
            while app.metrics.connections or app.metrics.streams:
                await asyncio.sleep(0.01)


async def test_a_request_that_takes_long_is_not_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither while its body arrives, nor while it is answered, nor between two requests."""

    monkeypatch.setattr(connection_module, "_HEAD_S_MAX", 0.5)
    async with listening() as (_, connect):
        reader, writer = await connect()
        for _ in range(2):
            length = ["Content-Type: application/json", "Content-Length: 12"]
            writer.write(head("POST", "/v1/scope/save?session_id=s", length, stay=True))
            await asyncio.sleep(0.6)
            writer.write(b'{"state":1} ')
            assert b"200 OK" in await reader.readuntil(b"}")
            rest = await reader.readuntil(b"}")  # of the labels, and of the metadata
            rest += await reader.readuntil(b"}")
            assert b"revision" in rest
            await asyncio.sleep(0.6)
        watching, writer = await connect()
        writer.write(head("GET", "/v1/watch"))
        await watching.readuntil(b": watching\n\n")
        await asyncio.sleep(0.6)
        assert not watching.at_eof()


async def test_a_client_that_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setattr(connection_module, "_TAKE_S_MAX", 1)
    async with listening() as (app, connect):
        body = b'{"state": "%b"}' % (b"x" * 20_000_000)
        reader, writer = await connect()
        length = ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        writer.write(head("POST", "/v1/scope/save?session_id=s", length) + body)
        assert b"200 OK" in await is_closed(reader)
        reader, writer = await connect()
        writer.write(head("GET", "/v1/scope/snapshot?session_id=s"))
        async with asyncio.timeout(CLOSED_S_MAX):
            while not app.metrics.in_flight:
                await asyncio.sleep(0)
            while app.metrics.connections or app.metrics.in_flight:
                await asyncio.sleep(0.01)
        assert len(await is_closed(reader)) < len(body)


async def test_too_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setattr(Connection, "connections_max", 2)
    async with listening() as (app, connect):
        first, second = await connect(), await connect()
        first[1].write(GET)
        assert b"200 OK" in await first[0].readuntil(b"}")
        third = await connect()
        assert await is_closed(third[0]) == b""
        second[1].close()
        while app.metrics.connections > 1:
            await asyncio.sleep(0.01)
        fourth = await connect()
        fourth[1].write(GET)
        assert b"200 OK" in await fourth[0].readuntil(b"}")
