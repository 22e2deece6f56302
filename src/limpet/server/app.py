"""From a request to an operation to an answer: an ASGI application, to serve or to mount."""

import asyncio
import gzip
import logging
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import aclosing
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

import zstandard

from limpet.api.store import AsyncStore
from limpet.core import codec, limits, wire
from limpet.errors import Conflict, Corrupt, InvalidInput, LimpetError, NotFound
from limpet.model import JSON
from limpet.server.access import Access, Refused
from limpet.server.answers import JSON_TYPE, LINES_TYPE, PROBLEM_TYPE, Answer, Listing, Stream
from limpet.server.call import Call, read_params
from limpet.server.openapi import document
from limpet.server.operations import OPERATIONS, Operation
from limpet.server.repeats import Repeats

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

log = logging.getLogger("limpet.server")
_BODY_BYTES_MORE = limits.MIB  # of a request beside its state and its metadata
_SMALL = 1024  # bytes that are not worth compressing
_LARGE = 256 * limits.KIB  # bytes that are parsed in a thread
_BODY_WAIT_S = 30.0  # between two parts of a body


class Response:
    """Headers and a body, or parts that go on."""

    def __init__(
        self,
        status: int,
        body: bytes | Stream = b"",
        media_type: str = JSON_TYPE,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.status = status
        self.body = body
        self.headers = {
            "content-type": body.media_type if isinstance(body, Stream) else media_type,
            "cache-control": "no-store",
            "x-content-type-options": "nosniff",
            **(headers or {}),
        }


def problem(error: LimpetError, *, compared: bool = False) -> Response:
    """Return an error as RFC 9457 has it; `compared`: the request had a condition."""
    if isinstance(error, Refused):
        body: JSON = {
            "type": f"urn:limpet:{error.title}",
            "title": error.title,
            "status": error.status,
            "detail": str(error),
        }
        return Response(error.status, codec.encode(body), PROBLEM_TYPE, error.headers)
    body = wire.problem_json(error, 412 if compared and isinstance(error, Conflict) else None)
    headers = {"retry-after": "1"} if body["status"] == 503 else None
    return Response(body["status"], codec.encode(body), PROBLEM_TYPE, headers)


class App:
    """The API of one store. It keeps nothing between requests but what is under way."""

    def __init__(self, store: AsyncStore, access: Access) -> None:
        self._store = store
        self._driver = store.driver
        self._access = access
        self._repeats: Repeats[Response] = Repeats()
        self._streams: set[asyncio.Task[Any]] = set()
        self._routes: dict[str, dict[str, Operation]] = {}
        for each in OPERATIONS:
            self._routes.setdefault(each.path, {})[each.method] = each

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        method, path = scope["method"], scope["path"].removeprefix(scope.get("root_path", ""))
        headers = {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in scope["headers"]}
        response = await self._respond(method, path, scope["query_string"], headers, receive)
        await self._send(response, headers, method, receive, send)

    def end_streams(self) -> None:
        """End all answers that go on: the server stops, and the clients come back later."""
        for task in self._streams:
            task.cancel()

    async def _respond(
        self, method: str, path: str, query: bytes, headers: dict[str, str], receive: Receive
    ) -> Response:
        try:
            if path == "/healthz":
                return Response(200, b"{}")
            grant = self._access.grant(headers)
            if path == "/openapi.json":
                return Response(200, document())
            operation = self._operation(method, path)
            if operation.writes and not grant.write:
                raise Refused(403, "Forbidden", "this token may only read: use another token")
            params = read_params(operation.params, _query(query))
            call = Call(self._driver, grant, params, headers)
            if operation.body is not None:
                call.body = await self._body(operation, headers, receive)
            key = call.repeat_key if operation.writes else None
            if key is None:
                return await self._act(call, operation)
            return await self._repeats.run(
                (grant, method, path, query, key),
                lambda: self._act(call, operation),
                again=call.again,
                is_final=lambda response: response.status < 500,
            )
        except LimpetError as error:
            return problem(error)
        except Exception:
            log.exception("an operation failed. path=`%s`", path)
            return problem(LimpetError("the server failed: its log says why"))

    async def _act(self, call: Call, operation: Operation) -> Response:
        try:
            return await self._answer(call, operation, await operation.handler(call))
        except LimpetError as error:
            compared = "if-match" in call.headers or "if-none-match" in call.headers
            return problem(error, compared=compared)

    def _operation(self, method: str, path: str) -> Operation:
        found = self._routes.get(path)
        if found is None:
            raise NotFound("there is no such operation: /openapi.json lists what there is")
        operation = found.get("GET" if method == "HEAD" else method)
        if operation is None:
            allowed = ", ".join(sorted(found))
            why = f"this method is not known here: there is {allowed}"
            raise Refused(405, "InvalidInput", why, {"allow": allowed})
        return operation

    async def _body(self, operation: Operation, headers: dict[str, str], receive: Receive) -> JSON:
        bytes_max = 2 * self._driver.tools.state_bytes_max + _BODY_BYTES_MORE
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != JSON_TYPE:
            raise Refused(415, "InvalidInput", f"the body must be {JSON_TYPE}")
        raw = await _read(receive, headers, bytes_max)
        encoding = headers.get("content-encoding", "identity").strip().lower()

        def parse() -> JSON:
            found = _decoded(_unpacked(raw, encoding, bytes_max))
            from limpet.server.schema import check

            check(found, operation.body or {})
            return found

        return await self._driver.in_pool(parse) if len(raw) > _LARGE else parse()

    async def _answer(self, call: Call, operation: Operation, result: Any) -> Response:
        if result is None:
            raise NotFound("there is nothing at this address")
        if isinstance(result, Stream):
            # An error before the first part has a status of its own.
            return Response(200, await _begun(result))
        if isinstance(result, Listing):
            return await self._listed(call, result)
        if not isinstance(result, Answer):
            return Response(200, codec.encode(result))
        if result.revision is None:
            return Response(200, result.body)
        tag = {"etag": f'"{result.revision}"'}
        if operation.method == "GET" and call.has_current(result.revision):
            return Response(304, b"", headers=tag)
        return Response(200, result.body, headers=tag)

    async def _listed(self, call: Call, listing: Listing) -> Response:
        after, limit = call.params.get("after"), call.params.get("limit")
        if LINES_TYPE in call.headers.get("accept", ""):
            lines = self._lines(call, listing, after, limit)
            return Response(200, await _begun(Stream(lines, LINES_TYPE)))
        wanted = call.page_limit
        found = await self._page(listing, after, wanted) if wanted else []
        following = listing.cursor(found[-1]) if found and len(found) == wanted else None
        items = [listing.encode(each) for each in found]
        return Response(200, codec.encode({"items": items, "next": following}))

    async def _page(self, listing: Listing, after: str | None, limit: int) -> list[Any]:
        return await self._driver.run(lambda backend: listing.fetch(backend, after, limit))

    async def _lines(
        self, call: Call, listing: Listing, after: str | None, limit: int | None
    ) -> AsyncGenerator[bytes, None]:
        left = limit
        while left is None or left > 0:
            wanted = limits.PAGE_ITEMS_MAX if left is None else min(left, limits.PAGE_ITEMS_MAX)
            found = await self._page(listing, after, wanted)
            yield b"".join(codec.encode(listing.encode(each)) + b"\n" for each in found)
            if len(found) < wanted:
                return
            after = listing.cursor(found[-1])
            left = None if left is None else left - len(found)

    async def _send(
        self,
        response: Response,
        headers: Mapping[str, str],
        method: str,
        receive: Receive,
        send: Send,
    ) -> None:
        if isinstance(response.body, Stream):
            await self._send_stream(response, response.body, receive, send)
            return
        body = response.body
        if len(body) > _SMALL and "accept-encoding" in headers:
            body, more = _packed(body, headers["accept-encoding"])
            response.headers |= more
        response.headers["content-length"] = str(len(body))
        await send(_start(response))
        hidden = method == "HEAD" or response.status == 304
        await send({"type": "http.response.body", "body": b"" if hidden else body})

    async def _send_stream(
        self, response: Response, stream: Stream, receive: Receive, send: Send
    ) -> None:
        """Send parts as they come, until they end, the client leaves, or the server stops."""
        task = asyncio.current_task()
        if task is None:
            return

        def stop(_: object) -> None:
            task.cancel()

        gone = asyncio.ensure_future(_gone(receive))
        gone.add_done_callback(stop)
        self._streams.add(task)
        try:
            await send(_start(response))
            async with aclosing(stream.parts) as parts:
                async for part in parts:
                    if part:
                        await send({"type": "http.response.body", "body": part, "more_body": True})
        except asyncio.CancelledError:
            pass  # the client left, or the server stops
        finally:
            self._streams.discard(task)
            gone.remove_done_callback(stop)
            gone.cancel()
        await send({"type": "http.response.body", "body": b""})


async def _begun(stream: Stream) -> Stream:
    """Return a stream whose first part was already awaited; a later error is its last line."""
    first = await anext(stream.parts, b"")

    async def parts() -> AsyncGenerator[bytes, None]:
        async with aclosing(stream.parts) as rest:
            yield first
            try:
                async for part in rest:
                    yield part
            except LimpetError as error:
                log.warning("a stream was cut off: %s", error)
                yield codec.encode(wire.problem_json(error)) + b"\n"

    return Stream(parts(), stream.media_type)


def _start(response: Response) -> dict[str, Any]:
    headers = [(k.encode(), v.encode("latin-1")) for k, v in response.headers.items()]
    return {"type": "http.response.start", "status": response.status, "headers": headers}


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _query(text: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(text.decode("ascii"), keep_blank_values=True, errors="strict")
    except ValueError:
        raise InvalidInput("the query is not UTF-8, percent-encoded") from None


async def _read(receive: Receive, headers: Mapping[str, str], bytes_max: int) -> bytes:
    """Return the body of a request; raise Refused if it is too large or too slow."""
    length = headers.get("content-length", "0")
    parts, size = [], 0
    too_large = Refused(413, "InvalidInput", f"the body is too large. max=`{bytes_max}`")
    if length.isascii() and length.isdigit() and int(length) > bytes_max:
        raise too_large
    while True:
        try:
            async with asyncio.timeout(_BODY_WAIT_S):
                message = await receive()
        except TimeoutError:
            raise Refused(408, "Unavailable", "the body did not arrive in time") from None
        if message["type"] == "http.disconnect":
            raise Refused(400, "InvalidInput", "the body ended too early")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > bytes_max:
            raise too_large
        if not message.get("more_body", False):
            return b"".join(parts)


def _unpacked(raw: bytes, encoding: str, bytes_max: int) -> bytes:
    """Undo the Content-Encoding of a body, without ever holding more than is allowed."""
    if encoding == "identity":
        return raw
    try:
        if encoding == "gzip":
            reader = zlib.decompressobj(wbits=31)
            found = reader.decompress(raw, bytes_max + 1)
            if len(found) <= bytes_max and not reader.eof:
                raise InvalidInput("the compressed body is not complete")
        elif encoding == "zstd":
            with zstandard.ZstdDecompressor(max_window_size=2**27).stream_reader(raw) as stream:
                found = stream.read(bytes_max + 1)
        else:
            why = "send the body as it is, or as gzip or zstd"
            raise Refused(415, "InvalidInput", f"this Content-Encoding is not known: {why}")
    except (zlib.error, zstandard.ZstdError):
        raise InvalidInput("the body does not decompress") from None
    if len(found) > bytes_max:
        raise Refused(413, "InvalidInput", f"the body is too large. max=`{bytes_max}`")
    return found


def _decoded(raw: bytes) -> JSON:
    try:
        return codec.decode_foreign(raw)
    except Corrupt:
        raise InvalidInput("the body is not JSON in UTF-8") from None


def _packed(body: bytes, accepted: str) -> tuple[bytes, dict[str, str]]:
    offered = {each.partition(";")[0].strip().lower() for each in accepted.split(",")}
    vary = {"vary": "accept-encoding"}
    if "zstd" in offered:
        packed = zstandard.ZstdCompressor(level=1).compress(body)
        return packed, {"content-encoding": "zstd", **vary}
    if "gzip" in offered:
        return gzip.compress(body, compresslevel=1), {"content-encoding": "gzip", **vary}
    return body, vary
