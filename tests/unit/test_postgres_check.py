"""What check says about each kind of damage to PostgreSQL's tables, and what repair makes of it.

Every code of docs/check.md that can be true of a server is a case here.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from limpet.backends.sql.findings import SEVERITIES
from limpet.core import codec
from limpet.core.rows import Row, row_checksum
from limpet.opening import open_backend
from limpet.protocol import Backend
from tests.servers.postgres import Connection, Postgres, Schemas
from tests.unit.damaged import (
    ALL_OF_S,
    HIT,
    LAST_DRAFT,
    WHERE_IT_HITS,
    Case,
    S,
    check_damage,
    codes,
    fill,
    inspect,
    mended,
    readable,
    run,
    stays,
)

TABLES = ("sessions", "scopes", "snapshots", "bodies", "labels", "notes")
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


@pytest.fixture
def conn(postgres: Postgres, schemas: Schemas) -> Iterator[Connection]:
    """A connection that sees our tables, and for which foreign keys do not hold."""
    with postgres.connect() as conn:
        conn.execute(f"SET search_path = {schemas.name()}")
        conn.execute("SET session_replication_role = replica")
        yield conn


@pytest.fixture
def backend(postgres_url: str) -> Iterator[Backend]:
    backend = open_backend(postgres_url)
    fill(backend)
    yield backend
    backend.close()


def dump(conn: Connection) -> list[Any]:
    """Return every row of every table that is there."""
    facts = []
    for name in TABLES:
        found = conn.execute("SELECT to_regclass(%s) IS NOT NULL", (name,)).fetchone()
        if found == (True,):
            facts.append(conn.execute(f"SELECT t::text FROM {name} AS t ORDER BY 1").fetchall())
    return facts


# Damage. `%(seq)s` and `%(pk)s` are the snapshot id-1 of `s`, and its scope.

Damage = Callable[[Connection, int, int], None]


def another_body(encoding: int, body: bytes, base: int | None = None) -> Damage:
    """Put another body in place, with a checksum that holds."""

    def damage(conn: Connection, pk: int, seq: int) -> None:
        address = f"{seq}:{'' if base is None else base}:".encode()
        packed = codec.address_body(encoding, body, address=address)
        conn.execute(
            "UPDATE bodies SET base = %s, encoding = %s, body = %s, checksum = %s WHERE seq = %s",
            (base, *packed, seq),
        )

    return damage


def another_row(**changes: Any) -> Damage:
    """Change a snapshot's row, with a checksum that holds."""

    def damage(conn: Connection, pk: int, seq: int) -> None:
        columns = ", ".join(Row._fields)
        (found,) = conn.execute(
            f"SELECT {columns} FROM snapshots WHERE seq = %s", (seq,)
        ).fetchall()
        row = Row(*found)._replace(**changes)
        sets = ", ".join(f"{name} = %s" for name in changes)
        values = (*changes.values(), row_checksum(row, pk), seq)
        conn.execute(f"UPDATE snapshots SET {sets}, checksum = %s WHERE seq = %s", values)

    return damage


