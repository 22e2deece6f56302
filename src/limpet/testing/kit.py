"""Fixtures and helpers that all chapters use.

The sync and the async API are behind one signature here, so that each test is written once. The
async API runs in an event loop of the calling thread: each call returns when it is done.
"""

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypeVar, cast

import pytest

from limpet import (
    AsyncScope,
    AsyncStore,
    LimpetError,
    Scope,
    ScopeKey,
    Snapshot,
    SnapshotInfo,
    Store,
    Unsupported,
)
from limpet.core import limits
from limpet.opening import store_over
from limpet.protocol import Backend, Commit, Found

T = TypeVar("T")

Api: TypeAlias = Literal["sync", "async"]
APIS: Final[tuple[Api, ...]] = ("sync", "async")

_THREAD_WAIT_S_MAX = 60.0


class Stores:
    """Opens stores with one API, over the engine under test or another; closes them all."""

    def __init__(self, backend: Backend, api: Api) -> None:
        self._backend = backend
        self._api = api
        self._opened: list[Store] = []

    def __call__(self, over: Backend | None = None, **options: Any) -> Store:
        store = store_over(self._backend if over is None else over, **options)
        self._opened.append(store)
        return through(self._api, store)

    def close(self) -> None:
        while self._opened:
            self._opened.pop().close()
        close_loop()


class Kit:
    """The fixtures. `store` and `scope` come with both APIs; `backend` is the engine itself."""

    def open_backend(self, place: Path) -> Backend:
        """Open the engine under test in a folder; with the same folder again: re-open it."""
        raise NotImplementedError("say how to open your engine: override open_backend")

    def damage(self, place: Path, text: bytes) -> int:
        """Change a stored text wherever it is found, without the engine; return how often.

        Searches the files of the folder. Override it if a short text of a state cannot be found
        there: because the engine keeps its bytes elsewhere, or changes them.
        """
        found = 0
        for path in sorted(each for each in place.rglob("*") if each.is_file()):
            stored = path.read_bytes()
            if text in stored:
                found += stored.count(text)
                path.write_bytes(stored.replace(text, text[:-1] + b"!"))
        return found

    text_order = True
    """False if the engine documents another order of listings than that of code points."""

    def folder_order(self, name: str) -> str:
        """Return what sessions and scopes are sorted by in listings: themselves, by code points.

        Override it, and `text_order`, for an engine that documents another order.
        """
        return name

    def open_program(self, place: Path) -> Backend:
        """Open the engine for a program in lockstep; override it to open it with other settings."""
        return self.open_backend(place)

    def clear(self) -> None:
        """Remove everything that is not in the folder of the test: called before each program."""

    @pytest.fixture
    def place(self, tmp_path: Path) -> Path:
        folder = tmp_path / "place"
        folder.mkdir()
        return folder

    @pytest.fixture
    def backend(self, place: Path) -> Iterator[Backend]:
        backend = self.open_backend(place)
        yield backend
        backend.close()

    @pytest.fixture(params=APIS)
    def api(self, request: pytest.FixtureRequest) -> Api:
        """The API that the test uses. A test that needs it runs once with each."""
        api: Api = request.param
        return api

    @pytest.fixture
    def stores(self, backend: Backend, api: Api) -> Iterator[Stores]:
        """Opens further stores with the same API, with options or over other engines."""
        stores = Stores(backend, api)
        yield stores
        stores.close()

    @pytest.fixture
    def store(self, stores: Stores) -> Store:
        return stores()

    @pytest.fixture
    def scope(self, store: Store) -> Scope:
        return store.scope("chat-42", "planner")

    @pytest.fixture
    def reopen(self, place: Path, stores: Stores) -> Callable[[], Store]:
        """Opens the same folder once more, as another process would: nothing is closed before."""
        return lambda: stores(self.open_backend(place))

    @pytest.fixture
    def plain(self, backend: Backend) -> Iterator[Store]:
        """The sync API of a second store over the same engine.

        It may be used in a function that the async API calls, while its event loop is busy.
        """
        with store_over(backend) as store:
            yield store

    @pytest.fixture
    def rival(self, plain: Store) -> Scope:
        """The same scope as `scope`, of the other store."""
        return plain.scope("chat-42", "planner")

    @pytest.fixture
    def small_pages(self, monkeypatch: pytest.MonkeyPatch) -> int:
        """Makes every listing go on after 3 items, and reading of states after 2; returns 3."""
        monkeypatch.setattr(limits, "PAGE_ITEMS_MAX", 3)
        monkeypatch.setattr(limits, "PRUNED_ITEMS_MAX", 3)
        monkeypatch.setattr(limits, "PAGE_STATES_MAX", 2)
        return 3


