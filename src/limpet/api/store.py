"""The synchronous face of a store. The full promise of each verb stands here."""

import inspect
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from limpet.api import upkeep, verbs
from limpet.api.opened import Engine
from limpet.api.scope import Scope
from limpet.api.verbs import Ask, Pause, Steps, Walk, Work
from limpet.api.watching import Hub, Watcher
from limpet.core import limits
from limpet.errors import InvalidInput, LimpetError
from limpet.model import (
    Finding,
    ScopeInfo,
    SnapshotInfo,
    Stats,
)
from limpet.protocol import Topic

if TYPE_CHECKING:
    from limpet.api.aio_store import AsyncStore

T = TypeVar("T")


class Store:
    """An opened engine: the one object that everything starts from. A context manager.

    May be shared between threads. After a fork both processes may go on using it.
    """

    def __init__(self, engine: Engine) -> None:
        """Made by `limpet.open`."""
        self._engine = engine
        self._aio: AsyncStore | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> "Store":
        self._engine.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def sync(self) -> "Store":
        """This store."""
        return self

    @property
    def aio(self) -> "AsyncStore":
        """The async face of the same opened store."""
        from limpet.api.aio_store import AsyncStore

        with self._lock:
            if self._aio is None:
                self._aio = AsyncStore(self._engine, self)
            return self._aio

    def close(self) -> None:
        """Let go of the engine, and of the threads of the async face. May be repeated."""
        self._engine.close()

    def scope(self, session_id: str, scope_id: str = "main", kind: str = "agent") -> "Scope":
        """Return one line of state. Checks the ids; touches no storage and creates nothing."""
        return Scope(self, limits.check_scope(session_id, scope_id, kind))

    def find(self, snapshot_id: str, *, prefix: str = "") -> SnapshotInfo | None:
        """Find a kept snapshot by its id in any scope: the last saved match, or None.

        Only sessions whose id begins with `prefix` are seen.
        """
        return self._run(verbs.find(snapshot_id, prefix))

    def sessions(
        self, *, limit: int | None = None, after: str | None = None, prefix: str = ""
    ) -> Iterator[str]:
        """Yield session ids in text order, those greater than `after`, which need not exist."""
        return self._stream(verbs.sessions(limit=limit, after=after, prefix=prefix))

    def scopes(
        self, session_id: str | None = None, *, kind: str | None = None, prefix: str = ""
    ) -> Iterator[ScopeInfo]:
        """Yield the scopes that hold anything, with their heads, by session, kind and scope id."""
        return self._stream(verbs.scopes(session_id, kind=kind, prefix=prefix))

    def history(
        self,
        *,
        limit: int | None = None,
        after: SnapshotInfo | None = None,
        labels: Mapping[str, str] | None = None,
        status: str | None = None,
        prefix: str = "",
    ) -> Iterator[SnapshotInfo]:
        """Yield kept snapshots of all sessions whose id begins with `prefix`, newest first.

        Strictly so within a scope; across scopes as well as the clocks agree.
        """
        walk = verbs.history(
            None, limit=limit, after=after, labels=labels, status=status, prefix=prefix
        )
        return self._stream(walk)

    def compact(self) -> int:
        """Give unused space back to the operating system; return the bytes. Others go on."""
        return self._run(lambda backend: backend.compact())

    def stats(self, session_id: str | None = None) -> Stats:
        """Count what the store, or one session, holds, and name what is biggest in it."""
        return self._run(upkeep.stats(session_id))

    def check(self) -> Iterator[Finding]:
        """Read everything stored and yield what is wrong with it. Changes nothing."""
        return self._stream(upkeep.check(repair=False))

    def repair(self) -> Iterator[Finding]:
        """Check, and mend what can be mended without losing anything that can still be read.

        Lazy as every listing: what is not asked for is not mended.
        """
        return self._stream(upkeep.check(repair=True))

    def delete_session(self, session_id: str) -> int:
        """Remove everything of one session; return how many snapshots that were. Idempotent."""
        session_id = limits.check_id("session_id", session_id)
        return self._run(lambda backend: backend.delete_session(session_id))

    def watch(
        self,
        *,
        session_id: str | None = None,
        snapshot_id: str | None = None,
        prefix: str = "",
        timeout_s: float | None = None,
    ) -> Iterator[SnapshotInfo]:
        """Yield what the scopes of a session show, and again whenever one shows something else.

        With `snapshot_id` it is a kept snapshot, in whatever scope it is or will be saved; without
        either, all sessions. Only those whose id begins with `prefix` are seen. Otherwise as
        `Scope.watch`; ends when the session or the snapshot is deleted.
        """
        return self._watch(verbs.topic(session_id, snapshot_id, prefix), timeout_s)

    def _watch(self, topic: Topic, timeout_s: float | None) -> Iterator[SnapshotInfo]:
        if timeout_s is not None:
            timeout_s = limits.check_seconds("timeout_s", timeout_s)
        return self._each_change(topic, timeout_s)

    def _each_change(self, topic: Topic, timeout_s: float | None) -> Iterator[SnapshotInfo]:
        hub = self._engine.companion(Hub)
        told = threading.Event()
        watcher = Watcher(topic, told.set)
        try:
            while True:
                if watcher.pid != os.getpid():
                    told = threading.Event()
                    watcher = watcher.again(told.set)
                hub.join(watcher)
                told.clear()
                news, is_over = watcher.take()
                yield from news
                if is_over or (not news and not told.wait(watcher.patience_s(timeout_s))):
                    return
        finally:
            hub.leave(watcher)

    def _run(self, work: Work[T]) -> T:
        return work(self._engine.backend)

    def _drive(self, verb: Steps[T]) -> T:
        advance: Callable[[Any], Any] = verb.send
        value: Any = None
        while True:
            try:
                step = advance(value)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            try:
                advance, value = verb.send, self._answer(step)
            except LimpetError as error:
                if isinstance(step, Ask):
                    raise  # the caller's own, whatever its class
                advance, value = verb.throw, error

    def _answer(self, step: Work[Any] | Ask | Pause) -> Any:
        if isinstance(step, Pause):
            return self._engine.tools.clock.sleep(step.seconds)
        if not isinstance(step, Ask):
            return self._run(step)
        answer = step.function(step.argument)
        if inspect.isawaitable(answer):
            if inspect.iscoroutine(answer):
                answer.close()  # or Python would warn that it was never awaited
            raise InvalidInput("an async function needs the async face: use store.aio")
        return answer

    def _stream(self, walk: Walk[T]) -> Iterator[T]:
        page: Sequence[T] | None = None
        while True:
            try:
                work = next(walk) if page is None else walk.send(page)
            except StopIteration:
                return
            page = self._run(work)
            yield from page
