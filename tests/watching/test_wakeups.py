"""No wake-up is missed: every interleaving of watchers, writers and outages that a seed chooses.

The dispatcher, the watchers and the listeners are the real ones; threads, locks and time are those
of a scheduler. Whatever happens, each watcher learns of the last change.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Any, Generic, TypeVar

import pytest

from limpet import ScopeKey, SnapshotInfo, Store, Unavailable
from limpet.api import driver, watching
from limpet.api.driver import Driver
from limpet.api.opened import Opened, Tools
from limpet.backends import memory
from limpet.backends.objects.keys import head_key
from limpet.backends.objects.watching import ObjectListener
from limpet.backends.sqlite.storage import SqliteListener
from limpet.backends.support import polling
from limpet.backends.support.polling import Poller
from limpet.opening import draw
from limpet.protocol import Commit, Listener, Topic
from tests.cases import for_each
from tests.memory import Memory
from tests.watching.scheduler import FakeQueue, Scheduler, Threading
from tests.watching.tools import place

SESSIONS = ("a", "b", "c")
SAVES = 6
WRITERS = 2
WATCHERS = 4
SOON_S = 60.0


T = TypeVar("T")


class StrictListener(Generic[T]):
    """Reports only what the contract promises: what is followed, after `follow` has returned."""

    def __init__(self, scheduler: Scheduler, is_about: Callable[[T, str], bool]) -> None:
        self._scheduler = scheduler
        self._is_about = is_about
        self._said = FakeQueue(scheduler)
        self._topics: list[T] = []

    def tell(self, name: str) -> None:
        if any(self._is_about(topic, name) for topic in self._topics):
            self._said.put(name)

    def follow(self, topics: Collection[T]) -> None:
        self._scheduler.switch()
        self._topics = list(topics)
        self._scheduler.switch()

    def wait(self, *, active: bool) -> frozenset[str] | None:
        said = self._said.get()
        return frozenset() if said is None else frozenset({said})

    def wake(self) -> None:
        self._said.put(None)

    def close(self) -> None:
        self._topics = []


def _is_about(topic: Topic, session_id: str) -> bool:
    if topic.target is not None:
        return topic.target.scope.session_id == session_id
    return topic.session_id in (session_id, None) and session_id.startswith(topic.prefix)


class Version:
    """A SQLite file, as far as its listener sees it."""

    def __init__(self) -> None:
        self.number = 0

    def version(self) -> int:
        return self.number


class Stepped:
    """A memory engine of which every call is a step of the scheduler, and may fail."""

    def __init__(self, scheduler: Scheduler, kind: str) -> None:
        self.is_flaky = True
        self._scheduler = scheduler
        self._kind = kind
        self._real = Memory()
        self._file = Version()
        self._strict: list[StrictListener[Topic]] = []
        self._bucket: list[StrictListener[str]] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        if not callable(found):
            return found

        def call(*args: Any, **named: Any) -> Any:
            self._step(name)
            answer = found(*args, **named)
            if name == "commit":
                self._file.number += 1
                for each in self._strict:
                    each.tell(answer.session_id)
                for bucket in self._bucket:
                    bucket.tell(head_key(answer.scope))
            self._step("")
            return answer

        return call

    def _step(self, name: str) -> None:
        self._scheduler.switch()
        fails = name.startswith(("read_", "list_", "listen"))
        if name == "read_info" and self._kind in ("told", "strict", "objects"):
            # One target that fails is read again when everything is polled, which an engine that
            # can fail does every few seconds, and these listeners never.
            fails = False
        if self.is_flaky and fails and self._scheduler.chance.random() < 0.1:
            raise Unavailable("an outage")

    def listen(self) -> Listener[Topic]:
        clock = self._scheduler.clock
        self._step("listen")
        if self._kind == "told":
            return self._real.listen()
        if self._kind == "strict":
            self._strict.append(StrictListener(self._scheduler, _is_about))
            return self._strict[-1]
        if self._kind == "objects":
            bucket = StrictListener[str](self._scheduler, lambda below, key: key.startswith(below))
            self._bucket.append(bucket)
            return ObjectListener(bucket)
        if self._kind == "sqlite":
            return SqliteListener(self._file, clock)  # type: ignore[arg-type]
        return Poller(first_s=0.1, poll_s=1.0, clock=clock)

    def close(self) -> None:
        self._real.close()


KINDS = ("told", "strict", "objects", "sqlite", "polled")


class Run:
    """One run: writers and watchers over one store, until the last change has reached all."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: str, seed: int) -> None:
        self.scheduler = scheduler = Scheduler(seed)
        for module in (watching, driver):
            monkeypatch.setattr(module, "threading", Threading(scheduler))
        monkeypatch.setattr(watching, "start_thread", scheduler.spawn)
        for queues in (polling, memory):
            monkeypatch.setattr(queues, "SimpleQueue", lambda: FakeQueue(scheduler))
        self.backend = Stepped(scheduler, kind)
        tools = Tools(draw=draw, clock=scheduler.clock, state_bytes_max=10**6, workers=1)
        opened = Opened(lambda: self.backend, tools)
        opened.open()
        self.store = Store(Driver(opened))
        self.last: dict[str, str] = {}
        self.is_calm = False
        self.seen: dict[int, dict[str, str]] = {}
        self.expected: dict[int, Callable[[], dict[str, str]]] = {}

    def run(self) -> None:
        tasks = [self.scheduler.spawn(self._write, f"writer-{n}") for n in range(WRITERS)]
        for n in range(WATCHERS):
            self.scheduler.spawn(lambda n=n: self._watch(n), f"watcher-{n}")  # type: ignore[misc]

        def control() -> None:
            for each in tasks:
                each.join()
            self.backend.is_flaky, self.is_calm = False, True
            reached = self.scheduler.pause(self._all_know, SOON_S)
            assert reached, f"a change was missed. last=`{self.last}` seen=`{self.seen}`"
            self.store.close()

        self.scheduler.spawn(control, "control")
        self.scheduler.run()

    def _all_know(self) -> bool:
        return len(self.seen) == WATCHERS and all(
            self.expected[n]().items() <= seen.items() for n, seen in self.seen.items()
        )

    def _write(self) -> None:
        chance = self.scheduler.chance
        for _ in range(SAVES):
            session = chance.choice(SESSIONS)
            info = self.backend.commit(_commit(session))
            if place(info.revision) > place(self.last.get(session, "0.0.")):
                self.last[session] = info.revision
            if chance.random() < 0.3:
                self.scheduler.clock.sleep(chance.random() * 2)

    def _watch(self, n: int) -> None:
        """Watch one topic after another; the last one until the store is closed."""
        chance = self.scheduler.chance
        while not self.store.driver.opened.closed:
            watch, expected = self._chosen()
            seen: dict[str, str] = {}
            self.seen[n], self.expected[n] = seen, expected
            for info in watch:
                seen[info.session_id] = info.revision
                if not self.is_calm and chance.random() < 0.3:
                    break

    def _chosen(self) -> tuple[Iterator[SnapshotInfo], Callable[[], dict[str, str]]]:
        store, session = self.store, self.scheduler.chance.choice(SESSIONS)

        def one() -> dict[str, str]:
            return {session: self.last[session]} if session in self.last else {}

        match self.scheduler.chance.randrange(4):
            case 0:
                return store.scope(session).watch(), one
            case 1:
                return store.watch(session_id=session), one
            case 2:
                return store.watch(prefix=session), one
            case _:
                return store.watch(), lambda: self.last


def _commit(session: str) -> Commit:
    return Commit(ScopeKey(session), b"{}", "completed", b"{}", b"{}", draw())


@for_each("kind", KINDS)
@for_each("first", range(0, 30, 10))
def test_the_last_change_is_never_missed(
    kind: str, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(first, first + 10):
        with monkeypatch.context() as patch:
            try:
                Run(patch, kind, seed).run()
            except BaseException as error:
                error.add_note(f"kind={kind} seed={seed}")
                raise
