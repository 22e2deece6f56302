"""`kill -9` of clients of PostgreSQL: what was acknowledged is there, the rest whole or absent."""

import random
import select
import time
from collections import Counter
from collections.abc import Iterator

import orjson
import pytest

import limpet
from limpet import Store
from tests.concurrency import storm
from tests.concurrency.crew import Worker
from tests.crash.mortal import observe, predict
from tests.crash.mortal_chat import SESSION, name_of, save, state_of
from tests.crash.mortal_chat import predict as predict_edit
from tests.crash.test_chat_kill import check_order, check_states, kill, moments
from tests.crash.test_kill import kill_after
from tests.effort import times
from tests.servers.postgres import HERE, Connection, Postgres, Schemas, with_option

MORTAL = "mortal"  # the name of the connections of those who are killed
WAIT_S_MAX = 20.0
ROUNDS = times(4, full=10)


@pytest.fixture
def conn(postgres: Postgres, schemas: Schemas) -> Iterator[Connection]:
    with postgres.connect() as conn:
        yield conn


def mortal(url: str) -> str:
    return with_option(url, "application_name", MORTAL)


def bury(conn: Connection) -> None:
    """Wait until the server has ended what the dead had begun: until then it may still happen."""
    query = f"SELECT count(*) FROM pg_stat_activity WHERE application_name = %s AND {HERE}"
    deadline = time.monotonic() + WAIT_S_MAX
    while conn.execute(query, (MORTAL,)).fetchall() != [(0,)]:
        assert time.monotonic() < deadline, "the server did not notice that a client is dead"
        time.sleep(0.002)


def test_what_was_acknowledged_survives_the_kill(conn: Connection, postgres_url: str) -> None:
    """Promises 1, 2 and 5: one store, killed many times in the middle of all kinds of writes.

    After each kill the store shows exactly what was acknowledged in all rounds so far, in order,
    with or without the one write that was under way.
    """
    chance = random.Random(20)
    kinds: Counter[str] = Counter()
    with limpet.open(postgres_url) as store:
        store.scope("s", "counter").save({"count": 0}, id="counter")
        model = observe(store)
        for number in range(ROUNDS):
            found, done, begun = kill_after(
                chance.randrange(45), mortal(postgres_url), number, f"{number:02}"
            )
            bury(conn)
            assert found == model, "what a new process finds is not what this one found"
            for write in done:
                model = predict(model, write)
                kinds[write[0]] += 1
            seen = observe(store)
            possible = [model] if begun is None else [model, predict(model, begun)]
            assert seen in possible, f"killed after {len(done)} writes, during {begun}"
            model = seen
        check_order(store)
    assert kinds.keys() >= {"save", "append", "draft", "update", "note", "delete", "delete_note"}


def killed_in_chats(conn: Connection, url: str, *, rounds: int, seed: int) -> None:
    saved = 0
    with limpet.open(url) as store:
        scope = store.scope(SESSION, "chat")
        for number, (after, wait_s) in enumerate(moments(random.Random(seed), rounds, 80)):
            said = kill("chat", mortal(url), saved, after=after, wait_s=wait_s, seed=number)
            bury(conn)
            assert said == list(range(saved, saved + len(said)))
            numbers = check_states(scope, {})
            # The last may have been stored before it could say so.
            assert numbers in [list(range(saved + len(said) + more)) for more in (0, 1)]
            head = scope.load()
            assert head is not None
            assert head.state == state_of(numbers[-1])
            check_order(store)
            saved = len(numbers)
            if number % 3 == 0:  # this process goes on, in the middle of a group
                for _ in range(5):
                    save(scope, saved)
                    saved += 1


def killed_in_drafts(conn: Connection, url: str, *, rounds: int, seed: int) -> None:
    begin = 0
    with limpet.open(url) as store:
        scope = store.scope(SESSION, "drafts")
        for number, (after, wait_s) in enumerate(moments(random.Random(seed), rounds, 80)):
            said = kill("drafts", mortal(url), begin, after=after, wait_s=wait_s, seed=number)
            bury(conn)
            head = scope.load()
            assert head is not None
            assert int(head.id) - said[-1] in (0, 1)
            assert orjson.dumps(head.state) == orjson.dumps(state_of(int(head.id)))
            assert list(scope.history()) == []
            assert store.stats(SESSION).snapshots == 1
            check_order(store)
            begin = int(head.id) + 1
            if number % 4 == 3:  # what drafts have left behind goes, and the head stays
                store.compact()
                assert scope.load() == head


