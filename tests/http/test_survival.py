"""A server that is killed and started again, and clients that go on without being told.

Nobody opens the store again: what was acknowledged is there, once, and watches and leases go on.
"""

import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import limpet
from limpet import Conflict, Scope, Store
from tests.concurrency.crew import Crew, Worker, url_of
from tests.concurrency.forker import check
from tests.concurrency.pg_tools import Background
from tests.servers.http import Served
from tests.waiting import until

pytestmark = pytest.mark.slow
FORKER = Path(__file__).parents[1] / "concurrency" / "forker.py"


@pytest.fixture
def database(tmp_path: Path) -> str:
    return url_of(tmp_path / "store.db")


@pytest.fixture
def served(database: str, tmp_path: Path) -> Iterator[Served]:
    with Served(database, folder=tmp_path) as served:
        yield served


@pytest.fixture
def store(served: Served) -> Iterator[Store]:
    with limpet.open(served.url) as store:
        yield store


class Writer:
    """Writes in a thread, and knows what was acknowledged."""

    def __init__(self, store: Store, name: str, stop: threading.Event) -> None:
        self.scope = store.scope("s", name)
        self._stop = stop
        self.saved: list[str] = []
        self.thread = Background(self._run)

    def _run(self) -> None:
        while not self._stop.is_set():
            self.saved.append(self.scope.append("n", [len(self.saved)]).id)
            self.scope.set_note("count", lambda n: (n or 0) + 1)

    def check(self, scope: Scope) -> None:
        """See that every save is there once: none is missing, and none was doubled."""
        count = len(self.saved)
        head, note = scope.load(), scope.note("count")
        assert [each.id for each in scope.history()] == self.saved[::-1]
        assert head is not None
        assert head.state == {"n": list(range(count))}
        assert note is not None
        assert note.value == count


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_no_save_is_lost_or_doubled(
    served: Served, store: Store, database: str, number: int
) -> None:
    stop = threading.Event()
    writers = [Writer(store, f"w{number}", stop) for number in range(4)]
    for _ in range(4):
        goals = [len(writer.saved) + 5 for writer in writers]
        until(lambda g=goals: all(len(w.saved) >= n for w, n in zip(writers, g, strict=True)))  # type: ignore[misc]
        served.stop(number)
        served.start()
    stop.set()
    for writer in writers:
        writer.thread.result()
    served.stop()
    with limpet.open(database) as found:
        for number, writer in enumerate(writers):
            writer.check(found.scope("s", f"w{number}"))
        assert list(found.check()) == []


def test_a_watch_goes_on_and_sees_the_last_change(
    served: Served, store: Store, database: str
) -> None:
    scope = store.scope("s")
    scope.save({"n": 0})
    seen: list[str] = []

    def watch() -> None:
        for info in scope.watch():
            seen.append(info.id)
            if info.status == "last":
                return

    watcher = Background(watch)
    until(lambda: seen)
    served.stop()
    with limpet.open(database) as other:  # a change while no server is there
        meanwhile = other.scope("s").save({"n": 1}).id
    served.start()
    until(lambda: meanwhile in seen)
    last = scope.save({"n": 2}, status="last").id
    watcher.result()
    assert seen[-1] == last


def test_a_lease_is_held_across_a_restart(served: Served, store: Store) -> None:
    scope = store.scope("s")
    with scope.claim(owner="me", ttl_s=20) as lease:
        lease.save({"n": 1})
        served.stop()
        before = lease.expires_at
        served.start()
        lease.save({"n": 2})
        until(lambda: lease.expires_at > before)  # it is renewed by the new server
        with limpet.open(served.url) as rival, pytest.raises(Conflict) as caught:
            rival.scope("s").claim(owner="rival").__enter__()
        assert caught.value.owner == "me"
    with limpet.open(served.url) as rival, rival.scope("s").claim(owner="rival"):
        pass


def test_processes_count_exactly(served: Served, store: Store) -> None:
    store.scope("s").save({"count": 0}, id="counter")
    crew = Crew(2)
    try:
        assert crew.ask("add", served.url, 25) == [25, 25]
    finally:
        crew.dismiss()
    found = store.scope("s").load()
    assert found is not None
    assert found.state == {"count": 50}


@pytest.mark.parametrize("scene", ["both_go_on", "threads_are_writing", "async_face"])
def test_both_sides_of_a_fork_use_the_store(served: Served, store: Store, scene: str) -> None:
    """A child shares no connection with its parent."""
    with Worker(FORKER, scene, served.url) as worker:
        assert worker.hear() == "done"
    if scene == "both_go_on":
        check(store, "child", 40)
