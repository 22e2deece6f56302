"""Check and repair of a SQLite file. Every row of the table in docs/check.md is a case here."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from limpet.backends.sql.check_rows import SEVERITIES
from limpet.errors import Corrupt, InvalidInput
from limpet.opening import open_backend
from limpet.protocol import Backend
from tests.unit import damaged
from tests.unit.damaged import (
    HIT,
    IDS,
    ORPHAN,
    OTHER,
    Case,
    Repairs,
    S,
    check_damage,
    codes,
    damage,
    fill,
    inspect,
    mended,
    no_name,
    readable,
    resum,
    run,
    save,
    stays,
)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "check.md"

BAD_TEXT = "CAST(x'ff80' AS TEXT)"


class SqliteTables:
    family = "NULL"

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


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def backend(path: Path) -> Iterator[Backend]:
    backend = open_backend(f"sqlite:///{path}", synchronous="off")
    fill(backend)
    yield backend
    backend.close()


@pytest.fixture
def tables(path: Path, backend: Backend) -> Iterator[SqliteTables]:
    tables = SqliteTables(path)
    yield tables
    tables.close()


CASES = {
    # The file
    "foreign table": stays("foreign_object", run("CREATE TABLE theirs (x)"), set()),
    "foreign view": stays("foreign_object", run("CREATE VIEW v AS SELECT 1"), set()),
    "foreign index": stays("foreign_object", run("CREATE INDEX i ON notes (rev)"), set()),
    "foreign trigger": Case(
        run(
            "CREATE TRIGGER t AFTER DELETE ON bodies BEGIN DELETE FROM notes; END",
            ORPHAN,
        ),
        {"foreign_trigger", "body_without_snapshot"},
        {"foreign_trigger", "body_without_snapshot"},
    ),
    "index missing": mended("index_missing", "DROP INDEX snapshots_anywhere"),
    "index missing, not unique": Case(
        run("DROP INDEX snapshots_by_id", "UPDATE snapshots SET id = 'id-2' WHERE seq = :seq"),
        {"index_missing", "snapshot_damaged"},
        {"index_missing", "snapshot_damaged"},
        HIT | {(S, "id-2")},
    ),
    "column added": stays("schema_differs", run("ALTER TABLE notes ADD COLUMN x INTEGER"), set()),
    "table missing": Case(
        run("DROP TABLE notes"),
        {"table_missing", "index_missing"},
        {"table_missing", "index_missing"},
    ),
    "application id": stays("application_id_wrong", run("PRAGMA application_id = 7"), set()),
    "user version": stays("user_version_wrong", run("PRAGMA user_version = 0"), set()),
    "newer version": stays("user_version_wrong", run("PRAGMA user_version = 9999"), set()),
    "watermark": mended("watermark_missing", "DELETE FROM watermark"),
    "journal": stays("journal_mode_wrong", run("PRAGMA journal_mode = DELETE"), set()),
    "auto vacuum": stays(
        "auto_vacuum_wrong",
        run(
            "PRAGMA journal_mode = DELETE",
            "PRAGMA auto_vacuum = FULL",
            "VACUUM",
            "PRAGMA journal_mode = WAL",
        ),
        set(),
    ),
    **damaged.CASES,
    "snapshot moved": Case(
        run("UPDATE snapshots SET seq = 999 WHERE seq = :seq"),
        {
            *("snapshot_damaged", "body_missing", "body_without_snapshot"),
            *("label_without_snapshot", "tip_wrong", "next_seq_low", "apart_wrong"),
        },
        {"snapshot_damaged", "body_missing", "body_without_snapshot"},
        HIT,
    ),
    # Text that is not UTF-8
    "floor no text": Case(
        run(f"UPDATE scopes SET floor = {BAD_TEXT} WHERE pk = :pk"),
        {"floor_wrong", "scope_damaged"},
    ),
    "session name no text": no_name(
        "session_damaged", run(f"UPDATE sessions SET session_id = {BAD_TEXT} WHERE pk = 1")
    ),
    "scope name no text": no_name(
        "scope_damaged", run(f"UPDATE scopes SET scope_id = {BAD_TEXT} WHERE pk = :pk")
    ),
    "status no text": stays(
        "snapshot_damaged", run(f"UPDATE snapshots SET status = {BAD_TEXT} WHERE seq = :seq")
    ),
    "id no text": Case(
        run(f"UPDATE snapshots SET id = {BAD_TEXT} WHERE seq = :seq"),
        {"snapshot_damaged"},
        {"snapshot_damaged"},
        HIT,
    ),
    "label no text": mended("label_surplus", f"INSERT INTO labels VALUES ('n', {BAD_TEXT}, :seq)"),
    "note name no text": stays(
        "note_damaged", run(f"UPDATE notes SET name = {BAD_TEXT} WHERE name = 'a'"), set()
    ),
}


class TestRepair(Repairs):
    pass


@pytest.mark.parametrize("name", CASES)
def test_damage(backend: Backend, path: Path, tables: SqliteTables, name: str) -> None:
    before = readable(backend)
    alone = name in ("auto vacuum", "journal")
    if alone:
        backend.close()  # the journal is changed only while no other connection is open
    damage(tables, CASES[name])
    if alone:
        backend = open_backend(f"sqlite:///{path}")
    untouched = name in ("application id", "user version", "newer version")
    check_damage(backend, CASES[name], tables, {} if untouched else before)
    backend.close()


def test_a_lost_head_of_an_empty_scope(backend: Backend, tables: SqliteTables) -> None:
    backend.delete_snapshots(S, [*IDS, "first"])
    tables.run("UPDATE scopes SET head_seq = 5, tip_seq = 5 WHERE head_seq IS NULL")
    resum(tables)
    assert codes(inspect(backend, repair=True)) == ["head_missing", "tip_wrong"]

    assert backend.read_info(S, None) is None
    assert inspect(backend) == []


def test_a_wrong_lower_bound_mints_no_id(backend: Backend, tables: SqliteTables) -> None:
    damage(tables, CASES["floor"])
    with pytest.raises(Corrupt):
        save(backend, S, None)


def test_a_watermark_is_above_every_known_seq(backend: Backend, tables: SqliteTables) -> None:
    """Also above those of snapshots that are deleted, as far as their scopes know them."""
    seqs = [int(backend.read_snapshots(S, ["first"])[0][0].revision.partition(".")[0], 16)]
    backend.delete_snapshots(S, ["first"])
    damage(tables, CASES["watermark"])
    inspect(backend, repair=True)

    save(backend, OTHER, "new")
    seqs += [int(backend.read_snapshots(OTHER, ["new"])[0][0].revision.partition(".")[0], 16)]
    assert seqs[0] < seqs[1]


def test_text_that_is_no_text_hides_no_repair(backend: Backend, tables: SqliteTables) -> None:
    """Everything is said, also when a name on the same page cannot be decoded."""
    for name in ("status no text", "next seq", "label of nothing", "label no text"):
        damage(tables, CASES[name])
    found = inspect(backend, repair=True, limit=100)

    left = {each.code: each.repaired for each in found}
    # The labels of a row that is damaged are not known, so its index is left alone.
    assert left == {
        "snapshot_damaged": False,
        "next_seq_low": True,
        "label_without_snapshot": True,
    }


# Pages.


@pytest.mark.parametrize(
    "cursor", ["x", "rows:1", "scopes:x:REPAIR", "scopes:1:TRUST", "scopes:1", "scopes:1:REPAIR:1"]
)
def test_a_cursor_that_check_did_not_return(backend: Backend, cursor: str) -> None:
    with pytest.raises(InvalidInput):
        backend.check(cursor, repair=False, limit=10)


@pytest.mark.parametrize("limit", [1, 2, 1000])
def test_pages_of_any_size_find_the_same(
    backend: Backend, tables: SqliteTables, limit: int
) -> None:
    for name in ("body gone", "tip", "note", "label of nothing", "kind"):
        damage(tables, CASES[name])

    assert inspect(backend, limit=limit) == inspect(backend, limit=3)


# The table in the docs.


def table() -> dict[str, str]:
    """Return severities by the codes in docs/check.md."""
    rows = re.findall(r"^\|[^|]*\| `(\w+)` \| (\w+) \|", PAGE.read_text("utf-8"), re.M)
    assert len(rows) == len(dict(rows))
    return dict(rows)


def test_the_page_lists_every_code() -> None:
    assert table() == SEVERITIES


def test_every_code_has_a_case() -> None:
    tested = {code for case in CASES.values() for code in case.found} | {"file_damaged"}
    assert tested == SEVERITIES.keys() - {"keys_wrong"}  # tests/encryption/test_sql_keys.py
