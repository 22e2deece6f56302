"""A pooler in transaction mode, as PgBouncer is one: few connections to the server, many clients.

    with Pooler(server.url) as pooler:
        connection = psycopg.connect(pooler.url)

A client is given a connection of the server with its first message, and gives it back at the end of
its transaction. It next gets the one that has rested longest, so with a size of two one after the
other: what it prepared by name is missing there, and what it set for its session stays for others.

As PgBouncer does without further settings, it refuses a client that begins with parameters which
would have to be set again for each transaction, and ends the connection of the server if a client
leaves in the middle. The server has to trust who asks.
"""

import asyncio
import secrets
import threading
from collections import deque
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit

from tests.servers.pg_wire import (
    CANCEL,
    NO,
    NOT_IN_PLAIN,
    READY,
    Message,
    code_of,
    error,
    first_packet,
    message,
    parameters_of,
    take_first_packet,
    take_messages,
)

CHUNK_BYTES = 65_536
START_S_MAX = 300.0
SIZE = 2
AUTHENTICATION, KEY, PARAMETER, FAILED, END = b"R", b"K", b"S", b"E", b"X"
FLUSH = b"H"
ANSWERED_READY = {b"Q", b"S", b"F"}
TAKEN = {
    "user",
    "database",
    "client_encoding",
    "datestyle",
    "timezone",
    "standard_conforming_strings",
    "application_name",
}


class Refused(Exception):
    """The server does not take a connection; says so in its own message."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.data = data


class Pooler:
    """Listens on loopback as long as its block runs; see above."""

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self.upstream = self._parts.hostname or "127.0.0.1", self._parts.port or 5432
        self.clients: dict[bytes, _Client] = {}
        self._pools: dict[tuple[str, str], _Pool] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(START_S_MAX)
        user = self._parts.netloc.rpartition("@")[0]
        netloc = f"{user}@127.0.0.1:{self.port}".lstrip("@")
        self.url = self._parts._replace(netloc=netloc).geturl()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port: int = listener.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # in which what was closed ends

    def keep(self, task: "asyncio.Task[None]") -> None:
        """Remember a task, which is to be cancelled in the end."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def pool_of(self, parameters: dict[str, str]) -> "_Pool":
        user = parameters["user"]
        key = user, parameters.get("database", user)
        if key not in self._pools:
            self._pools[key] = _Pool(self, {"user": key[0], "database": key[1]})
        return self._pools[key]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.keep(task)
        client = _Client(self, reader, writer)
        try:
            await client.run()
        except Refused as refused:
            writer.write(refused.data)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self.clients.pop(client.key, None)
            if client.link is not None:
                client.link.close()
            writer.close()


