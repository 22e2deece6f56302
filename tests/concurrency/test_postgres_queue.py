"""Threads of one process that change one scope on PostgreSQL queue up, and nobody else waits."""

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

import limpet
from limpet import Scope, Unavailable
from tests.servers.pg_proxy import PgProxy
from tests.servers.postgres import LOCKED_HERE, Connection, Schemas
from tests.waiting import until

THREADS = 4
ROUNDS = 12
WAIT_S = 0.5
MANY = 60


@pytest.fixture
def schema(schemas: Schemas) -> str:
    return schemas.name()


def together(count: int, work: Any) -> list[Any]:
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, range(count)))


def test_saves_and_notes_of_threads_are_not_in_vain(postgres_url: str) -> None:
    """Each save stays one statement, whoever of this process came before."""
    with PgProxy(postgres_url) as proxy, limpet.open(proxy.url) as store:
        scope = store.scope("s")
        scope.save({"n": -1})

        def work(thread: int) -> None:
            for number in range(ROUNDS):
                scope.save({"n": number}, id=f"{thread}-{number}")
                scope.set_note(f"{thread}-{number}", number)

        together(THREADS, work)
        proxy.forget()
        together(THREADS, lambda thread: work(THREADS + thread))
        sent = [text for batch in proxy.batches() for text in batch]
        assert len([text for text in sent if "WITH moved AS" in text]) == THREADS * ROUNDS
        assert len(list(scope.history())) == 1 + 2 * THREADS * ROUNDS
        assert len(list(scope.notes())) == 2 * THREADS * ROUNDS


def waits(conn: Connection) -> bool:
    """Tell whether someone waits for a row."""
    query = f"SELECT 1 FROM pg_locks WHERE NOT granted AND {LOCKED_HERE}"
    return conn.execute(query).fetchone() is not None


@contextmanager
def locked(conn: Connection, schema: str) -> Iterator[None]:
    """Hold the rows of all scopes."""
    conn.execute("BEGIN")
    conn.execute(f"SELECT pk FROM {schema}.scopes FOR UPDATE")
    try:
        yield
    finally:
        conn.execute("ROLLBACK")


def test_a_child_does_not_wait_for_a_thread_of_its_parent(
    conn: Connection, schema: str, postgres_url: str
) -> None:
    with limpet.open(postgres_url) as store, ThreadPoolExecutor(1) as pool:
        scope = store.scope("s")
        scope.save({"n": 0})
        with locked(conn, schema):
            waiting = pool.submit(scope.save, {"n": "parent"})
            until(lambda: waits(conn))
            child = os.fork()
            if not child:
                os._exit(_in_child(scope))
        waiting.result(timeout=300)
        assert os.waitpid(child, 0)[1] == 0
        assert {each.labels.get("by") for each in scope.history()} == {"child", None}


def _in_child(scope: Scope) -> int:
    threading.Timer(300, os._exit, (3,)).start()
    try:
        scope.save({"n": "child"}, labels={"by": "child"})
        return 0
    except BaseException:  # whatever it is, the parent is told
        return 1


def test_the_queue_does_not_add_up_the_waiting(
    conn: Connection, schema: str, postgres_url: str
) -> None:
    options: Any = {"lock_wait_s": WAIT_S, "retry_s": 10 * WAIT_S}
    with limpet.open(postgres_url, **options) as store:
        store.scope("s").save({})

        def work(_: int) -> float:
            start = time.monotonic()
            with pytest.raises(Unavailable):
                store.scope("s").save({})
            return time.monotonic() - start

        with locked(conn, schema):
            waited = together(MANY, work)
        assert max(waited) < MANY * WAIT_S / 2
        store.scope("s").save({"n": "after"})


@pytest.mark.parametrize("lock_wait_s", [0, 0.2])
def test_a_scope_that_others_hold_for_too_long(
    conn: Connection, schema: str, postgres_url: str, lock_wait_s: float
) -> None:
    """A caller that does not wait at all may still write."""
    with limpet.open(postgres_url, lock_wait_s=lock_wait_s, retry_s=0) as store:
        store.scope("s").save({})
        store.scope("s").set_note("name", 1)
        with locked(conn, schema), pytest.raises(Unavailable, match="55P03"):
            store.scope("s").save({})


def test_one_that_hangs_does_not_keep_the_others(postgres_url: str) -> None:
    """Its answer never comes, and the row is free."""
    with (
        PgProxy(postgres_url) as proxy,
        limpet.open(proxy.url, lock_wait_s=WAIT_S) as store,
        ThreadPoolExecutor(1) as pool,
    ):
        scope = store.scope("s")
        scope.save({"n": 0})
        proxy.silence(text="WITH moved")
        hangs = pool.submit(scope.save, {"n": 1})
        until(lambda: proxy.faults_left() == 0)
        for number in range(3):
            scope.save({"n": number})
            scope.set_note("name", number)
        assert not hangs.done()
        proxy.cut()
        hangs.result(timeout=300)
        assert len(list(scope.history())) == 5
