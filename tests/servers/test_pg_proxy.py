"""The proxy before PostgreSQL: what it counts, and what it does to clients."""

import select
import threading
import time
from contextlib import suppress

import psycopg
import pytest
from psycopg import errors
from psycopg.pq import ExecStatus

from tests.servers.pg_proxy import PgProxy
from tests.servers.postgres import Connect, Postgres, one

pytestmark = pytest.mark.slow  # what they serve is tested by all who use them


@pytest.fixture
def proxy(pg_proxy: PgProxy) -> PgProxy:
    return pg_proxy


@pytest.fixture
def url(postgres: Postgres) -> str:
    return postgres.url


def test_round_trips_are_counted(proxy: PgProxy, connect: Connect) -> None:
    connection = connect(proxy.url)
    assert proxy.round_trips() == 0
    for number in range(3):
        connection.execute("SELECT %s::text", ["x" * 200_000 * number])
    assert proxy.round_trips() == 3
    assert proxy.batches() == [("SELECT $1::text",)] * 3
    proxy.forget()
    with connection.pipeline():
        cursors = [connection.execute("SELECT %s::int", [number]) for number in range(20)]
    assert [each.fetchone() for each in cursors] == [(number,) for number in range(20)]
    assert proxy.round_trips() == 1
    assert sum(map(len, proxy.batches())) == 20


def test_a_delay_does_not_keep_a_pipeline_waiting(proxy: PgProxy, connect: Connect) -> None:
    connection = connect(proxy.url, prepare_threshold=None)
    proxy.delay(0.05)
    begun = time.monotonic()
    connection.execute("SELECT 1")
    assert time.monotonic() - begun >= 0.1
    begun = time.monotonic()
    low = connection.pgconn
    low.enter_pipeline_mode()
    for _ in range(20):
        low.send_query_params(b"SELECT 1", None)
        low.pipeline_sync()
        time.sleep(0.001)  # so that each is sent by itself
    replies = 0
    while replies < 20:
        while low.is_busy():
            select.select([low.socket], [], [], 10)
            low.consume_input()
        result = low.get_result()
        replies += result is not None and result.status == ExecStatus.PIPELINE_SYNC
    assert time.monotonic() - begun >= 0.1
    assert proxy.round_trips() == 2


@pytest.mark.parametrize("prepared", [False, True])
def test_a_lost_reply_is_executed(
    proxy: PgProxy, connect: Connect, url: str, table: str, prepared: bool
) -> None:
    connection = connect(proxy.url)
    insert = f"INSERT INTO {table} VALUES (%s)"
    connection.execute(insert, [1], prepare=prepared)
    proxy.drop_reply(text=f"insert into {table}", nth=2)
    connection.execute(insert, [2], prepare=prepared)
    with pytest.raises(psycopg.OperationalError):
        connection.execute(insert, [3], prepare=prepared)
    assert proxy.faults_left() == 0
    assert one(connect(url), f"SELECT array_agg(n) FROM {table}") == [1, 2, 3]


def test_a_commit_may_be_lost_on_either_way(
    proxy: PgProxy, connect: Connect, url: str, table: str
) -> None:
    for number, drop in enumerate([proxy.drop_reply, proxy.drop_request]):
        connection = connect(proxy.url)
        drop(text="commit")
        with (
            pytest.raises(psycopg.OperationalError),
            connection.pipeline(),
            connection.transaction(),
        ):
            connection.execute(f"INSERT INTO {table} VALUES (%s)", [number])
    assert one(connect(url), f"SELECT array_agg(n) FROM {table}") == [0]


def test_a_reply_is_lost_after_what_was_fetched_in_a_pipeline(
    proxy: PgProxy, connect: Connect
) -> None:
    connection = connect(proxy.url)
    proxy.drop_reply(text="select", nth=3)

    fetched = []
    with suppress(psycopg.OperationalError), connection.pipeline():
        fetched += [connection.execute("SELECT 0").fetchone()]
        fetched += [connection.execute("SELECT 1").fetchone()]
        fetched += [connection.execute("SELECT 2").fetchone()]
    assert fetched == [(0,), (1,)]
    assert proxy.faults_left() == 0


def test_a_request_may_come_late(proxy: PgProxy, connect: Connect, url: str, table: str) -> None:
    connection, direct = connect(proxy.url), connect(url)
    proxy.hold_request(1.0, text="insert")
    begun = time.monotonic()
    with pytest.raises(psycopg.OperationalError):
        connection.execute(f"INSERT INTO {table} VALUES (1)")
    assert time.monotonic() - begun < 1.0
    assert one(direct, f"SELECT count(*) FROM {table}") == 0
    while proxy.connections():
        time.sleep(0.01)
    assert one(direct, f"SELECT count(*) FROM {table}") == 1


def test_a_server_may_fall_silent(proxy: PgProxy, connect: Connect, url: str, table: str) -> None:
    connection, direct = connect(proxy.url), connect(url)
    proxy.silence(text="insert")
    failures: list[Exception] = []

    def insert() -> None:
        try:
            connection.execute(f"INSERT INTO {table} VALUES (1)")
        except psycopg.Error as failure:
            failures.append(failure)

    waiting = threading.Thread(target=insert)
    waiting.start()
    while one(direct, f"SELECT count(*) FROM {table}") == 0:
        time.sleep(0.01)
    waiting.join(0.1)
    assert waiting.is_alive()
    proxy.cut()
    waiting.join(10)
    assert [type(each) for each in failures] == [psycopg.OperationalError]
    assert one(connect(proxy.url), "SELECT 1") == 1
    proxy.close()
    with pytest.raises(psycopg.OperationalError, match="refused"):
        connect(proxy.url)


def test_a_waiting_caller_can_cancel(proxy: PgProxy, connect: Connect) -> None:
    connection = connect(proxy.url)
    timer = threading.Timer(0.1, connection.cancel_safe)
    timer.start()
    with pytest.raises(errors.QueryCanceled):
        connection.execute("SELECT pg_sleep(10)")
    timer.join()
    assert one(connection, "SELECT 1") == 1
