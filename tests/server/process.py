"""A process of `limpet serve`, and requests to it as bytes."""

import re
import socket
from collections.abc import Sequence
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import orjson

from tests.server.asgi import Response
from tests.servers.http import Served
from tests.waiting import WAIT_S_MAX

STATE_BYTES_MAX = 2**20
BODY_BYTES_MAX = 3 * 2**20  # of a request: see `bodies.py`
_ANSWER = re.compile(rb"HTTP/1\.1 (\d{3}) ")


class Server(Served):
    """A server with a log, a process id, and a small limit on states."""

    def __init__(self, folder: Path, *args: str, url: str = "") -> None:
        address = url or f"sqlite:///{folder / 'served.db'}?state_bytes_max={STATE_BYTES_MAX}"
        super().__init__(address, *args, folder=folder)

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def rss_bytes(self) -> int:
        return self._memory("VmRSS:")

    @property
    def rss_bytes_max(self) -> int:
        """The most that it has had."""
        return self._memory("VmHWM:")

    def _memory(self, name: str) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition(name)[2].split()[0]) * 1024

    def wait(self) -> int:
        """Return the exit code."""
        assert self._process is not None
        return self._process.wait(WAIT_S_MAX)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), WAIT_S_MAX)

    def raw(self, *parts: bytes, leave: bool = False) -> bytes:
        """Send bytes; return all that comes until the connection is closed, or `leave` at once."""
        with self.connect() as connection:
            for part in parts:
                connection.sendall(part)
            if leave:
                connection.shutdown(socket.SHUT_WR)
            return read_all(connection)

    def statuses(self, *parts: bytes) -> list[int]:
        """Send bytes; return the status of each answer."""
        return [int(each) for each in _ANSWER.findall(self.raw(*parts))]

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Response:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S_MAX)
        given = {k.replace("_", "-"): v for k, v in headers.items()}
        content = body
        if body is not None:
            given.setdefault("content-type", "application/json")
            content = body if isinstance(body, bytes) else orjson.dumps(body)
        try:
            connection.request(method, path, content, given)
            found = connection.getresponse()
            lower = {k.lower(): v for k, v in found.getheaders()}
            return Response(found.status, lower, found.read())
        finally:
            connection.close()


def read_all(connection: socket.socket) -> bytes:
    parts = []
    try:
        while part := connection.recv(2**16):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def head(
    method: str,
    target: str,
    headers: Sequence[str] = (),
    *,
    host: str = "localhost",
    stay: bool = False,
) -> bytes:
    """Return the head of a request, after which the server closes the connection, or may `stay`."""
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", *headers]
    lines += [] if stay else ["Connection: close"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
