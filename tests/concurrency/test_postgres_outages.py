"""A server that restarts, crashes, is full, busy, at its limits or gone: one clear error or none.

Nobody opens the store again: what was acknowledged is there, what was refused is not, and the same
store works when the cause is over.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from limpet import Scope, Store, Unavailable
from tests.concurrency.pg_tools import (
    WRITES,
    Background,
    everything,
    fill,
    opened,
    outage,
    waiters,
)
from tests.servers.pg_proxy import PgProxy
from tests.servers.postgres import PrivatePostgres, Schemas
from tests.waiting import until


@pytest.fixture
def url(space: Schemas) -> str:
    return space.url()


# Restarts


class Writer:
    """Writes in a thread, and knows what was acknowledged."""

    def __init__(self, store: Store, name: str, stop: threading.Event) -> None:
        self.scope = store.scope("s", name)
        self._shared = store.scope("s", "shared")
        self._stop = stop
        self.saved: list[str] = []
        self.counted = 0
        self.thread = Background(self._run)

    def _run(self) -> None:
        while not self._stop.is_set():
            self.saved.append(self.scope.append("n", [len(self.saved)]).id)
            self._shared.set_note("count", lambda n: (n or 0) + 1)
            self.counted += 1


def restart(server: PrivatePostgres, mode: str) -> None:
    if mode == "killed":
        server.kill()
    else:
        server.stop(mode)
    server.start()


ACCIDENTS: dict[str, Callable[[PrivatePostgres], object]] = {
    "a restart": lambda server: restart(server, "fast"),
    "an immediate restart": lambda server: restart(server, "immediate"),
    "a crash": lambda server: restart(server, "killed"),
    "killed connections": lambda server: [server.kill_connections() for _ in range(5)],
}


def some_more(writers: list[Writer]) -> None:
    """Wait until each of them has saved five times more."""
    goals = [len(writer.saved) + 5 for writer in writers]
    until(lambda: all(len(w.saved) >= goal for w, goal in zip(writers, goals, strict=True)))


# A crash of the server is the hardest of these.
@pytest.mark.parametrize(
    "accident",
    [
        name if name == "a crash" else pytest.param(name, marks=pytest.mark.slow)
        for name in ACCIDENTS
    ],
)
def test_writers_go_on(server: PrivatePostgres, url: str, accident: str) -> None:
    """Promises 1, 4 and 6: no error, nothing lost, nothing twice, whatever happens meanwhile."""
    stop = threading.Event()
    with opened(server, url, connections=3) as store:
        writers = [Writer(store, f"w{number}", stop) for number in range(4)]
        for _ in range(2):
            some_more(writers)
            ACCIDENTS[accident](server)
        some_more(writers)
        stop.set()
        for writer in writers:
            writer.thread.result()
        for writer in writers:
            head = writer.scope.load()
            assert head is not None
            assert head.state["n"] == list(range(len(writer.saved)))
            assert [info.id for info in writer.scope.history()] == writer.saved[::-1]
        note = store.scope("s", "shared").note("count")
        assert note is not None
        assert note.value == sum(writer.counted for writer in writers)


def test_what_a_crash_lost_is_not_acknowledged(
    server: PrivatePostgres, space: Schemas, url: str
) -> None:
    """Promise 1: after a crash the server gives the numbers of transactions again to others."""
    with PgProxy(server.url) as proxy, opened(server, url) as direct:
        direct.scope("s").save(1)
        with opened(server, space.url(server_url=proxy.url)) as store:
            scope = store.scope("s")
            proxy.hold_request(60, text="commit", nth=2)  # the first one only says how it is read
            writing = Background(lambda: scope.set_note("n", "mine"))
            until(lambda: not proxy.faults_left())
            server.kill()
            server.start()
            for number in range(20):
                direct.scope("other").save(number)
            assert writing.result().value == "mine"
            note = direct.scope("s").note("n")
            assert note is not None
            assert note.value == "mine"


# Outages


@pytest.mark.slow
def test_a_server_that_is_away(server: PrivatePostgres, url: str) -> None:
    """Calls fail as soon as they are tired of waiting, and the first one after it works."""
    with opened(server, url, retry_s=0.15) as store:
        fill(store.scope("s"))
        before = everything(store)
        server.stop()
        with pytest.raises(Unavailable):
            store.scope("s").save({})  # its connection is found dead: perhaps it was too late
        try:
            for verb in WRITES:
                begin = time.monotonic()
                with pytest.raises(Unavailable) as caught:
                    WRITES[verb](store.scope("s"))
                assert caught.value.outcome_known, verb
                assert time.monotonic() - begin < 300
            with pytest.raises(Unavailable):
                store.scope("s").load()
        finally:
            server.start()
        assert everything(store) == before
        store.scope("s").save({})


def test_a_database_that_was_dropped(server: PrivatePostgres) -> None:
    """The store works again when there is a database with tables, which it does not make itself."""
    with server.database() as url, opened(server, url, retry_s=0.3) as store:
        name = url.rpartition("/")[2]
        fill(store.scope("s"))
        with server.connect() as conn:
            conn.execute(f"DROP DATABASE {name} WITH (FORCE)")
        with pytest.raises(Unavailable):
            store.scope("s").save({})
        with pytest.raises(Unavailable) as caught:
            store.scope("s").save({})
        assert caught.value.outcome_known
        with server.connect() as conn:
            conn.execute(f"CREATE DATABASE {name}")
        with pytest.raises(Unavailable, match="setup=True") as caught:
            store.scope("s").save({})
        assert caught.value.outcome_known
        with opened(server, url):
            pass
        assert everything(store) == []
        fill(store.scope("s"))


def test_tables_that_are_created_again_in_mid_use(server: PrivatePostgres, url: str) -> None:
    """Nothing that a connection or the store remembers of the old ones is in the way."""
    name = url.rpartition("=")[2]
    with opened(server, url) as store:
        for _ in range(3):
            store.scope("s").save({"n": 1}, id="a")
            store.scope("s").append("n2", [1])
            store.scope("s").load()
            with server.connect() as conn:
                conn.execute(f"DROP SCHEMA {name} CASCADE")
            with pytest.raises(Unavailable, match="setup=True"):
                store.scope("s").save({"n": 2})
            with opened(server, url):
                pass
            assert everything(store) == []


# Limits of the server and of the store


@contextmanager
def holding(server: PrivatePostgres, url: str) -> Iterator[None]:
    """Hold all scopes of a store."""
    schema = url.rpartition("=")[2]
    with server.connect() as conn, conn.transaction():
        conn.execute(f"SELECT * FROM {schema}.scopes FOR UPDATE")
        yield


@pytest.mark.parametrize("verb", ["save", "update", "delete_session"])
def test_a_statement_that_takes_too_long(server: PrivatePostgres, url: str, verb: str) -> None:
    """The limit is the server's, and what it says is passed on, not tried again for long."""
    with opened(server, url) as store:
        fill(store.scope("s"))
        server.configure(statement_timeout="1s")
        try:
            with holding(server, url):
                assert "57014" in str(outage(WRITES[verb], store))
        finally:
            server.configure(statement_timeout="0")
        WRITES[verb](store.scope("s"))


