"""From a request to an operation to an answer: an ASGI application, to serve or to mount."""

import asyncio
import gzip
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import aclosing
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import parse_qsl, quote

import zstandard

from limpet.api.store import AsyncStore
from limpet.core import codec, limits
from limpet.core.operations import LINES_TYPE, OPERATIONS, Operation
from limpet.errors import Conflict, Corrupt, InvalidInput, LimpetError, NotFound, Unavailable
from limpet.model import JSON, ScopeKey
from limpet.protocol import Backend, Target
from limpet.server.access import Access, Grant, Refused, forbidden, own_origin, ticket_of
from limpet.server.bodies import LARGE, Bodies, busy
from limpet.server.bodies import Receive as Receive
from limpet.server.call import PROBLEM_TYPE, Call, Listing, Response, Stream, read_params
from limpet.server.metrics import TEXT_TYPE, Metrics
from limpet.server.openapi import document
from limpet.server.operations import Result, handler_of
from limpet.server.repeats import Fingerprint, Repeats
from limpet.server.streams import lines, page

Scope: TypeAlias = MutableMapping[str, Any]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

log = logging.getLogger("limpet.server")
access_log = logging.getLogger("limpet.access")
_SMALL = 1024  # bytes that are not worth compressing
_URL_BYTES_MAX = 60 * limits.KIB  # four ids of 512 characters, percent-encoded, and labels
_HEADERS_BYTES_MAX = 32 * limits.KIB
_HEADERS_MAX = 256
_REQUESTS_MAX = 1000  # being answered at once, without streams
_STREAMS_MAX = 10_000  # being sent at once, by weight
_SENDING_BYTES_MAX = 512 * limits.MIB  # of answers that clients have not taken yet
_READY_S_MAX = 2.0
_PATH_CHARS_SHOWN = 200
_PAGES = "/ui/"  # what is not there is a page too
_OTHER = "other"  # in the metrics: no operation
_TARGET = Target(ScopeKey("ready", "main", "agent"), None)  # need not exist


class Pages(NamedTuple):
    """Pages for a browser: operations that answer with HTML, and what an error looks like."""

    operations: Sequence[Operation]
    error: Callable[[LimpetError, Grant], Response]


def problem(error: LimpetError, grant: Grant, *, compared: bool = False) -> Response:
    """Return an error as RFC 9457 has it; `compared`: the request had a condition."""
    if isinstance(error, Refused):
        body: dict[str, JSON] = {
            "type": f"urn:limpet:{error.title}",
            "title": error.title,
            "status": error.status,
            "detail": str(error),
        }
        if error.title == "Unavailable":
            body["outcome_known"] = True
        return Response(error.status, codec.encode(body), PROBLEM_TYPE, error.headers)
    body = grant.problem_json(error, 412 if compared and isinstance(error, Conflict) else None)
    headers = {"retry-after": "1"} if body["status"] == 503 else None
    return Response(body["status"], codec.encode(body), PROBLEM_TYPE, headers)


class _Request(NamedTuple):
    """One request as it arrived, and the operation that it names, if there is one."""

    method: str
    path: str
    headers: dict[str, str]
    operation: Operation | None
    scope: Scope
    receive: Receive
    send: Send


