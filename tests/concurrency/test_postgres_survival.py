"""A server that restarts, crashes, is full, busy or gone: one clear error or none, and then on.

Nobody opens the store again: what was acknowledged is there, what was refused is not, and the same
store works when the cause is over.
"""

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from limpet import Store, Unavailable
from tests.concurrency.pg_tools import WRITES, Background, everything, fill, opened
from tests.servers.pg_proxy import PgProxy
from tests.servers.postgres import PrivatePostgres, Schemas
from tests.waiting import until


@pytest.fixture(scope="module")
def server() -> Iterator[PrivatePostgres]:
    """A server that the tests of this file may ill-treat."""
    # What is not asked to be durable stays in memory for long, to be lost by a crash.
    with PrivatePostgres(settings={"wal_writer_delay": "10s"}) as server:
        yield server


@pytest.fixture
def space(server: PrivatePostgres) -> Iterator[Schemas]:
    with server.schemas() as schemas:
        yield schemas


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
                assert time.monotonic() - begin < 20
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