ORPHAN = "INSERT INTO bodies (seq, checksum, encoding, body) VALUES (999, 0, 0, '{}')"


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
        run("DROP INDEX snapshots_by_id", "UPDATE snapshots SET id = 'id-2' WHERE seq = %(seq)s"),
        {"index_missing", "snapshot_damaged", "parent_missing"},
        {"index_missing", "snapshot_damaged", "parent_missing"},
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
    # Sessions and scopes
    "head of nothing": mended("head_missing", "UPDATE scopes SET head_seq = 999 WHERE pk = %(pk)s"),
    "head of another scope": mended(
        "head_missing",
        "UPDATE scopes SET head_seq = (SELECT seq FROM snapshots WHERE scope_pk <> %(pk)s LIMIT 1)"
        " WHERE pk = %(pk)s",
    ),
    "head of nothing, with a draft": Case(
        run(f"UPDATE scopes SET head_seq = 999 WHERE head_seq = {LAST_DRAFT}"),
        {"head_missing", "draft_unreachable"},
    ),
    "tip": mended("tip_wrong", "UPDATE scopes SET tip_seq = %(seq)s WHERE pk = %(pk)s"),
    "tip gone": mended("tip_wrong", "UPDATE scopes SET tip_seq = NULL WHERE pk = %(pk)s"),
    "next place": mended("next_seq_low", "UPDATE scopes SET next_seq = %(seq)s WHERE pk = %(pk)s"),
    "floor": mended("floor_wrong", "UPDATE scopes SET floor = 'zzz' WHERE pk = %(pk)s"),
    "session name": stays(
        "name_wrong", run("UPDATE sessions SET session_id = '' WHERE session_id = 's'"), ALL_OF_S
    ),
    "scope name": stays(
        "name_wrong", run("UPDATE scopes SET scope_id = '' WHERE pk = %(pk)s"), ALL_OF_S
    ),
    "kind": stays("name_wrong", run("UPDATE scopes SET kind = 'A!' WHERE pk = %(pk)s"), ALL_OF_S),
    "session empty": stays(
        "session_empty", run("INSERT INTO sessions (session_id) VALUES ('e')"), set()
    ),
    "session gone": Case(
        run("DELETE FROM sessions WHERE session_id = 's'"),
        {"scope_without_session"},
        lost=ALL_OF_S,
    ),
    "scope gone": Case(
        run("DELETE FROM scopes WHERE pk = %(pk)s"),
        {"session_empty", "snapshots_without_scope", "notes_without_scope"},
        {"session_empty"},
        ALL_OF_S,
    ),
    "scope gone, notes alone": Case(
        run("UPDATE notes SET scope_pk = 77777 WHERE scope_pk = %(pk)s AND name = 'a'"),
        {"notes_without_scope", "note_damaged"},
        {"note_damaged"},
    ),
    # Snapshots
    "metadata": stays(
        "snapshot_damaged", run("UPDATE snapshots SET metadata = '{}' WHERE seq = %(seq)s")
    ),
    "labels": stays(
        "snapshot_damaged", run("UPDATE snapshots SET labels = '{}' WHERE seq = %(seq)s")
    ),
    "status": stays(
        "snapshot_damaged", run("UPDATE snapshots SET status = 'bad' WHERE seq = %(seq)s")
    ),
    "id": Case(
        run("UPDATE snapshots SET id = 'other' WHERE seq = %(seq)s"),
        {"snapshot_damaged", "parent_missing"},
        {"snapshot_damaged", "parent_missing"},
        HIT,
    ),
    "facts not JSON": stays("snapshot_damaged", another_row(metadata=b"{")),
    "labels no object": stays("snapshot_damaged", another_row(labels=b"[1]")),
    "time out of range": stays("snapshot_damaged", another_row(created_at=2**62)),
    "parent gone": Case(
        run(
            "DELETE FROM bodies WHERE seq = %(seq)s",
            "DELETE FROM labels WHERE seq = %(seq)s",
            "DELETE FROM snapshots WHERE seq = %(seq)s",
        ),
        {"parent_missing"},
        {"parent_missing"},
        HIT,
    ),
    "draft not the head": stays("draft_unreachable", another_row(kept=False)),
    "draft without a head": mended(
        "draft_unreachable", f"UPDATE scopes SET head_seq = NULL WHERE head_seq = {LAST_DRAFT}"
    ),
    "place behind the parent": mended(
        "apart_wrong", "UPDATE snapshots SET apart = false WHERE id = 'branch'"
    ),
    "label not indexed": mended("label_missing", "DELETE FROM labels WHERE seq = %(seq)s"),
    "label changed in the index": Case(
        run("UPDATE labels SET value = 'y' WHERE seq = %(seq)s"),
        {"label_missing", "label_surplus"},
    ),
    "label too much": mended(
        "label_surplus", "INSERT INTO labels (name, value, seq) VALUES ('n', 'v', %(seq)s)"
    ),
    "label of nothing": mended(
        "label_without_snapshot", "INSERT INTO labels (name, value, seq) VALUES ('n', 'v', 999)"
    ),
    # Bodies
    "body gone": stays("body_missing", run("DELETE FROM bodies WHERE seq = %(seq)s")),
    "body flipped": stays(
        "body_damaged",
        run("UPDATE bodies SET body = set_byte(body, 0, 91) WHERE seq = %(seq)s"),
    ),
    "body of unknown encoding": stays(
        "body_damaged", run("UPDATE bodies SET encoding = 77 WHERE seq = %(seq)s")
    ),
    "body not zstd": stays("body_damaged", another_body(codec.ZSTD, b"no zstd")),
    "body not JSON": stays("body_not_json", another_body(codec.WHOLE, b"{")),
    "body of another size": stays("body_size_wrong", another_body(codec.WHOLE, b"{}")),
    "base gone": stays("base_missing", another_body(codec.WHOLE, b"{}", base=999)),
    "body of nothing": mended("body_without_snapshot", ORPHAN),
    "body moved": Case(
        run("UPDATE bodies SET seq = 999 WHERE seq = %(seq)s"),
        {"body_missing", "body_without_snapshot"},
        {"body_missing", "body_without_snapshot"},
        HIT,
    ),
    # Notes
    "note": stays("note_damaged", run("UPDATE notes SET value = '1' WHERE name = 'a'"), set()),
    "note name": stays("note_damaged", run("UPDATE notes SET name = 'b' WHERE name = 'a'"), set()),
    "note not JSON": stays(
        "note_damaged",
        run("UPDATE notes SET value = '' WHERE pk = (SELECT min(pk) FROM notes)"),
        set(),
    ),
}


def damage(conn: Connection, case: Case) -> None:
    (hit,) = conn.execute(WHERE_IT_HITS).fetchall()
    with conn.transaction():
        case.damage(conn, *hit)


def test_every_code_is_a_case() -> None:
    named = {code for case in CASES.values() for code in case.found}
    assert named == SEVERITIES.keys() - ONLY_OF_FILES


def test_a_healthy_store_has_no_findings(backend: Backend) -> None:
    assert inspect(backend) == []
    assert inspect(backend, repair=True) == []


# What is inspected is the same code as on SQLite, where every case runs: here some of them do.
_SLOWLY = [
    name if at % 7 == 0 else pytest.param(name, marks=pytest.mark.slow)
    for at, name in enumerate(CASES)
]


@pytest.mark.parametrize("name", _SLOWLY)
def test_damage(backend: Backend, conn: Connection, name: str) -> None:
    """Check names it and changes nothing; repair leaves what it cannot mend, and harms nothing."""
    case = CASES[name]
    before = readable(backend)
    damage(conn, case)
    check_damage(backend, case, lambda: dump(conn), before)


@pytest.mark.parametrize("name", ["metadata", "body gone", "body flipped", "label not indexed"])
def test_a_finding_has_an_address_that_the_verbs_take(
    backend: Backend, conn: Connection, name: str
) -> None:
    """What cannot be mended can be deleted, and then check is content."""
    damage(conn, CASES[name])

    (finding,) = inspect(backend)
    assert (finding.scope, finding.id) == (S, "id-1")
    backend.delete_snapshots(S, ["id-1"])
    assert codes(inspect(backend)) == ["parent_missing"]
