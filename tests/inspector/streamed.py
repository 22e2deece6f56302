"""A page that is sent in parts, to its end: `ask` leaves a stream that rests for a while."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlencode

from limpet.server.app import App

OnPart = Callable[[bytes], Awaitable[None]]


async def whole_page(app: App, query: dict[str, str], on_part: OnPart | None = None) -> list[bytes]:
    """Return the parts of the page `/ui`; `on_part` is awaited after each, before the next."""
    parts: list[bytes] = []
    left = asyncio.Event()

    async def receive() -> MutableMapping[str, Any]:
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            assert message["status"] == 200, message
        elif message["body"]:
            parts.append(message["body"])
            if on_part is not None:
                await on_part(message["body"])

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/ui",
        "raw_path": b"/ui",
        "query_string": urlencode(query).encode(),
        "headers": [(b"host", b"localhost:7420")],
        "client": ("127.0.0.1", 50_000),
    }
    await app(scope, receive, send)
    return parts