def is_durable(backend: Backend) -> bool:
    """Return whether the engine claims that what it acknowledged survives the process."""
    return "durable" in backend.capabilities


def finds(backend: Backend, store: Store) -> bool:
    """Return whether the engine finds snapshots across scopes; if not, see that it refuses to."""
    if "index" in backend.capabilities:
        return True
    with pytest.raises(Unsupported):
        store.find("a")
    return False


def assert_labelled(
    backend: Backend, scope: Scope, labels: dict[str, str], expected: list[str]
) -> None:
    """See that a filter by labels gives these ids.

    An engine without an index may refuse to filter by labels; it may not answer wrongly.
    """
    try:
        assert names(scope.history(labels=labels)) == expected
    except Unsupported:
        assert "index" not in backend.capabilities


def present(found: T | None) -> T:
    assert found is not None
    return found


def names(infos: Iterable[SnapshotInfo]) -> list[str]:
    return [info.id for info in infos]


def states(snapshots: Iterable[Snapshot]) -> list[Any]:
    return [snapshot.state for snapshot in snapshots]


def spelled(value: object) -> str:
    """Return a text that differs where `==` does not: 1, 1.0 and True; the order of keys."""
    return repr(value)


Dump: TypeAlias = list[Any]


def dump(store: Store, *, on: Iterable[str] = ()) -> Dump:
    """Return everything that a store shows; also the notes on ids that have no snapshot."""
    everything: Dump = [list(store.sessions()), list(store.scopes())]
    for listed in store.scopes():
        scope = store.scope(*listed.key)
        history = list(scope.history())
        head = scope.load()
        targets = [*names(history), *([] if head is None else [head.id]), *on]
        everything += [history, list(scope.ids()), list(scope.load_many(names(history)))]
        everything += [head, list(scope.notes()), list(scope.notes(on=targets))]
    return everything


@contextmanager
def unchanged(store: Store, *, on: Iterable[str] = ()) -> Iterator[None]:
    """See that what is done inside changes nothing that the store shows."""
    before = dump(store, on=on)
    yield
    assert dump(store, on=on) == before


def refused(error: type[LimpetError], attempts: Iterable[Callable[[], object]]) -> list[str]:
    """See that every attempt raises this very error; return their messages."""
    messages = []
    for attempt in attempts:
        with pytest.raises(error) as caught:
            attempt()
        assert type(caught.value) is error
        messages.append(str(caught.value))
    return messages


@contextmanager
def case(name: str) -> Iterator[None]:
    """Name one case of many in the error that it raises."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the case `{name}`")
        raise


def together(functions: Iterable[Callable[[], T]]) -> list[T]:
    """Run functions at the same time, each in a thread of its own; return their answers in order.

    They begin together. The first error of any is raised here.
    """
    waiting = list(functions)
    start = threading.Barrier(len(waiting))
    answers: dict[int, T] = {}
    errors: list[BaseException] = []

    def run(at: int, function: Callable[[], T]) -> None:
        try:
            start.wait(_THREAD_WAIT_S_MAX)
            answers[at] = function()
        except BaseException as error:
            errors.append(error)
        finally:
            close_loop()

    threads = [threading.Thread(target=run, args=pair, daemon=True) for pair in enumerate(waiting)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_THREAD_WAIT_S_MAX)
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads), "a thread did not finish"
    return [answers[at] for at in range(len(waiting))]


def read_during(write: Callable[[], None], read: Callable[[], None]) -> None:
    """Write in one thread, and read again and again in two others; once more at the end."""
    done = threading.Event()

    def write_all() -> None:
        try:
            write()
        finally:
            done.set()

    def read_on() -> None:
        is_last = False
        while not is_last:
            is_last = done.is_set()
            read()

    together([write_all, read_on, read_on])


def outcome(attempt: Callable[[], T]) -> T | LimpetError:
    """Return the answer, or the error of the tree that was raised instead."""
    try:
        return attempt()
    except LimpetError as error:
        return error


def nested(levels: int) -> Any:
    """Return empty lists inside each other: `nested(1)` is `[]`."""
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


# Both APIs behind one signature

_local = threading.local()
_DONE: Final = object()


def through(api: Api, store: Store) -> Store:
    """Return a store that is called like a sync one and uses the given API."""
    return store if api == "sync" else cast(Store, _Driven(store.aio))


def close_loop() -> None:
    """Close the event loop of this thread, if any. Every thread that uses `through` calls it."""
    runner: asyncio.Runner | None = getattr(_local, "runner", None)
    if runner is not None:
        del _local.runner
        runner.close()


def _runner() -> asyncio.Runner:
    runner: asyncio.Runner | None = getattr(_local, "runner", None)
    if runner is None:
        # With a factory the runner leaves the thread's current event loop, which others may have
        # set, alone.
        runner = _local.runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
    return runner


def _run(awaitable: Awaitable[T]) -> T:
    async def whole() -> T:
        return await awaitable

    return _runner().run(whole())


class _Driven:
    """An `AsyncStore` or an `AsyncScope` whose members answer as those of its twin do."""

    def __init__(self, target: AsyncStore | AsyncScope) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._target, name)
        return driven(member) if inspect.ismethod(member) else member

    def __enter__(self) -> "_Driven":
        _run(cast(AsyncStore, self._target).__aenter__())
        return self

    def __exit__(self, *error: Any) -> None:
        _run(cast(AsyncStore, self._target).__aexit__(*error))


def driven(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return an async function or method as one that answers as its sync twin does."""

    def call(*args: Any, **options: Any) -> Any:
        answer = method(*args, **options)
        if inspect.isawaitable(answer):
            answer = _run(answer)
        if isinstance(answer, AsyncIterator):
            return _each(answer)
        if isinstance(answer, AbstractAsyncContextManager):
            return _within(answer)
        return _Driven(answer) if isinstance(answer, AsyncScope) else answer

    return call


