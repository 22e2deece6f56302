"""What check says about each kind of damage to a SQLite file, and what repair makes of it.

Every row of the table in docs/check.md is a case here.
"""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from limpet.backends.sql.findings import SEVERITIES
from limpet.core import codec
from limpet.core.rows import Row, row_checksum
from limpet.errors import Corrupt, InvalidInput
from limpet.model import ScopeKey
from limpet.opening import open_backend
from limpet.protocol import Backend
from tests.unit.damaged import (
    ALL_OF_S,
    HIT,
    IDS,
    LAST_DRAFT,
    OTHER,
    WHERE_IT_HITS,
    Case,
    Harm,
    Repairs,
    S,
    check_damage,
    codes,
    fill,
    inspect,
    mended,
    readable,
    run,
    save,
    stays,
)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "check.md"

BAD_TEXT = "CAST(x'ff80' AS TEXT)"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def backend(path: Path) -> Iterator[Backend]:
    backend = open_backend(f"sqlite:///{path}", synchronous="off")
    fill(backend)
    yield backend
    backend.close()


def dump(path: Path) -> list[Any]:
    """Return every row of every table, and what the file says of itself."""
    with closing(sqlite3.connect(path)) as conn:
        conn.text_factory = bytes
        facts = [conn.execute("SELECT type, name, sql FROM sqlite_schema").fetchall()]
        for (name,) in conn.execute("SELECT name FROM sqlite_schema WHERE type = 'table'"):
            facts.append(conn.execute(f'SELECT * FROM "{name.decode()}"').fetchall())
        pragmas = ("application_id", "user_version", "auto_vacuum")
        return facts + [conn.execute(f"PRAGMA {pragma}").fetchall() for pragma in pragmas]


# Damage. `:seq` and `:pk` are the snapshot id-1 of `s`, and its scope.


def another_body(encoding: int, body: bytes, base: int | None = None) -> Any:
    """Put another body in place, with a checksum that holds."""

    def damage(conn: sqlite3.Connection, pk: int, seq: int) -> None:
        address = f"{seq}:{'' if base is None else base}:".encode()
        packed = codec.address_body(encoding, body, address=address)
        values = (base, *packed, seq)
        conn.execute(
            "UPDATE bodies SET base = ?, encoding = ?, body = ?, checksum = ? WHERE seq = ?", values
        )

    return damage


def another_row(**changes: Any) -> Any:
    """Change a snapshot's row, with a checksum that holds."""

    def damage(conn: sqlite3.Connection, pk: int, seq: int) -> None:
        columns = ", ".join(Row._fields)
        found = conn.execute(f"SELECT {columns} FROM snapshots WHERE seq = ?", (seq,)).fetchone()
        row = Row(*found)._replace(**changes)
        sets = ", ".join(f"{name} = ?" for name in changes)
        values = (*changes.values(), row_checksum(row, pk), seq)
        conn.execute(f"UPDATE snapshots SET {sets}, checksum = ? WHERE seq = ?", values)

    return damage


