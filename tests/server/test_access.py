"""Tokens, hosts, origins and TLS."""

import logging
import os
import signal
import ssl
from http.client import HTTPSConnection
from pathlib import Path

import pytest

from limpet.errors import InvalidInput
from limpet.server.access import Access, Grant, Tokens, is_loopback
from tests.cases import for_each
from tests.cli.conftest import Command, command  # noqa: F401  (a fixture)
from tests.server import asgi
from tests.server.asgi import Response
from tests.server.process import Server
from tests.servers.tls import certificate
from tests.waiting import until

A, B, C = "a-token-0123456789", "b-token-0123456789", "c-token-0123456789"


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def test_the_lines_of_tokens() -> None:
    tokens = Tokens(None, f"# comment\n\n{A}\n  {B} read\n{C}\twrite  alice/ \n")
    assert tokens.grant(A) == Grant(write=True, prefix="")
    assert tokens.grant(B) == Grant(write=False, prefix="")
    assert tokens.grant(C) == Grant(write=True, prefix="alice/")
    for wrong in ("", "a-token", A + "x", A.upper(), f"{A} read", "é" * 20):
        assert tokens.grant(wrong) is None


@for_each(
    "text",
    [
        "",
        "# only a comment",
        "too-short-token",
        f"{A} admin",
        f"{A} alice/",
        f"{A}\n{A} read",
        "tökens-must-be-ascii",
        "x" * 513,
        f"{A} read " + "x" * 513,
        f"{A} # mine",
    ],
)
def test_lines_that_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Tokens(None, text)
    assert A not in str(refused.value)


def test_a_file_that_changes_is_read_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"{A}\n")
    tokens = Tokens(file)
    assert not tokens.refresh()
    file.write_text(f"{A}\n{B} read\n")
    assert tokens.refresh()
    assert tokens.grant(B) == Grant(write=False)
    # What cannot be used changes nothing, and is reported.
    for broken in ("short\n", "", "\xff"):
        file.write_bytes(broken.encode("latin-1"))
        assert not tokens.refresh()
        assert tokens.grant(A) == Grant()
    file.unlink()
    assert not tokens.refresh()
    assert caplog.text.count("the tokens were not read again") == 4
    file.write_text(f"{B}\n")
    assert tokens.refresh()
    assert tokens.grant(A) is None
    assert B not in caplog.text


def test_a_file_that_others_can_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "tokens"
    file.write_text(A)
    file.chmod(0o600)
    Tokens(file)
    assert caplog.text == ""
    file.chmod(0o644)
    Tokens(file)
    assert "chmod 600" in caplog.text


@for_each(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.0.1", False),
        ("example.org", False),
        ("127.0.0.1.example.org", False),
        ("", False),
    ],
)
def test_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def answers(access: Access, *requests: tuple[str, str, dict[str, str]]) -> list[Response]:
    return asgi.answers(access, *((method, path, None, more) for method, path, more in requests))


def test_hosts_are_checked_without_tokens_or_if_some_are_given() -> None:
    def statuses(access: Access) -> list[int]:
        hosts = ("localhost", "evil.example", "Store.Example.org:443", "")
        return [
            each.status
            for each in answers(
                access, *(("GET", "/v1", {"host": host, **bearer(A)}) for host in hosts)
            )
        ]

    assert statuses(Access()) == [200, 403, 403, 403]
    assert statuses(Access(hosts=["store.example.org"])) == [200, 403, 200, 403]
    assert statuses(Access(Tokens(None, A))) == [200, 200, 200, 200]
    assert statuses(Access(Tokens(None, A), hosts=["store.example.org"])) == [200, 403, 200, 403]


def test_health_needs_nothing() -> None:
    foreign = {"host": "10.0.0.7:8080"}
    access = Access(Tokens(None, A), hosts=["store.example.org"])
    found = answers(access, ("GET", "/healthz", foreign), ("GET", "/readyz", foreign))
    assert [each.status for each in found] == [200, 200]
    assert answers(access, ("POST", "/healthz", foreign))[0].status == 405


def test_pages_of_an_allowed_origin() -> None:
    site = "https://app.example.org"
    access = Access(Tokens(None, A), origins=[site])
    asks = {"origin": site, "access-control-request-method": "POST"}
    preflight, refused, unknown, got, missing = answers(
        access,
        ("OPTIONS", "/v1/scope/save", asks),
        ("OPTIONS", "/v1/scope/save", {**asks, "origin": "https://evil.example"}),
        ("GET", "/v1", {"origin": site}),
        ("GET", "/v1", {"origin": site, **bearer(A)}),
        ("GET", "/v1/scope/info", {"origin": site, **bearer(A)}),
    )
    assert preflight.status == 204
    assert preflight.headers["access-control-allow-origin"] == site
    assert "PUT" in preflight.headers["access-control-allow-methods"]
    assert "if-match" in preflight.headers["access-control-allow-headers"]
    assert refused.status == 403
    assert "access-control-allow-origin" not in refused.headers
    # The page may read errors too.
    assert [unknown.status, got.status, missing.status] == [401, 200, 400]
    for each in (unknown, got, missing):
        assert each.headers["access-control-allow-origin"] == site
        assert "origin" in each.headers["vary"]


