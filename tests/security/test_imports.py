"""A file of another tool that somebody else has made."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import limpet
from limpet import LimpetError
from limpet.compat import openai_sqlite
from limpet.compat.langgraph import import_sqlite
from limpet.compat.sqlite_files import opened

# With a greater limit it would never end.
ROWS = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 100)"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with views in place of the tables."""
    path = tmp_path / "theirs.db"
    columns = (
        "'t' || x AS thread_id, '' AS checkpoint_ns, 'c' AS checkpoint_id, NULL AS"
        " parent_checkpoint_id, 'null' AS type, x'' AS checkpoint, x'7b7d' AS metadata, 't' AS"
        " task_id, 0 AS idx, 'c' AS channel, x'' AS value"
    )
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.execute(f"CREATE VIEW checkpoints AS {ROWS} SELECT {columns} FROM n")
        conn.execute(f"CREATE VIEW writes AS {ROWS} SELECT {columns} FROM n")
        conn.execute(
            f"CREATE VIEW agent_messages AS {ROWS} SELECT x AS id, 's' || x AS session_id,"
            " '{}' AS message_data, '' AS created_at FROM n"
        )
    return path


def test_a_view_is_no_table(path: Path) -> None:
    """A view can compute for ever. Whoever needs one makes a table of it."""
    with limpet.open("memory:") as store:
        with pytest.raises(LimpetError, match="has no tables"):
            import_sqlite(store, path)
        with pytest.raises(LimpetError, match="no such table"):
            openai_sqlite.import_sqlite(store, path)
        assert list(store.sessions()) == []


def test_a_file_is_only_read_and_its_schema_not_trusted(path: Path) -> None:
    before = path.read_bytes()
    with opened(str(path), other_layout="") as file:
        assert [*file.rows("PRAGMA trusted_schema")] == [(0,)]
        with pytest.raises(LimpetError):
            [*file.rows("CREATE TABLE x (y)")]
    assert path.read_bytes() == before
