"""A small S3-like service in this process, also for what no good service does.

It keeps objects in a dictionary and speaks just enough of S3 for a bucket's six methods. It can
ignore conditions, as some services do, and answer the next requests with an error.

It is our own reading of S3: that a test passes on it does not show that it passes on AWS. What
depends on how a service reads S3 is tested on SeaweedFS.
"""

import hashlib
import re
import threading
from collections.abc import Collection
from datetime import UTC, datetime
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from tests.servers.service import Service

_CONDITIONS = ("If-None-Match", "If-Match")


class Answer(NamedTuple):
    """An answer that the stub gives instead of executing a request."""

    status: int
    body: str


class Stub:
    """The service; `objects` is what it holds, `requests` the methods that it was asked.

    `answers` are what it says next, instead of executing requests.
    """

    def __init__(self, *, ignores: Collection[str] = _CONDITIONS) -> None:
        """`ignores` names the conditions that it ignores."""
        self.ignores = frozenset(ignores)
        self.objects: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.answers: list[Answer] = []
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._server.daemon_threads = True
        self.service = Service(f"http://127.0.0.1:{self._server.server_port}", "key", "secret")
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), daemon=True
        )
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def answer(self, status: int, code: str = "", *, n: int = 1, body: str | None = None) -> None:
        """Let the next requests fail with a status and a code (or a whole body) of S3."""
        if body is None:
            body = f"<Error><Code>{code}</Code><Message>injected</Message></Error>" if code else ""
        self.answers += [Answer(status, body)] * n

    def handle(
        self, method: str, target: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body of the reply to a request."""
        url = urlsplit(target)
        bucket, _, key = unquote(url.path).lstrip("/").partition("/")
        query = parse_qs(url.query, keep_blank_values=True)
        with self._lock:
            self.requests.append("LIST" if "list-type" in query else method)
            if self.answers:
                answer = self.answers.pop(0)
                return answer.status, {}, answer.body.encode()
            if bucket != self.service.name:
                return 404, {}, b"<Error><Code>NoSuchBucket</Code></Error>"
            if "list-type" in query:
                return 200, {}, self._list(query)
            if "delete" in query:
                return 200, {}, self._delete(body)
            return self._one(method, key, headers, body)

    def _one(
        self, method: str, key: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        found = self.objects.get(key)
        if method == "PUT":
            if self._refuses(found, headers):
                return 412, {}, b"<Error><Code>PreconditionFailed</Code></Error>"
            self.objects[key] = body
            return 200, {"ETag": _etag(body)}, b""
        if found is None:
            return 404, {}, b"<Error><Code>NoSuchKey</Code></Error>"
        fields = {"ETag": _etag(found), "Last-Modified": formatdate(usegmt=True)}
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", headers.get("range", ""))
        if asked is None:
            return 200, fields, found
        first, last = int(asked[1]), min(int(asked[2]), len(found) - 1)
        if first > last:
            return 416, {}, b"<Error><Code>InvalidRange</Code></Error>"
        fields["Content-Range"] = f"bytes {first}-{last}/{len(found)}"
        return 206, fields, found[first : last + 1]

    def _refuses(self, found: bytes | None, headers: dict[str, str]) -> bool:
        asked = {name: headers.get(name.lower()) for name in set(_CONDITIONS) - self.ignores}
        if asked.get("If-None-Match") is not None and found is not None:
            return True
        match = asked.get("If-Match")
        return match is not None and (found is None or match != _etag(found))

    def _delete(self, body: bytes) -> bytes:
        keys = [each.text or "" for each in ElementTree.fromstring(body).iter() if _is_key(each)]
        for key in keys:
            self.objects.pop(key, None)
        done = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
        return f"<DeleteResult>{done}</DeleteResult>".encode()

    def _list(self, query: dict[str, list[str]]) -> bytes:
        prefix = query.get("prefix", [""])[0]
        after = query.get("start-after", [""])[0]
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
        entries = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(data)}</Size><ETag>{_etag(data)}</ETag>"
            f"<LastModified>{now}</LastModified></Contents>"
            for key, data in sorted(self.objects.items())
            if key.startswith(prefix) and key > after
        )
        page = f"<IsTruncated>false</IsTruncated>{entries}"
        return f"<ListBucketResult>{page}</ListBucketResult>".encode()


def _etag(data: bytes) -> str:
    return f'"{hashlib.md5(data).hexdigest()}"'


def _is_key(element: ElementTree.Element) -> bool:
    return element.tag.rpartition("}")[2] == "Key"


def _handler_of(stub: Stub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, fields, reply = stub.handle(self.command, self.path, headers, body)
            self.send_response(status)
            for name, value in {**fields, "Content-Length": str(len(reply))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(reply)
            self.wfile.flush()

        do_PUT = do_GET = do_POST = do_DELETE = _serve  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    return Handler
