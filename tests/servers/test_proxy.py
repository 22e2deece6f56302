"""The proxy itself: what it does to requests, and that it understands where they end."""

import http.client
from collections.abc import Iterator

import pytest

from tests.servers.proxy import Proxy
from tests.servers.stub import Stub


@pytest.fixture
def stub() -> Iterator[Stub]:
    with Stub() as stub:
        yield stub


@pytest.fixture
def proxy(stub: Stub) -> Iterator[Proxy]:
    with Proxy(stub.service.port) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: Proxy) -> Iterator[http.client.HTTPConnection]:
    client = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=10)
    yield client
    client.close()


def ask(client: http.client.HTTPConnection, method: str, path: str, body: bytes = b"") -> bytes:
    client.request(method, path, body)
    return client.getresponse().read()


def test_methods_are_those_of_s3(client: http.client.HTTPConnection, proxy: Proxy) -> None:
    """Many requests over one connection."""
    for number in range(3):
        ask(client, "PUT", f"/b/k/{number}", b"x" * 100_000 * number)
    assert ask(client, "GET", "/b/k/1?prefix=of-an-object") == b"x" * 100_000
    assert b"k/2" in ask(client, "GET", "/b?list-type=2&prefix=k%2F")
    many = b"<Delete><Object><Key>k/1</Key></Object><Object><Key>k/2</Key></Object></Delete>"
    ask(client, "POST", "/b?delete", many)
    assert proxy.counts() == {"PUT": 3, "GET": 1, "LIST": 1, "DELETE": 1}
    assert proxy.requests()[-1].path == "/b?delete"
    proxy.forget()
    assert proxy.counts() == {}


def test_faults_are_used_up_in_order(
    client: http.client.HTTPConnection, proxy: Proxy, stub: Stub
) -> None:
    proxy.drop_replies(method="PUT")
    proxy.drop_requests(method="PUT")
    assert ask(client, "GET", "/b/k") != b""
    for path in ("/b/executed", "/b/lost"):
        with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
            ask(client, "PUT", path, b"1")
        client.close()
    ask(client, "PUT", "/b/k", b"1")
    assert sorted(stub.objects) == ["executed", "k"]
    assert proxy.counts() == {"GET": 1, "PUT": 3}


def test_who_waits_for_a_word_gets_it(client: http.client.HTTPConnection, stub: Stub) -> None:
    client.putrequest("PUT", "/b/k")
    client.putheader("Content-Length", "5")
    client.putheader("Expect", "100-continue")
    client.endheaders(b"12345")
    assert client.getresponse().status == 200
    assert stub.objects == {"k": b"12345"}


def test_a_closed_proxy_refuses(client: http.client.HTTPConnection, proxy: Proxy) -> None:
    ask(client, "GET", "/b/k")
    proxy.close()
    client.close()
    with pytest.raises(ConnectionRefusedError):
        ask(client, "GET", "/b/k")
    proxy.close()