def killed_in_edits(conn: Connection, url: str, *, rounds: int, seed: int) -> Counter[str]:
    numbers: list[int] = []
    changed: dict[int, int] = {}
    kinds: Counter[str] = Counter()
    chance = random.Random(seed)
    with limpet.open(url) as store:
        scope = store.scope(SESSION, "edits")
        for number in range(rounds):
            after, wait_s = chance.randrange(40, 260), chance.choice((0, 0.0005, 0.002, 0.004))
            said = kill("edits", mortal(url), 0, after=after, wait_s=wait_s, seed=number)
            bury(conn)
            tried = [message[1] for message in said if message[0] == "try"]
            done = tried[: sum(message == ["done"] for message in said)]
            for change in done:
                numbers = predict_edit(change, numbers)
                kinds[change[0]] += 1
                if change[0] == "overwrite":
                    changed[change[1]] = change[2] + 1
                elif change[0] == "save":  # under the number of one that was deleted, maybe
                    changed.pop(change[1], None)
            begun = tried[len(done) :]
            found = [int(id) for id in scope.ids()]
            possible = [numbers, *(predict_edit(change, numbers) for change in begun)]
            assert found in possible, f"killed during {begun}"
            numbers = found
            for change in begun:  # an overwrite that was under way has happened or has not
                if change[0] == "save":
                    changed.pop(change[1], None)
                elif change[0] == "overwrite":
                    state = next(scope.load_many([name_of(change[1])])).state
                    if state == state_of(change[1], change[2] + 1):
                        changed[change[1]] = change[2] + 1
            assert check_states(scope, changed) == numbers
            check_order(store)
    return kinds


@pytest.mark.slow
def test_a_chat_that_is_killed_while_it_is_rewritten(conn: Connection, postgres_url: str) -> None:
    """Promises 1, 2 and 5, at any moment, and around each save that closes a group."""
    killed_in_chats(conn, postgres_url, rounds=4, seed=33)


@pytest.mark.slow
def test_drafts_that_are_killed(conn: Connection, postgres_url: str) -> None:
    """Promise 1 for heads that are not kept: the last acknowledged one, or the next, is shown."""
    killed_in_drafts(conn, postgres_url, rounds=3, seed=34)


@pytest.mark.slow
def test_edits_that_are_killed(conn: Connection, postgres_url: str) -> None:
    """Promise 5: what is stored against something is whole before that something is gone."""
    kinds = killed_in_edits(conn, postgres_url, rounds=3, seed=35)
    assert kinds.keys() == {"save", "overwrite", "delete", "prune", "fork"}


def killed_in_a_storm(conn: Connection, url: str, *, rounds: int, wait_s: float) -> None:
    """Kill all writers of a family at once; each round goes on with what the dead have left."""
    with limpet.open(url) as store:
        for number in range(rounds):
            workers = [
                Worker(storm.__name__, "write", mortal(url), each, 10_000)
                for each in range(10 * number, 10 * number + 3)
            ]
            for worker in workers:
                assert worker.hear() == "ready"
            for worker in workers:
                worker.tell("go")
            # Waits for nothing: it only lets them get on with their writes.
            select.select([], [], [], wait_s)
            for worker in workers:
                worker.process.kill()
            for worker in workers:
                worker.end()
            bury(conn)
            look(store)


def look(store: Store) -> None:
    """See that every snapshot is one that was saved under its id."""
    for info in store.scopes(SESSION):
        scope = store.scope(*info.key)
        head = scope.load()
        assert head is not None
        for found in [head, *scope.load_many(scope.ids())]:
            storm.check(found)
    check_order(store)


@pytest.mark.slow
def test_writers_of_a_family_that_are_killed_together(
    conn: Connection,
    postgres_url: str,
) -> None:
    """No lock outlives its holder, and nothing that forks share is lost with them."""
    killed_in_a_storm(conn, postgres_url, rounds=2, wait_s=0.7)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.torture)])
def test_many_more_kills(conn: Connection, schemas: Schemas, seed: int) -> None:
    killed_in_chats(conn, schemas.url("chats"), rounds=30, seed=seed)
    killed_in_drafts(conn, schemas.url("drafts"), rounds=30, seed=seed)
    killed_in_edits(conn, schemas.url("edits"), rounds=30, seed=seed)
    killed_in_a_storm(conn, schemas.url("storm"), rounds=15, wait_s=1.0)
