"""Fixtures and helpers that all chapters use."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import pytest

from limpet import LimpetError, Scope, Snapshot, SnapshotInfo, Store, Unsupported
from limpet.core import limits
from limpet.opening import store_over
from limpet.protocol import Backend
from limpet.testing.conformance._apis import APIS, Api, close_loop, through

T = TypeVar("T")

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

    def folder_order(self, name: str) -> str:
        """Return what sessions and scopes are sorted by in listings: themselves, by code points.

        Override it for an engine that documents another order.
        """
        return name

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