def test_all_connections_are_in_use(server: PrivatePostgres, url: str) -> None:
    with opened(server, url, connections=2, retry_s=0.1) as store:
        fill(store.scope("s"))
        others = [store.scope("s", f"other-{number}") for number in range(2)]
        for each in others:
            each.set_note("a", 0)
        with holding(server, url):
            waiting = [Background(partial(each.set_note, "a", 1)) for each in others]
            until(lambda: waiters(server) == 2)
            verbs: list[Callable[[Scope], object]] = [*WRITES.values(), lambda scope: scope.load()]
            for verb in verbs:
                with pytest.raises(Unavailable, match="connections=`2`") as caught:
                    verb(store.scope("s"))
                assert caught.value.outcome_known
        for one in waiting:
            one.result()
        store.scope("s").save({})


def test_a_server_with_no_connection_left(server: PrivatePostgres, url: str) -> None:
    """Who has some shares them; who has none is told so, and finds one as soon as there is one."""
    name = url.rpartition("=")[2]
    with server.connect() as conn:
        conn.execute(f"CREATE ROLE {name} LOGIN CONNECTION LIMIT 2")
        conn.execute(f"GRANT CREATE ON DATABASE postgres TO {name}")
    limited = url.replace("postgres@", f"{name}@")
    with opened(server, limited, connections=8, retry_s=10) as store:

        def work(number: int) -> None:
            for _ in range(5):
                store.scope(f"s{number}").append("n", [1])

        for each in [Background(lambda n=n: work(n)) for n in range(6)]:  # type: ignore[misc]
            each.result()
    with opened(server, limited, retry_s=0.3) as store:
        with opened(server, limited) as one, opened(server, limited) as other:
            one.scope("s").save(1)
            other.scope("s").save(2)
            with pytest.raises(Unavailable) as caught:
                store.scope("s").save(3)
            assert caught.value.outcome_known
        store.scope("s").save(3)
    with server.connect() as conn:
        conn.execute(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}")


