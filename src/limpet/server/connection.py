"""Connections: uvicorn's protocol, with limits on how long and how large a request's head may be.

The head of a request must be complete in 10 seconds. A client must take what was sent to it within
30 seconds. Bodies are limited by `bodies.py`. A connection that is idle is closed by uvicorn.

A connection has one request under way. What arrives behind it is parsed when it has been answered,
and when that is much, no more is read: a client that pipelines gets its answers in order, and one
that floods takes no more than its share.
"""

import asyncio
import sys
from typing import Any, cast

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from limpet.core import codec, limits
from limpet.server.app import App, log_access
from limpet.server.call import PROBLEM_TYPE

_HEAD_S_MAX = 10.0
_HEAD_BYTES_MAX = 128 * limits.KIB
_TAKE_S_MAX = 30.0  # without a byte taken


class _Flow(FlowControl):
    """Pauses and resumes reading as uvicorn asks, but resumes nothing while it `is_full`."""

    is_full = False

    def resume_reading(self) -> None:
        if not self.is_full:
            super().resume_reading()


class Connection(HttpToolsProtocol):
    """One connection."""

    flow: _Flow
    _unparsed = b""  # what arrived behind the request that is under way
    _parsed_to = 0
    _in_head = False
    _head_bytes = 0
    _body_bytes = 0  # of a request: those to come; with chunks, more than there can be
    _head_timer: asyncio.TimerHandle | None = None
    _take_timer: asyncio.TimerHandle | None = None
    connections_max = 1000  # what the limit on open files allows

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = _Flow(transport)
        self._api.metrics.connections += 1
        if len(self.connections) > self.connections_max:
            transport.abort()
        else:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._api.metrics.connections -= 1
        self._stop_head_timer()
        self._stop_take_timer()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._unparsed, self._parsed_to = self._unparsed[self._parsed_to :] + data, 0
        self._parse()

    def on_response_complete(self) -> None:
        self.flow.is_full = False
        super().on_response_complete()
        if self._unparsed:
            self._parse()

    def _parse(self) -> None:
        """Parse what has arrived, but nothing behind a request that is not answered yet."""
        while self._unparsed and not (self._is_answering or self.transport.is_closing()):
            part = self._next_part()
            super().data_received(part)
            self._head_bytes += len(part)
            if self._in_head and self._head_bytes > _HEAD_BYTES_MAX:
                self._refuse(431, "the head of the request is too large")
        if len(self._unparsed) - self._parsed_to > HIGH_WATER_LIMIT:
            self.flow.is_full = True
            self.flow.pause_reading()
        if self.cycle is None or self.cycle.response_complete:
            # It is a part of a head, or of a body that is no longer wanted.
            self._await_head()
        else:
            self._stop_head_timer()

    def _next_part(self) -> bytes:
        """Take bytes of one request: a body, a head, or a line of one that arrives in parts."""
        data, begin = self._unparsed, self._parsed_to
        if self._body_bytes:
            end = min(begin + self._body_bytes, len(data))
            self._body_bytes -= end - begin
        else:
            mark = b"\n" if self._in_head else b"\r\n\r\n"
            if not self._in_head and data[begin] in b"\r\n":
                # Empty lines before a request: to take one after the other would take long.
                data, begin = data[begin:].lstrip(b"\r\n"), 0
            at = data.find(mark, begin)
            end = len(data) if at < 0 else at + len(mark)
        self._unparsed, self._parsed_to = (b"", 0) if end == len(data) else (data, end)
        return data[begin:end]

    @property
    def _is_answering(self) -> bool:
        """Whether a request has arrived whole, and its answer is not complete."""
        cycle: Any = self.cycle
        return not (cycle is None or cycle.response_complete or cycle.more_body)

    def on_message_begin(self) -> None:
        if self._is_answering:
            # Behind chunks, whose end only the parser knows: the connection ends with the answer.
            raise ValueError
        self._in_head, self._head_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()
        headers = dict(self.headers)
        is_chunked = b"transfer-encoding" in headers
        self._body_bytes = sys.maxsize if is_chunked else int(headers.get(b"content-length", 0))

    def on_message_complete(self) -> None:
        self._body_bytes = 0
        super().on_message_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stop_take_timer()
        self._take_timer = self.loop.call_later(_TAKE_S_MAX, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_take_timer()

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "this is not a request of HTTP/1.1")

    @property
    def _api(self) -> App:
        return cast(App, self.config.app)

    def _await_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(_HEAD_S_MAX, self.transport.close)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _stop_take_timer(self) -> None:
        if self._take_timer is not None:
            self._take_timer.cancel()
            self._take_timer = None

    def _refuse(self, status: int, why: str) -> None:
        """Answer what is no request, and close the connection."""
        self._unparsed, self._parsed_to = b"", 0
        under_way: Any = self.cycle
        if under_way is not None and under_way.response_complete:
            under_way = None
        if under_way is not None and not under_way.more_body:
            under_way.keep_alive = False  # what came before it is answered first
            return
        if under_way is None:
            self.transport.write(_problem(status, why))
            scope = {"client": self.client, "method": "-"}
            log_access(scope, "-", status, 0, 0.0)
            self._api.metrics.add("other", status, 0)
        elif not under_way.response_started:
            self.transport.write(_problem(status, why))  # the application counts the request
        self.transport.close()


def _problem(status: int, why: str) -> bytes:
    body = codec.encode(
        {
            "type": "urn:limpet:InvalidInput",
            "title": "InvalidInput",
            "status": status,
            "detail": why,
        }
    )
    head = (
        f"content-type: {PROBLEM_TYPE}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return STATUS_LINE[status] + head.encode() + body
