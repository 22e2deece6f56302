"""Statements whose values are sent as bytes: what is given arrives, errors are those of psycopg."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import errors

import limpet
from limpet import Conflict
from limpet.backends.postgres.raw import PREPARE_THRESHOLD, Connection, rows_of, run, statement_of
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


def ask(conn: Connection, text: str, values: dict[str, Any]) -> list[Any]:
    statement = statement_of("x", text)
    return rows_of(conn, statement, run(conn, [statement.with_values(values)])[0])


@pytest.fixture
def table(postgres: Postgres, schemas: Schemas) -> str:
    name = schemas.name()
    columns = "n int8 UNIQUE, t text, b bytea, yes bool, texts text[], ns int8[]"
    with postgres.connect() as conn:
        conn.execute(f"CREATE SCHEMA {name}; CREATE TABLE {name}.t ({columns})")
    return f"{name}.t"


def test_what_is_sent_arrives_prepared_or_not(conn: Connection, table: str) -> None:
    values = "%(n)s, %(t)s, %(b)s, %(yes)s, %(texts)s, %(ns)s"
    insert = f"INSERT INTO {table} VALUES ({values}) RETURNING n, t, b, yes, 7"
    assert len(VALUES) > PREPARE_THRESHOLD
    for given in VALUES:
        ((*found, seven),) = ask(conn, insert, {**given, "unused": 1})
        assert (found, seven) == ([given[each] for each in ("n", "t", "b", "yes")], 7)
        stored = conn.execute(f"DELETE FROM {table} RETURNING *").fetchone()
        texts = [] if given["texts"] == "{}" else given["texts"]
        assert stored == tuple({**given, "texts": texts}.values())
    assert one(conn, "SELECT count(*) FROM pg_prepared_statements WHERE name = 'limpet_x'") == 1


def test_several_are_one_round_trip(postgres: Postgres) -> None:
    """Prepared or not; and an error of one is the error of all."""
    with PgProxy(postgres.url) as proxy, Connection.connect(proxy.url, autocommit=True) as conn:
        statements = [statement_of(str(at), f"SELECT %(n)s::int8 + {at}") for at in range(3)]
        commands = [each.with_values({"n": 5}) for each in statements]
        wrong = statement_of("wrong", "SELECT 1 / (%(n)s::int8 - 5)").with_values({"n": 5})
        for _ in range(PREPARE_THRESHOLD + 2):
            proxy.forget()
            results = run(conn, commands)
            assert proxy.round_trips() == 1
            found = [rows_of(conn, *each) for each in zip(statements, results, strict=True)]
            assert found == [[(5,)], [(6,)], [(7,)]]
        with pytest.raises(errors.DivisionByZero):
            run(conn, [commands[0], wrong, commands[1]])
        assert len(run(conn, commands)) == 3


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
        with backend.storage._server._pool.connection(1) as conn:  # type: ignore[attr-defined]
            conn.execute("DEALLOCATE ALL")
        store.delete_session("s")
        assert scope.save({"n": 6}).parent_id is None
        assert [each.state for each in scope.load_many(scope.ids())] == [{"n": 6}]


def test_errors_are_those_of_the_driver(conn: Connection, table: str, postgres: Postgres) -> None:
    insert = f"INSERT INTO {table} (n) VALUES (%(n)s) RETURNING 1"
    ask(conn, insert, {"n": 1})
    for _ in range(PREPARE_THRESHOLD + 1):
        with pytest.raises(errors.UniqueViolation) as caught:
            ask(conn, insert, {"n": 1})
        assert caught.value.diag.constraint_name == "t_n_key"
    with pytest.raises(errors.SyntaxError):
        run(conn, [statement_of("wrong", "SELECT * FROM %(n)s.nowhere").with_values({"n": 1})])
    with postgres.connect() as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [conn.info.backend_pid])
    with pytest.raises(psycopg.OperationalError):
        ask(conn, insert, {"n": 2})
    assert conn.closed


def test_a_commit_that_fails_is_an_error(conn: Connection, table: str) -> None:
    """Also of a statement that commits by itself, prepared or not."""
    conn.execute(f"ALTER TABLE {table} DROP CONSTRAINT t_n_key")
    conn.execute(f"ALTER TABLE {table} ADD UNIQUE (n) DEFERRABLE INITIALLY DEFERRED")
    insert = f"INSERT INTO {table} (n) VALUES (%(n)s) RETURNING 1"
    ask(conn, insert, {"n": 1})
    for _ in range(PREPARE_THRESHOLD + 2):
        with pytest.raises(errors.UniqueViolation):
            ask(conn, insert, {"n": 1})
    assert ask(conn, insert, {"n": 2}) == [(1,)]
