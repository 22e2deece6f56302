"""What a writer locks on PostgreSQL: one scope, and a fork also the one that it begins at.

Each interleaving is exact: a writer stops at a gate in the middle of its transaction.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

import limpet
from limpet import NotFound, Scope, Store
from tests.concurrency.gates import gate, pausing, waiting
from tests.servers.postgres import LOCKED_HERE, Connection, Schemas, with_option
from tests.waiting import until

# Modes that keep nobody from writing to a table.
HARMLESS = {"AccessShareLock", "RowShareLock", "RowExclusiveLock"}


@pytest.fixture
def schema(schemas: Schemas) -> str:
    return schemas.name()


@pytest.fixture
def one(postgres_url: str) -> Iterator[Store]:
    with limpet.open(postgres_url) as store:
        yield store


@pytest.fixture
def two(postgres_url: str, one: Store) -> Iterator[Store]:
    """The same store, seen by one who stops at gates."""
    with limpet.open(pausing(postgres_url)) as store:
        yield store


def text(seed: int) -> dict[str, Any]:
    """Return a state that has nothing in common with others."""
    return {"seed": seed, "text": random.Random(seed).randbytes(3000).hex()}


def near(seed: int, more: int) -> dict[str, Any]:
    """Return a state that is stored as what it differs by."""
    return {**text(seed), "more": more}


def complaints(store: Store) -> list[str]:
    return [found.code for found in store.check() if found.severity != "info"]


def state_of(scope: Scope, id: str | None = None) -> Any:
    found = scope.load(id)
    return None if found is None else found.state


# One scope, and nothing wider


def use_everything(store: Store, session_id: str, scope_id: str) -> None:
    """All that others do in a scope of their own."""
    scope = store.scope(session_id, scope_id)
    first = scope.save({"n": 1}, labels={"a": "b"})
    scope.append("items", [1])
    scope.save({"n": 2}, keep=False)
    scope.update(first.id, lambda before: before.with_(state={"n": 3}))
    scope.set_note("name", 1)
    scope.set_note("name", 2, on=first.id)
    fork = scope.fork(first.id, patch={"x": 1})
    assert [state_of(scope, first.id), state_of(fork)] == [{"n": 3}, {"n": 3, "x": 1}]
    assert len(list(scope.history(labels={"a": "b"}))) == 1
    assert scope.delete_note("name") == 1
    assert fork.delete() == 1
    assert scope.delete_snapshot(first.id) == 1
    assert scope.prune(keep_last=1).count == 0


@pytest.mark.parametrize(
    ("table", "event"), [("snapshots", "INSERT"), ("tails", "INSERT"), ("scopes", "UPDATE")]
)
def test_a_save_blocks_no_other_caller(
    conn: Connection, schema: str, one: Store, two: Store, table: str, event: str
) -> None:
    """While a save stands still: all verbs in other scopes go on, and reading also in its own."""
    one.scope("s", "a").save(text(1), id="1")
    two.scope("s", "a").set_note("x", 1)
    with gate(conn, schema, table, event) as closed:
        saving = closed.begin(lambda: two.scope("s", "a").save(near(1, 2), id="2"))
        assert locks_on_tables(conn) <= HARMLESS

        use_everything(one, "s", "b")
        use_everything(one, "other", "a")
        assert one.compact() == 0
        assert one.stats().sessions == 2
        assert complaints_beside_gates(one) == []
        assert state_of(one.scope("s", "a")) == text(1)
        assert [info.id for info in one.scope("s", "a").history()] == ["1"]
        assert one.scope("s", "a").note("x") is not None
        assert one.delete_session("other") > 0
        assert not saving.done()

        behind = closed.meanwhile(lambda: one.scope("s", "a").save(near(1, 3), id="3"))
        assert not behind.done()
        closed.open()
        assert [saving.result().id, behind.result().id] == ["2", "3"]
    assert [info.id for info in one.scope("s", "a").history()] == ["3", "2", "1"]
    assert complaints(one) == []


def locks_on_tables(conn: Connection) -> set[str]:
    """Return the modes in which those who stand at a gate have locked tables."""
    query = f"""
        SELECT DISTINCT l.mode FROM pg_locks AS l
         WHERE l.locktype = 'relation' AND l.granted AND l.pid IN
               (SELECT w.pid FROM pg_locks AS w WHERE w.locktype = 'advisory' AND NOT w.granted)
           AND l.{LOCKED_HERE}
    """
    found = {mode for (mode,) in conn.execute(query).fetchall()}
    assert found
    return found


def complaints_beside_gates(store: Store) -> list[str]:
    return [code for code in complaints(store) if code != "foreign_object"]


# Interleavings


def test_a_session_that_is_deleted_while_a_scope_is_added(
    conn: Connection, schema: str, one: Store, two: Store
) -> None:
    one.scope("s", "a").save({})
    with gate(conn, schema, "scopes", "DELETE") as closed:
        deleting = closed.begin(lambda: two.delete_session("s"))
        one.scope("s", "b").save({"n": 1})
        assert not deleting.done()
        closed.open()
        assert deleting.result() == 1
    assert [info.key.scope_id for info in one.scopes("s")] == ["b"]
    assert complaints(one) == []


def test_two_who_cover_what_the_other_builds_on(
    conn: Connection, schema: str, one: Store, two: Store
) -> None:
    """Each sees that the other still needs a state, and then neither does: it must not stay."""
    origin = one.scope("s", "a")
    origin.save(text(1), id="draft", keep=False)
    fork = origin.fork("draft", scope_id="b")
    (first,) = fork.ids()
    fork.save(near(1, 1), keep=False)
    fork.delete_snapshot(first)
    with gate(conn, schema, "scopes", "UPDATE") as closed:
        covering = closed.begin(lambda: two.scope("s", "b").save(text(2)))
        other = closed.meanwhile(lambda: one.scope("s", "a").save(text(3)))
        closed.open()
        covering.result()
        other.result()
    assert complaints(one) == []
    assert [state_of(fork), state_of(origin)] == [text(2), text(3)]


def family_of_three(store: Store) -> tuple[Scope, Scope, Scope]:
    """Return a scope, a fork of it in the middle of a group, and a fork of that, all growing."""
    origin = store.scope("s", "a")
    for number in range(20):
        origin.save(near(1, number), id=f"a{number:02}")
    fork = origin.fork("a10", scope_id="b")
    for number in range(20):
        fork.save(near(1, 100 + number), id=f"b{number:02}")
    leaf = fork.fork("b10", scope_id="c", patch={"more": 200})
    for number in range(5):
        leaf.save(near(1, 200 + number), id=f"c{number:02}")
    return origin, fork, leaf


def check_family(store: Store, changed: Mapping[str, Any]) -> None:
    """See that all states of the three are what they were, but for those that were changed."""
    for scope_id, start, count in (("a", 0, 20), ("b", 100, 20), ("c", 200, 5)):
        scope = store.scope("s", scope_id)
        for number in range(count):
            id = f"{scope_id}{number:02}"
            expected = changed[id] if id in changed else near(1, start + number)
            assert state_of(scope, id) == expected, id
    assert complaints(store) == []


REMOVING: dict[str, Callable[[Store], Any]] = {
    "a base of forks": lambda store: store.scope("s", "a").delete_snapshot("a10"),
    "all below": lambda store: store.scope("s", "a").delete(),
    "in the middle": lambda store: store.scope("s", "b").delete_snapshot("b10"),
    "changed in place": lambda store: store.scope("s", "a").save(
        near(1, 1010), id="a10", overwrite=True
    ),
    "pruned": lambda store: store.scope("s", "a").prune(keep_last=1),
}
CHANGED: dict[str, dict[str, Any]] = {
    "a base of forks": {"a10": None},
    "all below": {f"a{number:02}": None for number in range(20)},
    "in the middle": {"b10": None},
    "changed in place": {"a10": near(1, 1010)},
    "pruned": {f"a{number:02}": None for number in range(19)},
}


@pytest.mark.parametrize("name", REMOVING)
def test_a_state_is_removed_while_forks_and_saves_stand_still(
    conn: Connection, schema: str, one: Store, two: Store, name: str
) -> None:
    """The other way round: whoever removes sees the fork that was not there when it began."""
    family_of_three(one)
    with gate(conn, schema, "tails", "INSERT") as closed:
        forking = closed.begin(lambda: two.scope("s", "a").fork("a10", scope_id="d"))
        removing = closed.meanwhile(lambda: REMOVING[name](one))
        assert removing.done() == (name == "in the middle")  # which is another scope
        closed.open()
        forking.result()
        removing.result()
    assert state_of(one.scope("s", "d")) == near(1, 10)
    check_family(one, CHANGED[name])


def test_a_first_fork_while_a_state_is_removed(
    conn: Connection, schema: str, postgres_url: str, one: Store, two: Store
) -> None:
    """A scope that was alone when its remover began to wait is not, when it gets the lock."""
    three = limpet.open(postgres_url)
    scope = one.scope("s", "a")
    for number in range(10):
        scope.save(near(1, number), id=f"{number}")
    with gate(conn, schema, "tails", "INSERT") as closed:
        forking = closed.begin(lambda: two.scope("s", "a").fork("5", scope_id="b"))
        removing = closed.meanwhile(lambda: scope.delete_snapshot("5"))
        changing = closed.meanwhile(
            lambda: three.scope("s", "a").save(text(2), id="4", overwrite=True)
        )
        closed.open()
        forking.result()
        assert removing.result() == 1
        changing.result()
    three.close()
    assert state_of(one.scope("s", "b")) == near(1, 5)
    assert [state_of(scope, "4"), state_of(scope, "6")] == [text(2), near(1, 6)]
    assert complaints(one) == []


@pytest.mark.parametrize("goes", ["last user", "while it stays"])
def test_a_shared_state_is_dropped_while_a_fork_is_about_to_use_it(
    conn: Connection, schema: str, one: Store, two: Store, goes: str
) -> None:
    """Who drops it sees the fork that was not there when it began; else it goes with the last."""
    origin = one.scope("s", "a")
    origin.save({"text": random.Random(5).randbytes(20_000).hex()}, id="1")
    first = origin.fork("1", scope_id="b")
    count = f"SELECT count(*) FROM {schema}.shared"
    assert conn.execute(count).fetchone() == (1,)
    if goes == "while it stays":
        with gate(conn, schema, "tails", "INSERT") as closed:
            forking = closed.begin(lambda: two.scope("s", "a").fork("1", scope_id="c"))
            deleting = closed.meanwhile(first.delete)
            assert not deleting.done()
            closed.open()
            forking.result()
            deleting.result()
        assert conn.execute(count).fetchone() == (1,)
        assert state_of(one.scope("s", "c")) == state_of(origin)
        one.scope("s", "c").delete()
    else:
        with gate(conn, schema, "shared", "DELETE") as closed:
            deleting = closed.begin(lambda: two.scope("s", "b").delete())
            forking = closed.meanwhile(lambda: one.scope("s", "a").fork("1", scope_id="c"))
            assert not forking.done()
            closed.open()
            deleting.result()
            forking.result()
        assert state_of(one.scope("s", "c")) == state_of(origin)
        one.scope("s", "c").delete()
    assert conn.execute(count).fetchone() == (0,)
    assert complaints(one) == []


def test_a_deadlock_is_retried(conn: Connection, schema: str, schemas: Schemas, one: Store) -> None:
    """Who deletes a session locks its scopes in order; a fork locks its own before its origin."""
    one.scope("s", "a").save({}, id="1")
    one.scope("s", "b").save({}, id="1")
    one.scope("s", "b").delete_snapshot("1")  # its row stays
    quick = with_option(schemas.url(), "options", "-c%20deadlock_timeout%3D20ms")
    with limpet.open(quick) as two, ThreadPoolExecutor(2) as pool:
        before = deadlocks(conn)
        with conn.transaction():
            conn.execute(f"SELECT 1 FROM {schema}.scopes WHERE scope_id = 'a' FOR UPDATE")
            deleting = pool.submit(one.delete_session, "s")
            until(lambda: waiting(conn, "others") == 1)  # the deletion waits for `a`
            forking = pool.submit(two.scope("s", "a").fork, "1", scope_id="b")
            until(lambda: waiting(conn, "others") == 2)  # the fork has `b`, and waits for `a`
        with suppress(NotFound):  # if the session was gone before it
            forking.result()
        count = deleting.result()
    assert count in (1, 2)
    assert deadlocks(conn) > before
    assert list(one.check()) == []


def deadlocks(conn: Connection) -> int:
    """Return how many there have been in this database, as far as those who ended know."""
    conn.execute("SELECT pg_stat_clear_snapshot()")
    query = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    ((count,),) = conn.execute(query).fetchall()
    return int(count)
