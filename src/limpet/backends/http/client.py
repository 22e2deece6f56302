"""Requests to a server: connections, retries, and errors.

A request that never reached the server is sent again, and a read whose answer was lost as well. A
write whose answer was lost is repeated with the same stamp and its nonce as `Idempotency-Key`: the
server waits for the first one if it is still running, and finds what that has stored.
"""

import re
import ssl
import threading
import weakref
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeAlias, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import (
    ClosedPoolError,
    ConnectTimeoutError,
    HTTPError,
    NewConnectionError,
    SSLError,
)

from limpet.backends.support import logs
from limpet.backends.support.backoff import Backoff
from limpet.backends.support.forks import abandon, opening_a_socket, renew_after_fork
from limpet.core import codec, limits, wire
from limpet.errors import CLOSED, Conflict, InvalidInput, LimpetError, Unavailable, Unsupported
from limpet.protocol import Clock, Topic

T = TypeVar("T")
_Reported: TypeAlias = str | Unavailable | None

TIMEOUT_S = 60.0  # longer than a server waits for a lock
CONNECTIONS = 16
_CONNECT_S_MAX = 10.0
_TIMEOUT_S_MIN = 0.01
_SILENCE_S_MAX = 75.0  # of a stream: the server writes a line every 30 seconds
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0
_READ_BYTES_MAX = 65_536  # of a stream, at once
_JOIN_S_MAX = 5.0
_WOKEN = ""  # no session has this id
_TRANSIENT = (408, 429, 502, 503, 504)  # from a proxy, or a server that cannot do it now
_TOKEN = re.compile(r"[!-~]+")
_TOKEN_ADVICE = "give token=, token_file= or $LIMPET_TOKEN"  # noqa: S105
_UNKNOWN = (
    "an answer was lost, and others have written since: it is not known whether this write was "
    "stored. Read, and decide"
)


