"""`holdfast schema`: the SQL itself, ready to be run."""

import json
import sqlite3

from tests.cli.conftest import Command


def test_the_sql_makes_the_tables(command: Command) -> None:
    done = command("schema")
    assert (done.returncode, done.stderr) == (0, "")
    with sqlite3.connect(":memory:") as conn:
        conn.executescript(done.stdout)
        tables = {name for (name,) in conn.execute("SELECT name FROM sqlite_schema")}
    conn.close()
    assert {"sessions", "scopes", "snapshots", "bodies", "labels", "notes"} <= tables
    assert command("schema", "sqlite").stdout == done.stdout


def test_json_has_the_migrations_in_order(command: Command) -> None:
    shape = json.loads(command("schema", "sqlite", "--json").stdout)
    assert shape["engine"] == "sqlite"
    assert [each["version"] for each in shape["migrations"]] == [
        *range(1, len(shape["migrations"]) + 1)
    ]
    assert shape["migrations"][0]["name"] == "first_tables"
    assert "CREATE TABLE sessions" in shape["migrations"][0]["sql"]


def test_another_engine_is_usage(command: Command) -> None:
    done = command("schema", "oracle")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith("holdfast: Invalid value")
