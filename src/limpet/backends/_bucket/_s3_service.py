"""How an object store is asked: when a request is sent again, in parallel, and in which process.

Requests are retried here and not in obstore, which would send a conditional write again after a
lost reply, and then take what it wrote itself for somebody else's. A request that surely was not
executed is sent again after a pause; one that may have been is sent again only if that is harmless.
"""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, TypeVar

from limpet.backends._bucket._s3_failures import (
    Kind,
    Refusal,
    driver_errors,
    error_of,
    read_failure,
)
from limpet.errors import Unavailable, Unsupported
from limpet.protocol import Clock

if TYPE_CHECKING:
    from obstore.store import ObjectStore

T = TypeVar("T")
U = TypeVar("U")

_PAUSE_S = 0.05
_PAUSE_S_MAX = 5.0

# The process whose threads serve obstore. They do not survive a fork, and obstore would wait for
# them without end, also when all is opened anew.
_process: int | None = None


class Service:
    """One bucket of an object store, asked by many threads. Opened by the first request.

    A request takes at most `retry_s`, and the time of one attempt on top.
    """

    def __init__(
        self,
        open_store: "Callable[[], ObjectStore]",
        *,
        name: str,
        clock: Clock,
        retry_s: float,
        parallel: int,
    ) -> None:
        self.about = f"bucket=`{name}`"
        self._open_store = open_store
        self._name = name
        self._clock = clock
        self._retry_s = retry_s
        self._parallel = parallel
        self._lock = threading.Lock()
        self._store: ObjectStore | None = None
        self._pool: ThreadPoolExecutor | None = None

    def close(self) -> None:
        """Let go of the threads and the connections."""
        with self._lock:
            pool, self._pool, self._store = self._pool, None, None
        if pool is not None and _process == os.getpid():
            pool.shutdown()

    def answer(self, request: "Callable[[ObjectStore], T]") -> T:
        """Ask for what a service has no reason to refuse."""
        try:
            return self.ask(request)
        except Refusal as refusal:
            raise self.misread(refusal) from None

    def ask(
        self,
        request: "Callable[[ObjectStore], T]",
        *,
        write: bool = False,
        again: bool = True,
    ) -> T:
        """Send a request until it is answered, as long as that is harmless and not too late.

        `again` says that it may be sent again though it may have been executed.

        Raises:
            Refusal: the answer is no.
        """
        store = self._opened()
        deadline = self._clock.monotonic() + self._retry_s
        pause = _PAUSE_S
        sent = False
        while True:
            try:
                return request(store)
            except driver_errors() as cause:
                failure = read_failure(cause)
            if failure.kind in (Kind.MISSING, Kind.MOVED, Kind.RANGE):
                raise Refusal(failure)
            unclear = failure.kind is Kind.UNCLEAR
            sent = sent or (write and unclear)
            wait_s = pause * (0.5 + self._clock.jitter())
            late = self._clock.monotonic() + wait_s > deadline
            if late or not (failure.kind is Kind.BUSY or (unclear and again)):
                raise error_of(failure, self._name, sent=sent)
            self._clock.sleep(wait_s)
            pause = min(pause * 2, _PAUSE_S_MAX)

    def misread(self, refusal: Refusal) -> Unavailable:
        """Return the error for an answer that nothing we asked for explains."""
        return Unavailable(f"the object store refused the request. {self.about} reason=`{refusal}`")

    def _opened(self) -> "ObjectStore":
        global _process
        with self._lock:
            if _process is None:
                _process = os.getpid()
            if _process != os.getpid():
                raise Unsupported(
                    "an object store cannot be used in a process that was forked from one that used"
                    f" it: fork before the first use, or start processes by `spawn`. {self.about}"
                )
            if self._store is None:
                self._store = self._open_store()
            return self._store

    def map(self, work: Callable[[U], T], items: Sequence[U]) -> list[T]:
        """Do some work on each item, in parallel; when it fails, only after all of it has ended."""
        if len(items) < 2:
            return [work(item) for item in items]
        self._opened()
        failed = threading.Event()

        def task(item: U) -> T:
            # Once one has waited in vain, those behind it need not wait as long again.
            if failed.is_set():
                raise CancelledError
            try:
                return work(item)
            except BaseException:
                failed.set()
                raise

        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._parallel, "limpet-bucket")
            futures = [self._pool.submit(task, item) for item in items]
        try:
            # They begin in order, so the first that failed comes before all that were cancelled.
            return [future.result() for future in futures]
        except BaseException as cause:
            _give_up(futures, cause)
            raise


def _give_up(futures: Sequence[Future[T]], cause: BaseException) -> None:
    for future in futures:
        future.cancel()
    # Who presses Ctrl-C does not want to wait; others must not find requests still under way.
    if isinstance(cause, Exception):
        wait(futures)
