"""Hearing of changes on PostgreSQL: who is told what, at what cost, and what a loss does to it."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import limpet
from limpet import Store, Unavailable
from limpet.backends.postgres import listen as listening
from limpet.backends.postgres.listen import PostgresListener
from limpet.backends.postgres.pool import channel_of
from limpet.backends.postgres.storage import PostgresStorage
from limpet.backends.support.polling import Poller
from limpet.engine import Engine, open_engine
from limpet.opening import CLOCK, draw
from tests.cases import for_each
from tests.concurrency.pg_tools import Background, run_script
from tests.concurrency.verbs import VERBS, prepare
from tests.servers.pg_proxy import PgProxy
from tests.servers.pooler import Pooler
from tests.servers.postgres import Postgres, Schemas, one
from tests.waiting import until

TOLD = "pg_notify"
LAST = "the last"
SOON_S = 300.0  # a busy machine is no failure
LISTENERS = "FROM pg_locks WHERE locktype = 'advisory' AND objid = %s"
UNTOLD = {
    *("note", "counter", "first note", "delete_note"),
    *("claim", "first claim", "claim in vain", "renew", "release"),
}


def open_backend(server_url: str, schemas: Schemas, **options: Any) -> Engine:
    return open_engine(
        PostgresStorage, server_url, clock=CLOCK, draw=draw, schema=schemas.name(), **options
    )


@pytest.fixture
def backend(postgres: Postgres, schemas: Schemas) -> Iterator[Engine]:
    backend = open_backend(postgres.url, schemas)
    yield backend
    backend.close()


@pytest.fixture
def listener(backend: Engine) -> Iterator[PostgresListener]:
    listener = backend.listen()
    assert isinstance(listener, PostgresListener)
    yield listener
    listener.close()


@pytest.fixture
def _never_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is heard was told: nobody looks by himself."""
    monkeypatch.setattr(listening, "_FIRST_POLL_S", 1000.0)
    monkeypatch.setattr(listening, "_FULL_POLL_S", 1000.0)


def wait(listener: PostgresListener | Poller) -> frozenset[str] | None:
    """Wait, and fail if that takes too long."""
    watchdog = threading.Timer(SOON_S, listener.wake)
    watchdog.start()
    try:
        return listener.wait(active=False)
    finally:
        watchdog.cancel()
        watchdog.join()


def heard(listener: PostgresListener, store: Store) -> set[str]:
    """Return all that a store has told up to now.

    It has one connection, so that what it says last is also heard last.
    """
    store.scope(LAST).save(1)
    names: set[str] = set()
    while LAST not in names:
        found = wait(listener)
        assert found, "the last was not heard"
        names |= found
    return names - {LAST}


# What is told


@pytest.mark.usefixtures("_never_looks")
@for_each("verb", sorted(VERBS.keys() - UNTOLD))
def test_a_change_is_noticed_with_its_session(
    backend: Engine, postgres_url: str, verb: str
) -> None:
    with limpet.open(postgres_url) as store:
        session = f"wö/rk {verb}"
        scope = prepare(store.scope(session), verb)
        prepare(store.scope(f"other {verb}"), verb)
        listener = backend.listen()
        assert isinstance(listener, PostgresListener)
        VERBS[verb](scope)
        assert wait(listener) == frozenset({session})
        listener.close()


@pytest.mark.usefixtures("_never_looks")
def test_only_what_is_shown_is_notified(
    listener: PostgresListener, backend: Engine, postgres_url: str
) -> None:
    """Who watches looks at snapshots: notes and leases would wake them in vain."""
    with limpet.open(postgres_url, connections=1) as store:
        for verb in sorted(UNTOLD):
            prepare(store.scope("s"), verb)
            assert heard(listener, store) <= {"s"}
            VERBS[verb](store.scope("s"))
            assert heard(listener, store) == set()
            store.scope("s").delete()


@pytest.mark.usefixtures("_never_looks")
def test_a_writer_behind_a_pooler_notifies_as_well(
    listener: PostgresListener, schemas: Schemas, pooler: Pooler
) -> None:
    with limpet.open(schemas.url(server_url=pooler.url), pooler=True) as store:
        for number in range(5):
            store.scope("s").save(number)
            assert wait(listener) == frozenset({"s"})
        store.scope("s").delete()
        assert wait(listener) == frozenset({"s"})