# Refusals in the middle of a write

REFUSE = """
CREATE FUNCTION {schema}.refuse() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = '{state}'; END $$;
CREATE CONSTRAINT TRIGGER refuse AFTER INSERT OR UPDATE OR DELETE ON {schema}.{table}
{when} FOR EACH ROW EXECUTE FUNCTION {schema}.refuse();
"""
OTHER_STATES = ("53200", "58030", "55000")
WHEN = {"at once": "", "at the end": "DEFERRABLE INITIALLY DEFERRED"}


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize(
    "state", ["53100", *(pytest.param(each, marks=pytest.mark.slow) for each in OTHER_STATES)]
)
def test_a_server_that_cannot_go_on(
    server: PrivatePostgres, url: str, state: str, when: str
) -> None:
    """Its disk or memory is full, or it cannot write: said so in mid-write or when it commits."""
    schema = url.rpartition("=")[2]
    with opened(server, url) as store:
        fill(store.scope("s"))
        script = REFUSE.format(schema=schema, state=state, table="scopes", when=WHEN[when])
        with server.connect() as conn:
            conn.execute(script)
        for verb in WRITES.values():
            assert state in str(outage(verb, store))
        with server.connect() as conn:
            conn.execute(f"DROP FUNCTION {schema}.refuse CASCADE")
        for verb in WRITES.values():
            verb(store.scope("s"))
            store.delete_session("s")
            fill(store.scope("s"))


# Replicas


def test_a_replica_is_read_and_written_when_it_is_promoted(
    server: PrivatePostgres, url: str
) -> None:
    """It refuses to be written, and nothing else; the same store writes as soon as it may."""
    with opened(server, url) as store:
        fill(store.scope("s"))
        before = everything(store)
    with server.standby() as standby:
        standby.catch_up()
        with opened(standby, url.replace(server.url, standby.url), retry_s=2) as store:
            assert everything(store) == before
            assert list(store.check()) == []
            assert store.stats().snapshots == 3
            for verb in WRITES.values():
                assert "replica" in str(outage(verb, store))
            with standby.connect() as conn:
                conn.execute("SELECT pg_promote()")
            for verb in WRITES.values():
                verb(store.scope("s"))
                store.delete_session("s")
                fill(store.scope("s"))


def test_a_server_that_is_set_to_be_read_only(server: PrivatePostgres, url: str) -> None:
    """As those who run a server do when its disk is nearly full. It is respected."""
    with opened(server, url) as store:
        fill(store.scope("s"))
        server.configure(default_transaction_read_only="on")
        try:
            until(lambda: is_read_only(store))
            for verb in WRITES.values():
                assert "25006" in str(outage(verb, store))
        finally:
            server.configure(default_transaction_read_only="off")
        until(lambda: not is_read_only(store))
        store.scope("s").save({})


def is_read_only(store: Store) -> bool:
    """A reload of the settings takes a moment."""
    try:
        store.scope("probe").save({}, id="probe")
        store.delete_session("probe")
    except Unavailable:
        return True
    return False
