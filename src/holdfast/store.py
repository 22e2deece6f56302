"""The synchronous face: `Store` and `Scope`. The full promise of each verb stands here."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast import steps
from holdfast.core import limits, prepare
from holdfast.engine import Address, Engine
from holdfast.errors import HoldfastError, InvalidInput
from holdfast.model import (
    ANY,
    HEAD,
    JSON,
    Expect,
    Note,
    Parent,
    ScopeInfo,
    ScopeKey,
    Snapshot,
    SnapshotInfo,
    SnapshotRef,
)
from holdfast.steps import Ask, Pause, Steps, Walk, Work

if TYPE_CHECKING:
    from holdfast.aio import AsyncStore

T = TypeVar("T")


class Store:
    """An opened engine: the one object that everything starts from. A context manager.

    May be shared between threads. After a fork both processes may go on using it.
    """

    def __init__(self, engine: Engine) -> None:
        """Made by `holdfast.open`."""
        self._engine = engine
        self._aio: AsyncStore | None = None

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
        if self._aio is None:
            from holdfast.aio import AsyncStore

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
        return self._run(steps.find(snapshot_id, prefix))

    def sessions(
        self, *, limit: int | None = None, after: str | None = None, prefix: str = ""
    ) -> Iterator[str]:
        """Yield session ids in text order, those greater than `after`, which need not exist."""
        return self._stream(steps.sessions(limit=limit, after=after, prefix=prefix))

    def scopes(
        self, session_id: str | None = None, *, kind: str | None = None, prefix: str = ""
    ) -> Iterator[ScopeInfo]:
        """Yield the scopes that hold anything, with their heads, by session, kind and scope id."""
        return self._stream(steps.scopes(session_id, kind=kind, prefix=prefix))

    def delete_session(self, session_id: str) -> int:
        """Remove everything of one session; return how many snapshots that were. Idempotent."""
        session_id = limits.check_id("session_id", session_id)
        return self._run(lambda backend: backend.delete_session(session_id))

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
            except HoldfastError as error:
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


class Scope(Address):
    """One line of state inside a session."""

    def __init__(self, store: Store, key: ScopeKey) -> None:
        """Made by `Store.scope`, which checks the key."""
        super().__init__(key)
        self._store = store
        self._tools = store._engine.tools

    def save(
        self,
        state: JSON,
        *,
        id: str | None = None,
        parent: Parent = HEAD,
        keep: bool = True,
        head: bool = True,
        overwrite: bool = False,
        status: str = "completed",
        labels: Mapping[str, str] | None = None,
        metadata: Mapping[str, JSON] | None = None,
        created_at: datetime | None = None,
        forked_from: SnapshotRef | None = None,
        expect: Expect = ANY,
    ) -> SnapshotInfo:
        """Save a state, durably, as one step.

        It is kept in history and becomes the head; with `keep=False` it only becomes the head (a
        draft, gone when the head moves); with `head=False` it is only kept. Without `id` one is
        minted. `parent` is by default the newest that stays: the head if kept, else the draft's
        parent, else the newest kept one; None makes a root. `created_at` is for imports.

        The same id with the same body again succeeds and changes nothing. With another body,
        `overwrite=True` replaces it in place: its place in history, its `created_at` and the head
        stay as they are.

        Raises:
            AlreadyExists: the id is there with another body.
            Conflict: the head's revision is not `expect` (None: there must be no head yet).
            InvalidInput: a value is not JSON (the message has its path), too large or misplaced.
        """
        commit = prepare.save(
            self._key,
            state,
            id=id,
            parent=parent,
            keep=keep,
            head=head,
            overwrite=overwrite,
            status=status,
            labels=labels,
            metadata=metadata,
            created_at=created_at,
            forked_from=forked_from,
            expect=expect,
            stamp=self._tools.draw(),
            state_bytes_max=self._tools.state_bytes_max,
        )
        return self._store._run(lambda backend: backend.commit(commit))

    def append(
        self,
        key: str,
        items: list[JSON],
        *,
        keep: bool = True,
        status: str = "completed",
        labels: Mapping[str, str] | None = None,
        metadata: Mapping[str, JSON] | None = None,
        expect: Expect = ANY,
    ) -> SnapshotInfo:
        """Save the head's state with `items` added to the list under a top-level `key`.

        Creates the list, and the scope. Appends at the same time all take effect.

        Raises:
            Conflict: the head's revision is not `expect`.
            InvalidInput: the head's state is no object, or the value under `key` is no list.
        """
        commit = prepare.append(
            self._key,
            key,
            items,
            keep=keep,
            status=status,
            labels=labels,
            metadata=metadata,
            expect=expect,
            stamp=self._tools.draw(),
            state_bytes_max=self._tools.state_bytes_max,
        )
        return self._store._run(lambda backend: backend.commit(commit))

    def load(self, id: str | None = None) -> Snapshot | None:
        """Return a snapshot with its state, the head without an id; None if there is none."""
        return self._store._run(steps.load(self._key, id))

    def load_many(self, ids: Iterable[str]) -> Iterator[Snapshot]:
        """Yield snapshots with their states in the order asked; missing ones are left out."""
        return self._store._stream(steps.load_many(self._key, ids))

    def info(self, id: str | None = None) -> SnapshotInfo | None:
        """Return the facts of a snapshot without its state; the head's without an id."""
        return self._store._run(steps.info(self._key, id))

    def history(
        self,
        *,
        limit: int | None = None,
        after: str | SnapshotInfo | None = None,
        labels: Mapping[str, str] | None = None,
        status: str | None = None,
    ) -> Iterator[SnapshotInfo]:
        """Yield kept snapshots, the last saved first. Lazy; holds nothing between pages.

        `after` is the last one seen: an id, or its info, which works even when it was deleted.
        `labels` must all match.

        Raises:
            NotFound: `after` is an id that is not there.
        """
        walk = steps.history(self._key, limit=limit, after=after, labels=labels, status=status)
        return self._store._stream(walk)

    def ids(self, *, after: str | None = None, limit: int | None = None) -> Iterator[str]:
        """Yield kept ids in text order, those greater than `after`, which need not exist."""
        return self._store._stream(steps.list_ids(self._key, after=after, limit=limit))

    def update(self, id: str, fn: Callable[[Snapshot], Snapshot | None]) -> SnapshotInfo | None:
        """Change one snapshot in place, atomically: read, `fn`, compare-and-set.

        `fn` gets the snapshot and returns it with another state, status, labels or metadata (see
        `Snapshot.with_`), or None to leave it. It may run several times, and nothing is locked
        while it runs. Neither the head nor the order of history moves.

        Raises:
            NotFound: there is no such snapshot.
            InvalidInput: `fn` returned something else, or changed what cannot be changed.
        """
        return self._store._drive(steps.update(self._tools, self._key, id, fn))

    def delete_snapshot(self, id: str) -> int:
        """Remove one snapshot and the notes on its id; return 1, or 0 if there was none.

        No other snapshot changes, not even its children. If it was the head, the newest kept
        snapshot is uncovered.
        """
        id = limits.check_id("id", id)
        return self._store._run(lambda backend: backend.delete_snapshot(self._key, id))

    def delete(self, *, expect: Expect = ANY) -> int:
        """Remove the whole scope with its notes; return how many snapshots that were.

        Raises:
            Conflict: the head's revision is not `expect`. Nothing was removed.
        """
        expect = prepare.check_expect(expect)
        return self._store._run(lambda backend: backend.delete_scope(self._key, expect=expect))

    def note(self, name: str, *, on: str | None = None) -> Note | None:
        """Return a note of the scope, or on a snapshot id; None if there is none."""
        return self._store._run(steps.note(self._key, name, on))

    def notes(self, *, on: str | Iterable[str] | None = None) -> Iterator[Note]:
        """Yield the notes of the scope, or on one or several ids in the order asked, by name."""
        return self._store._stream(steps.notes(self._key, on))

    def set_note(
        self,
        name: str,
        value_or_fn: JSON | Callable[[JSON], JSON],
        *,
        on: str | None = None,
        expect: Expect = ANY,
    ) -> Note | None:
        """Write a note beside the scope, or beside a snapshot id, which need not exist yet.

        A function gets the present value (None if there is none) and returns the next one, or None
        to leave it; it may run several times. The value None is stored as null.

        Raises:
            Conflict: the note's revision is not `expect` (None: it must not exist yet).
        """
        verb = steps.set_note(self._tools, self._key, name, value_or_fn, on=on, expect=expect)
        return self._store._drive(verb)

    def delete_note(self, name: str, *, on: str | None = None) -> int:
        """Remove a note; return 1, or 0 if there was none."""
        name, on = prepare.note_address(name, on)
        return self._store._run(lambda backend: backend.delete_note(self._key, name, on=on))