def test_an_origin_is_its_scheme_too() -> None:
    """A page without TLS may be of anybody on the way, and the two may be different servers."""

    def statuses(**headers: str) -> list[int]:
        origins = ("http://localhost:7420", "https://localhost:7420")
        asked = (("GET", "/v1", {"origin": origin, **headers}) for origin in origins)
        return [each.status for each in answers(Access(), *asked)]

    assert statuses() == [200, 403]
    # A proxy has ended the TLS; web pages cannot send this header.
    assert statuses(x_forwarded_proto="https") == [403, 200]
    assert statuses(x_forwarded_proto="https, http") == [403, 200]
    assert statuses(x_forwarded_proto="http") == [200, 403]


@for_each("origin", ["*", "example.org", "https://a.example/path", "ftp://a", ""])
def test_origins_that_are_refused(origin: str) -> None:
    with pytest.raises(InvalidInput):
        Access(origins=[origin])


@for_each("host", ["0.0.0.0", "::", "192.168.1.1", "example.org"])
def test_other_machines_need_a_token(command: Command, host: str) -> None:  # noqa: F811
    done = command("serve", "memory:", "--host", host)
    assert done.returncode == 2
    assert "--token-file" in done.stderr


def test_what_serve_refuses(command: Command, tmp_path: Path) -> None:  # noqa: F811
    short, broken = tmp_path / "short", tmp_path / "broken.pem"
    short.write_text("too-short\n")
    broken.write_text("no certificate")
    for arguments, code in (
        (["--token-file", str(tmp_path / "nothing")], 4),
        (["--tls-cert", "nothing", "--tls-key", "nothing"], 2),
        (["--token-file", str(short)], 2),
        (["--tls-cert", str(broken)], 2),
        (["--tls-cert", str(broken), "--tls-key", str(broken)], 2),
        (["--allow-origin", "*"], 2),
        (["--host", "no.such.host.invalid", "--token-file", str(short)], 2),
    ):
        done = command("serve", "memory:", *arguments)
        assert done.returncode == code, arguments
        assert done.stderr.count("limpet: ") == 1
        assert "Traceback" not in done.stderr
    assert command("serve", "memory:", LIMPET_TOKENS="short").returncode == 2


def test_a_server_with_tls_and_tokens(tmp_path: Path) -> None:
    """Tokens are rotated, and the certificate is replaced, while it runs."""
    cert, key = certificate(tmp_path)
    file = tmp_path / "tokens"
    file.write_text(f"{A}\n")
    file.chmod(0o600)

    def status(port: int, token: str) -> int:
        context = ssl.create_default_context(cafile=str(cert))
        connection = HTTPSConnection("localhost", port, context=context, timeout=300)
        try:
            connection.request("GET", "/v1", headers=bearer(token))
            return connection.getresponse().status
        except ssl.SSLCertVerificationError:
            return 0
        finally:
            connection.close()

    arguments = ["--token-file", str(file), "--tls-cert", str(cert), "--tls-key", str(key)]
    with Server(tmp_path, *arguments) as server:
        assert status(server.port, A) == 200
        assert status(server.port, B) == 401
        # A stream that was opened with a token ends when the token goes.
        context = ssl.create_default_context(cafile=str(cert))
        watching = HTTPSConnection("localhost", server.port, context=context, timeout=300)
        watching.request("GET", "/v1/watch", headers=bearer(A))
        stream = watching.getresponse()
        file.write_text(f"{B}\n")
        until(lambda: status(server.port, B) == 200)
        assert status(server.port, A) == 401
        assert b"event: end" not in stream.read()
        watching.close()
        certificate(tmp_path)
        assert status(server.port, B) == 0  # the old certificate is not trusted any more
        os.kill(server.pid, signal.SIGHUP)
        until(lambda: status(server.port, B) == 200)
        server.stop(signal.SIGTERM)
        assert A not in server.log
        assert B not in server.log
        assert "Traceback" not in server.log


def test_the_time_of_a_comparison_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """All tokens are compared, by a function that takes the same time for all."""
    import hmac

    compared = []
    real = hmac.compare_digest

    def noted(a: bytes, b: bytes) -> bool:
        compared.append(len(a))
        return real(a, b)

    monkeypatch.setattr(hmac, "compare_digest", noted)
    tokens = Tokens(None, f"{A}\n{B}\n{C}")
    for token in (A, C, "nothing"):
        compared.clear()
        tokens.grant(token)
        assert compared == [32, 32, 32]


def test_a_refused_token_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = "wrong-token-0123456789"
    found = answers(Access(Tokens(None, A)), ("GET", "/v1", bearer(wrong)))
    assert found[0].status == 401
    assert wrong not in found[0].body.decode() + caplog.text