@pytest.mark.usefixtures("_never_looks")
def test_the_longest_names(postgres: Postgres, schemas: Schemas) -> None:
    schema = f"{schemas.prefix}_".ljust(63, "x")
    names = ["\U0001f600" * 512, "x"]
    backend = open_engine(PostgresStorage, postgres.url, clock=CLOCK, draw=draw, schema=schema)
    listener = backend.listen()
    assert isinstance(listener, PostgresListener)
    with limpet.open(postgres.url, schema=schema) as store:
        for name in names:
            store.scope(name).save(1)
            assert wait(listener) == frozenset({name})
    listener.close()
    backend.close()


@pytest.mark.usefixtures("_never_looks")
def test_what_is_too_much_to_tell_may_be_anything(
    listener: PostgresListener,
    postgres: Postgres,
    schemas: Schemas,
    postgres_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("limpet.backends.postgres.pool._PAYLOAD_BYTES_MAX", 3)
    monkeypatch.setattr(listening, "_NAMES_MAX", 3)
    with limpet.open(postgres_url) as store:
        store.scope("four").save(1)
        assert wait(listener) is None
    channel = channel_of(schemas.name()).name
    with postgres.connect() as conn:
        # In one statement, so that they come at once.
        query = "SELECT pg_notify(%s, name) FROM unnest(%s::text[]) AS name"
        conn.execute(query, (channel, [*"abcd"]))
    assert wait(listener) is None


@pytest.mark.usefixtures("_never_looks")
def test_stores_do_not_notify_each_other(
    listener: PostgresListener, schemas: Schemas, postgres_url: str
) -> None:
    url = schemas.url("another")
    with (
        limpet.open(url, connections=1) as another,
        limpet.open(postgres_url, connections=1) as store,
    ):
        their_own = another.driver.opened.backend.listen()
        assert isinstance(their_own, PostgresListener)
        another.scope("s").save(1)
        assert wait(their_own) == frozenset({"s"})
        assert heard(listener, store) == set()
        store.scope("s").save(1)
        assert heard(listener, store) == {"s"}
        their_own.close()


# What it costs


def told(proxy: PgProxy) -> int:
    return sum(TOLD in text for batch in proxy.batches() for text in batch)


def test_without_listeners_nothing_is_sent(
    backend: Engine, postgres: Postgres, schemas: Schemas, pg_proxy: PgProxy
) -> None:
    with limpet.open(schemas.url(server_url=pg_proxy.url)) as store:
        scope = prepare(store.scope("s"), "kept")
        for number in range(3):
            scope.save(number)  # then it is prepared
        backend.listen().close()
        until(lambda: is_quiet(postgres, schemas))
        pg_proxy.forget()
        for number in range(5):
            scope.save(number)
        assert (pg_proxy.round_trips(), told(pg_proxy)) == (5, 0)
        listener = backend.listen()
        scope.save(6)
        scope.update(scope.save(7).id, lambda found: found.with_(status="x"))
        until(lambda: told(pg_proxy) >= 3)
        listener.close()


@pytest.mark.parametrize("option", ["notify", "advisory_locks"])
def test_who_does_not_tell_sends_nothing(
    backend: Engine, schemas: Schemas, pg_proxy: PgProxy, option: str
) -> None:
    listener = backend.listen()
    options: dict[str, Any] = {option: False}
    with limpet.open(schemas.url(server_url=pg_proxy.url), **options) as store:
        for number in range(5):
            store.scope("s").save(number)
        texts = [text for batch in pg_proxy.batches() for text in batch]
        assert not [each for each in texts if TOLD in each or "pg_try_advisory_lock" in each]
    listener.close()


def test_no_more_connections_than_allowed(
    postgres: Postgres, schemas: Schemas, backend: Engine, pg_proxy: PgProxy
) -> None:
    listener = backend.listen()
    with limpet.open(schemas.url(server_url=pg_proxy.url), connections=3) as store:

        def work(name: str) -> None:
            for number in range(40):
                store.scope(name).append("n", [number])
                assert pg_proxy.connections() <= 3

        for each in [Background(lambda n=n: work(f"s{n}")) for n in range(6)]:  # type: ignore[misc]
            each.result()
        for number in range(6):
            found = store.scope(f"s{number}").load()
            assert found is not None
            assert found.state == {"n": list(range(40))}
    listener.close()


# What goes wrong


@pytest.mark.parametrize("kind", ["drop_reply", "drop_request", "silence"])
def test_a_lost_notification_harms_no_watcher(
    backend: Engine,
    schemas: Schemas,
    pg_proxy: PgProxy,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("limpet.backends.postgres.pool._ANSWER_S_MAX", 0.2)
    listener = backend.listen()
    url = schemas.url(server_url=pg_proxy.url)
    with limpet.open(url, connections=2) as store:
        saved = [store.scope("s").save(0).id]
        for number in range(4):
            getattr(pg_proxy, kind)(text=TOLD)
            saved.append(store.scope("s").save(number).id)
            until(lambda: pg_proxy.faults_left() == 0)
        saved.append(store.scope("s").save(9).id)
        assert [info.id for info in store.scope("s").history()] == saved[::-1]
    listener.close()


def test_a_lock_that_is_not_to_be_had(
    backend: Engine, postgres: Postgres, schemas: Schemas
) -> None:
    """Then it is looked at intervals, and nothing stays behind."""
    key = channel_of(schemas.name()).key
    with postgres.connect() as conn:
        conn.execute("SELECT pg_advisory_lock(%s)", (key,))
        listener = backend.listen()
        assert isinstance(listener, Poller)
        assert wait(listener) is None
    until(lambda: is_quiet(postgres, schemas))


def low_key(schemas: Schemas) -> int:
    """Return the half of the key by which the server shows a lock."""
    return channel_of(schemas.name()).key & 0xFFFFFFFF


def is_quiet(postgres: Postgres, schemas: Schemas) -> bool:
    """Tell whether nobody holds the lock of those who listen."""
    with postgres.connect() as conn:
        return bool(one(conn, f"SELECT count(*) = 0 {LISTENERS}", low_key(schemas)))


@pytest.mark.parametrize("how", ["terminated", "cut"])
def test_a_lost_connection_is_reported_and_replaced(
    postgres: Postgres, schemas: Schemas, pg_proxy: PgProxy, how: str
) -> None:
    backend = open_backend(pg_proxy.url, schemas)
    listener = backend.listen()
    assert isinstance(listener, PostgresListener)
    waiting = Background(lambda: [listener.wait(active=False) for _ in range(100)])
    if how == "cut":
        pg_proxy.cut()
    else:
        with postgres.connect() as conn:
            query = f"SELECT count(pg_terminate_backend(pid)) {LISTENERS}"
            assert one(conn, query, low_key(schemas)) == 1
    with pytest.raises(Unavailable):
        waiting.result()
    listener.close()
    again = backend.listen()
    with limpet.open(schemas.url()) as store:
        store.scope("s").save(1)
        assert isinstance(again, PostgresListener)
        while wait(again) is None:
            pass
    again.close()
    backend.close()


# Waiting


def test_listening_polls_as_well(
    listener: PostgresListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that was about to commit may not have seen that somebody listens."""
    monkeypatch.setattr(listening, "_FULL_POLL_S", 0.3)
    begin = time.monotonic()
    for _ in range(3):
        assert listener.wait(active=False) is None
    assert 0.3 < time.monotonic() - begin < SOON_S


@pytest.mark.parametrize("option", ["pooler", "notify", "advisory_locks"])
def test_without_listening_it_polls(postgres: Postgres, schemas: Schemas, option: str) -> None:
    backend = open_backend(postgres.url, schemas, poll_s=0.2, **{option: option == "pooler"})
    listener = backend.listen()
    begin = time.monotonic()
    assert isinstance(listener, Poller)
    for _ in range(5):
        assert listener.wait(active=False) is None
    assert 0.4 < time.monotonic() - begin < SOON_S
    backend.close()


# Ends


def test_a_child_leaves_its_parent_the_connection(postgres_url: str) -> None:
    script = """
        import gc, os, sys
        import limpet
        from limpet import Unavailable

        store = limpet.open(sys.argv[1])
        backend = store.driver.opened.backend
        listener = backend.listen()
        pid = os.fork()
        if not pid:
            listener.wake()
            try:
                listener.wait(active=False)
            except Unavailable:
                pass
            else:
                os._exit(1)
            listener.close()
            del listener
            gc.collect()
            own = backend.listen()
            store.scope("s").save(1)
            while own.wait(active=False) is None:
                pass
            own.close()
            store.close()
            sys.exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        heard = set()
        while not heard:
            heard = listener.wait(active=False) or set()
        print(*heard)
        listener.close()
        store.close()
    """
    assert run_script(script, postgres_url, timeout_s=300) == "s\n"
