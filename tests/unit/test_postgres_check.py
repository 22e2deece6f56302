"""Check and repair of PostgreSQL's tables.

Every code of docs/check.md that can be true of a server is a case here.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from limpet.backends.sql.check_rows import SEVERITIES

from limpet.errors import Unavailable
from limpet.opening import open_backend, store_over
from limpet.protocol import Backend
from tests.servers.postgres import Connection, Postgres, Schemas
from tests.unit import damaged
from tests.unit.damaged import (
    HIT,
    ORPHAN,
    Case,
    Repairs,
    S,
    check_damage,
    codes,
    damage,
    fill,
    inspect,
    readable,
    run,
    stays,
)

NAMES = ("sessions", "scopes", "snapshots", "bodies", "labels", "notes")
# What only a file has, and what a server makes impossible: bytes that are no text.
ONLY_OF_FILES = {
    "application_id_wrong",
    "auto_vacuum_wrong",
    "file_damaged",
    "foreign_object",
    "journal_mode_wrong",
    "schema_differs",
    "user_version_wrong",
    "watermark_missing",
}


class PostgresTables:
    family = "family"

    def __init__(self, conn: Connection) -> None:
        self._conn = conn

    def run(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        if not values:
            done = self._conn.execute(statement)
        else:
            done = self._conn.execute(re.sub(r"(?<!:):(\w+)", r"%(\1)s", statement), values)
        return done.fetchall() if done.description else []

    def dump(self) -> list[Any]:
        there = "SELECT to_regclass(:name) IS NOT NULL"
        names = [name for name in NAMES if self.run(there, name=name) == [(True,)]]
        return [self.run(f"SELECT t::text FROM {name} AS t ORDER BY 1") for name in names]

    def close(self) -> None:
        pass


@pytest.fixture
def backend(postgres_url: str) -> Iterator[Backend]:
    backend = open_backend(postgres_url)
    fill(backend)
    yield backend
    backend.close()


@pytest.fixture
def tables(postgres: Postgres, schemas: Schemas, backend: Backend) -> Iterator[PostgresTables]:
    """Through a connection for which foreign keys do not hold."""
    with postgres.connect() as conn:
        conn.execute(f"SET search_path = {schemas.name()}")
        conn.execute("SET session_replication_role = replica")
        yield PostgresTables(conn)


FOREIGN_TRIGGER = (
    "CREATE FUNCTION theirs() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
    "CREATE TRIGGER theirs AFTER DELETE ON bodies FOR EACH STATEMENT EXECUTE FUNCTION theirs()",
)

CASES = {
    # The schema
    "foreign trigger": Case(
        run(*FOREIGN_TRIGGER, ORPHAN),
        {"foreign_trigger", "body_without_snapshot"},
        {"foreign_trigger", "body_without_snapshot"},
    ),
    "index missing": stays("index_missing", run("DROP INDEX snapshots_anywhere"), set()),
    "index missing, not unique": Case(
        run("DROP INDEX snapshots_by_id", "UPDATE snapshots SET id = 'id-2' WHERE seq = :seq"),
        {"index_missing", "snapshot_damaged"},
        {"index_missing", "snapshot_damaged"},
        HIT | {(S, "id-2")},
    ),
    "index not usable": stays(
        "index_missing",
        run(
            "UPDATE pg_index SET indisvalid = false"
            " WHERE indexrelid = 'snapshots_anywhere'::regclass"
        ),
        set(),
    ),
    "table missing": Case(
        run("DROP TABLE notes CASCADE"),
        {"table_missing", "index_missing"},
        {"table_missing", "index_missing"},
    ),
    "view missing": stays("table_missing", run("DROP VIEW note_list"), set()),
    **damaged.CASES,
}


def test_every_code_is_a_case() -> None:
    named = {code for case in CASES.values() for code in case.found}
    assert named == SEVERITIES.keys() - ONLY_OF_FILES - {
        "keys_wrong"
    }  # tests/encryption/test_sql_keys.py


class TestRepair(Repairs):
    pass


# What is inspected is the same code as on SQLite, where every case runs: here some of them do.
_SLOWLY = [
    name if at % 7 == 0 else pytest.param(name, marks=pytest.mark.slow)
    for at, name in enumerate(CASES)
]


@pytest.mark.parametrize("name", _SLOWLY)
def test_damage(backend: Backend, tables: PostgresTables, name: str) -> None:
    before = readable(backend)
    damage(tables, CASES[name])
    check_damage(backend, CASES[name], tables, before)


def test_nothing_else_is_checked_when_a_table_is_missing(
    backend: Backend, tables: PostgresTables
) -> None:
    """Reads raise an error that says what to do."""
    damage(tables, CASES["head of nothing"])
    damage(tables, CASES["table missing"])
    assert set(codes(inspect(backend, repair=True))) == {"table_missing", "index_missing"}
    with pytest.raises(Unavailable, match="missing or not up to date"):
        backend.list_notes(S, on=[None], name=None, after="", limit=1)


def test_a_lost_scope_belongs_to_its_family_again(backend: Backend, tables: PostgresTables) -> None:
    """Its states and those of its forks still build on each other, so a removal locks them all."""
    store = store_over(backend)
    origin = store.scope("f", "origin")
    base = {"text": "lorem ipsum " * 500}
    for number in range(5):
        origin.save({**base, "n": number}, id=str(number))
    fork = origin.fork("3", scope_id="fork")
    fork.save({**base, "n": 33}, id="33")
    tables.run("DELETE FROM scopes WHERE scope_id = 'origin'")
    inspect(backend, repair=True)

    query = "SELECT family FROM scopes WHERE scope_id = 'fork' OR scope_id LIKE 'scope-%'"
    families = tables.run(query)
    assert len(families) == 2
    assert len(set(families)) == 1
    assert families[0] != (None,)
    assert backend.delete_session("lost+found") == 5
    assert [found.state["n"] for found in fork.load_many(list(fork.ids()))] == [3, 33]
    assert inspect(backend) == []
    store.close()
