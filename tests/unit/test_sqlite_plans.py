"""The plans of SQLite: no statement of ours reads a whole table, and no listing is sorted anew.

And the promise that follows: memory does not grow with history.
"""

import re
import sqlite3
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet.backends.sql.transaction import load_statements
from limpet.engine.rolling import Limits

STATEMENTS = load_statements("sqlite", "queries", "listings")
LARGE = ("scopes", "snapshots", "tails", "segments", "shared", "labels", "notes")
# This walks by place, newest first, on purpose, and stops when it has enough.
BY_PLACE = {"history_of_sessions"}
ON_PURPOSE = {"stored_bytes"}  # it is about everything
NEVER_SORTED = {
    "history_of_scope",
    "history_of_sessions",
    "history_by_label",
    "find_refs",
    "list_sessions",
    "list_scopes",
    "note_page",
    "noted",
    "row_by_nonce",
    "segment",
    "tail",
}


@pytest.fixture(scope="module", params=["as it is", "analyzed"])
def conn(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[sqlite3.Connection]:
    """A filled database, also with the statistics that an administrator may have gathered."""
    path = tmp_path_factory.mktemp("plans") / "store.db"
    with limpet.open(f"sqlite:///{path}", synchronous="off") as store:
        for number in range(300):
            scope = store.scope(f"s-{number % 7}", f"line-{number % 3}")
            scope.save({"n": number}, labels={"a": str(number % 5), "b": "c"})
            scope.set_note(f"name-{number % 10}", number, on=f"id-{number % 11}")
        engine: Any = store.driver.opened.backend
        engine._tails, engine._roller = Limits(snapshots=3), None
        for number in range(60):
            scope = store.scope(f"s-{number}", "large")
            scope.fork([scope.save(["long", number, n] * 999) for n in range(3)][-1])
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        if request.param == "analyzed":
            conn.execute("ANALYZE")
        yield conn


def plan_of(conn: sqlite3.Connection, name: str) -> list[str]:
    """Return the steps in which SQLite would run a statement."""
    statement = STATEMENTS[name]
    code = re.sub(r"--.*", "", statement)
    values: Any = dict.fromkeys(re.findall(r":([a-z_]+)", code))
    if not values:
        numbers = [int(number) for number in re.findall(r"\?(\d+)", code)]
        values = [None] * (max(numbers) if numbers else code.count("?"))
    return [row[3] for row in conn.execute(f"EXPLAIN QUERY PLAN {statement}", values)]


def tables_of(name: str) -> dict[str, str]:
    """Return the large tables of a statement by the names that its plan has for them."""
    named = re.findall(r"(?:FROM|JOIN) (\w+) AS (\w+)", STATEMENTS[name])
    aliases = {alias: table for table, alias in named if table in LARGE}
    return {table: table for table in LARGE} | aliases


def test_no_statement_reads_a_whole_table(conn: sqlite3.Connection) -> None:
    for name in sorted(STATEMENTS.keys() - BY_PLACE - ON_PURPOSE):
        for step in plan_of(conn, name):
            scanned = re.match(r"SCAN (\w+)", step)
            assert scanned is None or scanned[1] not in tables_of(name), (name, step)


def test_no_listing_is_sorted(conn: sqlite3.Connection) -> None:
    for name in NEVER_SORTED:
        plan = plan_of(conn, name)
        assert plan, name
        assert [step for step in plan if "TEMP B-TREE" in step] == [], name


def test_what_walks_by_place_uses_no_index(conn: sqlite3.Connection) -> None:
    """Of all tables only the first is walked, in the order of its own key."""
    for name in BY_PLACE:
        first, *rest = plan_of(conn, name)
        assert re.fullmatch(r"(SCAN|SEARCH) (n|snapshots)( USING INTEGER PRIMARY KEY .*)?", first)
        assert not any(step.startswith("SCAN") for step in rest), name


def test_notes_are_found_by_their_time(conn: sqlite3.Connection) -> None:
    """Of each scope only as many as are wanted are read, and those by their key."""
    plan = plan_of(conn, "find_notes")
    assert "SEARCH i USING INDEX notes_by_time (scope_pk=?)" in plan
    assert "SEARCH n USING INTEGER PRIMARY KEY (rowid=?)" in plan


def test_no_statement_is_planned_again_for_its_values() -> None:
    """SQLite does so if a value may make a partial index usable; that takes longer than to run."""
    bare = re.compile(r"\bon_id = [:?]")
    assert [name for name, text in STATEMENTS.items() if bare.search(text)] == []


def test_no_placeholder_has_a_number() -> None:
    """With a sequence of values `?1` is a warning from Python 3.12 on, and an error in 3.14."""
    assert [name for name, text in STATEMENTS.items() if re.search(r"\?\d", text)] == []


def test_the_plans_are_read_right(conn: sqlite3.Connection) -> None:
    """Guard the guards: the words that they look for are those that SQLite says."""
    steps = [
        row[3]
        for row in conn.execute(
            "EXPLAIN QUERY PLAN SELECT * FROM snapshots AS n WHERE status = 'x' ORDER BY size"
        )
    ]
    assert steps == ["SCAN n", "USE TEMP B-TREE FOR ORDER BY"]
    assert tables_of("history_by_label")["f"] == "labels"
    assert len(STATEMENTS) > 50


@pytest.mark.slow
def test_memory_does_not_grow_with_history(tmp_path: Path) -> None:
    """Promise 12: walking, loading and deleting keeps a page, however many there are."""
    peaks = []
    with limpet.open(f"sqlite:///{tmp_path}/store.db", synchronous="off") as store:
        for session, count in (("warm", 500), ("short", 500), ("long", 3_000)):
            scope = store.scope(session)
            for number in range(count):
                scope.save(number, metadata={"text": f"{number}" * 100})
            tracemalloc.start()
            walks: tuple[Iterable[object], ...] = (
                scope.history(), scope.ids(), scope.load_many(scope.ids())
            )  # fmt: skip
            assert [sum(1 for _ in walk) for walk in walks] == [count] * 3
            assert store.delete_session(session) == count
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    assert peaks[2] < peaks[1] + 500_000


def test_a_range_of_names_ends_where_it_ends(conn: sqlite3.Connection) -> None:
    """One session of many is listed without reading the names of all that come after it."""
    columns = {"list_scopes": "session_id", "list_sessions": "session_id", "find_refs": "id"}
    for name, column in columns.items():
        first = plan_of(conn, name)[0]
        assert first.endswith(f"({column}>? AND {column}<?)"), (name, first)


def test_what_is_asked_of_one_session_reads_no_other(conn: sqlite3.Connection) -> None:
    """Counted in steps of SQLite's machine: those for one session, whatever comes before it.

    From 3.41 on SQLite counts the steps to read the schema too, so each is counted when it is
    asked for again.
    """
    path = conn.execute("PRAGMA database_list").fetchone()[2]
    with limpet.open(f"sqlite:///{path}") as store:
        for number in range(300):
            store.scope(f"many-{number:03}").set_note("n", 1)
        asks: list[Callable[[str], object]] = [lambda each: list(store.scopes(each)), store.stats]
        for ask in asks:
            steps = {each: _steps(store, ask, each) for each in ("many-000", "many-299")}
            assert max(steps.values()) < 1.5 * min(steps.values()), steps


def _steps(store: limpet.Store, ask: Callable[[str], object], session_id: str) -> int:
    backend: Any = store.driver.opened.backend
    (idle,) = backend.storage._file._idle
    count = 0

    def step() -> int:
        nonlocal count
        count += 1
        return 0

    ask(session_id)
    idle.set_progress_handler(step, 10)
    ask(session_id)
    idle.set_progress_handler(None, 0)
    return count
