"""Runs the API of a store: `limpet serve`."""

import asyncio
import os
import resource
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import uvicorn

from limpet.api.store import AsyncStore
from limpet.errors import InvalidInput, LimpetError, Unavailable
from limpet.retention import AsyncPolicy
from limpet.server.access import Access
from limpet.server.app import App, Pages, log
from limpet.server.connection import Connection

_STOP_S_MAX = 30  # for what was accepted to finish
_IDLE_S_MAX = 75  # longer than clients keep a connection that they do not use
_BACKLOG = 2048
_FILES_MAX = 65_536
_FILES_FREE = 256  # for the storage
_TICKS_A_SECOND = 10


class Tls(NamedTuple):
    """A certificate with its chain, and its key, as files in PEM."""

    cert: Path
    key: Path


class _Server(uvicorn.Server):
    def __init__(
        self,
        config: uvicorn.Config,
        app: App,
        access: Access,
        tls: Tls | None,
        started: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._app = app
        self._access = access
        self._tls = tls
        self._started = started
        self._has_hung_up = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._started()

    async def on_tick(self, counter: int) -> bool:
        if self._has_hung_up or counter % _TICKS_A_SECOND == 0:
            anyway, self._has_hung_up = self._has_hung_up, False
            self._refresh(anyway=anyway)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Endless streams would be waited for.
        self._app.stop()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at the first SIGTERM or SIGINT, and at once at the second; the exit code is 0."""
        handlers = {
            signal.SIGTERM: self.handle_exit,
            signal.SIGINT: self.handle_exit,
            signal.SIGHUP: self._hang_up,
        }
        before = {number: signal.signal(number, each) for number, each in handlers.items()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            os._exit(128 + sig)
        self.should_exit = True

    def _hang_up(self, sig: int, frame: FrameType | None) -> None:
        self._has_hung_up = True

    def _refresh(self, *, anyway: bool) -> None:
        """Read the tokens again, and at SIGHUP the certificate."""
        tokens = self._access.tokens
        if tokens is not None and tokens.refresh(anyway=anyway):
            log.info("the tokens were read again")
            self._app.end_streams()  # their clients come back with a token that is still valid
        if anyway and self._tls is not None and isinstance(self.config.ssl, ssl.SSLContext):
            try:
                self.config.ssl.load_cert_chain(self._tls.cert, self._tls.key)
            except OSError as error:
                log.error("the certificate was not read again: %s", error.strerror)


def run(
    store: AsyncStore,
    access: Access,
    policy_every: timedelta | None = None,
    *,
    host: str,
    port: int,
    started: Callable[[str], None],
    tls: Tls | None = None,
    pages: Pages | None = None,
) -> None:
    """Serve a store until a signal ends it; what was accepted is finished first.

    `started` is called with the address once requests are accepted. With `policy_every` the store
    is pruned by its policy, first at once.
    """
    app = App(store, access, pages)
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        backlog=_BACKLOG,
        timeout_keep_alive=_IDLE_S_MAX,
        timeout_graceful_shutdown=_STOP_S_MAX,
        ssl_certfile=None if tls is None else tls.cert,
        ssl_keyfile=None if tls is None else tls.key,
    )
    try:
        config.load()
    except OSError as cause:  # an SSLError is one
        why = cause.strerror or type(cause).__name__
        raise InvalidInput(f"the certificate or its key cannot be used: {why}") from None
    listening = _bound(host, port)
    shown, scheme = f"[{host}]" if ":" in host else host, "http" if tls is None else "https"
    address = f"{scheme}://{shown}:{listening.getsockname()[1]}"
    files = _allowed_files()
    Connection.connections_max = max(files - _FILES_FREE, files // 2)

    async def serve() -> None:
        async with store:
            server = _Server(config, app, access, tls, lambda: started(address))
            if policy_every is None:
                await server.serve([listening])
                return
            pruning = asyncio.ensure_future(_prune(store, policy_every.total_seconds()))
            await server.serve([listening])
            pruning.cancel()

    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(serve())


async def _prune(store: AsyncStore, every_s: float) -> None:
    while True:
        try:
            swept = await AsyncPolicy(store).apply()
            if any(swept):
                log.info("pruned by the policy: %s", swept)
        except LimpetError:
            log.exception("the store could not be pruned by its policy; it is tried again")
        await asyncio.sleep(every_s)


def is_free(host: str, port: int) -> bool:
    """Return whether a port can be listened on now."""
    try:
        _bound(host, port).close()
    except Unavailable:
        return False
    return True


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends small answers at once only where the protocol is stated.
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
    except OSError as cause:
        found.close()
        raise Unavailable(f"cannot listen: {cause.strerror}. host=`{host}` port=`{port}`") from None
    return found


def _allowed_files() -> int:
    """Raise the limit on open files, which is often 1,024, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, _FILES_MAX)
    if soft < wanted:
        with suppress(OSError, ValueError):  # macOS has yet another limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            return wanted
    return soft
