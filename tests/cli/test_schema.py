"""`limpet schema`: the SQL itself, ready to be run."""

import json
import sqlite3

import limpet
from tests.cli.conftest import Command
from tests.servers.postgres import Postgres, Schemas


def test_the_sql_makes_the_tables(command: Command) -> None:
    done = command("schema")
    assert (done.returncode, done.stderr) == (0, "")
    with sqlite3.connect(":memory:") as conn:
        conn.executescript(done.stdout)
        tables = {name for (name,) in conn.execute("SELECT name FROM sqlite_schema")}
    conn.close()
    assert {"scopes", "snapshots", "tails", "segments", "labels", "notes"} <= tables
    assert command("schema", "sqlite").stdout == done.stdout


def test_json_has_the_migrations_in_order(command: Command) -> None:
    shape = json.loads(command("schema", "sqlite", "--json").stdout)
    assert shape["engine"] == "sqlite"
    versions = [each["version"] for each in shape["migrations"]]
    assert versions == [*range(4, 4 + len(versions))]
    assert shape["migrations"][0]["name"] == "tables"
    assert "CREATE TABLE scopes" in shape["migrations"][0]["sql"]


def test_another_engine_is_usage(command: Command) -> None:
    done = command("schema", "oracle")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith("limpet: Invalid value")


def test_the_sql_for_a_server(command: Command, postgres: Postgres, schemas: Schemas) -> None:
    """A role that may create runs it; others then open the store without setup."""
    name = schemas.name("made")
    done = command("schema", "postgres", "--schema", name)
    assert (done.returncode, done.stderr) == (0, "")
    with postgres.connect() as conn:
        conn.execute(done.stdout.encode())
    with limpet.open(schemas.url("made"), setup=False) as store:
        store.scope("s").save({"n": 1})
    shape = json.loads(command("schema", "postgres", "--json").stdout)
    assert [each["version"] for each in shape["migrations"]] == [0, 4]


def test_a_schema_that_is_no_name(command: Command) -> None:
    done = command("schema", "postgres", "--schema", 'x"; DROP SCHEMA public; --')
    assert (done.returncode, done.stdout) == (2, "")
