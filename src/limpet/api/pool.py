"""The threads in which the async API runs its calls.

A call is one entry of a queue. A `ThreadPoolExecutor` makes a future with a condition of its own
for each and takes a semaphore, which costs about as much as the switch to the thread and back.
"""

from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, copy_context
from queue import SimpleQueue
from threading import Lock, Thread, main_thread
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import finalize

from limpet.api.opened import start_thread
from limpet.backends.support.forks import renew_after_fork
from limpet.errors import CLOSED, InvalidInput

if TYPE_CHECKING:
    import asyncio

_Call: TypeAlias = "tuple[Context, asyncio.Future[Any], Callable[..., Any], tuple[Any, ...]]"
_Calls: TypeAlias = "SimpleQueue[_Call | None]"


class Pool:
    """Up to `threads_max` threads, started when they are needed.

    They end when it is closed or nobody refers to it, after all calls; a process that ends waits
    for that.
    """

    def __init__(self, threads_max: int) -> None:
        self._threads_max = threads_max
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Begin again without threads: they do not survive a fork."""
        self._lock = Lock()
        self._calls: _Calls = SimpleQueue()
        self._threads: list[Thread] = []
        self._idle: list[None] = []  # one for each thread that waits for a call
        self._end = finalize(self, _end, self._calls, self._threads)

    def close(self) -> None:
        """End the threads once all calls are done. May be repeated."""
        with self._lock:
            self._end()

    def submit(self, future: "asyncio.Future[Any]", fn: Callable[..., Any], *args: Any) -> None:
        """Call a function for a future of the running loop, unless that is cancelled before.

        In the context of the caller, as by `asyncio.to_thread`: it has the current span.
        """
        with self._lock:
            if not self._end.alive:
                raise InvalidInput(CLOSED)
            if self._idle:
                self._idle.pop()
            elif len(self._threads) < self._threads_max:
                calls, idle = self._calls, self._idle
                self._threads.append(start_thread(lambda: _work(calls, idle), "limpet"))
            self._calls.put((copy_context(), future, fn, args))


def _end(calls: _Calls, threads: list[Thread]) -> None:
    calls.put(None)
    if not main_thread().is_alive():  # the process ends, and would cut off what has begun
        for each in threads:
            each.join()


def _work(calls: _Calls, idle: list[None]) -> None:
    while (call := calls.get()) is not None:
        context, future, fn, args = call
        with suppress(RuntimeError):  # of a loop that is closed: nobody waits any more
            context.run(_answer, [future], fn, args)
        del call, context, future, fn, args
        idle.append(None)
    calls.put(None)  # for the next thread


def _answer(awaited: "list[asyncio.Future[Any]]", fn: Callable[..., Any], args: Any) -> None:
    # The one future is taken out of its list: an error refers to the frames here, and would keep
    # itself alive.
    future = awaited.pop()
    if future.cancelled():
        return
    try:
        result = fn(*args)
    except BaseException as error:
        future.get_loop().call_soon_threadsafe(_fail, future, error)
    else:
        future.get_loop().call_soon_threadsafe(_succeed, future, result)
    finally:
        del future


def _succeed(future: "asyncio.Future[Any]", result: Any) -> None:
    if not future.cancelled():
        future.set_result(result)


def _fail(future: "asyncio.Future[Any]", error: BaseException) -> None:
    if future.cancelled():
        return
    if isinstance(error, StopIteration):  # cannot cross into a task, where it would be lost
        cause, error = error, RuntimeError("the function raised StopIteration")
        error.__cause__ = cause
    future.set_exception(error)
