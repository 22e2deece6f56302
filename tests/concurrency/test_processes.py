"""Several processes write to one SQLite file at once: every promise holds, none gets in the way."""

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

import limpet
from limpet.backends.sql import transaction
from tests.concurrency.crew import SIZE, Crew, url_of
from tests.effort import times


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def url(path: Path) -> str:
    return url_of(path)


def check_integrity(path: Path) -> None:
    with closing(sqlite3.connect(path)) as conn:
        assert conn.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_updates_apply_exactly_as_often_as_they_are_made(crew: Crew, path: Path, url: str) -> None:
    """Promise 6: eight processes with 200 updates each make 1,600."""
    each = times(50, full=200)
    with limpet.open(url) as store:
        store.scope("s").save({"count": 0}, id="counter")
        assert crew.ask("add", url, each) == [each] * SIZE
        found = store.scope("s").load("counter")

    assert found is not None
    assert found.state == {"count": each * SIZE}
    assert found.revision.split(".")[1] == f"{each * SIZE:x}"
    check_integrity(path)


def test_each_round_has_one_winner(crew: Crew, url: str) -> None:
    """Promise 3: of eight saves that expect the same head one is stored, and no other is seen."""
    winners: list[str] = []
    revision = None
    for _ in range(100):
        won = [answer for answer in crew.ask("compete", url, revision) if answer is not None]
        assert len(won) == 1
        (revision,) = won
        winners.append(revision)

    with limpet.open(url) as store:
        history = [info.revision for info in store.scope("s").history()]
    assert history == winners[::-1]


def test_a_first_save_has_one_winner(crew: Crew, url: str) -> None:
    """Promise 3: `expect=None` lets one save through, time and again, in a scope made anew."""
    with limpet.open(url) as store:
        for _ in range(50):
            won = [answer for answer in crew.ask("compete", url, None) if answer is not None]
            history = list(store.scope("s").history())
            assert [info.revision for info in history] == won
            assert [info.parent_id for info in history] == [None]
            assert store.scope("s").delete(expect=won[0]) == 1


def test_appends_all_arrive_in_the_order_of_each_process(crew: Crew, url: str) -> None:
    """Promises 6 and 7: nothing is lost, doubled or overtaken by its own successor."""
    count = 40
    crew.ask("append", url, count)

    with limpet.open(url) as store:
        scope = store.scope("s")
        head = scope.load()
        assert head is not None
        items = head.state["items"]
        ids = [info.id for info in scope.history()]
    for number in range(SIZE):
        assert [i for n, i in items if n == number] == list(range(count))
    assert len(items) == len(ids) == SIZE * count
    assert ids == sorted(ids, reverse=True)
    assert len(set(ids)) == len(ids)


def test_a_note_is_changed_as_often_as_it_is_asked_for(crew: Crew, url: str) -> None:
    count = 40
    crew.ask("tally", url, count)

    with limpet.open(url) as store:
        note = store.scope("s").note("tally")
    assert note is not None
    assert note.value == SIZE * count
    assert note.revision.partition(".")[0] == f"{SIZE * count - 1:x}"


def test_a_missing_file_is_created_by_many_at_once(crew: Crew, path: Path) -> None:
    """All come through, whoever makes the tables; they are made once."""
    migrations = [each[:2] for each in transaction.migrations_of("sqlite")]
    for number in range(12):
        file = path.with_name(f"{number}.db")
        assert crew.ask("open_new", "memory:", url_of(file)) == [f"by-{n}" for n in range(SIZE)]

        with closing(sqlite3.connect(file)) as conn:
            applied = conn.execute("SELECT version, name FROM schema_migrations").fetchall()
            assert applied == migrations
            assert conn.execute("PRAGMA auto_vacuum").fetchone() == (2,)
            assert conn.execute("PRAGMA journal_mode").fetchone() == ("wal",)
            assert file.stat().st_mode & 0o777 == 0o600
        with limpet.open(url_of(file)) as store:
            ids = sorted(info.head.id for info in store.scopes() if info.head is not None)
        assert ids == [f"by-{n}" for n in range(SIZE)]
        check_integrity(file)


def test_threads_and_processes_mix(crew: Crew, path: Path, url: str) -> None:
    """Promise 6 again: four processes with four threads each, three kinds of writes at once."""
    size, threads, count = 4, 4, 12
    with limpet.open(url) as store:
        store.scope("s").save({"count": 0}, id="counter")
        plan = {"threads": threads, "count": count}
        assert crew.ask("in_threads", url, plan, who=slice(size)) == [threads] * size
        counter, note = store.scope("s").load("counter"), store.scope("s").note("tally")
        log = store.scope("t").load()

    assert counter is not None
    assert note is not None
    assert log is not None
    assert counter.state["count"] == note.value == size * threads * count
    arrived = Counter(map(tuple, log.state["items"]))
    assert arrived == {(n, t): count for n in range(size) for t in range(threads)}
    check_integrity(path)
