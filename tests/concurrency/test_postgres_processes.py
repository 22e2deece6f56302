"""What processes do with a store on PostgreSQL: fork, be interrupted, close it in mid-use."""

import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from limpet import InvalidInput, Store
from tests.concurrency.crew import Worker
from tests.concurrency.forker import check, save
from tests.concurrency.pg_tools import Background, opened, run_script, waiters
from tests.servers.postgres import HERE, Connection, Postgres, Schemas
from tests.waiting import until

FORKER = Path(__file__).with_name("forker.py")


@pytest.fixture
def store(postgres: Postgres, postgres_url: str) -> Iterator[Store]:
    with opened(postgres, postgres_url) as store:
        yield store


# Forks


@pytest.mark.parametrize("scene", ["both_go_on", "parent_closes", "child_closes"])
def test_what_both_acknowledge_is_there(postgres_url: str, store: Store, scene: str) -> None:
    """Promise 1: whichever of the two ends or closes first, what the other wrote is kept."""
    with Worker(FORKER, scene, postgres_url) as worker:
        assert worker.hear() == "done"
    check(store, "child", 40)
    check(store, "parent", 10 if scene == "parent_closes" else 40)


def test_a_child_outlives_its_parent(postgres_url: str, store: Store) -> None:
    with Worker(FORKER, "parent_ends", postgres_url) as worker:
        assert worker.hear() == "child"
        worker.process.wait()
        save(store, "other", 20)
        worker.tell("go on")
        assert worker.hear() == "done"
    check(store, "parent", 40)
    check(store, "child", 40)


@pytest.mark.parametrize(
    "scene",
    [
        "threads_are_writing",
        pytest.param("async_face", marks=pytest.mark.slow),
        pytest.param("threads_fork", marks=pytest.mark.slow),
    ],
)
def test_a_fork_at_any_moment(postgres_url: str, scene: str) -> None:
    """A child neither hangs on what a thread held, nor disturbs what its parent has under way."""
    with Worker(FORKER, scene, postgres_url) as worker:
        assert worker.hear() == "done"


def test_children_that_end_as_usual(postgres_url: str, store: Store) -> None:
    """With all that an interpreter tidies up at its end; nothing of it is the parent's."""
    script = """
        import multiprocessing, os, sys
        import limpet

        def work(name):
            for n in range(5):
                store.scope("s", name).append("n", [n])

        store = limpet.open(sys.argv[1])
        work("parent")
        connection = store.driver.opened.backend.storage._server._pool._idle[0]
        context = multiprocessing.get_context("fork")
        for turn in range(3):
            child = context.Process(target=work, args=(f"child-{turn}",))
            child.start()
            work("parent")
            child.join()
            assert child.exitcode == 0
        pid = os.fork()
        if not pid:
            work("forked")
            sys.exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        work("parent")
        assert connection[0] is store.driver.opened.backend.storage._server._pool._idle[0][0]
        store.close()
    """
    assert run_script(script, postgres_url) == ""
    for name, count in (("parent", 25), ("child-0", 5), ("child-2", 5), ("forked", 5)):
        assert len(list(store.scope("s", name).history())) == count


FORKED_IN_A_TRANSACTION = """
    import os, signal, sys, threading
    import limpet

    store = limpet.open(sys.argv[1])
    scope = store.scope("s")
    scope.save({"n": 0})
    watching = threading.Thread(target=lambda: list(scope.watch()), daemon=True)
    watching.start()
    locked = threading.Event()

    def hold(reader):
        locked.set()
        threading.Event().wait()

    storage = store.driver.opened.backend.storage
    threading.Thread(target=lambda: storage.transact(scope.key, hold), daemon=True).start()
    locked.wait()
    pid = os.fork()
    if not pid:
        sys.stdin.read()  # for as long as the test lives
        os._exit(0)
    print(pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_child_keeps_no_lock_of_a_parent_that_was_killed(
    postgres: Postgres, postgres_url: str
) -> None:
    """The server sees the end of the parent, though the child has inherited its sockets."""
    command = [sys.executable, "-c", textwrap.dedent(FORKED_IN_A_TRANSACTION), postgres_url]
    with (
        opened(postgres, postgres_url, lock_wait_s=10) as store,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent,
    ):
        parent.wait()
        assert store.scope("s").save({"n": 1}).id
        with postgres.connect() as conn:
            until(lambda: sessions_of(conn) == 0)
        assert parent.stdin is not None
        parent.stdin.close()  # and the child ends


def sessions_of(conn: Connection) -> int:
    """Return how many sessions there are that listen."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_advisory_lock_shared%'"
    query += f" AND pid <> pg_backend_pid() AND {HERE}"
    found = conn.execute(query).fetchone()
    assert found is not None
    return int(found[0])


