"""New notes that wait for the save that follows, and are stored in its transaction."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet import Conflict, Store
from limpet.backends.objects import building
from limpet.engine import joining
from limpet.engine.joining import Waiting
from limpet.errors import Unavailable
from limpet.protocol import NoteWrite
from limpet.storage import Change, LostAnswer, ScopeQuery
from tests.waiting import until

FOREVER_S = 60.0


@pytest.fixture(params=["sqlite", "postgres", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    more = "?synchronous=off" if request.param == "sqlite" else "?sync=false"
    return f"{request.param}:///{tmp_path}/store{more}"


@pytest.fixture
def store(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(joining, "_WAIT_S", FOREVER_S)
    with limpet.open(url) as store:
        store.scope("s").save({"n": 0}, id="0")
        yield store


def engine_of(store: Store) -> Any:
    return store.driver.opened.backend


def note(store: Store, name: str) -> NoteWrite:
    scope = store.scope("s").key
    return NoteWrite(scope, name, "1", b'"v"', store.driver.tools.draw(), None, joins=True)


class Written(threading.Thread):
    """A thread that writes a note, which waits once this is made."""

    def __init__(self, store: Store, name: str) -> None:
        super().__init__()
        self.error: BaseException | None = None
        self.engine, self.write = engine_of(store), note(store, name)
        self.start()
        until(lambda: self.write in [each.write for each in self.engine._joining.waiting])

    def run(self) -> None:
        try:
            self.engine.write_notes([self.write])
        except BaseException as error:
            self.error = error

    def end(self) -> None:
        """Raise what the write raised."""
        self.join(FOREVER_S)
        if self.error is not None:
            raise self.error


def stored(store: Store) -> tuple[list[str], int]:
    """Return the names of the notes, and their number in the record of the scope."""
    names = [each.name for each in store.scope("s").notes(on="1")]
    ((record, _),) = engine_of(store).storage.list_scopes(ScopeQuery("s"))
    return names, record.notes


def counted(monkeypatch: pytest.MonkeyPatch, store: Store, name: str) -> list[Any]:
    """Return the calls of a method of the storage, from now on."""
    storage = engine_of(store).storage
    calls, call = list[Any](), getattr(storage, name)

    def counting(*given: Any) -> Any:
        calls.append(given)
        return call(*given)

    monkeypatch.setattr(storage, name, counting)
    return calls


def test_notes_are_stored_by_the_save_behind_them(
    store: Store, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    writers = [Written(store, name) for name in "ab"]
    writes, others = (counted(monkeypatch, store, name) for name in ("write", "transact"))
    store.scope("s").save({"n": 1}, id="1")
    for each in writers:
        each.end()
    assert (len(writes), len(others)) == (1, 0)
    store.scope("s").save({"n": 2}, id="2")  # behind what it knows
    assert (len(writes), len(others)) == (2, 0)
    assert stored(store) == (["a", "b"], 2)
    with limpet.open(url) as again:
        assert stored(again) == (["a", "b"], 2)


def test_one_that_is_there_does_not_fail_the_save(store: Store, url: str) -> None:
    writer = Written(store, "a")
    with limpet.open(url) as other:
        other.scope("s").set_note("a", "another", on="1", expect=None)
    store.scope("s").save({"n": 1}, id="1")
    with pytest.raises(Conflict):
        writer.end()
    assert stored(store) == (["a"], 1)
    assert store.scope("s").note("a", on="1").value == "another"  # type: ignore[union-attr]


def test_few_wait_and_the_others_are_stored_at_once(store: Store) -> None:
    writers = [Written(store, name) for name in "abcd"]

    async def write_all() -> None:
        each_of = (note(store, f"n{number:02}") for number in range(20))
        run = store.aio.driver.run
        await asyncio.gather(
            *(run(lambda backend, each=each: backend.write_notes([each])) for each in each_of)  # type: ignore[misc]
        )

    asyncio.run(write_all())
    assert stored(store)[1] == 20
    store.scope("s").save({"n": 1}, id="1")
    for each in writers:
        each.end()
    names, count = stored(store)
    assert (names[:4], count, len(names)) == ([*"abcd"], 24, 24)


def test_what_was_interrupted_is_not_stored_later(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(Waiting):
        def __init__(self, write: NoteWrite) -> None:
            super().__init__(write)
            self.told = self  # type: ignore[assignment]

        def acquire(self, timeout: float) -> bool:
            raise KeyboardInterrupt

    monkeypatch.setattr(joining, "Waiting", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        engine_of(store).write_notes([note(store, "a")])
    store.scope("s").save({"n": 1}, id="1")
    assert stored(store) == ([], 0)


def losing(monkeypatch: pytest.MonkeyPatch, store: Store, name: str, does_it: list[bool]) -> None:
    """Have the answers of a method of the storage lost, which does what it is asked or not."""
    storage = engine_of(store).storage
    call: Callable[..., Any] = getattr(storage, name)
    left = iter(does_it)

    def lossy(*given: Any) -> Any:
        does = next(left, None)
        if does is not False:
            answer = call(*given)
            if does is None:
                return answer
        raise LostAnswer

    monkeypatch.setattr(storage, name, lossy)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("second", [True, False])
def test_lost_answers_neither_double_nor_miscount(
    store: Store, monkeypatch: pytest.MonkeyPatch, *, first: bool, second: bool
) -> None:
    writer = Written(store, "a")
    with monkeypatch.context() as context:
        losing(context, store, "write", [first])
        losing(context, store, "transact", [second])
        saved = store.scope("s").save({"n": 1}, id="1")
    writer.end()
    assert stored(store) == (["a"], 1)
    store.scope("s").save({"n": 2}, expect=saved.revision)
    assert stored(store) == (["a"], 1)
    assert len(list(store.scope("s").history())) == 3


def test_a_save_that_comes_late_is_not_taken_for_the_one_without_notes(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both were sent, and no answer came: they have one version, and one state."""
    writer, storage, late = Written(store, "a"), engine_of(store).storage, list[Change]()
    write, transact = storage.write, storage.transact

    def lost(change: Change) -> bool:
        late.append(change)
        raise LostAnswer

    def lost_too(key: Any, decide: Callable[..., Any]) -> Any:
        if not late:
            return transact(key, decide)
        transact(key, lambda reader: (None, decide(reader)))
        assert write(late.pop())
        raise LostAnswer

    with monkeypatch.context() as context:
        context.setattr(storage, "write", lost)
        context.setattr(storage, "transact", lost_too)
        store.scope("s").save({"n": 1}, id="1")
    writer.end()
    assert stored(store) == (["a"], 1)
    store.scope("s").save({"n": 2}, id="2")
    assert stored(store) == (["a"], 1)