class App:
    """The API of one store, and its pages. It keeps nothing but what is under way."""

    def __init__(self, store: AsyncStore, access: Access, pages: Pages | None = None) -> None:
        self.metrics = Metrics()
        self._store = store
        self._driver = store.driver
        self._access = access
        self._bodies = Bodies(store.driver)
        self._repeats: Repeats[Response] = Repeats(_size)
        self._streams: dict[asyncio.Task[Any], Stream] = {}
        self._streams_weight = 0
        self._is_stopping = False
        self._running = 0
        self._sending_bytes = 0
        self._probe: asyncio.Future[Any] | None = None
        self._routes: dict[str, dict[str, Operation]] = {}
        self._pages = pages
        self._page_paths = {each.path for each in pages.operations} if pages else set()
        for each in (*OPERATIONS, *(pages.operations if pages else ())):
            self._routes.setdefault(each.path, {})[each.method] = each

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        clock = self._driver.tools.clock.monotonic
        began = clock()
        # Not the decoded path: a proxy would see another one.
        raw = scope.get("raw_path") or quote(scope["path"]).encode()
        path = raw.decode("ascii", "backslashreplace").removeprefix(scope.get("root_path", ""))
        method, headers = scope["method"], _headers(scope)
        operation = self._routes.get(path, {}).get("GET" if method == "HEAD" else method)
        request = _Request(method, path, headers, operation, scope, receive, send)
        name = _OTHER if operation is None else operation.name
        self.metrics.in_flight += 1
        try:
            response = await self._respond(request)
            body, more = response.body, self._access.cors(headers)
            if isinstance(body, bytes):
                sent = await self._send(request, response, body, more)
                self.metrics.add_time(name, clock() - began)
        finally:
            self.metrics.in_flight -= 1
        if isinstance(body, Stream):
            sent = await self._send_stream(request, response, body, more)
        self.metrics.add(name, response.status, sent)
        log_access(scope, path, response.status, sent, clock() - began)

    def end_streams(self) -> None:
        """End the answers that have no end of their own; their clients come back."""
        for task, stream in self._streams.items():
            if stream.endless:
                task.cancel()

    def stop(self) -> None:
        """End the endless streams, also those that are about to begin."""
        self._is_stopping = True
        self.end_streams()

    # Answers

    async def _respond(self, request: _Request) -> Response:
        method, path, headers, operation, scope, receive, _ = request
        grant = Grant(write=False)
        try:
            _check_head(scope, headers)
            if path in ("/healthz", "/readyz"):
                _check_method(method, ("GET",))
                return await self._health(path)
            own = own_origin(scope.get("scheme", "http"), headers)
            self._access.check_sender(headers, own)
            if method == "OPTIONS" and "access-control-request-method" in headers:
                return Response(204, headers=self._access.preflight())
            if operation is not None and operation.form:
                self._access.check_form(headers, own)
            if operation is None or not operation.public:
                ticket = ticket_of(headers, own) if self._is_page(path) else ""
                now_s = self._driver.tools.draw().now // 1_000_000 if ticket else 0
                grant = self._access.grant(headers, ticket, now_s=now_s)
            if path in ("/openapi.json", "/metrics"):
                _check_method(method, ("GET",))
                return self._page_about(path, grant)
            if path not in self._routes:
                why = "there is no such operation: /openapi.json lists what there is"
                why = "there is no such page" if self._is_page(path) else why
                raise Refused(404, "InvalidInput", why)
            if operation is None:
                raise _no_method(self._routes[path])
            if operation.writes and not grant.write:
                raise forbidden("this token may only read")
            params = read_params(operation.params, _query(scope["query_string"]))
            call = Call(operation, self._store, grant, params, headers, self._access, own)
            _check_condition(operation, headers)
            asked = None
            if operation.writes and (key := call.repeat_key) is not None:
                address = method, path, scope["query_string"].decode("latin-1")
                asked = Fingerprint(key, address, headers, receive)
                receive = asked.receive
            if operation.body is None:
                return await self._run(call, asked)
            body = await self._bodies.read(receive, headers, operation)
            if body.is_small:
                call.body = body.parsed(operation.body)
                return await self._run(call, asked)
            async with self._bodies.rest(body, operation.body) as call.body:
                return await self._run(call, asked)
        except LimpetError as error:
            return self._problem(error, path, grant)
        except RecursionError:
            return self._problem(Corrupt(limits.TOO_DEEP), path, grant)
        except Exception:
            log.exception("an operation failed. path=`%s`", path[:_PATH_CHARS_SHOWN])
            return self._problem(LimpetError("the server failed: its log says why"), path, grant)

    def _is_page(self, path: str) -> bool:
        is_below = self._pages is not None and path.startswith(_PAGES)
        return is_below or path in self._page_paths

    def _problem(
        self, error: LimpetError, path: str, grant: Grant, *, compared: bool = False
    ) -> Response:
        if grant.prefix and isinstance(error, Unavailable | Corrupt):
            log.warning("a request failed: %s", error)  # its client is not told all of this
        if self._pages is not None and self._is_page(path):
            return self._pages.error(error, grant)
        return problem(error, grant, compared=compared)

    async def _health(self, path: str) -> Response:
        """Answer that the process lives, or that its storage answers."""
        if path == "/healthz":
            return Response(200, b"{}")
        if self._probe is None or self._probe.done():
            # One for all who ask: storage that does not answer must not be asked more and more.
            self._probe = asyncio.ensure_future(self._driver.run(_probe))
            self._probe.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            async with asyncio.timeout(_READY_S_MAX):
                await asyncio.shield(self._probe)
        except (TimeoutError, LimpetError):
            raise Unavailable("the storage does not answer", outcome_known=True) from None
        return Response(200, b"{}")

    def _page_about(self, path: str, grant: Grant) -> Response:
        if path == "/openapi.json":
            return Response(200, document())
        grant.check_whole()
        return Response(200, self.metrics.text(self._bodies.received_bytes), TEXT_TYPE)

    async def _run(self, call: Call, asked: Fingerprint | None) -> Response:
        """Run an operation; a write that is repeated gets the first answer."""
        if self._running >= _REQUESTS_MAX or self._sending_bytes > _SENDING_BYTES_MAX:
            raise busy("too many requests are under way")
        self._running += 1
        try:
            if asked is None:
                return await self._act(call)
            call.fingerprint = asked.hex()
            # One verb of an engine may send several requests with the same stamp.
            more = (call.fingerprint,) if "limpet-stamp" in call.headers else ()
            return await self._repeats.run(
                (call.grant, asked.key, *more),
                call.fingerprint,
                lambda: self._act(call),
                again=call.again,
                is_final=lambda response: response.status < 500,
            )
        finally:
            self._running -= 1

    async def _act(self, call: Call) -> Response:
        try:
            return await self._answer(call, await handler_of(call.operation)(call))
        except LimpetError as error:
            compared = "if-match" in call.headers or "if-none-match" in call.headers
            return self._problem(error, call.operation.path, call.grant, compared=compared)

    async def _answer(self, call: Call, result: Result) -> Response:
        if isinstance(result, Listing):
            as_lines = LINES_TYPE in call.headers.get("accept", "")
            result = lines(call, result) if as_lines else await page(call, result)
        if result is None:
            raise NotFound("there is nothing at this address")
        if isinstance(result, Stream):
            result = Response(200, result)
        if isinstance(result, Response):
            if isinstance(result.body, Stream):
                result.body = await self._begun(result.body, call.grant)
            return result
        if result.revision is None:
            return Response(200, result.body)
        tag = {"etag": f'"{result.revision}"'}
        if call.operation.method == "GET" and call.has_current(result.revision):
            return Response(304, headers=tag)
        return Response(200, result.body, headers=tag)

    async def _begun(self, stream: Stream, grant: Grant) -> Stream:
        """Return a stream whose first part was already awaited: an error has its own status."""
        if self._streams_weight + stream.weight > _STREAMS_MAX:
            raise busy("too many streams are open")
        first = [await anext(stream.parts, b"")]

        async def parts() -> AsyncGenerator[bytes, None]:
            async with aclosing(stream.parts) as rest:
                yield first.pop()  # it may be large, and the rest take long
                try:
                    async for part in rest:
                        yield part
                except LimpetError as error:
                    log.warning("a stream was cut off: %s", error)
                    yield _last_line(error, grant) if stream.media_type == LINES_TYPE else b""

        return stream._replace(parts=parts())

    # Sending

    async def _send(
        self, request: _Request, response: Response, body: bytes, more: dict[str, str]
    ) -> int:
        """Send an answer; return how many bytes its body has."""
        accepted = request.headers.get("accept-encoding")
        if len(body) > _SMALL and accepted is not None:
            encoding = _encoding(accepted)
            more["vary"] = ", ".join(filter(None, (more.get("vary"), "accept-encoding")))
            if encoding is not None:
                more["content-encoding"] = encoding
                if len(body) > LARGE:
                    body = await self._driver.in_pool(_packed, body, encoding)
                else:
                    body = _packed(body, encoding)
        if response.status not in (204, 304):
            more["content-length"] = str(len(body))
        await request.send(_start(response, more))
        size = 0 if request.method == "HEAD" else len(body)
        self._sending_bytes += size
        try:
            await _send_part(request.send, body[:size], more=False)
        finally:
            self._sending_bytes -= size
        return size

    async def _send_stream(
        self, request: _Request, response: Response, stream: Stream, more: dict[str, str]
    ) -> int:
        """Send parts as they come, until they end, the client leaves, or the server stops."""
        task, sent, last = asyncio.current_task(), 0, b""
        if task is None:
            return sent

        def stop(_: object) -> None:
            task.cancel()

        gone = asyncio.ensure_future(_gone(request.receive))
        gone.add_done_callback(stop)
        self._streams[task] = stream
        self._streams_weight += stream.weight
        self.metrics.streams += 1
        try:
            await request.send(_start(response, more))
            async with aclosing(stream.parts) as parts:
                if request.method != "HEAD" and not (stream.endless and self._is_stopping):
                    async for part in parts:
                        if part:
                            await _send_part(request.send, part, more=True)
                        sent += len(part)
        except asyncio.CancelledError:
            # The client left, or the server stops. A list must not look complete then.
            if not stream.endless and stream.media_type == LINES_TYPE:
                last = _last_line(Unavailable("the server stops", outcome_known=True), Grant())
        finally:
            del self._streams[task]
            self._streams_weight -= stream.weight
            self.metrics.streams -= 1
            gone.remove_done_callback(stop)
            gone.cancel()
        await request.send({"type": "http.response.body", "body": last})
        return sent


