"""Statements whose values are sent as bytes: what is given arrives, errors are those of psycopg."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import errors

import limpet
from limpet import Conflict
from limpet.backends.postgres.backend import PostgresBackend
from limpet.backends.postgres.raw import PREPARE_THRESHOLD, raw_statement
from limpet.backends.postgres.transaction import Connection
from tests.servers.pg_proxy import PgProxy
from tests.servers.postgres import Postgres, Schemas, one

TEXTS = [
    "",
    "a,b",
    'quote "',
    "back\\slash",
    "{}",
    "NULL",
    " ",
    "ü \U0001f41a",
    "new\nline",
    "%(n)s",
]
VALUES: list[dict[str, Any]] = [
    {"n": 1, "t": "text", "b": b"\\x00\x00\xff", "yes": True, "texts": TEXTS, "ns": [1, None]},
    {"n": 2**63 - 1, "t": "", "b": b"", "yes": False, "texts": [], "ns": [-(2**63)]},
    {"n": None, "t": None, "b": None, "yes": None, "texts": None, "ns": None},
    {"n": -1, "t": "NULL", "b": b"{}", "yes": True, "texts": "{}", "ns": []},
]  # fmt: skip


@pytest.fixture
def conn(postgres: Postgres) -> Iterator[Connection]:
    with Connection.connect(postgres.url, autocommit=True) as conn:
        yield conn


@pytest.fixture
def table(postgres: Postgres, schemas: Schemas) -> str:
    name = schemas.name()
    columns = "n int8 UNIQUE, t text, b bytea, yes bool, texts text[], ns int8[], bs bytea[]"
    with postgres.connect() as conn:
        conn.execute(f"CREATE SCHEMA {name}; CREATE TABLE {name}.t ({columns})")
    return f"{name}.t"


def test_what_is_sent_arrives_prepared_or_not(conn: Connection, table: str) -> None:
    values = "%(n)s, %(t)s, %(b)s, %(yes)s, %(texts)s, %(ns)s, %(bs)s"
    statement = raw_statement("x", f"INSERT INTO {table} VALUES ({values}) RETURNING 7, 8".encode())
    assert len(VALUES) > PREPARE_THRESHOLD
    for given in VALUES:
        bs = [b"", b"\\x00", b'"\\\0\xff', None]
        assert statement.one(conn, {**given, "bs": bs, "unused": 1}) == (7, 8)
        found = conn.execute(f"DELETE FROM {table} RETURNING *").fetchone()
        texts = [] if given["texts"] == "{}" else given["texts"]
        assert found == tuple({**given, "texts": texts, "bs": bs}.values())
    assert one(conn, "SELECT count(*) FROM pg_prepared_statements WHERE name = 'limpet_x'") == 1


def test_what_is_prepared_outlives_a_refusal_and_is_prepared_again_if_lost(
    postgres: Postgres, schemas: Schemas
) -> None:
    with (
        PgProxy(postgres.url) as proxy,
        limpet.open(schemas.url(server_url=proxy.url), connections=1) as store,
    ):
        scope = store.scope("s")
        for number in range(5):
            scope.save({"n": number})
        proxy.forget()
        with pytest.raises(Conflict):
            scope.save({}, expect="0.0.0")
        scope.save({"n": 5})
        assert proxy.round_trips() <= 4  # a failed attempt, to refuse, to roll back, to save
        backend = store.driver.opened.backend
        assert isinstance(backend, PostgresBackend)
        with backend._server._pool.connection(1) as conn:
            conn.execute("DEALLOCATE ALL")
        store.delete_session("s")
        assert scope.save({"n": 6}).parent_id is None
        assert [each.state for each in scope.load_many(scope.ids())] == [{"n": 6}]


def test_no_row(conn: Connection) -> None:
    statement = raw_statement("x", b"SELECT 1 WHERE %(n)s::int8 = 2")
    assert [statement.one(conn, {"n": n}) for n in (1, 2, 3, 2)] == [None, (1,), None, (1,)]


def test_errors_are_those_of_the_driver(conn: Connection, table: str, postgres: Postgres) -> None:
    statement = raw_statement("x", f"INSERT INTO {table} (n) VALUES (%(n)s) RETURNING 1".encode())
    statement.one(conn, {"n": 1})
    for _ in range(PREPARE_THRESHOLD + 1):
        with pytest.raises(errors.UniqueViolation) as caught:
            statement.one(conn, {"n": 1})
        assert caught.value.diag.constraint_name == "t_n_key"
    wrong = raw_statement("wrong", b"SELECT * FROM %(n)s.nowhere")
    with pytest.raises(errors.SyntaxError):
        wrong.one(conn, {"n": 1})
    with postgres.connect() as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [conn.info.backend_pid])
    with pytest.raises(psycopg.OperationalError):
        statement.one(conn, {"n": 2})
    assert conn.closed
