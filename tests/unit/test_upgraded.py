"""A store that a newer version of Limpet upgrades while this one has it open, or before it opens.

Nothing of the tables is known here but where their version is recorded, so that this holds for
every format. From the moment of the upgrade on the older version writes nothing. It reads what its
statements can read; if their tables are gone, it says why.
"""

import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import limpet
from limpet import Scope, Store, Unsupported
from limpet.backends.postgres.transaction import MIGRATIONS, OLDEST
from limpet.testing.kit import dump
from tests.servers.postgres import Postgres, Schemas

NEWER = 9999
SAYS = "upgraded by a newer version of limpet: update limpet in this process"


class Upgrade(NamedTuple):
    """What a newer version does, on a connection of its own."""

    url: str
    run: Callable[[str], list[tuple[Any, ...]]]
    record: str
    undo: str
    tables: str

    def replace_tables(self) -> None:
        """Put the tables away, as one does whose format is another."""
        for (name,) in self.run(self.tables):
            self.run(f'ALTER TABLE "{name}" RENAME TO "old_{name}"')


@pytest.fixture(params=["sqlite", "postgres"])
def upgrade(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Upgrade]:
    if request.param == "sqlite":
        path = tmp_path / "store.db"
        tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'sqlite_sequence'"
        limpet.open(f"sqlite:///{path}").close()
        with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as conn:
            conn.execute("PRAGMA legacy_alter_table = ON")  # the views are of no interest

            def run(text: str) -> list[tuple[Any, ...]]:
                return conn.execute(text).fetchall()

            ((known,),) = run("PRAGMA user_version")
            record, undo = (f"PRAGMA user_version = {each}" for each in (NEWER, known))
            yield Upgrade(f"sqlite:///{path}", run, record, undo, tables)
        return
    postgres: Postgres = request.getfixturevalue("postgres")
    schemas: Schemas = request.getfixturevalue("schemas")
    tables = (
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname <> 'schema_migrations'"
        f" AND relnamespace = '{schemas.name()}'::regnamespace"
    )
    with postgres.connect() as pg:
        pg.execute(f"SET search_path = {schemas.name()}")

        def run_there(text: str) -> list[tuple[Any, ...]]:
            done = pg.execute(text)
            return done.fetchall() if done.description else []

        record = f"INSERT INTO schema_migrations (version, name) VALUES ({NEWER}, 'newer')"
        undo = f"DELETE FROM schema_migrations WHERE version = {NEWER}"
        yield Upgrade(schemas.url(), run_there, record, undo, tables)


@pytest.fixture
def store(upgrade: Upgrade) -> Iterator[Store]:
    with limpet.open(upgrade.url) as store:
        scope = store.scope("s")
        scope.save({"n": 1, "list": []}, id="first")
        scope.append("list", [1])
        scope.set_note("name", 1)
        yield store


WRITES: dict[str, Callable[[Scope], object]] = {
    "save": lambda scope: scope.save({"n": 2, "list": [1]}),
    "append": lambda scope: scope.append("list", [2]),
    "first save": lambda scope: Store(scope.driver).scope("new").save({}),
    "update": lambda scope: scope.update("first", lambda found: found.with_(state={})),
    "fork": lambda scope: scope.fork("first", scope_id="fork"),
    "note": lambda scope: scope.set_note("name", 2),
    "new note": lambda scope: scope.set_note("other", 2),
    "delete note": lambda scope: scope.delete_note("name"),
    "lease": lambda scope: scope.claim(owner="me").__enter__(),
    "delete snapshot": lambda scope: scope.delete_snapshot("first"),
    "delete": lambda scope: scope.delete(),
    "delete session": lambda scope: Store(scope.driver).delete_session("s"),
}
READS: dict[str, Callable[[Scope], object]] = {
    "load": lambda scope: scope.load(),
    "load by id": lambda scope: scope.load("first"),
    "history": lambda scope: list(scope.history()),
    "note": lambda scope: scope.note("name"),
    "sessions": lambda scope: list(Store(scope.driver).sessions()),
}


def test_an_older_version_writes_nothing(store: Store, upgrade: Upgrade) -> None:
    """Neither on the general way, nor on the quick ones of a writer that continues its own line."""
    for verb, write in WRITES.items():
        store.scope("s").append("list", [verb])
        before = dump(store)
        upgrade.run(upgrade.record)
        for _ in range(2):
            with pytest.raises(Unsupported, match=SAYS):
                write(store.scope("s"))
        assert dump(store) == before, verb  # what it can read is still right
        upgrade.run(upgrade.undo)


def test_an_older_version_whose_tables_are_gone(store: Store, upgrade: Upgrade) -> None:
    upgrade.run(upgrade.record)
    upgrade.replace_tables()
    for act in [*READS.values(), *WRITES.values()]:
        with pytest.raises(Unsupported, match=SAYS):
            act(store.scope("s"))


def test_an_older_version_does_not_open_it(store: Store, upgrade: Upgrade) -> None:
    store.close()
    upgrade.run(upgrade.record)
    with pytest.raises(Unsupported, match=f"{SAYS}.*found=`{NEWER}`"):
        limpet.open(upgrade.url)


def test_a_writer_waits_for_the_upgrade(store: Store, upgrade: Upgrade) -> None:
    """It begins before the upgrade is committed, and is refused after that."""
    is_sqlite = upgrade.url.startswith("sqlite")
    upgrade.run("BEGIN IMMEDIATE" if is_sqlite else "BEGIN")
    if not is_sqlite:
        upgrade.run("LOCK TABLE schema_migrations IN ACCESS EXCLUSIVE MODE")
    upgrade.run(upgrade.record)
    with ThreadPoolExecutor() as threads:
        save = threads.submit(WRITES["save"], store.scope("s"))
        upgrade.run("COMMIT")
        assert isinstance(save.exception(), Unsupported)


def test_migrations_of_postgres_lock_out_writers() -> None:
    """Those that come after the first tables: all who write read that table."""
    lock = "LOCK TABLE limpet.schema_migrations IN ACCESS EXCLUSIVE MODE;"
    assert all(lock in each.sql for each in MIGRATIONS if each.version > OLDEST)
