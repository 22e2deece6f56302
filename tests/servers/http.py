"""Servers of the HTTP API: many stores behind one port in this process, or `limpet serve`.

with start_http() as http:
    url = http.mount("sqlite:///file.db")   # each store has a path of its own
    backend = opening.open_backend(url)
    http.unmount(url)
"""

import asyncio
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self, TypeAlias

import pytest

import limpet
from tests.waiting import WAIT_S_MAX, until

try:
    import urllib3  # noqa: F401
    import uvicorn

    from limpet.server.access import Access, Tokens
    from limpet.server.app import App, Receive, Scope, Send
except ImportError:
    pytest.fail("these tests need the extras `http` and `server`: pip install 'limpet[all]'")


Application: TypeAlias = "Callable[[Scope, Receive, Send], Awaitable[None]]"


class Http:
    """An application that passes each request to the store whose name begins its path."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.loop: asyncio.AbstractEventLoop | None = None
        self._names = itertools.count()
        self._mounted: dict[str, tuple[App, limpet.AsyncStore]] = {}
        self._forgetful: set[str] = set()
        self._others: dict[str, Application] = {}

    def mount(self, url: str, *, is_forgetful: bool = False, tokens: str = "") -> str:
        """Serve a store; return the URL by which it is opened, with one of the tokens if any.

        A forgetful server remembers no answers: as if each request came to another server.
        """
        name = f"store-{next(self._names)}"
        store = limpet.open_async(url)
        self._mounted[name] = App(store, Access(Tokens(None, tokens) if tokens else None)), store
        if is_forgetful:
            self._forgetful.add(name)
        return f"http://127.0.0.1:{self.port}/{name}"

    def mount_app(self, app: Application) -> str:
        """Answer with another application."""
        name = f"app-{next(self._names)}"
        self._others[name] = app
        return f"http://127.0.0.1:{self.port}/{name}"

    def unmount(self, url: str) -> None:
        app, store = self._mounted.pop(url.rpartition("/")[2])
        assert self.loop is not None
        self.loop.call_soon_threadsafe(app.end_streams)
        store.sync.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.loop = asyncio.get_running_loop()
        name = scope["path"].split("/")[1]
        if name in self._others:
            await self._others[name](scope, receive, send)
            return
        app, store = self._mounted[name]
        if name in self._forgetful:
            app = App(store, Access())
        await app({**scope, "root_path": f"/{name}"}, receive, send)


@contextmanager
def start_http(**options: Any) -> Iterator[Http]:
    """Start a server in a thread; the options are uvicorn's."""
    # asyncio sends small answers at once only where the protocol is stated.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        http = Http(listening.getsockname()[1])
        server = uvicorn.Server(uvicorn.Config(http, lifespan="off", log_level="error", **options))
        thread = threading.Thread(
            target=lambda: asyncio.run(server.serve([listening])), name="http", daemon=True
        )
        thread.start()
        until(lambda: server.started)
        yield http
        server.force_exit = server.should_exit = True
        thread.join(WAIT_S_MAX)


class Served:
    """A process of `limpet serve`, on a port that stays the same when it is started again."""

    verb: ClassVar[tuple[str, ...]] = ("serve", "--create")

    def __init__(self, url: str, *args: str, folder: Path) -> None:
        self._command = [sys.executable, "-m", "limpet", *self.verb, url, *args]
        self._folder = folder
        self._log = folder / "serve.log"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, "--port", str(self.port)],
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        process = self._process
        until(lambda: self._answers() or process.poll() is not None)
        assert process.poll() is None, self.log
        return self

    @property
    def log(self) -> str:
        """What it printed."""
        return self._log.read_text()

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    def stop(self, number: int = signal.SIGKILL) -> None:
        """End it: without notice, or by another signal."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(WAIT_S_MAX)
            self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()
