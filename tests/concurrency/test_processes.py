"""Several processes write to one file or schema at once: every promise holds."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import limpet
from limpet.backends.sql import transaction
from tests.concurrency.crew import SIZE, Crew, url_of
from tests.effort import times
from tests.servers.pooler import Pooler
from tests.servers.postgres import HERE, Connection, Schemas, with_option

SLOW_ON_POSTGRES = ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)]


@pytest.fixture(params=SLOW_ON_POSTGRES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return url_of(tmp_path / "store.db")
    return str(request.getfixturevalue("postgres_url"))


def test_updates_apply_exactly_as_often_as_they_are_made(crew: Crew, url: str) -> None:
    """Promise 6, for a snapshot and for a note."""
    each = times(25, full=100)
    with limpet.open(url) as store:
        scope = store.scope("s")
        scope.save({"count": 0}, id="counter")
        assert crew.ask("add", url, each) == [each] * SIZE
        crew.ask("tally", url, each)
        found, note = scope.load("counter"), scope.note("tally")
        assert [found for found in store.check() if found.severity != "info"] == []

    assert found is not None
    assert note is not None
    assert (found.state, note.value) == ({"count": each * SIZE}, each * SIZE)
    assert found.revision.split(".")[1] == f"{each * SIZE:x}"
    assert note.revision.partition(".")[0] == f"{SIZE * each - 1:x}"


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
def test_each_round_has_one_winner(crew: Crew, url: str) -> None:
    """Promise 3: of eight saves that expect the same head one is stored, and no other is seen."""
    winners: list[str] = []
    revision = None
    for _ in range(40):
        (revision,) = [each for each in crew.ask("compete", url, revision) if each is not None]
        winners.append(revision)

    with limpet.open(url) as store:
        assert [info.revision for info in store.scope("s").history()] == winners[::-1]


def test_a_first_save_has_one_winner(crew: Crew, url: str) -> None:
    """Promise 3: `expect=None` lets one save through, time and again, in a scope made anew."""
    with limpet.open(url) as store:
        for number in range(20):
            (won,) = [each for each in crew.ask("compete", url, None) if each is not None]
            history = list(store.scope("s").history())
            assert [(info.revision, info.parent_id) for info in history] == [(won, None)]
            if number % 2:
                assert store.scope("s").delete(expect=won) == 1
            else:
                assert store.delete_session("s") == 1


def opened_by_all(crew: Crew, url: str) -> None:
    """See that all come through, whoever makes the tables."""
    ids = [f"by-{number}" for number in range(SIZE)]
    assert crew.ask("open_new", "memory:", url) == ids
    with limpet.open(url) as store:
        heads = [info.head.id for info in store.scopes("s") if info.head is not None]
        count = store.scope("shared").note("count")
        assert count is not None
        assert (sorted(heads), count.value, list(store.check())) == (ids, SIZE, [])


def test_a_missing_file_is_created_by_many_at_once(crew: Crew, tmp_path: Path) -> None:
    migrations = [each[:2] for each in transaction.migrations_of("sqlite")]
    for number in range(6):
        file = tmp_path / f"{number}.db"
        opened_by_all(crew, url_of(file))
        with closing(sqlite3.connect(file)) as conn:
            applied = conn.execute("SELECT version, name FROM schema_migrations").fetchall()
            assert applied == migrations
            assert conn.execute("PRAGMA auto_vacuum").fetchone() == (2,)
            assert conn.execute("PRAGMA journal_mode").fetchone() == ("wal",)
            assert file.stat().st_mode & 0o777 == 0o600


WAYS: dict[str, Callable[[str], str]] = {
    "advisory locks": lambda url: url,
    "no advisory locks": lambda url: with_option(url, "advisory_locks", "false"),
    "pooler": lambda url: with_option(url, "pooler", "true"),
}


@pytest.mark.parametrize("way", WAYS)
def test_missing_tables_are_created_by_many_at_once(
    crew: Crew, conn: Connection, schemas: Schemas, pooler: Pooler, way: str
) -> None:
    scripts = transaction.migrations_of("postgres")
    for number in range(3):
        server_url = pooler.url if way == "pooler" else None
        opened_by_all(crew, WAYS[way](schemas.url(f"{number}", server_url=server_url)))
        query = f"SELECT version, name FROM {schemas.name(f'{number}')}.schema_migrations"
        # 0 makes the schema.
        assert conn.execute(query).fetchall() == [each[:2] for each in scripts if each.version]


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
def test_an_open_walk_holds_nothing(request: pytest.FixtureRequest, crew: Crew, url: str) -> None:
    """Between two pages others write, and nothing keeps the storage from tidying up."""
    named = url if url.startswith("sqlite") else with_option(url, "application_name", "walker")
    with limpet.open(named) as store:
        scope = store.scope("s")
        scope.save({"count": 0}, id="counter")
        saved = [scope.save({"n": n}).id for n in range(300)]
        scope.set_note("a", 1)
        walks = [scope.history(), scope.ids(), store.sessions(), store.scopes(), scope.notes()]
        for walk in walks:
            assert next(walk) is not None
        history = scope.history()
        first = next(history)
        assert crew.ask("add", url, 5, who=slice(2)) == [5, 5]
        if url == named:
            # A reader that kept its moment would make the checkpoint fail and the log grow.
            path = url.removeprefix("sqlite:///")
            with closing(sqlite3.connect(path, timeout=0)) as file:
                assert file.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
        else:
            query = (
                f"SELECT state FROM pg_stat_activity WHERE application_name = 'walker' AND {HERE}"
            )
            states = request.getfixturevalue("conn").execute(query).fetchall()
            assert set(states) == {("idle",)}
        assert [first.id, *(info.id for info in history)] == [*saved[::-1], "counter"]
