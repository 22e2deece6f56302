"""An interrupt (Ctrl-C) at any moment of a call leaves nothing locked."""

import subprocess
import sys
import textwrap
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

SCRIPT = textwrap.dedent(
    """
    import os, random, signal, sys, threading
    import limpet

    def interrupt(*_):
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    chance = random.Random(7)
    store = limpet.open(sys.argv[1], synchronous="off")
    scope = store.scope("s")
    scope.save({"n": 0}, id="kept")
    ended = threading.Event()

    def write_beside():
        while not ended.is_set():
            store.scope("beside").save({"n": 0}, keep=False)

    beside = threading.Thread(target=write_beside)
    interrupts = 0
    while interrupts < 300:
        if interrupts == 150 and not beside.is_alive():
            beside.start()  # from here on, most of the time goes into waiting for it
        try:
            signal.setitimer(signal.ITIMER_REAL, chance.uniform(20e-6, 900e-6), 0.5)
            while True:
                scope.save({"n": interrupts}, keep=False)
                scope.load()
        except KeyboardInterrupt:
            interrupts += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    ended.set()
    beside.join(20)
    assert not beside.is_alive(), "another thread waits for good"
    saved = []
    other = threading.Thread(target=lambda: saved.append(scope.save({"n": "after"})))
    other.start()
    other.join(20)
    assert saved, "another thread cannot save any more"
    child = os.fork()
    if not child:
        signal.alarm(20)
        scope.save({"n": "in child"})
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, "a child cannot save"
    assert scope.load().state == {"n": "in child"}
    assert scope.load("kept").state == {"n": 0}
    store.close()
    print("done")
    """
)


def test_an_interrupt_leaves_nothing_locked(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT, f"sqlite:///{tmp_path}/x.db"],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (ended.stdout, ended.returncode) == ("done\n", 0), ended.stderr


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
        pool.submit(work, scope).result(timeout=20)
