"""Saves of a writer that continues its own line: what they cost, and that they believe nothing old.

Two stores over one file stand for two processes: neither knows what the other did.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet import Conflict, Scope, Snapshot, Store, opening
from limpet.engine import saving
from limpet.model import ScopeKey
from limpet.protocol import Commit
from limpet.storage import Change

SHORT = "what was said before. " * 9
LONG = "a sentence that makes it longer than what is written whole. " * 100


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return {
        "memory": "memory:",
        "directory": f"file:///{tmp_path}/store",
        "sqlite": f"sqlite:///{tmp_path}/store.db?synchronous=off",
    }[str(request.param)]


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with limpet.open(url) as store:
        yield store


@pytest.fixture
def other(store: Store, url: str) -> Iterator[Store]:
    with limpet.open(url) as other:
        yield other


def statements(store: Store) -> list[str]:
    """Return a list that grows by the first words of each statement from now on."""
    backend: Any = store.driver.opened.backend
    (conn,) = backend.storage._file._idle
    said: list[str] = []

    def told(text: str) -> None:
        lines = [line for line in text.splitlines() if not line.startswith("--")]
        said.append(" ".join(lines[0].split()[:2]))

    conn.set_trace_callback(told)
    return said


def state_of(number: int, text: str = "") -> dict[str, Any]:
    return {"n": number, "text": text or SHORT, "log": []}


def by_another(found: Snapshot) -> Snapshot:
    return found.with_(state={**found.state, "by": "another"})


def state_at(scope: Scope, id: str | None = None) -> Any:
    found = scope.load(id)
    assert found is not None
    return found.state


def all_states(url: str) -> list[Any]:
    """Return what a process that knows nothing reads."""
    with limpet.open(url) as store:
        scope = store.scope("s")
        assert list(store.check()) == []
        return [state_at(scope, info.id) for info in reversed(list(scope.history()))]


@pytest.mark.parametrize("url", ["memory", "directory", "sqlite", "postgres"], indirect=True)
def test_what_was_made_for_one_attempt_is_not_done_to_another(url: str) -> None:
    """Attempts to begin a scope have one nonce, and so one version, but each its own place."""
    key, stamp = ScopeKey("s", "main"), opening.draw()
    with closing(opening.open_backend(url)) as backend:
        storage: Any = backend.storage  # type: ignore[attr-defined]

        def commit(stamp: Any) -> Commit:
            return Commit(key, b"{}", None, b"{}", b"{}", stamp)

        def record() -> Any:
            return storage.read(key, lambda reader: reader.record)

        backend.commit(commit(stamp))
        save, _ = storage.read(key, lambda reader: saving.decide(reader, commit(opening.draw())))
        backend.delete_session("s")
        backend.commit(commit(stamp._replace(bits=stamp.bits + 1)))
        before = record()
        assert before.version == save.before.version
        for change in (save, Change(key, save.before, None)):
            assert not storage.write(change)
            assert record() == before


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("text", ["", LONG])
def test_it_asks_nothing(store: Store, text: str) -> None:
    scope = store.scope("s")
    scope.save(state_of(0, text))
    said = statements(store)
    saves: list[Callable[[], object]] = [
        lambda: scope.save(state_of(1, text)),
        lambda: scope.save(state_of(2, text), labels={"a": "b"}),
        lambda: scope.save(state_of(3, text), id="new"),
        lambda: scope.append("log", [1]),
    ]
    for save in saves:
        said.clear()
        save()
        assert said[:3] == ["BEGIN IMMEDIATE", "PRAGMA user_version", "UPDATE scopes"]
        assert [each.split()[0] for each in said[3:-1]] in (["INSERT"] * 2, ["INSERT"] * 3)
        assert said[-1] == "COMMIT"
    said.clear()
    scope.set_note("a", 1, on="new", expect=None)
    assert len(said) <= 7


@pytest.mark.parametrize("text", ["", LONG])
def test_what_another_process_did_is_seen(store: Store, other: Store, url: str, text: str) -> None:
    here, there = store.scope("s"), other.scope("s")
    first = here.save(state_of(0, text), id="first")
    second = there.save(state_of(1, text), id="second")
    with pytest.raises(Conflict):
        here.save(state_of(2, text), expect=first.revision)
    assert here.save(state_of(2, text), id="third").parent_id == second.id
    third = here.info()
    there.update("third", by_another)
    with pytest.raises(Conflict):
        here.save(state_of(3, text), expect=None if third is None else third.revision)
    fourth = here.append("log", [1])
    assert fourth.parent_id == "third"
    assert state_at(there) == {**state_of(2, text), "by": "another", "log": [1]}
    there.delete_snapshot(fourth.id)
    assert here.save(state_of(4, text)).parent_id == "third"
    with there.claim(owner="another", ttl_s=60), pytest.raises(Conflict):
        here.save(state_of(5, text), expect=first.revision)
    other.delete_session("s")
    assert here.save(state_of(6, text)).parent_id is None
    assert all_states(url) == [state_of(6, text)]


def test_a_fork_keeps_the_state_that_it_shares(store: Store, url: str) -> None:
    """When its source goes, and another fork that shares it."""
    scope = store.scope("s")
    source = scope.save(state_of(0, LONG), id="source")
    for name in ("one", "two"):
        scope.fork(source.id, scope_id=name)
    store.scope("s", "one").delete()
    scope.delete()
    with limpet.open(url) as fresh:
        assert state_at(fresh.scope("s", "two")) == state_of(0, LONG)


def test_a_parent_that_is_saved_again_is_no_leaf(store: Store) -> None:
    scope = store.scope("s")
    for id in ("a", "b", "c"):
        scope.save(state_of(0), id=id)
    scope.delete_snapshot("b")
    assert [info.id for info in scope.leaves()] == ["c", "a"]
    scope.save(state_of(0), id="b", parent="a", head=False)
    assert [info.id for info in scope.leaves()] == ["c"]


def test_a_new_note_is_written_to_the_scope_that_there_is(store: Store, other: Store) -> None:
    here, there = store.scope("s"), other.scope("s")
    here.save(state_of(0))
    there.set_note("a", 1, expect=None)
    with pytest.raises(Conflict):
        here.set_note("a", 2, expect=None)
    other.delete_session("s")
    other.scope("another").save(state_of(0))
    here.set_note("a", 3, expect=None)
    assert [note.value for note in there.notes()] == [3]
    assert list(other.scope("another").notes()) == []


# What others may do to a scope with a fork, that is one of `origin`.
CHANGES: list[Callable[[Store, Scope], object]] = [
    lambda store, scope: scope.save(state_of(7)),
    lambda store, scope: scope.save(state_of(7, LONG), head=False),
    lambda store, scope: scope.save(state_of(7), keep=False),
    lambda store, scope: scope.append("log", [7]),
    lambda store, scope: scope.save(state_of(7), id="1", overwrite=True),
    lambda store, scope: scope.save(state_of(3), id="3", overwrite=True, status="x"),
    lambda store, scope: scope.update("3", by_another),
    lambda store, scope: [scope.delete_snapshot(id) for id in ("2", "none")],
    lambda store, scope: scope.fork("3", scope_id="other"),
    lambda store, scope: scope.set_note("x", 1),
    lambda store, scope: store.scope("s", "fork").delete(),
    lambda store, scope: store.scope("s", "origin").delete_snapshot("0"),
    lambda store, scope: store.scope("s", "origin").save(state_of(7), id="0", overwrite=True),
    lambda store, scope: store.compact(),
    lambda store, scope: list(store.repair()),
    lambda store, scope: scope.delete_snapshot("3"),
    lambda store, scope: scope.prune(keep_last=1),
    lambda store, scope: (scope.delete(), scope.save(state_of(7, LONG))),
]


def test_whatever_changes_a_scope_changes_its_version(
    request: pytest.FixtureRequest, url: str, store: Store, tmp_path: Path
) -> None:
    """By the version a writer knows that nothing has changed since its last save."""
    origin = store.scope("s", "origin")
    origin.save(state_of(0), id="0")
    origin.save(state_of(1))
    scope = origin.fork("0", scope_id="a")
    for number in range(4):
        scope.save(state_of(10 + number), keep=False)
        scope.save(state_of(number), id=str(number), labels={"n": str(number)})
    scope.fork("2", scope_id="fork")
    if url.startswith("sqlite"):
        conn: Any = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
        query = "SELECT pk, version, * FROM scopes"
    else:
        conn = request.getfixturevalue("postgres").connect()
        query = f"SELECT pk, version, * FROM {request.getfixturevalue('schemas').name()}.scopes"
    with closing(conn):
        for at, change in enumerate(CHANGES):
            before = {pk: row for pk, *row in conn.execute(query)}
            change(store, scope)
            after = {pk: row for pk, *row in conn.execute(query)}
            for pk in before.keys() & after.keys():
                same = before[pk] == after[pk]
                assert same or before[pk][0] != after[pk][0], f"change {at}"