FORKED_WHILE_ONE_CONNECTS = """
    import os, socket, threading, warnings
    import limpet

    warnings.simplefilter("ignore", DeprecationWarning)  # of forking while there are threads
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]

    def connect():
        try:
            limpet.open(f"postgresql://me@127.0.0.1:{port}/agents", retry_s=0)
        except limpet.Unavailable:
            pass

    def is_to_the_server(fd):
        try:
            with socket.socket(fileno=os.dup(fd)) as found:
                return found.getpeername()[1] == port
        except OSError:
            return False

    connecting = threading.Thread(target=connect)
    connecting.start()
    server, _ = listener.accept()
    listener.close()
    server.recv(1)
    threading.Timer(0.1, server.close).start()  # only then it is no longer connecting
    if not os.fork():
        print(*filter(is_to_the_server, range(100)), "those were the sockets", flush=True)
        os._exit(0)
    os.wait()
    connecting.join()
"""


def test_a_child_keeps_no_connection_that_was_being_opened() -> None:
    assert run_script(FORKED_WHILE_ONE_CONNECTS) == "those were the sockets\n"


# Interrupts

INTERRUPTED = """
    import os, random, signal, sys, threading
    import limpet

    def interrupt(*_):
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    chance = random.Random(7)
    store = limpet.open(sys.argv[1], connections=2, retry_s=10)
    scope = store.scope("s")
    scope.save({"n": 0}, id="kept")
    interrupts = 0
    while interrupts < int(sys.argv[2]):
        try:
            signal.setitimer(signal.ITIMER_REAL, chance.uniform(50e-6, 4e-3), 0.5)
            while True:
                scope.save({"n": interrupts}, keep=False)
                scope.set_note("n", 1)
                scope.load()
        except KeyboardInterrupt:
            interrupts += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def both():
        begin.wait()
        saved.append(scope.append("after", [1]))

    saved, begin = [], threading.Barrier(2)
    threads = [threading.Thread(target=both) for _ in range(2)]
    for each in threads: each.start()
    for each in threads: each.join(20)
    assert len(saved) == 2, "other threads cannot save any more"
    assert scope.load("kept").state == {"n": 0}
    store.close()
    print("done")
"""


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_an_interrupt_leaves_nothing_locked(postgres_url: str, store: Store, count: int) -> None:
    """Ctrl-C at any moment: no connection is lost to the store, none is left in a transaction."""
    assert run_script(INTERRUPTED, postgres_url, count).split() == ["done"]
    store.scope("s").save({})


WAITING = """
    import signal, sys, time
    import limpet

    def interrupt(*_):
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    with limpet.open(sys.argv[1], connections=1) as store:
        scope = store.scope("s", "held")
        for work in (
            lambda: scope.save({"mine": True}),
            lambda: scope.set_note("mine", True),
            lambda: scope.update("a", lambda s: s.with_(state="mine")),
            lambda: scope.delete(),
        ):
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            begin = time.monotonic()
            try:
                work()
            except KeyboardInterrupt:
                assert time.monotonic() - begin < 10
            else:
                raise AssertionError("it did not wait")
            store.scope("s", "free").append("n", [1])
    print("done")
"""