CASES = {
    # The file
    "foreign table": stays("foreign_object", run("CREATE TABLE theirs (x)"), set()),
    "foreign view": stays("foreign_object", run("CREATE VIEW v AS SELECT 1"), set()),
    "foreign index": stays("foreign_object", run("CREATE INDEX i ON notes (rev)"), set()),
    "foreign trigger": Case(
        run(
            "CREATE TRIGGER t AFTER DELETE ON bodies BEGIN DELETE FROM notes; END",
            "INSERT INTO bodies VALUES (999, NULL, 0, x'7b7d', 0)",
        ),
        {"foreign_trigger", "body_without_snapshot"},
        {"foreign_trigger", "body_without_snapshot"},
    ),
    "index missing": mended("index_missing", "DROP INDEX snapshots_anywhere"),
    "index missing, not unique": Case(
        run("DROP INDEX snapshots_by_id", "UPDATE snapshots SET id = 'id-2' WHERE seq = :seq"),
        {"index_missing", "snapshot_damaged", "parent_missing"},
        {"index_missing", "snapshot_damaged", "parent_missing"},
        HIT | {(S, "id-2")},
    ),
    "column added": stays("schema_differs", run("ALTER TABLE notes ADD COLUMN x INTEGER"), set()),
    "table missing": Case(run("DROP TABLE notes"), {"table_missing"}, {"table_missing"}),
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
    # Sessions and scopes
    "head of nothing": mended("head_missing", "UPDATE scopes SET head_seq = 999 WHERE pk = :pk"),
    "head of another scope": mended(
        "head_missing",
        "UPDATE scopes SET head_seq = (SELECT seq FROM snapshots WHERE scope_pk != :pk LIMIT 1)"
        " WHERE pk = :pk",
    ),
    "head of nothing, with a draft": Case(
        run(f"UPDATE scopes SET head_seq = 999 WHERE head_seq = {LAST_DRAFT}"),
        {"head_missing", "draft_unreachable"},
    ),
    "tip": mended("tip_wrong", "UPDATE scopes SET tip_seq = :seq WHERE pk = :pk"),
    "tip gone": mended("tip_wrong", "UPDATE scopes SET tip_seq = NULL WHERE pk = :pk"),
    "next place": mended("next_seq_low", "UPDATE scopes SET next_seq = :seq WHERE pk = :pk"),
    "floor": mended("floor_wrong", "UPDATE scopes SET floor = 'zzz' WHERE pk = :pk"),
    "floor no text": mended("floor_wrong", f"UPDATE scopes SET floor = {BAD_TEXT} WHERE pk = :pk"),
    "session name no text": stays(
        "name_wrong", run(f"UPDATE sessions SET session_id = {BAD_TEXT} WHERE pk = 1"), ALL_OF_S
    ),
    "scope name no text": stays(
        "name_wrong", run(f"UPDATE scopes SET scope_id = {BAD_TEXT} WHERE pk = :pk"), ALL_OF_S
    ),
    "kind": stays("name_wrong", run("UPDATE scopes SET kind = 'A!' WHERE pk = :pk"), ALL_OF_S),
    "session empty": stays(
        "session_empty", run("INSERT INTO sessions (session_id) VALUES ('e')"), set()
    ),
    "session gone": Case(
        run("DELETE FROM sessions WHERE session_id = 's'"),
        {"scope_without_session"},
        lost=ALL_OF_S,
    ),
    "scope gone": Case(
        run("DELETE FROM scopes WHERE pk = :pk"),
        {"session_empty", "snapshots_without_scope", "notes_without_scope"},
        {"session_empty"},
        ALL_OF_S,
    ),
    "scope gone, notes alone": Case(
        run("UPDATE notes SET scope_pk = 77 WHERE scope_pk = :pk AND name = 'a'"),
        {"notes_without_scope", "note_damaged"},
        {"note_damaged"},
    ),
    # Snapshots
    "metadata": stays(
        "snapshot_damaged", run("UPDATE snapshots SET metadata = x'7b7d' WHERE seq = :seq")
    ),
    "labels": stays(
        "snapshot_damaged", run("UPDATE snapshots SET labels = x'7b7d' WHERE seq = :seq")
    ),
    "status no text": stays(
        "snapshot_damaged", run(f"UPDATE snapshots SET status = {BAD_TEXT} WHERE seq = :seq")
    ),
    "id no text": Case(
        run(f"UPDATE snapshots SET id = {BAD_TEXT} WHERE seq = :seq"),
        {"snapshot_damaged", "parent_missing"},
        {"snapshot_damaged", "parent_missing"},
        HIT,
    ),
    "facts not JSON": stays("snapshot_damaged", another_row(metadata=b"{")),
    "labels no object": stays("snapshot_damaged", another_row(labels=b"[1]")),
    "time out of range": stays("snapshot_damaged", another_row(created_at=2**62)),
    "parent gone": Case(
        run(
            "DELETE FROM bodies WHERE seq = :seq",
            "DELETE FROM labels WHERE seq = :seq",
            "DELETE FROM snapshots WHERE seq = :seq",
        ),
        {"parent_missing"},
        {"parent_missing"},
        HIT,
    ),
    "draft not the head": stays("draft_unreachable", another_row(kept=0)),
    "draft without a head": mended(
        "draft_unreachable", f"UPDATE scopes SET head_seq = NULL WHERE head_seq = {LAST_DRAFT}"
    ),
    "place behind the parent": mended(
        "apart_wrong", "UPDATE snapshots SET apart = 0 WHERE id = 'branch'"
    ),
    "label not indexed": mended("label_missing", "DELETE FROM labels WHERE seq = :seq"),
    "label changed in the index": Case(
        run("UPDATE labels SET value = 'y' WHERE seq = :seq"), {"label_missing", "label_surplus"}
    ),
    "label too much": mended("label_surplus", "INSERT INTO labels VALUES ('n', 'v', :seq)"),
    "label no text": mended("label_surplus", f"INSERT INTO labels VALUES ('n', {BAD_TEXT}, :seq)"),
    "label of nothing": mended(
        "label_without_snapshot", "INSERT INTO labels VALUES ('n', 'v', 999)"
    ),
    # Bodies
    "body gone": stays("body_missing", run("DELETE FROM bodies WHERE seq = :seq")),
    "body flipped": stays(
        "body_damaged",
        run("UPDATE bodies SET body = CAST('[' || substr(body, 2) AS BLOB) WHERE seq = :seq"),
    ),
    "body of unknown encoding": stays(
        "body_damaged", run("UPDATE bodies SET encoding = 77 WHERE seq = :seq")
    ),
    "body not zstd": stays("body_damaged", another_body(codec.ZSTD, b"no zstd")),
    "body not JSON": stays("body_not_json", another_body(codec.WHOLE, b"{"), HIT),
    "body of another size": stays("body_size_wrong", another_body(codec.WHOLE, b"{}"), HIT),
    "base gone": stays("base_missing", another_body(codec.WHOLE, b"{}", base=999), HIT),
    "body of nothing": mended(
        "body_without_snapshot", "INSERT INTO bodies VALUES (999, NULL, 0, x'7b7d', 0)"
    ),
    "body moved": Case(
        run("UPDATE bodies SET seq = 999 WHERE seq = :seq"),
        {"body_missing", "body_without_snapshot"},
        {"body_missing", "body_without_snapshot"},
        HIT,
    ),
    "snapshot moved": Case(
        run("UPDATE snapshots SET seq = 999 WHERE seq = :seq"),
        {
            *("snapshot_damaged", "body_missing", "body_without_snapshot"),
            *("label_without_snapshot", "tip_wrong", "next_seq_low", "apart_wrong"),
        },
        {"snapshot_damaged", "body_missing", "body_without_snapshot"},
        HIT,
    ),
    # Notes
    "note": stays("note_damaged", run("UPDATE notes SET value = x'31' WHERE name = 'a'"), set()),
    "note name no text": stays(
        "note_damaged", run(f"UPDATE notes SET name = {BAD_TEXT} WHERE name = 'a'"), set()
    ),
    "note not JSON": stays("note_damaged", run("UPDATE notes SET value = x'' WHERE pk = 1"), set()),
}