async def _send_part(send: Send, data: bytes, *, more: bool) -> None:
    """Send bytes in pieces: the server's buffer would take all of them at once."""
    for at in range(0, max(len(data), 1), LARGE):
        is_last = at + LARGE >= len(data)
        message = {"type": "http.response.body", "body": data[at : at + LARGE]}
        await send({**message, "more_body": more or not is_last})


def _size(response: Response) -> int:
    return len(response.body) if isinstance(response.body, bytes) else 0


def log_access(scope: Scope, path: str, status: int, sent: int, seconds: float) -> None:
    """Log a request, without its query, its headers and its body."""
    if access_log.isEnabledFor(logging.INFO):
        client, shown = (scope.get("client") or ["-"])[0], path[:_PATH_CHARS_SHOWN]
        facts = {"client": client, "method": scope["method"], "path": shown, "status": status}
        facts |= {"sent_bytes": sent, "ms": seconds * 1000}
        message = "%(client)s %(method)s %(path)s %(status)d %(sent_bytes)d %(ms).1fms"
        access_log.info(message, facts, extra=facts)


def _headers(scope: Scope) -> dict[str, str]:
    """Return the headers; what is given twice is a list, which most of them cannot be."""
    found: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"][:_HEADERS_MAX]:  # one with more is refused
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def _check_head(scope: Scope, headers: Mapping[str, str]) -> None:
    close = {"connection": "close"}
    if "," in headers.get("host", ","):  # none, or a list of several
        raise Refused(400, "InvalidInput", "a request has exactly one Host header", close)
    if len(scope["query_string"]) + len(scope["path"]) > _URL_BYTES_MAX:
        why = f"the address is too long. max=`{_URL_BYTES_MAX}`"
        raise Refused(414, "InvalidInput", why, close)
    size = sum(map(len, headers)) + sum(map(len, headers.values()))
    if size > _HEADERS_BYTES_MAX or len(scope["headers"]) > _HEADERS_MAX:
        why = f"the headers are too large, or more than {_HEADERS_MAX}. max=`{_HEADERS_BYTES_MAX}`"
        raise Refused(431, "InvalidInput", why, close)


