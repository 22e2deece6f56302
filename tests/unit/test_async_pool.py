"""The pool of threads behind the async API: cancelled callers, errors, loops that are closed."""

import asyncio
import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import limpet
from limpet import Unavailable
from tests.cases import for_each
from tests.waiting import until


class Large(list[int]):
    """Something that can be referred to weakly."""


@contextmanager
def no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def fail(given: Large) -> None:
    raise KeyError(len(given))


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/a.db"


def test_what_an_error_leaves_goes_without_the_garbage_collector(url: str) -> None:
    async def main() -> list[weakref.ref[Large]]:
        left = []
        async with limpet.open_async(url) as store:
            for _ in range(3):
                given = Large([1])
                left.append(weakref.ref(given))
                with pytest.raises(KeyError):
                    await store.driver.in_pool(fail, given)
        return left

    with no_collection():
        left = asyncio.run(main())
        until(lambda: not any(each() for each in left))


def test_a_caller_who_is_cancelled_before_the_work_began_stops_it(url: str) -> None:
    begun: list[str] = []
    opened = threading.Event()

    async def main() -> None:
        async with limpet.open_async(url, workers=1) as store:
            pool = store.driver.in_pool
            busy = asyncio.ensure_future(pool(opened.wait, 30))
            waiting = asyncio.ensure_future(pool(begun.append, "cancelled"))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            opened.set()
            assert await busy
            await pool(begun.append, "next")

    asyncio.run(main())
    assert begun == ["next"]


def test_a_loop_that_ends_before_the_work_does_harms_nobody(url: str) -> None:
    opened, done = threading.Event(), list[int]()

    def work(loop: asyncio.AbstractEventLoop, begun: asyncio.Event) -> None:
        loop.call_soon_threadsafe(begun.set)
        opened.wait(300)
        done.append(1)

    with limpet.open(url) as store:

        async def leave() -> None:
            begun = asyncio.Event()
            waiting = store.aio.driver.in_pool(work, asyncio.get_running_loop(), begun)
            task = asyncio.ensure_future(waiting)
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(leave())
        opened.set()
        until(lambda: done)
        assert asyncio.run(store.aio.driver.in_pool(len, "abc")) == 3


@for_each(
    "raised, expected",
    [
        (StopIteration(1), RuntimeError),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (SystemExit(3), SystemExit),
    ],
)
def test_what_the_work_raises_reaches_the_caller(
    url: str, raised: BaseException, expected: type[BaseException]
) -> None:
    def work() -> None:
        raise raised

    with limpet.open(url) as store:
        with pytest.raises(expected):
            asyncio.run(store.aio.driver.in_pool(work))
        assert asyncio.run(store.aio.driver.in_pool(len, "abc")) == 3


def test_work_that_no_thread_could_be_started_for_is_not_done_later(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with limpet.open(url) as store:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            with pytest.raises(Unavailable, match="no thread can be started"):
                asyncio.run(store.aio.driver.in_pool(done.append, "refused"))
        asyncio.run(store.aio.driver.in_pool(done.append, "next"))
    assert done == ["next"]


LEAVING = """
import asyncio, os, sys, threading, limpet

async def leave(driver):
    begun = asyncio.Event()
    def work(loop):
        loop.call_soon_threadsafe(begun.set)
        threading.main_thread().join()
        print("done")
    task = asyncio.ensure_future(driver.in_pool(work, asyncio.get_running_loop()))
    await begun.wait()
    task.cancel()

store = limpet.open(sys.argv[1])
driver = store.aio.driver
assert asyncio.run(driver.in_pool(len, "abc")) == 3
child = os.fork()
if not child:
    assert asyncio.run(driver.in_pool(len, "abcd")) == 4
    store.close()
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
asyncio.run(leave(driver))
store.close()
del store, driver
"""


def test_a_forked_child_has_threads_and_a_process_that_ends_cuts_nothing_off(url: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", LEAVING, url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