def damage(path: Path, case: Case) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        case.damage(conn, *conn.execute(WHERE_IT_HITS).fetchone())


@pytest.fixture
def harm(path: Path) -> Harm:
    return lambda name: damage(path, CASES[name])


class TestRepair(Repairs):
    """What repair does, on either engine."""


def test_a_healthy_store_has_no_findings(backend: Backend) -> None:
    assert inspect(backend) == []
    assert inspect(backend, repair=True) == []


@pytest.mark.parametrize("name", CASES)
def test_damage(backend: Backend, path: Path, name: str) -> None:
    """Check names it and changes nothing; repair leaves what it cannot mend, and harms nothing."""
    case = CASES[name]
    before = readable(backend)
    if name in ("auto vacuum", "journal"):
        backend.close()  # it changes the journal, for which nobody else may have the file open
    damage(path, case)
    if name in ("auto vacuum", "journal"):
        backend = open_backend(f"sqlite:///{path}")
    untouched = name in ("application id", "user version", "newer version")
    found = check_damage(backend, case, lambda: dump(path), {} if untouched else before)
    backend.close()
    for each in found:
        each.message.encode()
        assert "lorem" not in each.message


@pytest.mark.parametrize("name", ["metadata", "body gone", "body flipped", "label not indexed"])
def test_a_finding_has_an_address_that_the_verbs_take(
    backend: Backend, path: Path, name: str
) -> None:
    """What cannot be mended can be deleted, and then check is content."""
    damage(path, CASES[name])

    (finding,) = inspect(backend)
    assert (finding.scope, finding.id) == (S, "id-1")
    backend.delete_snapshots(S, ["id-1"])
    assert codes(inspect(backend)) == ["parent_missing"]


