"""After a fork both processes may go on using the store, and neither loses anything."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import limpet
from tests.concurrency.crew import Worker, url_of
from tests.concurrency.forker import check, save
from tests.concurrency.pg_tools import opened, run_script
from tests.servers.postgres import HERE, Postgres, one
from tests.waiting import until

SCRIPT = Path(__file__).with_name("forker.py")


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return url_of(tmp_path / "store.db")
    return str(request.getfixturevalue("postgres_url"))


def play(scene: str, url: str) -> None:
    with Worker(SCRIPT, scene, url) as worker:
        assert worker.hear() == "done"
    with limpet.open(url) as store:
        assert [found for found in store.check() if found.severity != "info"] == []


def test_what_both_acknowledge_is_there(url: str) -> None:
    """Promise 1: whichever of the two ends or closes first, what the other wrote is kept."""
    play("both_go_on", url)
    with limpet.open(url) as store:
        for name in ("parent", "child"):
            check(store, name, 40)


def test_a_child_outlives_its_parent(url: str) -> None:
    """Promise 1: also when another process opens the store after the parent is gone."""
    with Worker(SCRIPT, "parent_ends", url) as worker:
        assert worker.hear() == "child"
        worker.process.wait()
        with limpet.open(url) as store:
            save(store, "other", 20)
            worker.tell("go on")
            save(store, "other", 20)
            assert worker.hear() == "done"

    with limpet.open(url) as store:
        for name in ("parent", "child", "other"):
            check(store, name, 40)


def test_a_fork_while_threads_are_writing(url: str) -> None:
    """A child neither hangs on what a thread held, nor disturbs what its parent has under way."""
    play("threads_are_writing", url)


SLOW_ON_POSTGRES = ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)]


@pytest.mark.parametrize("url", SLOW_ON_POSTGRES, indirect=True)
@pytest.mark.parametrize("scene", ["async_face", "threads_fork"])
def test_other_forks(url: str, scene: str) -> None:
    """The async API works in a child; a fork does not happen while another closes connections."""
    play(scene, url)


def test_a_fork_during_a_long_transaction(tmp_path: Path) -> None:
    """The fork waits two seconds at most, and its child refuses instead of losing a write."""
    url = url_of(tmp_path / "store.db")
    play("long_transaction", url)
    with limpet.open(url) as store:
        check(store, "parent", 10)
        check(store, "child", 10)


# PostgreSQL


def test_children_that_end_as_usual(postgres: Postgres, postgres_url: str) -> None:
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
    with opened(postgres, postgres_url) as store:
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
        opened(postgres, postgres_url, lock_wait_s=100) as store,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent,
    ):
        parent.wait()
        assert store.scope("s").save({"n": 1}).id
        listens = f"query LIKE '%pg_advisory_lock_shared%' AND pid <> pg_backend_pid() AND {HERE}"
        with postgres.connect() as conn:
            query = f"SELECT count(*) FROM pg_stat_activity WHERE {listens}"
            until(lambda: one(conn, query) == 0)
        assert parent.stdin is not None
        parent.stdin.close()  # and the child ends


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
