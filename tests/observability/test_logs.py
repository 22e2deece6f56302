"""What is logged: slow operations, and what goes wrong in the background."""

import logging
import re
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet import Conflict, Unavailable
from limpet.opening import CLOCK
from limpet.protocol import Claim, Hold
from tests.servers.http import Http
from tests.servers.pg_proxy import PgProxy
from tests.servers.postgres import Schemas
from tests.servers.proxy import Proxy
from tests.servers.stub import Stub
from tests.waiting import until


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/a.db"


class Recorder(logging.Handler):
    """Unlike `caplog.records`, the list stays the same from one phase of a test to the next."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[list[logging.LogRecord]]:
    """What the logger `limpet` has recorded so far."""
    handler = Recorder()
    logging.getLogger("limpet").addHandler(handler)
    with caplog.at_level(logging.INFO, "limpet"):
        yield handler.records
    logging.getLogger("limpet").removeHandler(handler)


def facts(record: logging.LogRecord, *names: str) -> dict[str, Any]:
    return {name: record.__dict__[name] for name in names}


def test_a_slow_operation(url: str, tmp_path: Path, log: list[logging.LogRecord]) -> None:
    """Another program holds the file for a while; what is quick is not logged."""
    with limpet.open(url, slow_s=1.5) as store, closing(_connect(tmp_path)) as other:
        store.scope("s").save({"n": 1})
        other.execute("BEGIN IMMEDIATE")
        ended = threading.Timer(1.6, lambda: other.execute("ROLLBACK"))
        ended.start()
        store.scope("s").save({"n": 2})
        store.scope("s").load()
    (record,) = log
    assert (record.name, record.levelname) == ("limpet", "WARNING")
    seconds = record.__dict__["seconds"]
    assert 1.5 < seconds < 300
    assert record.getMessage() == (
        f"slow operation. operation=`commit` seconds=`{seconds}` engine=`sqlite`"
    )
    expected = {"operation": "commit", "engine": "sqlite"}
    assert facts(record, "operation", "engine") == expected


def _connect(folder: Path) -> sqlite3.Connection:
    return sqlite3.connect(folder / "a.db", isolation_level=None, check_same_thread=False)


def test_a_slow_operation_that_fails(url: str, log: list[logging.LogRecord]) -> None:
    with limpet.open(f"{url}?slow_s=0") as store:
        first = store.scope("s").save({"n": 1})
        store.scope("s").save({"n": 2})
        with pytest.raises(Conflict):
            store.scope("s").save({"n": 3}, expect=first.revision)
    assert [each.__dict__.get("error") for each in log] == [None, None, "Conflict"]
    assert log[-1].getMessage().endswith("engine=`sqlite` error=`Conflict`")


def test_a_slow_operation_is_seen_without_any_setting(url: str) -> None:
    """Who asks for it need not know about handlers."""
    script = f"import limpet; limpet.open({url!r}, slow_s=0).scope('s').save(1)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert re.match(r"slow operation\. operation=`commit` seconds=`\d+\.", done.stderr)


def test_a_lease_that_is_lost(url: str, log: list[logging.LogRecord]) -> None:
    with limpet.open(url) as store:
        backend = store.driver.opened.backend
        with store.scope("s", "main", "graph").claim(owner="one", ttl_s=0.3) as lease:
            key = lease.key
            taken = Claim(key, lease.token, "one", 1_000_000, store.driver.tools.draw())
            backend.release(taken)
            backend.claim(taken._replace(key="other", owner="two"))
            until(lambda: log)
    (record,) = log
    message = "a lease is lost: another worker has it. kind=`graph`"
    assert (record.levelname, record.getMessage()) == ("INFO", message)


def test_a_renewal_that_fails(
    url: str, log: list[logging.LogRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(claim: Claim) -> Hold:
        raise Unavailable("no answer. scope=`secret`")

    with limpet.open(url) as store, store.scope("s").claim(owner="one", ttl_s=0.3):
        monkeypatch.setattr(store.driver.opened.backend, "renew", fail)
        until(lambda: log)
    message = "a lease is not renewed, and tried again. error=`Unavailable`"
    assert {each.getMessage() for each in log} == {message}


def test_watching_that_is_interrupted(
    url: str, log: list[logging.LogRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line when it begins and one when it has ended, whatever happens in between."""
    with limpet.open(url) as store:
        backend, calls = store.driver.opened.backend, 0
        read_revisions = backend.read_revisions

        def fail_thrice(targets: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls <= 3:
                raise Unavailable("no answer. scope=`secret`")
            return read_revisions(targets)

        monkeypatch.setattr(backend, "read_revisions", fail_thrice)
        saved = store.scope("s").save({"n": 1})
        assert next(iter(store.scope("s").watch())) == saved
        until(lambda: len(log) == 2)
    assert log[0].getMessage() == "watching is interrupted. error=`Unavailable`"
    assert log[1].getMessage() == f"watching goes on. seconds=`{log[1].__dict__['seconds']}`"


def test_a_request_to_an_object_store_that_is_repeated(log: list[logging.LogRecord]) -> None:
    with Stub(ignores=()) as stub:
        bucket = stub.service.open("p", clock=CLOCK._replace(sleep=lambda seconds: None))
        bucket.mark(["first"])
        stub.answer(503, "SlowDown", n=2)
        bucket.put("secret", b"1", expect=None)
        bucket.close()
    message = "a request is sent again. engine=`objects` reason=`busy`"
    assert [each.getMessage() for each in log] == [message] * 2


@pytest.mark.slow
def test_a_request_to_a_server_that_is_repeated(
    http: Http, url: str, log: list[logging.LogRecord]
) -> None:
    served = http.mount(url)
    host, _, path = served.removeprefix("http://").partition("/")
    port = int(host.partition(":")[2])
    with Proxy(port) as proxy, limpet.open(f"{proxy.url}/{path}") as store:
        store.scope("s").save({"n": 1})
        proxy.drop_replies(1)
        store.scope("s").save({"n": 2})
    (record,) = [each for each in log if each.name == "limpet"]
    assert record.getMessage().startswith("a request is sent again. engine=`http` reason=`")
    request, *_ = [each for each in log if each.name == "limpet.access"]
    assert facts(request, "client", "method", "path", "status") == {
        "client": "127.0.0.1",
        "method": "GET",
        "path": "/v1",
        "status": 200,
    }


@pytest.mark.slow
def test_a_request_to_postgres_that_is_repeated(
    schemas: Schemas, pg_proxy: PgProxy, log: list[logging.LogRecord]
) -> None:
    with limpet.open(schemas.url(server_url=pg_proxy.url)) as store:
        store.scope("s").save({"n": 1})
        log.clear()
        pg_proxy.drop_request()
        store.scope("s").load()
    message = "a request is sent again. engine=`postgresql` reason=`no connection`"
    assert {each.getMessage() for each in log} == {message}
