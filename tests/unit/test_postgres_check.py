"""Check and repair of PostgreSQL's tables.

Every code of docs/check.md that can be true of a server is a case here.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from limpet.backends.sql.checking import SEVERITIES
from limpet.errors import Unavailable
from limpet.opening import open_backend
from limpet.protocol import Backend
from tests.servers.postgres import Connection, Postgres, Schemas
from tests.unit import sql_damage
from tests.unit.sql_damage import (
    HIT,
    ORPHAN,
    Case,
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

NAMES = ("scopes", "snapshots", "tails", "segments", "shared", "labels", "notes")
# What only a file has, and where the keys are tested.
ELSEWHERE = {"file_damaged", "header_wrong", "pragma_wrong", "keys_wrong"}


class PostgresTables:
    """Takes the statements for SQLite's tables."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn

    def run(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        statement = statement.replace("INTO tails (seq,", "INTO tails (scope_pk, seq,")
        statement = statement.replace("VALUES (999, 0, :empty", "VALUES (7, 999, 0, :empty")
        statement = re.sub(r"\b(kept|apart) = (:?\w+)", r"\1 = (\2\::int <> 0)", statement)
        asked = re.sub(r"(?<![:\\]):(\w+)", r"%(\1)s", statement).replace("\\", "")
        done = self._conn.execute(asked, values or None)
        rows = done.fetchall() if done.description else []
        return [tuple(int(x) if isinstance(x, bool) else x for x in row) for row in rows]

    def dump(self) -> list[Any]:
        there = "SELECT to_regclass(:name) IS NOT NULL"
        names = [name for name in NAMES if self.run(there, name=name) == [(1,)]]
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
    with postgres.connect() as conn:
        conn.execute(f"SET search_path = {schemas.name()}")
        yield PostgresTables(conn)


FOREIGN_TRIGGER = (
    "CREATE FUNCTION theirs() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
    "CREATE TRIGGER theirs AFTER DELETE ON tails FOR EACH STATEMENT EXECUTE FUNCTION theirs()",
)

CASES = {
    # The schema
    "foreign trigger": Case(
        run(*FOREIGN_TRIGGER, ORPHAN),
        {"foreign_object", "state_left"},
        {"foreign_object", "state_left"},
    ),
    "index missing": stays("index_missing", run("DROP INDEX snapshots_by_scope"), set()),
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
            " WHERE indexrelid = 'snapshots_by_scope'::regclass"
        ),
        set(),
    ),
    "table missing": Case(
        run("DROP TABLE labels CASCADE"),
        {"schema_differs", "index_missing"},
        {"schema_differs", "index_missing"},
    ),
    "view missing": stays("schema_differs", run("DROP VIEW note_list"), set()),
    **sql_damage.CASES,
}
# A state without its snapshot still says which scope it belongs to: it has as many as its row says.
CASES["state moved"] = CASES["state moved"]._replace(found={"state_damaged", "state_left"})
CASES["base without a snapshot"] = CASES["base without a snapshot"]._replace(
    found={"state_left"}, left={"state_left"}
)


def test_every_code_is_a_case() -> None:
    named = {code for case in CASES.values() for code in case.found}
    assert named == SEVERITIES.keys() - ELSEWHERE


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
    tables.run("DROP TABLE notes CASCADE")
    assert set(codes(inspect(backend, repair=True))) == {"schema_differs", "index_missing"}
    with pytest.raises(Unavailable, match="missing or not up to date"):
        backend.list_notes(S, on=[None], name=None, after="", limit=1)
