"""Many writers on one PostgreSQL server: every promise holds, and none gets in another's way."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import limpet
from limpet import AsyncStore, Store
from limpet.backends.sql import transaction
from tests.concurrency.crew import SIZE, Crew
from tests.servers.postgres import HERE, Connection, Schemas, with_option

SESSIONS = 1_000
TASKS = 32
CONNECTIONS = 16
NAME = "many-writers"


class Watch:
    """Counts the connections of one name for as long as its block lasts."""

    def __init__(self, conn: Connection, name: str) -> None:
        self._conn, self._name = conn, name
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.most = 0

    def _run(self) -> None:
        query = f"SELECT count(*) FROM pg_stat_activity WHERE application_name = %s AND {HERE}"
        while not self._end.wait(0.02):
            ((count,),) = self._conn.execute(query, (self._name,)).fetchall()
            self.most = max(self.most, count)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()


def check_sessions(store: Store) -> None:
    """See that each session holds exactly what was written to it."""
    assert list(store.sessions()) == sorted(f"s-{number}" for number in range(SESSIONS))
    for number in range(0, SESSIONS, 37):
        found = store.scope(f"s-{number}").load()
        assert found is not None
        assert found.state == {"n": number, "items": [] if number % 4 else [number]}
    stats = store.stats()
    saved = SESSIONS + SESSIONS // 4
    assert (stats.sessions, stats.scopes, stats.snapshots) == (SESSIONS, SESSIONS, saved)
    assert list(store.check()) == []


def in_tasks(url: str) -> None:
    async def write(store: AsyncStore, numbers: range) -> None:
        for number in numbers:
            scope = store.scope(f"s-{number}")
            await scope.save({"n": number, "items": []})
            if number % 4 == 0:
                await scope.append("items", [number])

    async def main() -> None:
        options: dict[str, Any] = {"connections": CONNECTIONS, "workers": TASKS}
        async with limpet.open_async(url, **options) as store:
            tasks = [write(store, range(first, SESSIONS, TASKS)) for first in range(TASKS)]
            await asyncio.gather(*tasks)

    asyncio.run(main())


def in_threads(url: str) -> None:
    def write(store: Store, numbers: range) -> None:
        for number in numbers:
            scope = store.scope(f"s-{number}")
            scope.save({"n": number, "items": []})
            if number % 4 == 0:
                scope.append("items", [number])

    with limpet.open(url, connections=CONNECTIONS) as store, ThreadPoolExecutor(TASKS) as pool:
        shares = [range(first, SESSIONS, TASKS) for first in range(TASKS)]
        for done in [pool.submit(write, store, share) for share in shares]:
            done.result()


@pytest.mark.slow
@pytest.mark.parametrize("write_all", [in_tasks, in_threads])
def test_a_thousand_sessions_over_sixteen_connections(
    conn: Connection, postgres_url: str, write_all: Callable[[str], None]
) -> None:
    """32 tasks or threads share 16 connections: all writes arrive, and nobody is turned away."""
    with Watch(conn, NAME) as watch:
        write_all(with_option(postgres_url, "application_name", NAME))
    assert 2 <= watch.most <= CONNECTIONS
    with limpet.open(postgres_url) as store:
        check_sessions(store)


# Processes


def check_quiet(store: Store) -> None:
    assert [found for found in store.check() if found.severity != "info"] == []


@pytest.mark.slow
def test_updates_apply_exactly_as_often_as_they_are_made(crew: Crew, postgres_url: str) -> None:
    """Promise 6: eight processes with 25 updates each make 200."""
    with limpet.open(postgres_url) as store:
        store.scope("s").save({"count": 0}, id="counter")
        assert crew.ask("add", postgres_url, 25) == [25] * SIZE
        found = store.scope("s").load("counter")
        check_quiet(store)

    assert found is not None
    assert found.state == {"count": 25 * SIZE}
    assert found.revision.split(".")[1] == f"{25 * SIZE:x}"


def test_each_round_has_one_winner(crew: Crew, postgres_url: str) -> None:
    """Promise 3: of eight saves that expect the same head one is stored, and no other is seen."""
    winners: list[str] = []
    revision = None
    for _ in range(40):
        answers = crew.ask("compete", postgres_url, revision)
        won = [answer for answer in answers if answer is not None]
        assert len(won) == 1
        (revision,) = won
        winners.append(revision)

    with limpet.open(postgres_url) as store:
        history = [info.revision for info in store.scope("s").history()]
        check_quiet(store)
    assert history == winners[::-1]


@pytest.mark.slow
def test_a_first_save_has_one_winner(crew: Crew, postgres_url: str) -> None:
    """Promise 3: `expect=None` lets one save through, time and again, in a scope made anew."""
    with limpet.open(postgres_url) as store:
        for number in range(20):
            answers = crew.ask("compete", postgres_url, None)
            won = [answer for answer in answers if answer is not None]
            history = list(store.scope("s").history())
            assert [info.revision for info in history] == won
            assert [info.parent_id for info in history] == [None]
            if number % 2:
                assert store.scope("s").delete(expect=won[0]) == 1
            else:
                assert store.delete_session("s") == 1
        check_quiet(store)


@pytest.mark.slow
def test_appends_all_arrive_in_the_order_of_each_process(crew: Crew, postgres_url: str) -> None:
    """Promises 6 and 7: nothing is lost, doubled or overtaken by its own successor."""
    count = 25
    crew.ask("append", postgres_url, count)

    with limpet.open(postgres_url) as store:
        scope = store.scope("s")
        head = scope.load()
        assert head is not None
        items = head.state["items"]
        ids = [info.id for info in scope.history()]
        check_quiet(store)
    for number in range(SIZE):
        assert [i for n, i in items if n == number] == list(range(count))
    assert len(items) == len(ids) == SIZE * count
    assert ids == sorted(ids, reverse=True)
    assert len(set(ids)) == len(ids)


@pytest.mark.slow
def test_a_note_is_changed_as_often_as_it_is_asked_for(crew: Crew, postgres_url: str) -> None:
    count = 25
    crew.ask("tally", postgres_url, count)

    with limpet.open(postgres_url) as store:
        note = store.scope("s").note("tally")
    assert note is not None
    assert note.value == SIZE * count
    assert note.revision.partition(".")[0] == f"{SIZE * count - 1:x}"


@pytest.mark.parametrize("advisory_locks", ["true", "false"])
def test_the_tables_are_made_by_many_at_once(
    crew: Crew, conn: Connection, schemas: Schemas, advisory_locks: str
) -> None:
    """All come through, whoever makes the tables; they are made once."""
    scripts = transaction.migrations_of("postgres")
    migrations = [each[:2] for each in scripts if each.version]  # 0 makes the schema
    for number in range(3):
        url = with_option(schemas.url(f"{number}"), "advisory_locks", advisory_locks)
        assert crew.ask("open_new", "memory:", url) == [f"by-{n}" for n in range(SIZE)]

        query = f"SELECT version, name FROM {schemas.name(f'{number}')}.schema_migrations"
        assert conn.execute(query).fetchall() == migrations
        with limpet.open(url) as store:
            ids = sorted(info.head.id for info in store.scopes() if info.head is not None)
            check_quiet(store)
        assert ids == [f"by-{n}" for n in range(SIZE)]


@pytest.mark.slow
def test_threads_and_processes_mix(crew: Crew, postgres_url: str) -> None:
    """Promise 6 again: four processes with four threads each, three kinds of writes at once."""
    size, threads, count = 4, 4, 6
    with limpet.open(postgres_url) as store:
        store.scope("s").save({"count": 0}, id="counter")
        plan = {"threads": threads, "count": count}
        assert crew.ask("in_threads", postgres_url, plan, who=slice(size)) == [threads] * size
        counter, note = store.scope("s").load("counter"), store.scope("s").note("tally")
        log = store.scope("t").load()
        check_quiet(store)

    assert counter is not None
    assert note is not None
    assert log is not None
    assert counter.state["count"] == note.value == size * threads * count
    arrived = Counter(map(tuple, log.state["items"]))
    assert arrived == {(n, t): count for n in range(size) for t in range(threads)}


# Readers


@pytest.mark.slow
def test_readers_never_see_a_part(crew: Crew, postgres_url: str) -> None:
    """Promise 2: while three processes write as fast as they can, every state is whole.

    A state carries its own checksum; and a kept head is always found in history.
    """
    writers, readers = slice(3), slice(3, 6)
    with limpet.open(postgres_url) as store:
        crew.tell("read_sealed", postgres_url, None, who=readers)
        assert crew.ask("write_sealed", postgres_url, 40, who=writers) == [40] * 3
        store.scope("control").set_note("done", True)
        seen = crew.hear(who=readers)
        kept = sum(1 for _ in store.scope("s").history())
        check_quiet(store)
    assert kept == 3 * 30
    assert min(seen) >= 2, "the readers did not read beside the writers"


def test_an_open_walk_holds_nothing(crew: Crew, conn: Connection, postgres_url: str) -> None:
    """Between two pages there is no transaction, which would keep the server from tidying up."""
    url = with_option(postgres_url, "application_name", NAME)
    with limpet.open(url) as store:
        scope = store.scope("s")
        scope.save({"count": 0}, id="counter")
        saved = [scope.save({"n": n}).id for n in range(300)]
        scope.set_note("a", 1)
        walks = [scope.history(), scope.ids(), store.sessions(), store.scopes(), scope.notes()]
        for walk in walks:
            assert next(walk) is not None
        history = scope.history()
        first = next(history)

        query = f"SELECT state FROM pg_stat_activity WHERE application_name = %s AND {HERE}"
        states = conn.execute(query, (NAME,)).fetchall()
        assert states
        assert {state for (state,) in states} == {"idle"}
        assert crew.ask("add", postgres_url, 5, who=slice(2)) == [5, 5]

        rest = [info.id for info in history]
        assert [first.id, *rest] == [*saved[::-1], "counter"]