def _check_method(method: str, allowed: tuple[str, ...]) -> None:
    if method not in (*allowed, "HEAD"):
        raise _no_method(allowed)


def _no_method(known: Mapping[str, object] | tuple[str, ...]) -> Refused:
    allowed = ", ".join(sorted(known))
    why = f"this method is not known here: there is {allowed}"
    return Refused(405, "InvalidInput", why, {"allow": allowed})


def _check_condition(operation: Operation, headers: Mapping[str, str]) -> None:
    """Refuse a write with a condition that would not be compared."""
    if operation.writes and not operation.conditional:
        for name in ("if-match", "if-none-match"):
            if name in headers:
                raise InvalidInput(f"this operation compares nothing: leave out {name}")


def _probe(backend: Backend) -> None:
    backend.read_revisions([_TARGET])


def _last_line(error: LimpetError, grant: Grant) -> bytes:
    return codec.encode(grant.problem_json(error)) + b"\n"


def _start(response: Response, more: Mapping[str, str]) -> dict[str, Any]:
    headers = {**response.headers, **more}
    encoded = [(k.encode(), v.encode("latin-1", "replace")) for k, v in headers.items()]
    return {"type": "http.response.start", "status": response.status, "headers": encoded}


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _query(text: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(text.decode("ascii"), keep_blank_values=True, errors="strict")
    except ValueError:
        raise InvalidInput("the query is not UTF-8, percent-encoded") from None


@lru_cache(maxsize=256)  # few clients differ
def _encoding(accepted: str) -> str | None:
    """Return the compression that a client understands and this server prefers."""
    offered = {}
    for each in accepted.lower().split(","):
        name, _, quality = each.partition(";")
        offered[name.strip()] = quality.replace(" ", "") not in ("q=0", "q=0.0")
    return next((each for each in ("zstd", "gzip") if offered.get(each)), None)


def _packed(body: bytes, encoding: str) -> bytes:
    if encoding == "zstd":
        return zstandard.ZstdCompressor(level=1).compress(body)
    return gzip.compress(body, compresslevel=1)
