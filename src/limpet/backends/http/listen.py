"""Listening to a server: one answer that goes on, with the sessions in which something changed.

A thread reads it, since a socket cannot be waited for together with `wake`. If the connection is
lost, `wait` raises Unavailable: whoever listens calls `listen` again, and reads everything then.
"""

import threading
from collections.abc import Collection
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TypeAlias

import urllib3
from urllib3.exceptions import HTTPError

from limpet.backends.http.client import Client, Request
from limpet.backends.support.forks import renew_after_fork
from limpet.core import codec, wire
from limpet.errors import LimpetError, Unavailable
from limpet.protocol import Topic

_READ_BYTES_MAX = 65_536
_JOIN_S_MAX = 5.0

_Reported: TypeAlias = str | Unavailable | None
_WOKEN = ""  # no session has this id


class HttpListener:
    """Follows topics by one request, which is made again when there are others."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._followed: frozenset[Topic] = frozenset()
        self._stream: urllib3.BaseHTTPResponse | None = None
        self._reader: threading.Thread | None = None
        self._reported: SimpleQueue[_Reported] = SimpleQueue()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Leave the connection and its thread to the parent."""
        self._reported = SimpleQueue()
        self._stream = None
        self._reported.put(Unavailable("the listener belongs to the parent process: listen again"))

    def follow(self, topics: Collection[Topic]) -> None:
        wanted = frozenset(topics)
        if wanted <= self._followed:
            return  # too much is reported, which is allowed
        body = codec.encode({"topics": [wire.topic_json(each) for each in wanted]})
        stream = self._client.stream(Request("POST", "/v1/changes", (), body))
        try:
            begun = self._read_some(stream)  # a line that says that the server follows them
        except BaseException:
            stream.close()
            raise
        reader = threading.Thread(
            target=self._read, args=(stream, begun), name="limpet-listen", daemon=True
        )
        self._end_stream()
        self._stream, self._followed = stream, wanted
        # Whatever changed between the two answers is found by reading everything.
        self._reported.put(None)
        try:
            reader.start()
        except RuntimeError as cause:
            raise Unavailable("no thread can be started. name=`limpet-listen`") from cause
        self._reader = reader

    def _read_some(self, stream: urllib3.BaseHTTPResponse) -> bytes:
        try:
            found = stream.read1(_READ_BYTES_MAX)
        except (HTTPError, OSError, ValueError, AttributeError) as cause:
            # The latter two if it is closed meanwhile.
            raise Unavailable("the connection to the server is lost") from cause
        if not found:
            raise Unavailable("the server has ended the connection")
        return found

    def _read(self, stream: urllib3.BaseHTTPResponse, found: bytes) -> None:
        try:
            while True:
                *lines, found = found.split(b"\n")
                for line in lines:
                    known = codec.decode_foreign(line)
                    if known:  # an empty object says that the server is there
                        self._reported.put(known["session_id"])
                found += self._read_some(stream)
        except (LimpetError, KeyError, TypeError) as error:
            if stream is self._stream:
                lost = error if isinstance(error, Unavailable) else Unavailable(str(error))
                self._reported.put(lost)
        finally:
            stream.close()

    def wait(self, *, active: bool) -> frozenset[str] | None:
        reported = {self._next()}
        try:
            while True:
                reported.add(self._next(block=False))
        except Empty:
            pass
        return None if None in reported else frozenset(filter(None, reported))

    def _next(self, *, block: bool = True) -> str | None:
        found = self._reported.get(block)
        if isinstance(found, Unavailable):
            raise found
        return found

    def wake(self) -> None:
        self._reported.put(_WOKEN)

    def close(self) -> None:
        self._end_stream()
        self._reported.put(Unavailable("the listener is closed: listen again"))

    def _end_stream(self) -> None:
        """End the thread that reads, which then closes the connection."""
        stream, self._stream = self._stream, None
        if stream is not None:
            with suppress(OSError, RuntimeError, ValueError):  # it has ended already
                stream.shutdown()
            if self._reader is not None:
                self._reader.join(_JOIN_S_MAX)
