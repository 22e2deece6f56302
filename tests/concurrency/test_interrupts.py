"""An interrupt (Ctrl-C) at any moment of a call leaves nothing locked."""

import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import limpet
from limpet import Scope
from limpet.backends.support.forks import opening_a_socket
from tests.concurrency.crew import url_of
from tests.concurrency.pg_tools import opened, run_script
from tests.effort import TORTURE
from tests.servers.postgres import Postgres, Schemas

INTERRUPTED = """
    import os, random, signal, sys, threading
    import limpet

    def interrupt(*_):
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    chance = random.Random(7)
    count = int(sys.argv[2])
    store = limpet.open(sys.argv[1])
    scope = store.scope("s")
    scope.save({"n": 0}, id="kept")
    ended = threading.Event()

    def write_beside():
        while not ended.is_set():
            store.scope("beside").save({"n": 0}, keep=False)

    beside = threading.Thread(target=write_beside)
    interrupts = 0
    while interrupts < count:
        if interrupts == count // 2 and not beside.is_alive():
            beside.start()  # from here on, most of the time goes into waiting for it
        try:
            longest = 900e-6 if sys.argv[1].startswith("sqlite") else 4e-3
            signal.setitimer(signal.ITIMER_REAL, chance.uniform(20e-6, longest), 0.5)
            while True:
                scope.save({"n": interrupts}, keep=False)
                scope.set_note("n", 1)
                scope.load()
        except KeyboardInterrupt:
            interrupts += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    ended.set()
    beside.join(300)
    assert not beside.is_alive(), "another thread waits for good"

    def both():
        begin.wait()
        saved.append(scope.append("after", [1]))

    saved, begin = [], threading.Barrier(2)
    threads = [threading.Thread(target=both) for _ in range(2)]
    for each in threads: each.start()
    for each in threads: each.join(300)
    assert len(saved) == 2, "other threads cannot save any more"
    child = os.fork()
    if not child:
        signal.alarm(300)
        scope.save({"n": "in child"})
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, "a child cannot save"
    assert scope.load().state == {"n": "in child"}
    assert scope.load("kept").state == {"n": 0}
    store.close()
    print("done")
"""


def test_an_interrupt_leaves_nothing_locked(tmp_path: Path) -> None:
    url = f"{url_of(tmp_path / 'x.db')}?synchronous=off"
    assert run_script(INTERRUPTED, url, 300) == "done\n"


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=TORTURE)])
def test_an_interrupt_leaves_no_transaction(
    postgres: Postgres, postgres_url: str, count: int
) -> None:
    with opened(postgres, postgres_url) as store:
        assert run_script(INTERRUPTED, f"{postgres_url}&connections=3", count) == "done\n"
        store.scope("s").save({})


def _open_a_socket(_: Scope) -> None:
    with opening_a_socket():
        pass


def _claim(scope: Scope) -> None:
    with scope.claim(owner="ann", wait_s=10):
        pass


def _watch(scope: Scope) -> None:
    next(iter(scope.watch()))


@pytest.mark.parametrize("work", [_open_a_socket, _claim, _watch])
def test_an_interrupt_inside_a_condition(work: Callable[[Scope], None]) -> None:
    """It is locked then, and not yet in the hands of its caller."""

    def interrupt(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code is not threading.Condition.__enter__.__code__:
            return None
        if event == "return":
            raise KeyboardInterrupt
        return interrupt

    with limpet.open("memory:") as store, ThreadPoolExecutor(1) as pool:
        scope = store.scope("s")
        scope.save({"n": 0})
        sys.settrace(interrupt)
        try:
            work(scope)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        pool.submit(work, scope).result(timeout=300)


WAITING = """
    import signal, sys, time
    import limpet, psycopg

    def interrupt(*_):
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    url, schema = sys.argv[1:]
    with limpet.open(url, connections=1) as store, psycopg.connect(url.split("?")[0]) as other:
        held, last = store.scope("s", "held"), store.scope("s", "last")
        held.save("theirs", id="a")
        with limpet.open(url) as another:  # so that the store has to read first
            another.scope("s", "held").set_note("kept", 1)
        for number in range(4):  # and here it does not
            last.save({"n": number})
            last.set_note(f"note {number}", number)
            last.delete_note(f"note {number}")
        last.set_note("kept", 1)
        other.execute(f"SELECT 1 FROM {schema}.scopes FOR UPDATE")
        for work in (
            lambda: held.save({"mine": True}),
            lambda: held.set_note("mine", True),
            lambda: held.update("a", lambda s: s.with_(state="mine")),
            lambda: held.delete(),
            lambda: last.save({"mine": True}),
            lambda: last.delete_note("kept"),
        ):
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            begin = time.monotonic()
            try:
                work()
            except KeyboardInterrupt:
                assert time.monotonic() - begin < 300
            else:
                raise AssertionError("it did not wait")
            store.scope("s", "free").append("n", [1])
        other.rollback()
        for scope in (held, last):
            print(scope.load().state, [each.name for each in scope.notes()])
        last.save({"n": 4})
        print(last.delete_note("kept"), store.scope("s", "free").load().state)
"""


def test_an_interrupt_of_one_that_waits(postgres_url: str, schemas: Schemas) -> None:
    """It ends at once, its statement with it, and nothing of it happens later.

    One statement is sent without a cursor, and waited for as a cursor does.
    """
    assert run_script(WAITING, postgres_url, schemas.name()).splitlines() == [
        "theirs ['kept']",
        "{'n': 3} ['kept']",
        f"1 {{'n': {[1] * 6}}}",
    ]
