"""How many bytes are really read: from files, over a connection, out of a bucket, into memory."""

import socket
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import pytest

Count = Callable[[], int]


@contextmanager
def from_files() -> Iterator[Count]:
    """Count what this process reads by any call of the system."""

    def total() -> int:
        return int(Path("/proc/self/io").read_text().split()[1])

    before = total()
    cost = total() - before  # of asking
    before = total() + cost
    yield lambda: total() - before


@contextmanager
def into_memory() -> Iterator[Count]:
    """Count the most that is allocated at a time."""
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@contextmanager
def out_of_a_bucket(kind: type, monkeypatch: pytest.MonkeyPatch) -> Iterator[Count]:
    """Count the bytes of all objects, or parts of them, that a bucket gives."""
    given = [0]
    get = kind.get  # type: ignore[attr-defined]

    def counting(*args: Any, **options: Any) -> Any:
        found = get(*args, **options)
        given[0] += sum(len(each.data) for each in found if each is not None)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(kind, "get", counting)
        yield lambda: given[0]


class Wire:
    """Forwards connections to a port, and counts what comes back."""

    def __init__(self, port: int) -> None:
        self._upstream = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.received = 0
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for each in [self._listener, *self._open]:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._upstream))
                self._open += [client, server]
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=self._pass, args=(*pair, server), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if source is server:
                    self.received += len(data)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