def test_an_interrupt_of_one_that_waits(
    postgres_url: str, schemas: Schemas, store: Store, conn: Connection
) -> None:
    """It ends at once, its statement with it, and nothing of it happens later."""
    held = store.scope("s", "held")
    held.save("theirs", id="a")
    store.scope("s", "free").save({})
    query = f"SELECT 1 FROM {schemas.name()}.scopes WHERE scope_id = 'held' FOR UPDATE"
    with conn.transaction():
        conn.execute(query)
        assert run_script(WAITING, postgres_url) == "done\n"
    (found,) = held.load_many(held.ids())
    assert (found.state, list(held.notes())) == ("theirs", [])
    free = store.scope("s", "free").load()
    assert free is not None
    assert free.state == {"n": [1] * 4}


WAITING_AS_THE_LAST_WRITER = """
    import signal, sys, time
    import limpet, psycopg

    def interrupt(*_):
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    url, schema = sys.argv[1:]
    with limpet.open(url, connections=1) as store, psycopg.connect(url.split("?")[0]) as other:
        scope = store.scope("s")
        for number in range(4):
            scope.save({"n": number})
            scope.set_note(f"note {number}", number)
            scope.delete_note(f"note {number}")
        scope.set_note("kept", 1)
        other.execute(f"SELECT 1 FROM {schema}.scopes FOR UPDATE")
        for work in (lambda: scope.save({"mine": True}), lambda: scope.delete_note("kept")):
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            begin = time.monotonic()
            try:
                work()
            except KeyboardInterrupt:
                assert time.monotonic() - begin < 10
            else:
                raise AssertionError("it did not wait")
        other.rollback()
        print(scope.load().state, [each.name for each in scope.notes()])
        scope.save({"n": 4})
        print(scope.delete_note("kept"))
"""


def test_an_interrupt_of_one_statement_that_waits(postgres_url: str, schemas: Schemas) -> None:
    """It is sent without a cursor, and waited for as a cursor does: the server is told to stop."""
    printed = run_script(WAITING_AS_THE_LAST_WRITER, postgres_url, schemas.name())
    assert printed == "{'n': 3} ['kept']\n1\n"


# Closing


def test_close_in_mid_use(postgres: Postgres, postgres_url: str, store: Store) -> None:
    """Each call ends as it would have, or says that the store is closed; none is half done."""
    for _ in range(3):
        done = [0] * 4

        def work(other: Store, number: int, done: list[int] = done) -> None:
            while True:
                other.scope("s", f"w{number}").append("n", [1])
                done[number] += 1

        before = sum(1 for _ in store.history())
        with opened(postgres, postgres_url, connections=2) as other:
            threads = [Background(lambda n=n: work(other, n)) for n in range(4)]  # type: ignore[misc]
            until(lambda: min(done) > 3)  # noqa: B023
            other.close()
            for each in threads:
                with pytest.raises(InvalidInput, match="closed"):
                    each.result()
        assert sum(1 for _ in store.history()) == before + sum(done)


def test_close_while_one_waits(
    postgres: Postgres, schemas: Schemas, postgres_url: str, store: Store, conn: Connection
) -> None:
    """A call that is under way is not cut off; its connection goes when it has ended."""
    scope = store.scope("s")
    scope.save("theirs")
    with opened(postgres, postgres_url, connections=1) as other:
        with conn.transaction():
            conn.execute(f"SELECT 1 FROM {schemas.name()}.scopes FOR UPDATE")
            waiting = Background(lambda: other.scope("s").save("mine"))
            behind = Background(lambda: other.scope("s").load())
            until(lambda: waiters(postgres) == 1)
            closing = threading.Thread(target=other.close)
            closing.start()
            closing.join(20)
            assert not closing.is_alive()
        assert waiting.result().id == present_id(store)
        with pytest.raises((InvalidInput, AssertionError)):
            assert behind.result() is None
    with pytest.raises(InvalidInput):
        other.scope("s").load()


def present_id(store: Store) -> str:
    found = store.scope("s").info()
    assert found is not None
    return found.id


def test_a_store_that_is_never_closed(postgres_url: str, store: Store) -> None:
    """An interpreter that ends without it ends well, and silently."""
    script = """
        import sys, limpet
        store = limpet.open(sys.argv[1])
        store.scope("s").save(1)
    """
    assert run_script(script, postgres_url) == ""
    assert store.scope("s").info() is not None
