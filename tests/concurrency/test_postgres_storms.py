"""Storms on PostgreSQL: everything at once on scopes whose states build on each other.

Whoever reads meanwhile gets exactly what was saved, and so does whoever reads at the end.
"""

import asyncio
import threading
from contextlib import ExitStack

import pytest

import limpet
from limpet import Store
from tests.concurrency import family, storm
from tests.concurrency.crew import Worker
from tests.concurrency.storm import SESSION, SHARED, Own
from tests.concurrency.test_delta_storms import begin, check_appended, in_threads
from tests.servers.postgres import Connection, Schemas, with_option

FAMILY = family.__name__


@pytest.fixture
def url(postgres_url: str) -> str:
    """Deadlocks are noticed at once: each would cost a second."""
    return with_option(postgres_url, "options", "-c%20deadlock_timeout%3D30ms")


def verify(url: str, owns: list[Own]) -> None:
    """See that exactly what the writers know of is there, and that nothing is wrong with it."""
    expected: dict[str, dict[str, str]] = {name: {} for name in SHARED}
    for own in owns:
        for name, digests in own.items():
            expected.setdefault(name, {}).update(digests)
    expected.pop("pruned", None)
    with limpet.open(url) as store:
        for name, digests in expected.items():
            scope = store.scope(SESSION, name)
            ids = [info.id for info in scope.history()]
            assert sorted(ids) == list(scope.ids()) == sorted(digests), name
            for found in scope.load_many(ids):
                storm.check(found)
                assert storm.digest(found.state) == digests[found.id], f"{name} {found.id}"
        others = {"items", "pruned"}
        for info in store.scopes(SESSION):
            assert info.key.scope_id in {*expected, *others}
            head = store.scope(*info.key).load()
            # None where all were deleted, and what was saved since then stands aside.
            assert (head is None) == (info.head is None)
            if head is not None and info.key.scope_id != "items":
                storm.check(head)
        assert [found for found in store.check() if found.severity != "info"] == []


def check_nothing_is_left(url: str, conn: Connection, schema: str) -> None:
    """See that with the session everything goes: no body stays that nobody knows of."""
    with limpet.open(url) as store:
        store.compact()
        assert [found for found in store.check() if found.severity != "info"] == []
        store.delete_session(SESSION)
        store.delete_session("control")
        assert list(store.check()) == []
    for table in ("tails", "segments", "shared", "snapshots", "labels", "scopes"):
        assert conn.execute(f"SELECT count(*) FROM {schema}.{table}").fetchall() == [(0,)], table


def rage(url: str, *, numbers: range, count: int, threads: int, readers: int) -> None:
    """Let processes with several threads each write, and others read, until all is written."""
    with limpet.open(url) as store, ExitStack() as stack:
        looking = begin(stack, "read", url, range(100, 100 + readers), "")
        writing = [stack.enter_context(Worker(FAMILY, url, n, count, threads)) for n in numbers]
        for worker in writing:
            assert worker.hear() == "ready"
        for worker in writing:
            worker.tell("go")
        owns = [own for worker in writing for own in worker.hear()]
        store.scope("control").set_note("done", True)
        loaded = [worker.hear() for worker in looking]
    assert min(loaded, default=101) > 100, "the readers did not read beside the writers"
    verify(url, owns)


@pytest.mark.slow
def test_a_family_in_a_storm(url: str, conn: Connection, schemas: Schemas) -> None:
    """Promises 2, 3 and 5: three processes with two threads each, on forks of forks of forks."""
    rage(url, numbers=range(3), count=22, threads=2, readers=1)
    check_nothing_is_left(url, conn, schemas.name())


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(6))
def test_a_family_in_a_longer_storm(
    url: str, conn: Connection, schemas: Schemas, seed: int
) -> None:
    numbers = range(10 * seed + 1, 10 * seed + 5)
    rage(url, numbers=numbers, count=120, threads=3, readers=2)
    check_nothing_is_left(url, conn, schemas.name())


@pytest.mark.slow
def test_threads_and_tasks_share_a_store(url: str) -> None:
    """What the store remembers of a scope is never another moment's, in threads and in tasks."""
    count, tasks = 15, 40
    with limpet.open(url) as store:
        owns = in_threads(
            lambda: family.Kin(store, 1).run(count),
            lambda: family.Kin(store, 2).run(count),
            lambda: asyncio.run(storm.write_async(store.aio, 3, tasks)),
            lambda: asyncio.run(storm.write_async(store.aio, 4, tasks)),
        )
    verify(url, owns)


@pytest.mark.slow
def test_repair_during_writes(url: str) -> None:
    """Others wait while a part is mended, and nothing that they are about to write is touched."""
    ended = threading.Event()

    def mend(store: Store) -> int:
        rounds = 0
        while not ended.is_set() or rounds < 3:
            found = list(store.repair())
            assert [each for each in found if each.severity != "info"] == []
            rounds += 1
        return rounds

    def write(store: Store) -> list[Own]:
        try:
            return in_threads(
                lambda: family.Kin(store, 5).run(15),
                lambda: family.Kin(store, 6).run(15),
                lambda: storm.write(store, 7, 12),
            )
        finally:
            ended.set()

    with limpet.open(url) as store, limpet.open(url) as other:
        owns, rounds = in_threads(lambda: write(store), lambda: mend(other))
    assert rounds >= 3
    verify(url, owns)


@pytest.mark.slow
def test_processes_append_to_one_list(url: str) -> None:
    """Promise 6, and that each state in between reads back exactly."""
    writers, count = 3, 40
    with limpet.open(url) as store, ExitStack() as stack:
        workers = begin(stack, "append_items", url, range(writers), count)
        assert [worker.hear() for worker in workers] == [count] * writers
        check_appended(store, writers, count)
    with limpet.open(url) as store:
        check_appended(store, writers, count)
