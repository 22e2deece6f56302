"""Requests that no client of ours sends: a proper status, no traceback, and the server lives."""

import gzip
import json
import random
import socket
import threading

import pytest
import zstandard

from limpet.core.operations import OPERATIONS, Operation
from tests.cases import for_each
from tests.server.process import BODY_BYTES_MAX, STATE_BYTES_MAX, Server, head
from tests.waiting import until

JSON = "Content-Type: application/json"
SAVE = "/v1/scope/save?session_id=bad"
CHUNKED = "Transfer-Encoding: chunked"


@pytest.fixture(autouse=True)
def lives(server: Server):  # type: ignore[no-untyped-def]
    """After each test the server still answers, and its log has no traceback."""
    yield
    assert server.ask("GET", "/healthz").status == 200
    assert "Traceback" not in server.log
    assert " ERROR " not in server.log


def body_of(text: bytes, *headers: str, target: str = SAVE, stay: bool = False) -> bytes:
    return head("POST", target, [JSON, f"Content-Length: {len(text)}", *headers], stay=stay) + text


@for_each(
    ("request_", "status"),
    {
        "no HTTP": (b"HELLO\r\n\r\n", 400),
        "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 64, 400),
        "HTTP/2 preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        "unknown method": (head("BREW", "/v1"), 400),
        "small letters": (b"get /v1 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        "no version": (b"GET /v1\r\n\r\n", 400),
        "HTTP/9": (b"GET /v1 HTTP/9.9\r\nHost: localhost\r\n\r\n", 400),
        "no target": (b"GET  HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        "NUL in a header": (head("GET", "/v1", ["X: a\0b"]), 400),
        "newline in a header name": (head("GET", "/v1", ["X Y: a"]), 400),
        "folded header": (head("GET", "/v1", ["X: a\r\n b"]), 400),
        "no Host": (b"GET /v1 HTTP/1.1\r\nConnection: close\r\n\r\n", 400),
        "no Host, health": (b"GET /healthz HTTP/1.0\r\n\r\n", 400),
        "two Hosts": (head("GET", "/v1", ["Host: localhost"]), 400),
        "two lengths": (head("POST", SAVE, [JSON, "Content-Length: 2", "Content-Length: 3"]), 400),
        "length and chunks": (head("POST", SAVE, [JSON, "Content-Length: 2", CHUNKED]), 400),
        "negative length": (head("POST", SAVE, [JSON, "Content-Length: -1"]), 400),
        "length with a sign": (head("POST", SAVE, [JSON, "Content-Length: +2"]) + b"{}", 400),
        "no number": (head("POST", SAVE, [JSON, "Content-Length: two"]), 400),
        "huge length": (head("POST", SAVE, [JSON, f"Content-Length: {10**30}"]), 400),
        "two encodings": (head("POST", SAVE, [JSON, "Transfer-Encoding: gzip, x"]), 400),
        "bad chunk": (head("POST", SAVE, [JSON, CHUNKED]) + b"zz\r\n{}\r\n0\r\n\r\n", 400),
        "long chunk size": (head("POST", SAVE, [JSON, CHUNKED]) + b"f" * 40 + b"\r\n", 400),
        "CONNECT": (head("CONNECT", "example.org:443"), 400),
        "TRACE": (head("TRACE", "/v1"), 405),
        "OPTIONS *": (head("OPTIONS", "*"), 404),
        "too long an address": (head("GET", "/v1/sessions?prefix=" + "x" * 62_000), 414),
        "longer than is parsed": (head("GET", "/v1/sessions?prefix=" + "x" * 70_000), 400),
        "too large a header": (head("GET", "/v1", ["X: " + "x" * 40_000]), 431),
        "too many headers": (head("GET", "/v1", [f"X-{n}: x" for n in range(5000)]), 431),
        "many small headers": (head("GET", "/v1", ["a:"] * 30_000), 431),
        "an endless head": (b"GET /v1 HTTP/1.1\r\nX: " + b"x" * 300_000, 431),
        "an endless address": (b"GET /v1?" + b"x" * 300_000, 431),
    }.values(),
)
def test_what_is_no_request(server: Server, request_: bytes, status: int) -> None:
    assert server.statuses(request_)[0] == status


@for_each(
    "target",
    [
        "/v1/../v1/sessions",
        "/v1/./sessions",
        "/v1%2fsessions",
        "/v1%2Fsessions",
        "//v1/sessions",
        "/v1//sessions",
        "/v1/sessions/",
        "/V1/sessions",
        "/v1/sessions;x=1",
        "/v1/sessions%00",
        "/v1/sessions%0a",
        "/%76%31/sessions",
        "/v1/scope/../../etc/passwd",
        "/..%2f..%2fetc/passwd",
        "/",
        "/docs",
        "/favicon.ico",
    ],
)
def test_tricks_with_the_path(server: Server, target: str) -> None:
    assert server.statuses(head("GET", target)) == [404]


def test_a_write_that_compares_nothing_takes_no_condition(server: Server) -> None:
    answer = server.ask("DELETE", "/v1/sessions?session_id=bad", if_match='"1.0.0"')
    assert answer.status == 400


@for_each(
    "name", ["sessions?", "scopes?", "history?", "refs?id_prefix=x&", "scope/ancestors?id=i&"]
)
def test_a_limit_of_zero_lists_nothing(server: Server, name: str) -> None:
    session = "&session_id=z" if name.startswith("scope/") else ""
    answer = server.ask("GET", f"/v1/{name}limit=0{session}")
    assert (answer.status, answer.json["items"]) == (200, [])


def test_an_absolute_address_is_that_of_its_path(server: Server) -> None:
    assert server.statuses(head("GET", "http://localhost/v1/sessions")) == [200]
    assert server.statuses(head("GET", "http://evil.example/v1/sessions")) == [200]
    assert server.statuses(head("GET", "http://localhost/v1", host="evil.example")) == [403]


@for_each("operation", OPERATIONS)
def test_other_methods(server: Server, operation: Operation) -> None:
    known = {each.method for each in OPERATIONS if each.path == operation.path}
    for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} - known:
        answer = server.ask(method, operation.path)
        assert answer.status == 405
        assert answer.headers["allow"] == ", ".join(sorted(known))


@for_each(
    ("target", "status"),
    [
        ("/v1/sessions?nothing=1", 400),
        ("/v1/sessions?limit=x", 400),
        ("/v1/sessions?limit=-1", 400),
        ("/v1/sessions?limit=99999999999999999999", 400),
        ("/v1/sessions?limit=1&limit=2", 400),
        ("/v1/sessions?prefix=%ff", 400),
        ("/v1/sessions?prefix=%ed%a0%80", 400),
        ("/v1/sessions?prefix=%00", 400),
        ("/v1/sessions?prefix=" + "x" * 513, 400),
        ("/v1/scope/info", 400),
        ("/v1/scope/info?session_id=", 400),
        ("/v1/scope/info?session_id=a&kind=NO", 400),
        ("/v1/scope/info?session_id=a&kind=agent%0a", 400),
        ("/v1/scope/history?session_id=a&after=x", 400),
        ("/v1/scope/history?session_id=a&labels=x", 400),
        ("/v1/scope/history?session_id=a&labels=[1]", 400),
        ("/v1/scope/history?session_id=a&leaves=maybe", 400),
        ("/v1/scopes?after=x", 400),
        ("/v1/scope/notes?session_id=a&after=x", 400),
        ("/v1/watch?session_id=a&id=b", 400),
        ("/v1/scope/info?session_id=nothing", 404),
        ("/v1/scope/diff?session_id=nothing&a=1&b=2", 404),
    ],
)
def test_parameters(server: Server, target: str, status: int) -> None:
    answer = server.ask("GET", target)
    assert answer.status == status, answer.body
    assert answer.headers["content-type"] == "application/problem+json"


@for_each(
    "body",
    [
        b"",
        b"{",
        b"\xff",
        b"nul",
        b"NaN",
        b'{"state": 1',
        b'{"state": 1} x',
        b'{"state": 1, "nothing": 2}',
        b'{"state": 1, "id": 5}',
        b'{"state": 1, "id": ""}',
        b'{"state": 1, "keep": 1}',
        b'{"state": 1, "created_at": "yesterday"}',
        b'{"state": 1, "forked_from": {}}',
        b'{"state": 1, "copy": true}',
        b'{"state": NaN}',
        b'{"state": "\\ud800"}',
        b'{"state": {"\\ud800": 123456789012345678901234567890}}',
        b'{"\\ud800": 123456789012345678901234567890}',
        b'{"state": 1, "id": "\\ud800", "x": 123456789012345678901234567890}',
        b'{"state": ' + b"[" * 300 + b"]" * 300 + b"}",
        b'{"state": ' + b"[" * 100_000,
        b'{"state": ' + b'{"a":' * 100_000,
        b'{"state": ' + b"9" * 5000 + b"}",
        b'{"state": 1, "labels": {"a": 1}}',
        b'{"state": 1, "metadata": []}',
        b"[]",
        b'"text"',
        b'{"state": "' + b"x" * (STATE_BYTES_MAX + 1) + b'"}',
    ],
)
def test_bodies(server: Server, body: bytes) -> None:
    answer = server.ask("POST", SAVE, body)
    assert answer.status in (400, 404), answer.body
    assert answer.json["title"] in ("InvalidInput", "NotFound")


@for_each(
    ("headers", "status"),
    [
        ({"content-type": "text/plain"}, 415),
        ({"content-type": ""}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({"content-encoding": "br"}, 415),
        ({"content-encoding": "gzip, gzip"}, 415),
        ({"content-encoding": "gzip"}, 413),  # the end of it would be its size
        ({"content-encoding": "zstd"}, 400),
        ({"if-match": "5"}, 400),
        ({"if-match": '"1", "2"'}, 400),
        ({"if-none-match": '"1"'}, 400),
        ({"if-match": '"1.0.0"', "if-none-match": "*"}, 400),
        ({"if-match": '"1.0.0"'}, 412),
        ({"limpet-stamp": "now"}, 400),
        ({"idempotency-key": "x" * 256}, 400),
        ({"limpet-lease": "nobody-holds-it"}, 409),
        ({"content-type": "application/json; charset=utf-8"}, 200),
    ],
)
def test_headers(server: Server, headers: dict[str, str], status: int) -> None:
    answer = server.ask("POST", SAVE, b'{"state": 1}', **headers)
    assert answer.status == status, answer.body


def test_a_body_that_is_too_large_is_not_read(server: Server) -> None:
    answer = server.raw(head("POST", SAVE, [JSON, f"Content-Length: {2**40}"]))
    assert answer.startswith(b"HTTP/1.1 413 ")
    over = server.ask("POST", SAVE, b" " * (BODY_BYTES_MAX + 1))
    assert over.status == 413


def test_a_body_in_chunks_that_never_ends(server: Server) -> None:
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    with server.connect() as connection:
        connection.sendall(head("POST", SAVE, [JSON, CHUNKED]))
        try:
            for _ in range(2 * BODY_BYTES_MAX // 0x10000):
                connection.sendall(chunk)
        except OSError:
            pass
        assert connection.recv(2**16).startswith(b"HTTP/1.1 413 ")


@for_each("said", [0, 10, 10**6, 2**32 - 1])
@for_each("encoding", ["gzip", "zstd"])
def test_compressed_bombs(server: Server, encoding: str, said: int) -> None:
    """Neither 20 MB of nothing, nor a header that lies about it, is unpacked."""
    before = server.rss_bytes
    bomb = gzip.compress(b" " * 20_000_000, 1)
    bomb = bomb[:-4] + said.to_bytes(4, "little")
    if encoding == "zstd":
        context = zstandard.ZstdCompressor(write_content_size=said > 10)
        bomb = context.compress(b" " * 20_000_000)
    for _ in range(2):
        answer = server.ask("POST", SAVE, bomb, content_encoding=encoding)
        assert answer.status in (400, 413)
    assert server.rss_bytes - before < 8 * BODY_BYTES_MAX


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_compressed_bodies(server: Server, encoding: str) -> None:
    pack = gzip.compress if encoding == "gzip" else zstandard.compress
    good = pack(json.dumps({"state": {"text": "x" * 100_000}}).encode())
    assert server.ask("POST", SAVE, good, content_encoding=encoding).status == 200
    for bad in (good[:-5], good[:20], good + good, good + b"x", good[10:], b""):
        assert server.ask("POST", SAVE, bad, content_encoding=encoding).status in (400, 413)
    streamed = zstandard.ZstdCompressor(write_content_size=False).compress(b'{"state": 1}')
    assert server.ask("POST", SAVE, streamed, content_encoding="zstd").status == 200


def test_a_body_that_ends_too_early(server: Server) -> None:
    sized, chunked = head("POST", SAVE, [JSON, "Content-Length: 9"]), head("POST", SAVE, [CHUNKED])
    for request in (sized + b'{"state"', chunked + b"5\r\n{}", b"GET /v1 HT", b"\r\n", b""):
        assert server.raw(request, leave=True).count(b"HTTP/1.1 2") == 0


def test_what_follows_a_request_does_not_harm_it(server: Server) -> None:
    """The save is answered, also if garbage or another request comes with it."""
    save = body_of(b'{"state": {"pipelined": true}}', stay=True)
    assert server.statuses(save + b"\0garbage\r\n\r\n") == [200, 400]
    assert server.statuses(save + save + head("GET", "/v1")) == [200, 200, 200]
    chunked = head("POST", SAVE, [JSON, CHUNKED], stay=True) + b'b\r\n{"state":1}\r\n0\r\n\r\n'
    assert server.statuses(chunked + save) == [200]  # it is closed behind chunks
    assert server.statuses(head("GET", "/v1") + save) == [200]
    upgrade = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"]
    assert server.statuses(head("GET", "/v1", upgrade)) == [200]
    assert server.statuses(head("GET", "/v1", ["Connection: Upgrade", "Upgrade: h2c"])) == [200]


def test_an_unwanted_body_is_read_to_its_end_so_that_the_answer_arrives(server: Server) -> None:
    body = b"x" * 2_000_000
    target = "/v1/nothing-here"
    with server.connect() as connection:
        connection.sendall(head("POST", target, [f"Content-Length: {len(body)}"], stay=True) + body)
        assert _answer(connection).startswith(b"HTTP/1.1 404 ")
        connection.sendall(head("GET", "/v1"))
        assert _answer(connection).startswith(b"HTTP/1.1 200 ")


def _answer(connection: socket.socket) -> bytes:
    """Return a whole answer, whose body is an object."""
    found = b""
    while not found.endswith(b"}"):
        part = connection.recv(2**16)
        assert part, found
        found += part
    return found


def test_100_continue(server: Server) -> None:
    with server.connect() as connection:
        connection.sendall(head("POST", SAVE, [JSON, "Content-Length: 12", "Expect: 100-continue"]))
        assert connection.recv(1000).startswith(b"HTTP/1.1 100 ")
        connection.sendall(b'{"state": 1}')
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 ")


def test_head_has_no_body(server: Server) -> None:
    for target in ("/v1", "/v1/sessions", "/v1/watch", "/healthz", "/metrics", "/openapi.json"):
        answer = server.raw(head("HEAD", target))
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.endswith(b"\r\n\r\n")
        assert answer.count(b"\r\n\r\n") == 1


def test_random_bytes(server: Server) -> None:
    """Requests with a few bytes changed: each is answered, or its connection is closed."""
    chance = random.Random(27)
    good = body_of(b'{"state": {"a": [1, 2, 3]}, "labels": {"x": "y"}}')
    for _ in range(150):
        changed = bytearray(good)
        for _ in range(chance.randint(1, 6)):
            at = chance.randrange(len(changed))
            changed[at : at + chance.randint(0, 3)] = chance.randbytes(chance.randint(0, 4))
        assert b"HTTP/1.1 5" not in server.raw(bytes(changed), leave=True)


def test_clients_that_hang_up(server: Server) -> None:
    """In the head, in the body, before the answer, in a stream."""

    def leave(data: bytes) -> None:
        with server.connect() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            connection.sendall(data)

    requests = [
        b"GET /v1 HTTP/1.1\r\nHo",
        head("POST", SAVE, [JSON, "Content-Length: 100"]) + b'{"st',
        body_of(b'{"state": 1}'),
        head("GET", "/v1/watch"),
        head("GET", "/v1/history", ["Accept: application/jsonl"]),
    ]
    threads = [threading.Thread(target=leave, args=(each,)) for each in requests * 10]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


def test_a_client_that_leaves_with_requests_in_the_queue(server: Server) -> None:
    large = body_of(b'{"state": "' + b"x" * 900_000 + b'"}', target=f"{SAVE}-large")
    assert server.statuses(large) == [200]
    for _ in range(5):
        with server.connect() as connection:
            target = "/v1/scope/snapshot?session_id=bad-large"
            connection.sendall(head("GET", target, stay=True) * 9)
            connection.recv(100)
    until(lambda: b"limpet_http_connections 1\n" in server.ask("GET", "/metrics").body)
    assert "Traceback" not in server.log, server.log[-3000:]


def test_a_page_of_another_site(server: Server) -> None:
    """Neither by its origin nor by a name of its own does a page reach a server on loopback."""
    compact = ["Content-Length: 0"]
    assert server.statuses(head("POST", "/v1/compact", compact)) == [200]
    origins = ("https://evil.example", "null", "http://localhost.evil.example", "file://")
    for origin in (*origins, "https://localhost"):
        foreign = [*compact, f"Origin: {origin}"]
        assert server.statuses(head("POST", "/v1/compact", foreign)) == [403]
        assert server.statuses(head("GET", "/v1/sessions", [f"Origin: {origin}"])) == [403]
    for host in ("evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "", "[::2]"):
        assert server.statuses(head("GET", "/v1/sessions", host=host)) == [403]
    for host in ("localhost", "LOCALHOST:1", "127.0.0.1", "127.9.9.9:80", "[::1]:7", "localhost."):
        assert server.statuses(head("GET", "/v1/sessions", host=host)) == [200]
    own = [*compact, "Origin: http://localhost:7420"]
    assert server.statuses(head("POST", "/v1/compact", own, host="localhost:7420")) == [200]