# What repair does.


def test_a_lost_head_of_an_empty_scope(backend: Backend, path: Path) -> None:
    backend.delete_snapshots(S, [*IDS, "first"])
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        conn.execute("UPDATE scopes SET head_seq = 5, tip_seq = 5 WHERE head_seq IS NULL")
    assert codes(inspect(backend, repair=True)) == ["head_missing", "tip_wrong"]

    assert backend.read_info(S, None) is None
    assert inspect(backend) == []


@pytest.mark.parametrize("name", ["scope gone", "session gone"])
def test_what_is_found_again_never_takes_a_name_that_is_taken(
    backend: Backend, path: Path, name: str
) -> None:
    save(backend, ScopeKey("lost+found", "scope-1"), "theirs")
    save(backend, ScopeKey("lost+found/session-1"), "theirs")
    damage(path, CASES[name])
    before = dump(path)

    assert not any(each.repaired for each in inspect(backend, repair=True))
    assert dump(path) == before


def test_a_floor_is_the_greatest_id_that_can_have_been_minted(backend: Backend, path: Path) -> None:
    """Not one that a caller gave, from which no greater one may be left."""
    minted = [save(backend, S, None) for _ in range(3)]
    save(backend, S, "ffffffff-ffff-7fff-bfff-ffffffffffff")
    damage(path, CASES["floor"])
    with pytest.raises(Corrupt):
        save(backend, S, None)
    inspect(backend, repair=True)

    with closing(sqlite3.connect(path)) as conn:
        (floor,) = conn.execute("SELECT floor FROM scopes WHERE pk = 1").fetchone()
    assert floor == max(minted)
    assert save(backend, S, None) > floor


def test_a_watermark_is_above_every_place_that_is_remembered(backend: Backend, path: Path) -> None:
    """Also above those of snapshots that are deleted, as far as their scopes know them."""
    seqs = [int(backend.read_snapshots(S, ["first"])[0][0].revision.partition(".")[0], 16)]
    backend.delete_snapshots(S, ["first"])
    damage(path, CASES["watermark"])
    inspect(backend, repair=True)

    save(backend, OTHER, "new")
    seqs += [int(backend.read_snapshots(OTHER, ["new"])[0][0].revision.partition(".")[0], 16)]
    assert seqs[0] < seqs[1]


def test_labels_are_found_again(backend: Backend, path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        before = conn.execute("SELECT * FROM labels ORDER BY seq").fetchall()
        conn.execute("DELETE FROM labels")
        assert all(each.repaired for each in inspect(backend, repair=True))
        assert conn.execute("SELECT * FROM labels ORDER BY seq").fetchall() == before


def test_text_that_is_no_text_hides_no_repair(backend: Backend, path: Path) -> None:
    """Everything is said, also when a name on the same page cannot be decoded."""
    for name in ("status no text", "next place", "label of nothing", "label no text"):
        damage(path, CASES[name])
    found = inspect(backend, repair=True, limit=100)

    left = {each.code: each.repaired for each in found}
    # The labels of a row that is damaged are not known, so its index is left alone.
    assert left == {
        "snapshot_damaged": False,
        "next_seq_low": True,
        "label_without_snapshot": True,
    }


# Places.


@pytest.mark.parametrize(
    "place", ["x", "rows:1", "scopes:x:REPAIR", "scopes:1:TRUST", "scopes:1", "scopes:1:REPAIR:1"]
)
def test_a_place_that_check_did_not_give(backend: Backend, place: str) -> None:
    with pytest.raises(InvalidInput):
        backend.check(place, repair=False, limit=10)


@pytest.mark.parametrize("limit", [1, 2, 1000])
def test_pages_of_any_size_find_the_same(backend: Backend, path: Path, limit: int) -> None:
    for name in ("body gone", "tip", "note", "label of nothing", "kind"):
        damage(path, CASES[name])

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
    assert tested == SEVERITIES.keys()
