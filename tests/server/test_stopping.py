"""A server that stops finishes what it accepted, and ends what has no end."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import pytest

import limpet
from limpet.protocol import OWN_SESSION
from limpet.retention import Policy, Rule
from tests.server.process import Server, head, read_all
from tests.waiting import until

JSON = "Content-Type: application/json"
each_signal = pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)


@each_signal
def test_what_was_accepted_is_answered(tmp_path: Path, number: int) -> None:
    """A save whose body is still arriving, a stream, an idle connection, and half a head."""
    with Server(tmp_path) as server, ExitStack() as stack:
        idle = HTTPConnection("127.0.0.1", server.port, timeout=300)
        idle.request("GET", "/v1")
        idle.getresponse().read()
        watch, save, half = (stack.enter_context(server.connect()) for _ in range(3))
        watch.sendall(head("GET", "/v1/watch?session_id=s"))
        until(lambda: b": watching" in watch.recv(2**16))
        body = b'{"state": {"saved": "on the way"}}'
        target = "/v1/scope/save?session_id=s"
        save.sendall(head("POST", target, [JSON, f"Content-Length: {len(body)}"], stay=True))
        save.sendall(body[:10])
        half.sendall(b"GET /v1 HTTP/1.1\r\nHost: loc")
        until(lambda: b"in_flight 2" in server.ask("GET", "/metrics").body)  # it and /metrics
        os.kill(server.pid, number)
        assert b"event: end" not in read_all(watch)
        assert read_all(half) == b""
        assert idle.sock.recv(10) == b""
        idle.close()
        with pytest.raises(OSError):  # noqa: PT011  (nobody listens)
            server.connect()
        save.sendall(body[10:])
        answer = read_all(save)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"connection: close" in answer
        assert server.wait() == 0
        assert "Traceback" not in server.log
    with limpet.open(f"sqlite:///{tmp_path / 'served.db'}") as store:
        assert store.scope("s").load().state == {"saved": "on the way"}  # type: ignore[union-attr]


@pytest.mark.slow
def test_no_save_that_was_answered_is_lost(tmp_path: Path) -> None:
    """Clients save all the time while it stops: each answer of 200 is in the store."""
    saved: list[str] = []
    lock = threading.Lock()

    def saving(name: str) -> None:
        for count in range(10_000):
            try:
                target = f"/v1/scope/save?session_id={name}"
                answer = server.ask("POST", target, {"state": count, "id": f"{name}-{count}"})
            except (OSError, HTTPException):
                return
            if answer.status == 200:
                with lock:
                    saved.append(f"{name}-{count}")

    with Server(tmp_path) as server, ThreadPoolExecutor(4) as pool:
        for name in "abcd":
            pool.submit(saving, name)
        until(lambda: len(saved) > 20)
        os.kill(server.pid, signal.SIGTERM)
        assert server.wait() == 0
    with limpet.open(f"sqlite:///{tmp_path / 'served.db'}") as store:
        found = {info.id for info in store.history()}
    assert set(saved) <= found
    assert "Traceback" not in server.log


@pytest.mark.slow
def test_the_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with Server(tmp_path) as server, server.connect() as save:
        save.sendall(head("POST", "/v1/scope/save?session_id=s", [JSON, "Content-Length: 99"]))
        until(lambda: b"in_flight 2" in server.ask("GET", "/metrics").body)
        os.kill(server.pid, signal.SIGTERM)
        until(lambda: not listens(server))
        os.kill(server.pid, signal.SIGTERM)
        assert server.wait() == 128 + signal.SIGTERM


def listens(server: Server) -> bool:
    try:
        server.connect().close()
    except OSError:
        return False
    return True


def test_a_server_prunes_by_the_policy(tmp_path: Path) -> None:
    """At once, and it goes on: also after it found something that it cannot read."""
    with limpet.open(f"sqlite:///{tmp_path / 'served.db'}") as store:
        Policy(store).set(Rule(prefix="old/", delete_session_after=timedelta(0)))
        for name in ("new", "old/1", "old/2"):
            store.scope(name).save({"a": 1})
        with Server(tmp_path, "--policy-every", "1s") as server:
            until(lambda: list(store.sessions()) == ["new"])
            (place,) = store.scopes(OWN_SESSION)
            store.scope(*place.key).set_note("* z", "malformed")
            until(lambda: "could not be pruned" in server.log)
            store.scope("old/3").save({})
            store.scope(*place.key).delete_note("* z")
            until(lambda: list(store.sessions()) == ["new"])
            os.kill(server.pid, signal.SIGTERM)
            assert server.wait() == 0
            assert "pruned by the policy: Swept(sessions=2, snapshots=2" in server.log