class Request(NamedTuple):
    """One request; `query` has texts only."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    headers: Mapping[str, str] = {}


class Settings(NamedTuple):
    """How to reach a server, and for how long to try."""

    scheme: str
    host: str
    port: int | None
    path: str = ""
    token: str | None = None
    timeout_s: float = TIMEOUT_S
    retry_s: float = limits.RETRY_S_MAX
    connections: int = CONNECTIONS
    ca_file: str | None = None

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port is None else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.path}"


def settings_of(scheme: str, address: str, *, token: str | None, **options: Any) -> Settings:
    """Return how to reach the server of a URL, or raise InvalidInput."""
    netloc, _, path = address.removeprefix("//").partition("/")
    if "@" in netloc:
        raise InvalidInput(f"a URL does not hold a password: {_TOKEN_ADVICE}")
    try:
        parts = urlsplit(f"//{netloc}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not address.startswith("//") or not host:
        raise InvalidInput(f"write {scheme}://host:7420, the address of a limpet server")
    if token is not None and not _TOKEN.fullmatch(token):
        raise InvalidInput("a token has printable characters of ASCII only, and no spaces")
    path = quote(f"/{path}".rstrip("/"))
    return Settings(scheme, host, port, path, token, **options)


class NotOurs(Unavailable):
    """An answer that no server of Limpet gives: from a proxy, or another program."""


class _NoAnswer(Exception):
    """There was no answer. `was_sent`: the server may have got the request."""

    def __init__(self, why: str, *, was_sent: bool) -> None:
        super().__init__(why)
        self.was_sent = was_sent


_live: "weakref.WeakSet[HTTPConnection]" = weakref.WeakSet()


class _Connection(HTTPConnection):
    """Known to a forked child, which must not use the socket of its parent."""

    def connect(self) -> None:
        with opening_a_socket():
            _live.add(self)
            super().connect()


class _SecureConnection(_Connection, HTTPSConnection):
    """The same over TLS."""


class Client:
    """Sends requests from many threads, over a bounded number of connections."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._headers = {"User-Agent": "limpet"}
        if settings.token is not None:
            self._headers["Authorization"] = f"Bearer {settings.token}"
        self._closed = False
        self._pool = self._new_pool(settings.connections, block=True)
        self._streams = self._new_pool(1, block=False)
        renew_after_fork(self)

    def _new_pool(self, size: int, *, block: bool) -> urllib3.HTTPConnectionPool:
        given = self._settings
        timeout_s = max(_TIMEOUT_S_MIN, given.timeout_s) if block else _SILENCE_S_MAX
        more: dict[str, Any] = {
            "timeout": urllib3.Timeout(connect=min(timeout_s, _CONNECT_S_MAX), read=timeout_s),
            "maxsize": size,
            "block": block,
        }
        if given.scheme == "http":
            pool = urllib3.HTTPConnectionPool(given.host, given.port, **more)
            pool.ConnectionCls = _Connection
        else:
            more["ca_certs"] = given.ca_file
            pool = urllib3.HTTPSConnectionPool(given.host, given.port, **more)
            pool.ConnectionCls = _SecureConnection
        return pool

    def after_fork(self) -> None:
        """Leave all connections to the parent."""
        for each in list(_live):
            if each.sock is not None and each.sock.fileno() >= 0:
                abandon(each.sock.fileno())
        _live.clear()
        self._pool = self._new_pool(self._settings.connections, block=True)
        self._streams = self._new_pool(1, block=False)

    def close(self) -> None:
        self._closed = True
        self._pool.close()
        self._streams.close()

    # Requests

    def send(
        self,
        request: Request,
        *,
        nonce: str | None = None,
        stored: Callable[[], T | None] | None = None,
        retry_s: float | None = None,
    ) -> bytes | T:
        """Return the answer of a request, which is repeated for a while if there is none.

        Args:
            request: what is asked for.
            nonce: of a write; without it nothing is changed.
            stored: of a write that compares, and fails if it is repeated. After a lost answer this
                returns the result if what was written can be found, and None if not.
            retry_s: for how long it is repeated; by default as long as the settings say.

        Raises:
            Unavailable: there was no answer; or the write fails now, and may have succeeded before.
        """
        wait_s = self._settings.retry_s if retry_s is None else retry_s
        backoff = Backoff(
            self._clock, first_s=_FIRST_PAUSE_S, longest_s=_LONGEST_PAUSE_S, wait_s=wait_s
        )
        was_sent = False
        while True:
            try:
                return self._once(request)
            except _NoAnswer as failure:
                was_sent |= failure.was_sent and nonce is not None
                if not backoff.sleep():
                    error = self._unavailable(failure, outcome_known=not was_sent)
                    raise error from failure.__cause__
                logs.info("a request is sent again", engine="http", reason=str(failure))
            except Conflict as conflict:
                if not was_sent or stored is None:
                    raise
                found = _found(stored)
                if found is None:
                    raise Unavailable(_UNKNOWN, outcome_known=False) from conflict
                return found
            if was_sent and nonce is not None:
                found = None if stored is None else _found(stored)
                if found is not None:
                    return found
                headers = {**request.headers, "Idempotency-Key": nonce}
                request = request._replace(headers=headers)

    def stream(self, request: Request) -> urllib3.BaseHTTPResponse:
        """Return an answer that goes on; the caller closes it."""
        try:
            return self._send(self._streams, request, whole=False)
        except _NoAnswer as failure:
            raise self._unavailable(failure) from failure.__cause__

    def _once(self, request: Request) -> bytes:
        response = self._send(self._pool, request, whole=True)
        kind = response.headers.get("content-type", "")
        if not kind.startswith(("application/json", "application/jsonl")):
            fact = "the answer is not that of a limpet server"
            raise NotOurs(f"{fact}. {self._where()}", outcome_known=False)
        return response.data

    def _send(
        self, pool: urllib3.HTTPConnectionPool, request: Request, *, whole: bool
    ) -> urllib3.BaseHTTPResponse:
        if self._closed:
            raise InvalidInput(CLOSED)
        target = self._settings.path + request.path
        if request.query:
            target = f"{target}?{urlencode(request.query)}"
        headers = {**self._headers, **request.headers}
        if request.body is not None:
            headers["Content-Type"] = "application/json"
        try:
            response = pool.urlopen(
                request.method,
                target,
                request.body,
                headers,
                retries=False,
                redirect=False,
                assert_same_host=False,
                preload_content=whole,
            )
            if response.status != 200:
                self._raise(response)
            return response
        except ClosedPoolError:
            raise InvalidInput(CLOSED) from None
        except (NewConnectionError, ConnectTimeoutError) as cause:
            raise _NoAnswer("no connection", was_sent=False) from cause
        except SSLError as cause:
            reason = cause.args[0] if cause.args else None
            if isinstance(reason, ssl.SSLCertVerificationError):
                fact = f"the server's certificate is not valid here: {reason.verify_message}"
                raise InvalidInput(f"{fact}; ca_file= names another authority") from cause
            raise _NoAnswer("TLS failed", was_sent=True) from cause
        except HTTPError as cause:
            raise _NoAnswer(type(cause).__name__, was_sent=True) from cause

    # Errors

    def _raise(self, response: urllib3.BaseHTTPResponse) -> None:
        status, headers = response.status, response.headers
        problem = _problem(headers.get("content-type", ""), response.data)
        error = None if problem is None else wire.error_of(problem)
        if status in _TRANSIENT:
            known = isinstance(error, Unavailable) and error.outcome_known
            raise _NoAnswer(f"status {status}", was_sent=not known) from error
        if error is not None:
            raise error
        said = "" if problem is None else str(problem.get("detail", ""))
        if status == 401:
            raise InvalidInput(f"the server wants a token that it knows: {_TOKEN_ADVICE}")
        if status == 403:
            raise Unsupported(said or "the server does not allow it: use another token")
        if 300 <= status < 400:
            other = headers.get("location", "")
            raise NotOurs(f"the server redirects: open the address it names. location=`{other}`")
        if 400 <= status < 500 and (problem is not None or status == 413):
            raise InvalidInput(said or f"the request is refused. status=`{status}`")
        if said:
            raise Unavailable(said, outcome_known=False)
        fact = f"the answer is not that of a limpet server. status=`{status}`"
        raise NotOurs(f"{fact} {self._where()}", outcome_known=status < 500)

    def _unavailable(self, failure: _NoAnswer, *, outcome_known: bool = True) -> Unavailable:
        message = f"the server does not answer: {failure}. {self._where()}"
        if isinstance(failure.__cause__, Unavailable):
            message = str(failure.__cause__)  # what the server says of its storage
        return Unavailable(message, outcome_known=outcome_known)

    def _where(self) -> str:
        return f"url=`{self._settings.url}`"


def _problem(content_type: str, body: bytes) -> dict[str, Any] | None:
    if not content_type.startswith("application/problem+json"):
        return None
    try:
        found = codec.decode_foreign(body)
    except LimpetError:
        return None
    return found if isinstance(found, dict) else None


def _found(stored: Callable[[], T | None]) -> T | None:
    try:
        return stored()
    except Unavailable as error:
        error.outcome_known = False
        raise


class HttpListener:
    """Follows topics by one request, whose answer goes on; it is made again for other topics.

    A thread reads it, since a socket cannot be waited for together with `wake`. If the connection
    is lost, `wait` raises Unavailable: the caller listens again, and reads everything then.
    """

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
        if wanted < self._followed:
            self._followed = wanted
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
