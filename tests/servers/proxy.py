"""A proxy for faults: between a client and a server that speak HTTP/1.1, on loopback.

    with Proxy(service.port) as proxy:
        bucket = service.open(prefix, endpoint_url=proxy.url)
        proxy.drop_replies(method="PUT")     # the next PUT is executed, and its reply lost
        proxy.drop_requests(2)               # the next two requests are lost before the server
        proxy.delay(0.5, 3, method="LIST")   # the next three LISTs take longer
        release = proxy.hold(method="PUT")   # the next PUT waits for `release.set()`
        proxy.rewrite(lambda body: b"<html>", method="LIST")  # the next LIST has another answer
        proxy.counts()                       # {"PUT": 3, "LIST": 1}: since the last `forget()`
        proxy.close()                        # the server is gone: connections are refused

Methods are those of S3: `LIST` is a GET that lists, and `DELETE` also the POST that deletes many.
What was sent is counted, also when it is dropped. Faults are used up in the order they were given.
"""

import socket
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import BinaryIO, NamedTuple, Self
from urllib.parse import parse_qs, urlsplit

from tests.waiting import WAIT_S_MAX


class Request(NamedTuple):
    """A request that passed, or was about to."""

    method: str
    path: str


@dataclass
class _Fault:
    kind: str
    left: int
    method: str | None
    delay_s: float = 0.0
    released: threading.Event | None = None
    change: Callable[[bytes], bytes] | None = None


@dataclass
class _Message:
    """A request or a reply as it was sent, with what of it the proxy must understand."""

    head: bytes
    body: bytes = b""
    fields: dict[str, str] = field(default_factory=dict)

    @property
    def first(self) -> list[str]:
        return self.head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")

    @property
    def closes(self) -> bool:
        return self.fields.get("connection", "").lower() == "close" or "HTTP/1.0" in self.first


class Proxy:
    """Forwards to a port; see above."""

    def __init__(self, port: int) -> None:
        self._upstream = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._lock = threading.Lock()
        self._requests: list[Request] = []
        self._faults: list[_Fault] = []
        self.replies = 0  # of the server, also those that were lost
        self._open: set[socket.socket] = set()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # What a test says

    def drop_replies(self, n: int = 1, *, method: str | None = None) -> None:
        """Let the next requests be executed, and close the connection instead of answering."""
        self._add(_Fault("reply", n, method))

    def drop_requests(self, n: int = 1, *, method: str | None = None) -> None:
        """Close the connection of the next requests, which the server never sees."""
        self._add(_Fault("request", n, method))

    def delay(self, delay_s: float, n: int = 1, *, method: str | None = None) -> None:
        """Let the next requests wait before they are forwarded."""
        self._add(_Fault("delay", n, method, delay_s))

    def hold(self, *, method: str | None = None) -> threading.Event:
        """Let the next request wait before it is forwarded, until the event is set."""
        released = threading.Event()
        self._add(_Fault("delay", 1, method, WAIT_S_MAX, released=released))
        return released

    def rewrite(
        self, change: Callable[[bytes], bytes], n: int = 1, *, method: str | None = None
    ) -> None:
        """Let the next requests be executed, and answer 200 with a changed body, and no ETag."""
        self._add(_Fault("rewrite", n, method, change=change))

    def requests(self) -> list[Request]:
        """Return what was sent, in order."""
        with self._lock:
            return list(self._requests)

    def counts(self) -> dict[str, int]:
        """Return how many requests of each method were sent."""
        return dict(Counter(request.method for request in self.requests()))

    def forget(self) -> None:
        """Reset the counters, and drop the faults that are left."""
        with self._lock:
            self._requests.clear()
            self._faults.clear()

    def close(self) -> None:
        """End every connection, and refuse new ones. May be repeated."""
        self._closed.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            connections = list(self._open)
        for each in connections:
            _end(each)
        self._thread.join(5)

    # What it does

    def _add(self, fault: _Fault) -> None:
        with self._lock:
            self._faults.append(fault)

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        """Serve one connection over one to the server, until either ends."""
        with suppress(OSError, EOFError), client, socket.socket() as server:
            with self._lock:
                self._open |= {client, server}
            try:
                server.connect(("127.0.0.1", self._upstream))
                for each in (client, server):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with client.makefile("rb") as asked, server.makefile("rb") as replied:
                    while self._pass(client, asked, server, replied):
                        pass
            finally:
                with self._lock:
                    self._open -= {client, server}
                _end(client)

    def _pass(
        self, client: socket.socket, asked: BinaryIO, server: socket.socket, replied: BinaryIO
    ) -> bool:
        """Pass one request and its reply; return whether the connection goes on."""
        request = _read(asked, lambda message: message.fields.get("content-length", "0"), client)
        fault = self._note(request)
        if fault is not None and fault.kind == "request":
            return False
        if fault is not None and fault.kind == "delay":
            (fault.released or self._closed).wait(fault.delay_s)
        server.sendall(request.head + request.body)
        bodiless = request.first[0] == "HEAD"
        reply = _read(replied, lambda message: _length(message, bodiless=bodiless))
        self.replies += 1
        if fault is not None and fault.kind == "reply":
            return False
        if fault is not None and fault.change is not None:
            body = fault.change(_plain(reply))
            head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n"
            client.sendall(head % len(body) + body)
            return True
        client.sendall(reply.head + reply.body)
        return not (request.closes or reply.closes)

    def _note(self, message: _Message) -> _Fault | None:
        """Count a request, and return the fault that it meets."""
        request = _request_of(message)
        with self._lock:
            self._requests.append(request)
            for fault in self._faults:
                if fault.method in (None, request.method):
                    fault.left -= 1
                    if not fault.left:
                        self._faults.remove(fault)
                    return fault
        return None


