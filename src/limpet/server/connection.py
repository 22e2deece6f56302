"""Connections: uvicorn's protocol, with limits on how long and how large a request's head may be.

The head of a request must be complete in 10 seconds. A client must take what was sent to it within
30 seconds. Bodies are limited by `bodies.py`. A connection that is idle is closed by uvicorn.
"""

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from limpet.core import codec, limits
from limpet.server.answers import PROBLEM_TYPE
from limpet.server.app import App, log_access

_HEAD_S_MAX = 10.0
_HEAD_BYTES_MAX = 128 * limits.KIB
_TAKE_S_MAX = 30.0  # without a byte taken


class Connection(HttpToolsProtocol):
    """One connection."""

    _in_head = False
    _head_bytes = 0
    _cycles: list[RequestResponseCycle] = []  # noqa: RUF012  (replaced, never changed)
    _head_timer: asyncio.TimerHandle | None = None
    _take_timer: asyncio.TimerHandle | None = None
    connections_max = 1000  # what the limit on open files allows

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._api.metrics.connections += 1
        if len(self.connections) > self.connections_max:
            transport.abort()
        else:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        for each in self._under_way():
            # uvicorn does this for the last request only; an earlier one would go on writing.
            each.disconnected = True
            each.message_event.set()
        super().connection_lost(exc)
        self._api.metrics.connections -= 1
        self._stop_head_timer()
        self._stop_take_timer()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > _HEAD_BYTES_MAX:
                self._refuse(431, "the head of the request is too large")
                return
        if self.cycle is None or self.cycle.response_complete:
            # It is a part of a head, or of a body that is no longer wanted.
            self._await_head()
        else:
            self._stop_head_timer()

    def on_message_begin(self) -> None:
        self._in_head, self._head_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()
        self._cycles = [*self._under_way(), self.cycle]

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stop_take_timer()
        self._take_timer = self.loop.call_later(_TAKE_S_MAX, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_take_timer()

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "this is not a request of HTTP/1.1")

    def _under_way(self) -> list[RequestResponseCycle]:
        return [each for each in self._cycles if not each.response_complete]

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
        elif not self.pipeline and not under_way.response_started:
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
