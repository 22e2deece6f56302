"""Runs the API of a store: `limpet serve`."""

import asyncio
import socket
from collections.abc import Callable

import uvicorn

from limpet.api.store import AsyncStore
from limpet.errors import Unavailable
from limpet.server.access import Access
from limpet.server.app import App

_STOP_S_MAX = 30  # for what was accepted to finish


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, app: App, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._app = app
        self._started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Streams have no end of their own, and would be waited for.
        self._app.end_streams()
        await super().shutdown(sockets)


def run(
    store: AsyncStore,
    access: Access,
    *,
    host: str,
    port: int,
    started: Callable[[str], None],
) -> None:
    """Serve a store until a signal ends it; what was accepted is finished first.

    `started` is called with the address once requests are accepted.
    """
    listening = _bound(host, port)
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listening.getsockname()[1]}"
    app = App(store, access)
    config = uvicorn.Config(
        app,
        lifespan="off",
        log_level="warning",
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=_STOP_S_MAX,
    )

    async def serve() -> None:
        async with store:
            await _Server(config, app, lambda: started(address)).serve([listening])

    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(serve())


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
