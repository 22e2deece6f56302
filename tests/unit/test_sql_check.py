"""Check and repair of tables. Every row of the table in docs/check.md is a case here."""

import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from limpet.backends.sql.checking import SEVERITIES
from limpet.core.limits import PAGE_ITEMS_MAX
from limpet.errors import Corrupt, InvalidInput, Unavailable
from limpet.model import ScopeKey
from limpet.opening import open_backend, store_over
from limpet.protocol import Backend
from tests.cases import for_each
from tests.servers.postgres import Connection, Postgres, Schemas
from tests.unit import sql_damage
from tests.unit.sql_damage import (
    ALL_OF_S,
    DRAFTED,
    EVERY_COLUMN,
    HIT,
    IDS,
    ORPHAN,
    WHERE_IT_HITS,
    Case,
    S,
    check_column,
    check_damage,
    codes,
    damage,
    fill,
    inspect,
    mended,
    readable,
    run,
    save,
    stays,
)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "check.md"

NAMES = ("scopes", "snapshots", "tails", "segments", "shared", "labels", "notes")
ON_FILES = {"file_damaged", "header_wrong", "pragma_wrong"}
BAD_TEXT = "CAST(x'ff80' AS TEXT)"


class SqliteTables:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._conn: sqlite3.Connection | None = None

    def run(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        if self._conn is None:
            self._conn = sqlite3.connect(self._path, isolation_level=None)
        return self._conn.execute(statement, values).fetchall()

    def dump(self) -> list[Any]:
        with closing(sqlite3.connect(self._path)) as conn:
            conn.text_factory = bytes
            facts = [conn.execute("SELECT type, name, sql FROM sqlite_schema").fetchall()]
            for (name,) in conn.execute("SELECT name FROM sqlite_schema WHERE type = 'table'"):
                facts.append(conn.execute(f'SELECT * FROM "{name.decode()}"').fetchall())
            pragmas = ("application_id", "user_version", "auto_vacuum")
            return facts + [conn.execute(f"PRAGMA {pragma}").fetchall() for pragma in pragmas]

    def close(self) -> None:
        if self._conn is not None:
            self._conn.close()
            self._conn = None


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("filled") / "store.db"
    with closing(open_backend(f"sqlite:///{path}", synchronous="off")) as backend:
        fill(backend)
    return path


Copied = tuple[Path, Backend, SqliteTables]


@contextmanager
def copied(filled: Path, folder: Path) -> Iterator[Copied]:
    path = Path(shutil.copy(filled, folder))
    with (
        closing(open_backend(f"sqlite:///{path}", synchronous="off")) as backend,
        closing(SqliteTables(path)) as tables,
    ):
        yield path, backend, tables


@pytest.fixture
def copy(filled: Path, tmp_path: Path) -> Iterator[Copied]:
    with copied(filled, tmp_path) as found:
        yield found


@pytest.fixture
def backend(copy: Copied) -> Backend:
    return copy[1]


@pytest.fixture
def tables(copy: Copied) -> SqliteTables:
    return copy[2]


CASES = {
    # The file
    "foreign table": stays("foreign_object", run("CREATE TABLE theirs (x)"), set()),
    "foreign view": stays("foreign_object", run("CREATE VIEW v AS SELECT 1"), set()),
    "foreign trigger": Case(
        run("CREATE TRIGGER t AFTER DELETE ON tails BEGIN DELETE FROM notes; END", ORPHAN),
        {"foreign_object", "state_left"},
        {"foreign_object", "state_left"},
    ),
    "index missing": mended("index_missing", "DROP INDEX snapshots_by_scope"),
    "index missing, not unique": Case(
        run("DROP INDEX snapshots_by_id", "UPDATE snapshots SET id = 'id-2' WHERE seq = :seq"),
        {"index_missing", "snapshot_damaged"},
        {"index_missing", "snapshot_damaged"},
        HIT | {(S, "id-2")},
    ),
    "column added": stays("schema_differs", run("ALTER TABLE notes ADD COLUMN x INTEGER"), set()),
    "table missing": Case(
        run("DROP TABLE labels"),
        {"schema_differs", "index_missing"},
        {"schema_differs", "index_missing"},
    ),
    "id of the store": stays("schema_differs", run("DELETE FROM store"), set()),
    "application id": stays("header_wrong", run("PRAGMA application_id = 7"), set()),
    "user version": stays("header_wrong", run("PRAGMA user_version = 1"), set()),
    "newer version": stays("header_wrong", run("PRAGMA user_version = 9999"), set()),
    "auto vacuum": stays(
        "pragma_wrong",
        run(
            "PRAGMA journal_mode = DELETE",
            "PRAGMA auto_vacuum = FULL",
            "VACUUM",
            "PRAGMA journal_mode = WAL",
        ),
        set(),
    ),
    **sql_damage.CASES,
    "snapshot moved": Case(
        run("UPDATE snapshots SET seq = 999 WHERE seq = :seq"),
        {"snapshot_damaged", "state_left", "index_wrong", "scope_wrong"},
        {"snapshot_damaged", "state_left"},
        HIT,
    ),
    # Text that is not UTF-8
    "scope name no text": stays(
        "scope_damaged", run(f"UPDATE scopes SET scope_id = {BAD_TEXT} WHERE pk = :pk"), ALL_OF_S
    ),
    "status no text": stays(
        "snapshot_damaged", run(f"UPDATE snapshots SET status = {BAD_TEXT} WHERE seq = :seq")
    ),
    "id no text": stays(
        "snapshot_damaged", run(f"UPDATE snapshots SET id = {BAD_TEXT} WHERE seq = :seq")
    ),
    "label no text": mended("index_wrong", f"INSERT INTO labels VALUES ('n', {BAD_TEXT}, :seq)"),
    "note name no text": stays(
        "note_damaged",
        run(f"UPDATE notes SET name = {BAD_TEXT} WHERE scope_pk = :pk AND name = 'a'"),
        {(S, "note None a")},
    ),
}


@for_each("name", CASES)
def test_damage(filled: Path, tmp_path: Path, name: str) -> None:
    with copied(filled, tmp_path) as (path, backend, tables):
        check_case(backend, path, tables, name)


def check_case(backend: Backend, path: Path, tables: SqliteTables, name: str) -> None:
    before = readable(backend)
    alone = name == "auto vacuum"
    if alone:
        backend.close()  # the journal is changed only while no other connection is open
    damage(tables, CASES[name])
    if alone:
        backend = open_backend(f"sqlite:///{path}")
    untouched = name in ("application id", "user version", "newer version")
    check_damage(backend, CASES[name], tables, {} if untouched else before)
    backend.close()


@for_each("table, column", EVERY_COLUMN)
def test_every_column(filled: Path, tmp_path: Path, table: str, column: str) -> None:
    with copied(filled, tmp_path) as (_, backend, tables):
        check_column(backend, tables, table, column, readable(backend))


def test_a_wrong_lower_bound_mints_no_id(backend: Backend, tables: SqliteTables) -> None:
    damage(tables, CASES["floor"])
    with pytest.raises(Corrupt):
        save(backend, S, None)


def test_text_that_is_no_text_hides_no_repair(backend: Backend, tables: SqliteTables) -> None:
    """Everything is said, also when a name on the same page cannot be decoded."""
    for name in ("status no text", "last", "label of nothing"):
        damage(tables, CASES[name])
    left = {each.code: each.repaired for each in inspect(backend, repair=True, limit=100)}
    assert left == {"snapshot_damaged": False, "scope_wrong": True, "index_wrong": True}


@pytest.mark.parametrize("on", ["", pytest.param("pg_", marks=pytest.mark.slow)])
def test_list_damage_names_what_lists_leave_out(request: pytest.FixtureRequest, on: str) -> None:
    backend = request.getfixturevalue(f"{on}backend")
    tables = request.getfixturevalue(f"{on}tables")
    ((pk, _),) = tables.run(WHERE_IT_HITS)
    for change in (
        "snapshots SET status = 'other' WHERE id IN ('id-1', 'id-3')",
        "notes SET value = :empty WHERE (name = 'a' OR on_id = 'id-2')",
    ):
        run(f"UPDATE {change} AND scope_pk = :pk")(tables, pk, 0)
    tables.close()
    assert [(each.code, each.scope, each.id) for each in backend.list_damage(S)] == [
        ("snapshot_damaged", S, "id-3"),
        ("snapshot_damaged", S, "id-1"),
        ("note_damaged", S, None),
        ("note_damaged", S, "id-2"),
    ]


@pytest.mark.slow
def test_a_name_that_is_no_text_ends_no_listing(backend: Backend, tables: SqliteTables) -> None:
    """What comes on later pages is still listed when it is the last name of a page that is bad."""
    store = store_over(backend)
    many = [f"n-{number:03}" for number in range(PAGE_ITEMS_MAX + 10)]
    for name in many:
        store.scope(name).save({})
        store.scope("s").save({}, id=name)
    bad = many.pop(PAGE_ITEMS_MAX - 1)
    for table, column in (("scopes", "session_id"), ("snapshots", "id")):
        text = f"CAST('{bad}' || x'ff' AS TEXT)"
        tables.run(f"UPDATE {table} SET {column} = {text} WHERE {column} = '{bad}'")
    assert list(store.sessions(prefix="n-")) == list(store.scope("s").ids(after="n")) == many


# Repair


def test_a_healthy_store_has_no_findings(backend: Backend) -> None:
    assert inspect(backend) == []
    assert inspect(backend, repair=True) == []


@pytest.mark.parametrize("name", ["facts not JSON", "state gone", "label not indexed"])
def test_a_finding_has_the_address_of_its_snapshot(
    backend: Backend, tables: SqliteTables, name: str
) -> None:
    """What cannot be mended can be deleted, and then check no longer finds it."""
    damage(tables, CASES[name])

    found = [each for each in inspect(backend) if each.code != "scope_wrong"]
    assert [(each.scope, each.id) for each in found] == [(S, "id-1")]
    backend.delete_snapshots(S, ["id-1"])
    assert codes(inspect(backend, repair=True)) in ([], ["scope_wrong"])
    assert inspect(backend) == []


def test_a_lost_head_is_the_draft_if_there_is_one(backend: Backend, tables: SqliteTables) -> None:
    for name in ("head of nothing, with a draft", "head of nothing"):
        damage(tables, CASES[name])
    inspect(backend, repair=True)

    heads = [backend.read_info(scope, None) for scope in (DRAFTED, S)]
    assert [head and head.id for head in heads] == ["draft", "first"]


def test_a_lost_scope_is_found_again(backend: Backend, tables: SqliteTables) -> None:
    """With all that belonged to it, under a name that says so."""
    before = backend.read_snapshots(S, IDS)
    notes = backend.list_notes(S, on=[None, *IDS], name=None, after="", limit=99)
    minted = save(backend, S, None)
    damage(tables, CASES["scope gone"])
    (found,) = inspect(backend, repair=True)

    key = found.scope
    assert key is not None
    assert key.session_id == "lost+found"
    states = backend.read_snapshots(key, IDS)
    assert [body for _, body in states] == [body for _, body in before]
    assert [info.revision for info, _ in states] == [info.revision for info, _ in before]
    assert backend.list_notes(key, on=[None, *IDS], name=None, after="", limit=99) == notes
    head = backend.read_info(key, None)
    assert head is not None
    assert head.id == minted
    assert save(backend, key, None) > minted
    assert backend.delete_session("lost+found") == len(IDS) + 3
    assert backend.delete_session("s") == 0
    assert inspect(backend) == []


def test_a_name_that_is_taken_is_not_used_for_what_was_lost(
    backend: Backend, tables: SqliteTables
) -> None:
    ((pk, _),) = tables.run(WHERE_IT_HITS)
    save(backend, ScopeKey("lost+found", f"scope-{pk}"), "theirs")
    damage(tables, CASES["scope gone"])
    before = tables.dump()

    assert not any(each.repaired for each in inspect(backend, repair=True))
    assert tables.dump() == before


def test_a_floor_is_the_greatest_id_that_can_have_been_minted(
    backend: Backend, tables: SqliteTables
) -> None:
    """Not an id that a caller gave: there may be no greater one."""
    minted = [save(backend, S, None) for _ in range(3)]
    save(backend, S, "ffffffff-ffff-7fff-bfff-ffffffffffff")
    damage(tables, CASES["floor"])
    inspect(backend, repair=True)

    ((floor,),) = tables.run("SELECT floor FROM scopes WHERE session_id = 's'")
    assert floor == max(minted)
    assert save(backend, S, None) > floor


# Pages.


@for_each("cursor", ["x", "rows:1:rw", "scopes:x:rw", "scopes:1:x", "scopes:1", "scopes:1:rw:1"])
def test_a_cursor_that_check_did_not_return(backend: Backend, cursor: str) -> None:
    with pytest.raises(InvalidInput):
        backend.check(cursor, repair=False, limit=10)


@pytest.mark.parametrize("limit", [1, 1000])
def test_pages_of_any_size_find_the_same(
    backend: Backend, tables: SqliteTables, limit: int
) -> None:
    for name in ("state gone", "note not JSON", "label of nothing", "kind"):
        damage(tables, CASES[name])

    assert inspect(backend, limit=limit) == inspect(backend, limit=13)


# PostgreSQL


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
def pg_backend(postgres_url: str) -> Iterator[Backend]:
    backend = open_backend(postgres_url)
    fill(backend)
    yield backend
    backend.close()


@pytest.fixture
def pg_tables(
    postgres: Postgres, schemas: Schemas, pg_backend: Backend
) -> Iterator[PostgresTables]:
    with postgres.connect() as conn:
        conn.execute(f"SET search_path = {schemas.name()}")
        yield PostgresTables(conn)


FOREIGN_TRIGGER = (
    "CREATE FUNCTION theirs() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
    "CREATE TRIGGER theirs AFTER DELETE ON tails FOR EACH STATEMENT EXECUTE FUNCTION theirs()",
)

PG_CASES = {
    # The schema
    "foreign trigger": Case(
        run(*FOREIGN_TRIGGER, ORPHAN),
        {"foreign_object", "state_left"},
        {"foreign_object", "state_left"},
    ),
    "index missing": stays("index_missing", run("DROP INDEX snapshots_by_scope"), set()),
    "index missing, not unique": CASES["index missing, not unique"],
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
PG_CASES["state moved"] = PG_CASES["state moved"]._replace(found={"state_damaged", "state_left"})
PG_CASES["base without a snapshot"] = PG_CASES["base without a snapshot"]._replace(
    found={"state_left"}, left={"state_left"}
)


# What is inspected is the same code as on SQLite, where every case runs: here some of them do.
_SLOWLY = [
    name if at % 7 == 0 else pytest.param(name, marks=pytest.mark.slow)
    for at, name in enumerate(PG_CASES)
]


@pytest.mark.parametrize("name", _SLOWLY)
def test_damage_on_postgres(pg_backend: Backend, pg_tables: PostgresTables, name: str) -> None:
    before = readable(pg_backend)
    damage(pg_tables, PG_CASES[name])
    check_damage(pg_backend, PG_CASES[name], pg_tables, before)


def test_nothing_else_is_checked_when_a_table_is_missing(
    pg_backend: Backend, pg_tables: PostgresTables
) -> None:
    """Reads raise an error that says what to do."""
    damage(pg_tables, PG_CASES["head of nothing"])
    pg_tables.run("DROP TABLE notes CASCADE")
    assert set(codes(inspect(pg_backend, repair=True))) == {"schema_differs", "index_missing"}
    with pytest.raises(Unavailable, match="missing or not up to date"):
        pg_backend.list_notes(S, on=[None], name=None, after="", limit=1)


# The table in the docs.


def table() -> dict[str, str]:
    """Return severities by the codes in docs/check.md."""
    rows = re.findall(r"^\|[^|]*\| `(\w+)` \| (\w+) \|", PAGE.read_text("utf-8"), re.M)
    assert len(rows) == len(dict(rows))
    return dict(rows)


def test_the_page_lists_every_code() -> None:
    assert table() == SEVERITIES


def test_every_code_has_a_case() -> None:
    """What only a file has is no case on a server."""
    elsewhere = {"keys_wrong"}  # tests/encryption/test_sql_keys.py
    for cases, others in ((CASES, {"file_damaged"}), (PG_CASES, ON_FILES)):
        tested = {code for case in cases.values() for code in case.found}
        assert tested == SEVERITIES.keys() - elsewhere - others
