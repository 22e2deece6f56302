"""Several processes write to one file, schema, folder or bucket at once: every promise holds."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

import limpet
from limpet import Store
from limpet.backends.sql import transaction
from tests.concurrency.crew import SIZE, Crew, url_of
from tests.concurrency.worker import DONE, SCOPE
from tests.effort import times
from tests.servers.pooler import Pooler
from tests.servers.postgres import HERE, Connection, Schemas, with_option

POSTGRES, S3 = (pytest.param(each, marks=pytest.mark.slow) for each in ("postgres", "s3"))


@pytest.fixture(params=["sqlite", "directory", POSTGRES, S3])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store."""
    match request.param:
        case "sqlite":
            return url_of(tmp_path / "store.db")
        case "directory":
            return f"file://{tmp_path}/store"
        case "postgres":
            return str(request.getfixturevalue("postgres_url"))
    return str(request.getfixturevalue("seaweedfs").store_url(tmp_path.name))


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with limpet.open(url) as store:
        yield store


def check(store: Store) -> None:
    assert [each for each in store.check() if each.severity == "error"] == []


def test_updates_apply_exactly_as_often_as_they_are_made(
    crew: Crew, url: str, store: Store
) -> None:
    """Promise 6, for a snapshot below the head and for a note."""
    each = times(5, full=5 if url.startswith("s3:") else 50)
    scope = store.scope("s")
    scope.save({"count": 0}, id="counter")
    scope.save({}, id="above")
    assert crew.ask("add", url, each) == [each] * SIZE
    crew.ask("tally", url, each)
    found, note = scope.load("counter"), scope.note("tally")
    assert found is not None
    assert note is not None
    assert (found.state, note.value) == ({"count": each * SIZE}, each * SIZE)
    assert found.revision.split(".")[1] == f"{each * SIZE:x}"
    assert note.revision.partition(".")[0] == f"{SIZE * each - 1:x}"
    assert [info.id for info in scope.history()] == ["above", "counter"]
    check(store)


def test_appends_all_arrive_in_the_order_of_each_process(
    crew: Crew, url: str, store: Store
) -> None:
    """Promises 6 and 7: nothing is lost, doubled or overtaken by its own successor."""
    count = times(6, full=6 if url.startswith("s3:") else 40)
    crew.ask("append", url, count)

    scope = store.scope("s")
    head = scope.load()
    assert head is not None
    items = head.state["items"]
    for number in range(SIZE):
        assert [i for n, i in items if n == number] == list(range(count))
    infos = list(scope.history())
    assert len(items) == len(infos) == SIZE * count
    # In history each state is the one below it and one item more, and minted ids grow.
    ids = [info.id for info in infos]
    assert ids == sorted(set(ids), reverse=True)
    states = [found.state["items"] for found in scope.load_many(ids)]
    assert states == [items[:length] for length in range(SIZE * count, 0, -1)]
    assert [info.parent_id for info in infos] == [*ids[1:], None]
    check(store)


@pytest.mark.parametrize("url", ["sqlite", "directory", "postgres", S3], indirect=True)
def test_each_round_has_one_winner(crew: Crew, url: str, store: Store) -> None:
    """Promise 3: of eight saves that expect the same head one is stored, and no other is seen.

    `expect=None` lets one save through, time and again, in a scope made anew.
    """
    for number in range(8):
        winners: list[str | None] = [None]
        for _ in range(4):
            (won,) = [each for each in crew.ask("compete", url, winners[-1]) if each is not None]
            winners.append(won)
        history = list(store.scope("s").history())
        assert [info.revision for info in history] == winners[:0:-1]
        assert history[-1].parent_id is None
        if number % 2:
            assert store.scope("s").delete(expect=winners[-1]) == 4
        else:
            assert store.delete_session("s") == 4
    check(store)


def test_what_is_deleted_while_others_save_stays_away(crew: Crew, url: str, store: Store) -> None:
    """Promise 5: each snapshot is deleted exactly once, or is still there; nothing comes back."""
    savers, deleters = slice(2), slice(2, 4)
    crew.tell("delete", url, None, who=deleters)
    saved = [id for ids in crew.ask("save", url, 12, who=savers) for id in ids]
    store.scope("control").set_note(DONE, True)
    gone = [id for ids in crew.hear(who=deleters) for id in ids]

    scope = store.scope(*SCOPE)
    kept = [info.id for info in scope.history()]
    minted = [id for id in gone if not id.startswith("w")]  # drafts, deleted while they were heads
    assert len(set(gone)) == len(gone)
    assert sorted([*kept, *gone]) == sorted([*saved, *minted])
    assert kept != []
    assert list(scope.ids()) == sorted(kept)
    assert [found.state["id"] for found in scope.load_many(kept)] == kept
    assert [scope.load(id) for id in gone] == [None] * len(gone)
    assert [store.find(id) for id in gone] == [None] * len(gone)
    assert all(store.find(id) is not None for id in kept)
    for number in range(2):
        own = [id for id in kept if id.startswith(f"w{number}")]
        assert own == sorted(own, reverse=True)
        assert [info.id for info in store.history(labels={"by": str(number)})] == own
    check(store)


def test_a_scope_that_is_deleted_while_others_save_begins_again(
    crew: Crew, url: str, store: Store
) -> None:
    """What was there before a delete is gone; a save that overlaps one is whole, or gone."""
    scope = store.scope(*SCOPE)
    crew.tell("forget", url, None, who=slice(3, 4))
    crew.ask("save_anyway", url, 12, who=slice(3))
    store.scope("control").set_note(DONE, True)
    assert crew.hear(who=slice(3, 4))[0] > 0  # a slow one deletes what is left

    left = [info.id for info in scope.history()]
    assert [found.state for found in scope.load_many(left)] == [{"id": id} for id in left]
    head = scope.info()
    assert (head.id if head else None) == (left[0] if left else None)
    scope.delete()
    assert (scope.load(), list(scope.history()), list(scope.ids())) == (None, [], [])
    scope.save({"id": "z"}, id="z")
    assert [info.id for info in scope.history()] == list(scope.ids()) == ["z"]
    check(store)


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


def test_missing_tables_are_created_by_many_at_once(
    crew: Crew, conn: Connection, schemas: Schemas, pooler: Pooler
) -> None:
    scripts = transaction.migrations_of("postgres")
    for way, option in WAYS.items():
        for number in range(times(1, full=3)):
            server_url = pooler.url if way == "pooler" else None
            place = f"{way} {number}"
            opened_by_all(crew, option(schemas.url(place, server_url=server_url)))
            query = f"SELECT version, name FROM {schemas.name(place)}.schema_migrations"
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


def test_opening_the_file_again_lets_go_of_no_lock(crew: Crew, tmp_path: Path) -> None:
    """A process that closes any handle of a file loses all its locks on it, also SQLite's.

    Then another process takes itself for the last one, deletes the log that is still in use, and
    what is acknowledged from there on is lost.
    """
    path = tmp_path / "store.db"
    with limpet.open(url_of(path)) as store:
        store.scope("mine").save({"n": 0}, id="0")
        limpet.open(url_of(path)).close()
        crew.ask("append", url_of(path), 1, who=slice(1))
        crew.ask("append", "memory:", 1, who=slice(1))  # so that it closes the file
        store.scope("mine").save({"n": 1}, id="1")
        assert path.with_name(path.name + "-wal").exists()
    with limpet.open(url_of(path)) as store:
        assert list(store.scope("mine").ids()) == ["0", "1"]
        assert len(list(store.scope("s").history())) == 1
