"""The pooler before PostgreSQL: it does as PgBouncer does, also what clients do not expect."""

import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import errors

from tests.servers.pgbouncer import PgBouncer, find_program
from tests.servers.pooler import Pooler
from tests.servers.postgres import Connect, Postgres, Schemas, one

pytestmark = pytest.mark.slow  # what they serve is tested by all who use them


@pytest.fixture(params=[Pooler, PgBouncer])
def pooler(
    request: pytest.FixtureRequest, postgres: Postgres, schemas: Schemas
) -> Iterator[Pooler | PgBouncer]:
    with request.param(postgres.url) as pooler:
        yield pooler


def test_many_clients_share_few_connections(
    pooler: Pooler | PgBouncer, connect: Connect, table: str
) -> None:
    def work(number: int) -> None:
        with psycopg.connect(pooler.url, prepare_threshold=None) as connection:
            for _ in range(5):
                with connection.transaction():
                    connection.execute(f"INSERT INTO {table} VALUES (%s)", [number])
                    connection.execute("SELECT pg_sleep(0.001)")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(10)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert pooler.servers() == 2
    connection = connect(pooler.url, prepare_threshold=None)
    assert connection.info.server_version >= 130_000
    with connection.pipeline():
        counted = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
        again = [connection.execute("SELECT 1") for _ in range(3)]
    assert counted == (50,)
    assert [each.fetchone() for each in again] == [(1,)] * 3


def test_a_transaction_stays_on_one_connection(
    pooler: Pooler | PgBouncer, connect: Connect
) -> None:
    connection = connect(pooler.url)
    backends = [one(connection, "SELECT pg_backend_pid()") for _ in range(4)]
    assert backends[:2] == backends[2:]
    assert len(set(backends)) == 2
    with connection.transaction():
        assert len({one(connection, "SELECT pg_backend_pid()") for _ in range(4)}) == 1


def test_what_is_prepared_by_name_is_missing_elsewhere(
    pooler: Pooler | PgBouncer, connect: Connect
) -> None:
    connection = connect(pooler.url)
    connection.execute("PREPARE mine AS SELECT 1")
    with pytest.raises(errors.InvalidSqlStatementName):
        connection.execute("EXECUTE mine")
    assert one(connection, "EXECUTE mine") == 1
    with pytest.raises(errors.InvalidSqlStatementName):
        connection.execute("SELECT 1", prepare=True)  # which takes two messages


def test_what_is_set_stays_for_others(pooler: Pooler | PgBouncer, connect: Connect) -> None:
    connect(pooler.url).execute("SET work_mem = '1234kB'")
    other = connect(pooler.url)
    assert "1234kB" in {one(other, "SHOW work_mem") for _ in range(2)}


def test_what_it_cannot_set_it_refuses(pooler: Pooler | PgBouncer, connect: Connect) -> None:
    with pytest.raises(psycopg.OperationalError, match="unsupported startup parameter: options"):
        connect(pooler.url, options="-c search_path=x")


def test_who_leaves_in_the_middle_takes_nothing_along(
    pooler: Pooler | PgBouncer, connect: Connect, table: str
) -> None:
    for _ in range(3):
        leaver = connect(pooler.url, autocommit=False)
        leaver.execute(f"INSERT INTO {table} VALUES (1)")
        leaver.close()
    connection = connect(pooler.url)
    assert [one(connection, f"SELECT count(*) FROM {table}") for _ in range(2)] == [0, 0]


def test_it_takes_a_new_connection_when_one_is_lost(
    pooler: Pooler | PgBouncer, connect: Connect, postgres: Postgres
) -> None:
    connection = connect(pooler.url, autocommit=False)
    backend = one(connection, "SELECT pg_backend_pid()")
    connect(postgres.url).execute("SELECT pg_terminate_backend(%s, 5000)", [backend])
    with pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT 1")
    assert one(connect(pooler.url), "SELECT 1") == 1


def test_a_waiting_caller_can_cancel(pooler: Pooler | PgBouncer, connect: Connect) -> None:
    connection = connect(pooler.url)
    timer = threading.Timer(0.1, connection.cancel_safe)
    timer.start()
    with pytest.raises(errors.QueryCanceled):
        connection.execute("SELECT pg_sleep(10)")
    timer.join()
    assert one(connection, "SELECT 1") == 1


def test_what_is_missing_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))  # no apt-get either
    with pytest.raises(pytest.fail.Exception, match="apt install pgbouncer") as caught:
        find_program()
    assert "\n" not in str(caught.value)
