"""`limpet import` from a file of the OpenAI Agents SDK."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import limpet
from tests.cli.conftest import Command

FOLDER = Path(__file__).parent.parent / "compat" / "openai_sqlite"


def test_from_a_file(command: Command, any_url: str, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "old.db")) as conn:
        conn.executescript((FOLDER / "plain.sql").read_text(encoding="utf-8"))
    words = ("import", "openai-sqlite", "old.db", "--url", any_url)
    done = command(*words, "--prefix", "bob/", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {
        "format": "openai-sqlite",
        "snapshots": 1,
        "written": None,
        "skipped": [],
    }
    for _ in range(2):
        assert command(*words).stdout.startswith("✓ 3 snapshots in ")
    with limpet.open(any_url) as store:
        assert list(store.sessions()) == ["alice/1", "bob/1"]
    shown = command("show", "alice/1", "--url", any_url).stdout
    assert [word in shown for word in ("shell", "look_up", "found: ROCK")] == [True] * 3
    with closing(sqlite3.connect(tmp_path / "old.db")) as conn:
        conn.execute("UPDATE agent_messages SET message_data = '{' WHERE id = 12")
        conn.commit()
    done = command(*words)
    assert done.returncode == 1
    assert "skipped  bob/1:main the item is not JSON. row=`12`" in done.stderr


def test_what_is_not_there(command: Command, tmp_path: Path) -> None:
    done = command("import", "openai-sqlite", "none.db")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert not (tmp_path / "limpet.db").exists()
    sqlite3.connect(tmp_path / "empty.db").close()
    (tmp_path / "empty.db").touch()
    done = command("import", "openai-sqlite", "empty.db", "--table", "mine")
    assert (done.returncode, "table=`mine`" in done.stderr) == (1, True)
    assert command("import", "strands", ".", "--table", "mine").returncode == 2