def _end(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _request_of(message: _Message) -> Request:
    method, target = message.first[:2]
    url = urlsplit(target)
    query = parse_qs(url.query, keep_blank_values=True)
    if (
        method == "GET"
        and url.path.strip("/").count("/") == 0
        and {"list-type", "prefix"} & set(query)
    ):
        method = "LIST"
    elif method == "POST" and "delete" in query:
        method = "DELETE"
    return Request(method, target)


def _read(
    stream: BinaryIO, length: Callable[[_Message], str | None], client: socket.socket | None = None
) -> _Message:
    """Read one message. `length` says how long its body is; None: until the connection ends."""
    message = _read_head(stream)
    if "100-continue" in message.fields.get("expect", "").lower() and client is not None:
        # Else the client would wait for a word from the server, which waits for the body.
        client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        lines = message.head.split(b"\r\n")
        message.head = b"\r\n".join(
            each for each in lines if not each.lower().startswith(b"expect:")
        )
    if "chunked" in message.fields.get("transfer-encoding", "").lower():
        message.body = _read_chunks(stream)
        return message
    wanted = length(message)
    message.body = stream.read() if wanted is None else stream.read(int(wanted))
    if wanted is not None and len(message.body) < int(wanted):
        raise EOFError
    return message


def _read_head(stream: BinaryIO) -> _Message:
    lines: list[bytes] = []
    while not lines or lines[-1] not in (b"\r\n", b"\n"):
        line = stream.readline(65_536)
        if not line.endswith(b"\n"):
            raise EOFError
        lines.append(line)
    fields = {}
    for each in lines[1:-1]:
        name, _, value = each.decode("latin-1").partition(":")
        fields[name.strip().lower()] = value.strip()
    return _Message(b"".join(lines), fields=fields)


def _read_chunks(stream: BinaryIO) -> bytes:
    """Read a body in chunks as it was sent, with their sizes and the trailer."""
    parts = []
    while True:
        size = stream.readline(65_536)
        parts.append(size)
        count = int(size.split(b";")[0], 16)
        if not count:
            break
        parts.append(stream.read(count + 2))
    while parts[-1] not in (b"\r\n", b""):
        parts.append(stream.readline(65_536))
    return b"".join(parts)


def _plain(message: _Message) -> bytes:
    """Return a body without the sizes of its chunks."""
    if "chunked" not in message.fields.get("transfer-encoding", "").lower():
        return message.body
    body, rest = b"", message.body
    while size := int(rest.partition(b"\r\n")[0].split(b";")[0], 16):
        rest = rest.partition(b"\r\n")[2]
        body, rest = body + rest[:size], rest[size + 2 :]
    return body


def _length(reply: _Message, *, bodiless: bool) -> str | None:
    status = int(reply.first[1])
    if bodiless or status in (204, 304) or status < 200:
        return "0"
    return reply.fields.get("content-length")
