"""The threads in which the async API runs its calls.

A call is an entry of a queue. A `ThreadPoolExecutor` makes a future with a condition for each and
takes a semaphore, which costs as much as the switch to the thread and back.
"""

import atexit
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any
from weakref import WeakKeyDictionary, finalize

from limpet.api.opened import start_thread
from limpet.backends.support.forks import renew_after_fork
from limpet.errors import CLOSED, InvalidInput

_threads: WeakKeyDictionary[Thread, SimpleQueue[Any]] = WeakKeyDictionary()


class Pool:
    """Up to `threads_max` threads, started when they are needed.

    They end after all calls, once it is closed or unused; a process that ends waits for them.
    """

    def __init__(self, threads_max: int) -> None:
        self._threads_max = threads_max
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Begin again: threads do not survive a fork."""
        self._lock = Lock()
        self._calls: SimpleQueue[Any] = SimpleQueue()
        self._threads = 0
        self._idle: list[None] = []  # one for each thread that waits for a call
        self._end = finalize(self, self._calls.put, None)

    def close(self) -> None:
        """Take no more calls. May be repeated."""
        with self._lock:
            self._end()

    def submit(self, future: Any, fn: Callable[..., object], *args: Any) -> None:
        """Call a function for a future of asyncio, unless that is cancelled before.

        In the context of the caller, as by `asyncio.to_thread`: it has the current span.
        """
        with self._lock:
            if not self._end.alive:
                raise InvalidInput(CLOSED)
            if self._idle:
                self._idle.pop()
            elif self._threads < self._threads_max:
                calls, idle = self._calls, self._idle
                _threads[start_thread(lambda: _work(calls, idle), "limpet")] = calls
                self._threads += 1
            self._calls.put((copy_context().run, _answer, [future], fn, args))


@atexit.register
def _join() -> None:
    for thread, calls in list(_threads.items()):
        calls.put(None)
        thread.join()


def _work(calls: SimpleQueue[Any], idle: list[None]) -> None:
    while (call := calls.get()) is not None:
        run, *arguments = call
        with suppress(RuntimeError):  # of a loop that is closed: nobody waits any more
            run(*arguments)
        del call, run, arguments
        idle.append(None)
    calls.put(None)  # for the next thread


def _answer(awaited: list[Any], fn: Callable[..., object], args: Any) -> None:
    future = awaited.pop()  # an error refers to the frames here, and would keep itself alive
    if future.cancelled():
        return
    result: object = None
    failed: BaseException | None = None
    try:
        result = fn(*args)
    except StopIteration as error:  # cannot cross into a task, where it would be lost
        failed = RuntimeError("the function raised StopIteration")
        failed.__cause__ = error
    except BaseException as error:
        failed = error
    try:
        future.get_loop().call_soon_threadsafe(_settle, future, result, failed)
    finally:
        del future, failed


def _settle(future: Any, result: object, failed: BaseException | None) -> None:
    if future.cancelled():
        return
    if failed is None:
        future.set_result(result)
    else:
        future.set_exception(failed)
