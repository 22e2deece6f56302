"""Requests to the application itself, without a server between."""

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

import orjson

import limpet
from limpet.server.access import Access
from limpet.server.app import App, Pages

SILENCE_S = 0.5  # after which an endless stream is left
ENDLESS = ("/watch", "/changes", "/events")

OnPart = Callable[[bytes], Awaitable[None]]


class Response(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes
    parts: tuple[bytes, ...] = ()

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)


def page_cookie(access: Access, token: str, *, age_s: int = 0) -> str:
    """Return the cookie of a browser that logged in to the pages so long ago."""
    assert access.tokens is not None
    ticket = access.tokens.ticket(token, now_s=int(time.time()) - age_s)
    assert ticket is not None
    return f"limpet-7420={ticket}"


def answers(
    access: Access, *requests: tuple[str, str, Any, dict[str, str]], pages: Pages | None = None
) -> list[Response]:
    """Ask for the paths of a server whose store holds a secret.

    What is given with a path is a query, or the fields of a form.
    """

    async def run() -> list[Response]:
        found = []
        async with limpet.open_async("memory:") as store:
            await store.scope("s").save({"secret": "S3CRET"})
            app = App(store, access) if pages is None else App(store, access, pages)
            for method, path, given, headers in requests:
                fields = None if method == "GET" or given is None else urlencode(given).encode()
                query = given if fields is None else None
                found.append(await ask(app, method, path, query, fields, **headers))
        return found

    return asyncio.run(run())


async def ask(
    app: App,
    method: str,
    path: str,
    query: dict[str, Any] | None = None,
    body: Any = None,
    **headers: str,
) -> Response:
    """Send a request; an endless stream is left when nothing more comes. `_` in names is `-`."""
    return await ask_slowly(app, method, path, query, body, headers, silence_s=SILENCE_S)


async def ask_slowly(
    app: App,
    method: str,
    path: str,
    query: dict[str, Any] | None,
    body: Any,
    headers: dict[str, str],
    *,
    on_part: OnPart | None = None,
    silence_s: float = 30,
) -> Response:
    """Send a request; `on_part` is awaited after each part of the answer, before the next."""
    given = {"host": "localhost:7420", **{k.replace("_", "-"): v for k, v in headers.items()}}
    content = b""
    if body is not None:
        given.setdefault("content-type", "application/json")
        content = body if isinstance(body, bytes) else orjson.dumps(body)
    left = asyncio.Event()
    incoming = [{"type": "http.request", "body": content, "more_body": False}]
    sent: list[MutableMapping[str, Any]] = []
    latest = asyncio.Event()

    async def receive() -> MutableMapping[str, Any]:
        if incoming:
            return incoming.pop()
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)
        latest.set()
        if on_part is not None and message.get("body"):
            await on_part(message["body"])

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": urlencode(query or {}, doseq=True).encode(),
        "headers": [(k.encode(), v.encode("latin-1")) for k, v in given.items()],
        "client": ("127.0.0.1", 50_000),
    }
    task = asyncio.ensure_future(app(scope, receive, send))
    while not task.done():
        latest.clear()
        waiter = asyncio.ensure_future(latest.wait())
        timeout_s = silence_s if sent and path.endswith(ENDLESS) else None
        await asyncio.wait([task, waiter], return_when="FIRST_COMPLETED", timeout=timeout_s)
        waiter.cancel()
        if not latest.is_set() and timeout_s is not None:
            left.set()
            await task
    await task
    found = {k.decode(): v.decode("latin-1") for k, v in sent[0]["headers"]}
    parts = tuple(each["body"] for each in sent[1:] if each.get("body"))
    return Response(sent[0]["status"], found, b"".join(parts), parts)