def test_one_whose_trail_is_too_short_is_known_by_its_note(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, write = Written(store, "a"), engine_of(store).storage.write

    def lost(change: Change) -> bool:
        assert write(change)
        with limpet.open(store.driver.opened.url) as other:
            for number in range(20):  # more than a trail remembers
                other.scope("s").save({"other": number})
        raise LostAnswer

    with monkeypatch.context() as context:
        context.setattr(engine_of(store).storage, "write", lost)
        assert store.scope("s").save({"n": 1}, id="1").id == "1"
    writer.end()
    assert stored(store) == (["a"], 1)


def test_one_whose_save_is_in_doubt_finds_out_by_itself(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that saves may be interrupted after the storage has everything."""

    def interrupted(change: Change) -> bool:
        assert write(change)
        raise KeyboardInterrupt

    writer, write = Written(store, "a"), engine_of(store).storage.write
    with monkeypatch.context() as context:
        context.setattr(engine_of(store).storage, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.scope("s").save({"n": 1}, id="1")
    writer.end()
    assert stored(store) == (["a"], 1)
    store.scope("s").save({"n": 2}, id="2")
    assert stored(store) == (["a"], 1)


def test_a_damaged_page_of_notes_does_not_fail_the_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joining, "_WAIT_S", FOREVER_S)
    monkeypatch.setattr(building, "_INLINE_NOTES_MAX", 0)
    with limpet.open(f"file:///{tmp_path}/store?sync=false") as store:
        scope = store.scope("s")
        scope.save({"n": 0}, id="0")
        for name in "ac":
            scope.set_note(name, 1, on="1")
        (page,) = (each for each in (tmp_path / "store").rglob("*") if "/notes/" in str(each))
        page.write_bytes(b"damage")
        writer = Written(store, "b")
        scope.save({"n": 1}, id="1")
        with pytest.raises((limpet.Corrupt, Unavailable)):
            writer.end()
        assert scope.load("1").state == {"n": 1}  # type: ignore[union-attr]
