"""Opening a URL of HTTP: addresses, tokens, TLS, and what is answered by something else."""

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet import InvalidInput, Unavailable, Unsupported
from limpet.cli._app import run
from limpet.server.app import Receive, Scope, Send
from tests.cases import for_each
from tests.servers.http import Http, start_http
from tests.servers.tls import certificate

ABOUT = {"server": "limpet", "version": "1", "capabilities": []}


@pytest.fixture
def served(http: Http, tmp_path: Path) -> Iterator[str]:
    url = http.mount(f"sqlite:///{tmp_path / 'limpet.db'}")
    yield url
    http.unmount(url)


class Answering:
    """Answers every request in the same way, and remembers the headers."""

    def __init__(self, status: int, body: Any, kind: str = "application/json", **more: str) -> None:
        self._status = status
        self._body = body if isinstance(body, bytes) else json.dumps(body).encode()
        more = {"content-type": kind, **more}
        self._headers = [(name.encode(), value.encode()) for name, value in more.items()]
        self.requests: list[dict[str, str]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.requests.append({name.decode(): text.decode() for name, text in scope["headers"]})
        start = {"type": "http.response.start", "status": self._status, "headers": self._headers}
        await send(start)
        await send({"type": "http.response.body", "body": self._body})


def test_the_url_of_a_server_is_a_store_like_any_other(served: str) -> None:
    with limpet.open(served) as store:
        store.scope("chat-42").save({"n": 1})
        assert f"Store('{served}')" == repr(store)
    with limpet.open(f"{served}/?timeout_s=50", connections=2, retry_s=10) as store:
        assert store.scope("chat-42").load().state == {"n": 1}  # type: ignore[union-attr]


@for_each(
    ("url", "message"),
    [
        ("http:localhost", "write http://host:7420"),
        ("https://", "write https://host:7420"),
        ("http://host:port", "write http://host:7420"),
        ("http://me:secret@host", "does not hold a password: give token="),
        ("http://host?token=a%20b", "no spaces"),
        ("http://host?token=a&token_file=b", "not both"),
        ("http://host?token_file=/nonexistent/token", "cannot be read"),
        ("http://host?retries=3", "did you mean `retry_s`"),
    ],
)
def test_a_mistake_in_the_url_is_explained(url: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        limpet.open(url)
    assert message in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_server_that_does_not_answer_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(Unavailable, match=f"url=`http://127.0.0.1:{port}`"):
        limpet.open(f"http://127.0.0.1:{port}")


PROBLEM = "application/problem+json"
REFUSED = {"title": "Unauthorized", "detail": "no"}


@for_each(
    ("answer", "error", "message"),
    [
        (Answering(200, b"<html>", "text/html"), InvalidInput, "not that of a limpet server"),
        (Answering(200, {"hello": 1}), InvalidInput, "not a limpet server"),
        (Answering(200, [1]), InvalidInput, "not a limpet server"),
        (Answering(404, b"", "text/plain"), InvalidInput, "not that of a limpet server"),
        (Answering(301, b"", location="https://x"), InvalidInput, "location=`https://x`"),
        (Answering(401, REFUSED, PROBLEM), InvalidInput, "token_file= or $LIMPET_TOKEN"),
        (Answering(403, {"title": "Forbidden", "detail": "b"}, PROBLEM), Unsupported, "b"),
        (Answering(502, b"", "text/plain"), Unavailable, "status 502"),
        (Answering(503, {"title": "Unavailable", "detail": "full"}, PROBLEM), Unavailable, "full"),
        (Answering(500, {"title": "LimpetError", "detail": "bug"}, PROBLEM), Unavailable, "bug"),
        (Answering(500, b"", "text/plain"), InvalidInput, "not that of a limpet server"),
    ],
)
def test_what_is_no_server_of_ours_is_recognised(
    http: Http, answer: Answering, error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        limpet.open(http.mount_app(answer))
    assert type(caught.value) is error
    assert message in str(caught.value)


def test_the_token_is_given_in_the_environment_in_a_file_or_by_name(
    http: Http, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = Answering(200, ABOUT)
    url = http.mount_app(answer)
    file = tmp_path / "token"
    file.write_text("from-file\n")
    monkeypatch.delenv("LIMPET_TOKEN", raising=False)
    limpet.open(url).close()
    monkeypatch.setenv("LIMPET_TOKEN", "from-environment")
    limpet.open(url).close()
    limpet.open(url, token_file=str(file)).close()
    with limpet.open(f"{url}?token=from-url") as store:
        assert "from-url" not in repr(store)
    found = [each.get("authorization") for each in answer.requests]
    expected = ["from-environment", "from-file", "from-url"]
    assert found == [None, *(f"Bearer {each}" for each in expected)]


def test_a_certificate_is_verified(tmp_path: Path) -> None:
    pem, key = map(str, certificate(tmp_path))
    with start_http(ssl_certfile=pem, ssl_keyfile=key) as http:
        url = http.mount(f"sqlite:///{tmp_path / 'limpet.db'}")
        secure = url.replace("http:", "https:")
        with pytest.raises(InvalidInput, match="self-signed certificate; ca_file="):
            limpet.open(secure)
        with limpet.open(secure, ca_file=pem) as store:
            scope = store.scope("s")
            first = scope.save({"n": 1})
            watch = scope.watch(timeout_s=100)
            assert next(watch) == first
            second = scope.save({"n": 2})
            assert next(watch) == second
            watch.close()  # type: ignore[attr-defined]
        with pytest.raises(Unavailable):
            limpet.open(url)
        http.unmount(url)


def test_the_command_line_reads_and_writes_over_http(
    served: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with limpet.open(served) as store:
        store.scope("chat-42").save({"city": "Lisbon"}, id="first")
    commands: list[Callable[[], int]] = [
        lambda: run(["ls", "--url", served]),
        lambda: run(["show", "chat-42", "--url", served]),
        lambda: run(["grep", "Lisbon", "--url", served]),
        lambda: run(["stats", "--url", served]),
        lambda: run(["check", "--url", served]),
        lambda: run(["doctor", "--url", served]),
    ]
    assert [command() for command in commands] == [0] * len(commands)
    printed = capsys.readouterr().out
    assert "Lisbon" in printed
    assert "compare-and-set works" in printed