class _Client:
    """One client, which has a link to the server only while it is in a transaction."""

    def __init__(
        self, pooler: Pooler, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._pooler = pooler
        self._reader = reader
        self.writer = writer
        self.link: _Link | None = None
        self.key = secrets.token_bytes(8)

    async def run(self) -> None:
        buffer = bytearray()
        packet = await self._first_packet(buffer)
        if code_of(packet) == CANCEL:
            await self._cancel(packet[8:])
            return
        parameters = parameters_of(packet)
        for name in parameters:
            if name.lower() not in TAKEN:
                raise Refused(error("08P01", f"unsupported startup parameter: {name}"))
        pool = self._pooler.pool_of(parameters)
        link = await pool.take()
        self._pooler.clients[self.key] = self
        trusted = message(AUTHENTICATION, bytes(4))
        self.writer.write(trusted + link.greeting + message(KEY, self.key) + message(READY, b"I"))
        pool.give(link)
        while True:
            for each in take_messages(buffer):
                if each.kind == END:
                    return
                if self.link is None and each.kind == FLUSH:
                    continue  # what it would flush has been answered
                if self.link is None:
                    self.link = await pool.take()
                    self.link.client = self
                self.link.send(each)
            await self.writer.drain()
            if self.link is not None:
                await self.link.writer.drain()
            data = await self._reader.read(CHUNK_BYTES)
            if not data:
                return
            buffer += data

    async def _first_packet(self, buffer: bytearray) -> bytes:
        while True:
            packet = take_first_packet(buffer)
            if packet is not None and code_of(packet) not in NOT_IN_PLAIN:
                return packet
            if packet is not None:
                self.writer.write(NO)
            data = await self._reader.read(CHUNK_BYTES)
            if not data:
                raise ConnectionResetError
            buffer += data

    async def _cancel(self, key: bytes) -> None:
        """Pass on the wish to cancel what another connection of this client executes."""
        client = self._pooler.clients.get(key)
        if client is None or client.link is None:
            return
        body = CANCEL.to_bytes(4, "big") + client.link.key
        reader, writer = await asyncio.open_connection(*self._pooler.upstream)
        writer.write((len(body) + 4).to_bytes(4, "big") + body)
        with suppress(OSError):
            await reader.read()
        writer.close()


class _Link:
    """One connection to the server."""

    def __init__(
        self, pool: "_Pool", reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._pool = pool
        self._reader = reader
        self.writer = writer
        self.client: _Client | None = None
        self.greeting = b""
        self.key = b""
        self._unanswered = 0
        self._in_batch = False  # the client has sent something that it has not finished

    def send(self, request: Message) -> None:
        if request.kind != FLUSH:  # it asks for nothing by itself
            self._in_batch = request.kind not in ANSWERED_READY
            self._unanswered += not self._in_batch
        self.writer.write(request.data)

    def close(self) -> None:
        self.client = None
        self._pool.lose(self)
        self.writer.close()

    async def begin(self, parameters: dict[str, str]) -> None:
        """Log in, and keep what the server says of itself for those who come later."""
        self.writer.write(first_packet(parameters))
        buffer = bytearray()
        while data := await self._reader.read(CHUNK_BYTES):
            buffer += data
            for each in take_messages(buffer):
                if each.kind == FAILED:
                    raise Refused(each.data)
                if each.kind == AUTHENTICATION and any(each.body):
                    raise Refused(error("28000", "the server asks the pooler for a password"))
                if each.kind == PARAMETER:
                    self.greeting += each.data
                if each.kind == KEY:
                    self.key = each.body
                if each.kind == READY:
                    return
        raise ConnectionResetError

    async def run(self) -> None:
        """Pass on what the server says, until it ends."""
        buffer = bytearray()
        try:
            while data := await self._reader.read(CHUNK_BYTES):
                buffer += data
                for each in take_messages(buffer):
                    self._pass_on(each)
                if self.client is not None:
                    await self.client.writer.drain()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            client = self.client
            self.close()
            if client is not None:
                client.link = None
                client.writer.write(error("08P01", "server conn crashed?"))
                client.writer.close()

    def _pass_on(self, reply: Message) -> None:
        if self.client is None:
            return  # nobody asked
        self.client.writer.write(reply.data)
        if reply.kind == READY:
            self._unanswered -= 1
            if reply.body == b"I" and not self._unanswered and not self._in_batch:
                self.client.link = None
                self.client = None
                self._pool.give(self)


class _Pool:
    """The links of one user to one database."""

    def __init__(self, pooler: Pooler, parameters: dict[str, str]) -> None:
        self._pooler = pooler
        self._parameters = parameters
        self._idle: deque[_Link] = deque()
        self._room = asyncio.Semaphore(SIZE)
        self._links: set[_Link] = set()
        self._opening = 0

    @property
    def count(self) -> int:
        return len(self._links) + self._opening

    async def take(self) -> _Link:
        """Return a new link as long as there may be more, else the one that rested longest."""
        await self._room.acquire()
        if self._idle and self.count >= SIZE:
            return self._idle.popleft()
        self._opening += 1
        try:
            link = await self._open()
        except BaseException:
            self._room.release()
            raise
        finally:
            self._opening -= 1
        self._links.add(link)
        self._pooler.keep(asyncio.create_task(link.run()))
        return link

    async def _open(self) -> _Link:
        try:
            reader, writer = await asyncio.open_connection(*self._pooler.upstream)
        except OSError as cause:
            raise Refused(error("08P01", "server login has been failing")) from cause
        link = _Link(self, reader, writer)
        try:
            await link.begin(self._parameters)
        except BaseException:
            writer.close()
            raise
        return link

    def give(self, link: _Link) -> None:
        """Take a link back."""
        self._idle.append(link)
        self._room.release()

    def lose(self, link: _Link) -> None:
        """Forget a link that has ended. May be repeated."""
        if link not in self._links:
            return
        self._links.discard(link)
        if link in self._idle:
            self._idle.remove(link)
        else:
            self._room.release()