@contextmanager
def _within(answer: AbstractAsyncContextManager[AsyncScope]) -> Iterator[_Driven]:
    with ExitStack() as stack:
        inside = _run(answer.__aenter__())
        stack.push(lambda *error: _run(answer.__aexit__(*error)))
        yield _Driven(inside)


def _each(answers: AsyncIterator[T]) -> Iterator[T]:
    async def following() -> T | object:
        return await anext(answers, _DONE)

    runner = _runner()
    try:
        while (answer := runner.run(following())) is not _DONE:
            yield cast(T, answer)
    finally:
        # A loop that is left early lets go at once; one that outlives its event loop was ended
        # when that was closed.
        if runner is getattr(_local, "runner", None) and inspect.isasyncgen(answers):
            runner.run(_ended(answers.aclose()))


async def _ended(closing: Awaitable[None]) -> None:
    await closing


# Engines wrapped so that a test can watch the calls, or get in between


class Layer:
    """Passes everything on to the engine below."""

    def __init__(self, below: Backend) -> None:
        self._below = below

    def __getattr__(self, name: str) -> Any:
        return getattr(self._below, name)

    @property
    def backend(self) -> Backend:
        return cast(Backend, self)


class Watched(Layer):
    """Writes down how many items each call asked for and how many it got."""

    def __init__(self, below: Backend) -> None:
        super().__init__(below)
        self.asked: list[int] = []
        self.answered: list[int] = []

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._below, name)
        if not name.startswith("list_"):
            return member

        def call(*args: Any, limit: int, **options: Any) -> Any:
            return self._seen(limit, member(*args, limit=limit, **options))

        return call

    def read_snapshots(self, scope: ScopeKey, ids: Sequence[str | None]) -> list[Found]:
        found: list[Found] = self._seen(len(ids), self._below.read_snapshots(scope, ids))
        return found

    def _seen(self, asked: int, page: Any) -> Any:
        self.asked.append(asked)
        self.answered.append(len(page))
        return page


class Spoiled(Layer):
    """Reads one snapshot as bytes that are not the ones stored."""

    def __init__(self, below: Backend, snapshot_id: str) -> None:
        super().__init__(below)
        self._bad_id = snapshot_id

    def read_snapshots(self, scope: ScopeKey, ids: Sequence[str | None]) -> list[Found]:
        found = self._below.read_snapshots(scope, ids)
        return [(i, body[:-1] if i.id == self._bad_id else body) for i, body in found]


class Gated(Layer):
    """Holds every commit, once it has begun, until it is let through."""

    blocking = True

    def __init__(self, below: Backend) -> None:
        super().__init__(below)
        self.begun = threading.Event()
        self.gate = threading.Event()
        self.ended = threading.Event()

    def commit(self, commit: Commit) -> SnapshotInfo:
        self.begun.set()
        assert self.gate.wait(30)
        try:
            return self._below.commit(commit)
        finally:
            self.ended.set()


class ClosedMeanwhile(Layer):
    """Closes the store between the check that it is open and the call of the engine."""

    close_in_between: Callable[[], None] | None = None

    @property
    def blocking(self) -> bool:
        if self.close_in_between is not None:
            self.close_in_between()
        return True
