"""Saves of a writer that continues its own line: what they cost, and that they believe nothing old.

Two stores over one file stand for two processes: neither knows what the other did.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet import Conflict, Scope, Snapshot, Store
from limpet.core.deltas.chain import FOLDED_MAX, FOLDED_TOGETHER

SHORT = "what was said before. " * 9
LONG = "a sentence that makes it longer than what is written whole. " * 50


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db?synchronous=off"
    return str(request.getfixturevalue("postgres_url"))


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


def bodies(store: Store) -> list[tuple[int, int | None, int]]:
    """Return where each body of the scope is, what it builds on, and its size."""
    backend: Any = store.driver.opened.backend
    pk = backend._read(lambda tables: tables.scope(store.scope("s").key).pk)
    rows = backend._read(lambda tables: tables.transaction.all("small_bodies", (9999, pk, 0, 999)))
    return [(seq, base, len(body)) for seq, base, _, body, _ in rows]


def is_folded(rows: list[tuple[int, int | None, int]]) -> list[bool]:
    """Return which bodies build on the next one; all others are whole."""
    following = [seq for seq, *_ in rows[1:]] + [None]
    assert all(base in (None, after) for (_, base, _), after in zip(rows, following, strict=True))
    return [base is not None for _, base, _ in rows]


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
        assert said[:2] == ["BEGIN IMMEDIATE", "PRAGMA user_version"]
        assert said[2:5] == ["UPDATE scopes", "INSERT INTO", "INSERT INTO"]
        assert not [each for each in said if each.startswith("SELECT")]
    said.clear()
    scope.set_note("a", 1, on="new", expect=None)
    assert said == ["BEGIN IMMEDIATE", "PRAGMA user_version", "INSERT INTO", "COMMIT"]


def test_another_scope_of_the_file_changes_only_the_place(
    store: Store, other: Store, url: str
) -> None:
    scope = store.scope("s")
    expected = []
    for number in range(2 * FOLDED_TOGETHER):
        expected.append(state_of(number))
        scope.save(expected[-1])
        other.scope("another").save({"n": number})
    assert all_states(url) == expected
    infos = sorted([*store.scope("s").history(), *store.scope("another").history()], key=_place)
    assert [info.session_id for info in infos] == ["s", "another"] * (2 * FOLDED_TOGETHER)


def _place(info: limpet.SnapshotInfo) -> int:
    return int(info.revision.partition(".")[0], 16)


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


def test_an_id_that_exists_is_found(store: Store) -> None:
    scope = store.scope("s")
    for number in range(3):
        scope.save(state_of(number), id=f"id-{number}")
    with pytest.raises(limpet.AlreadyExists):
        scope.save(state_of(7), id="id-0")
    scope.save(state_of(8), id="id-0", overwrite=True)
    assert state_at(scope, "id-0") == state_of(8)
    assert [info.id for info in scope.history()] == ["id-2", "id-1", "id-0"]


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


# Small states


def test_small_states_are_folded_together(store: Store, url: str) -> None:
    scope, expected = store.scope("s"), []
    for number in range(2 * FOLDED_MAX):
        expected.append(state_of(number))
        scope.save(expected[-1])
    rows = bodies(store)
    folded = is_folded(rows)
    assert folded[:FOLDED_MAX] == [True] * FOLDED_MAX
    assert not folded[FOLDED_MAX]
    assert folded[-FOLDED_TOGETHER - 1 :].count(True) <= FOLDED_TOGETHER
    assert folded.count(True) >= 2 * FOLDED_MAX - FOLDED_TOGETHER - 2
    assert not folded[-1]
    assert sum(size for *_, size in rows) < len(rows) * rows[-1][2] / 1.5
    assert all_states(url) == expected


def test_states_that_gain_nothing_are_not_tried_again_and_again(store: Store, url: str) -> None:
    """A delta of a tiny state takes more than the state."""
    scope = store.scope("s")
    backend: Any = store.driver.opened.backend
    for number in range(5 * FOLDED_TOGETHER):
        scope.save({"n": number})
        assert len(backend._known_scopes.get(scope.key).unfolded) <= FOLDED_TOGETHER + 1
    assert not any(is_folded(bodies(store)))
    assert all_states(url) == [{"n": number} for number in range(5 * FOLDED_TOGETHER)]


def test_what_changed_meanwhile_is_not_folded(store: Store, other: Store, url: str) -> None:
    here, there = store.scope("s"), other.scope("s")
    expected = {}
    for number in range(4 * FOLDED_TOGETHER):
        info = here.save(state_of(number))
        expected[info.id] = state_of(number)
        if number % 3 == 1:
            there.update(info.id, by_another)
            expected[info.id] = {**state_of(number), "by": "another"}
        if number % 5 == 4:
            oldest = next(iter(expected))
            there.delete_snapshot(oldest)
            del expected[oldest]
    assert all_states(url) == list(expected.values())


def test_an_old_state_that_changes_below_is_not_built_on(
    store: Store, other: Store, url: str
) -> None:
    """Nothing but the checksums of the bodies tells that one which is not the head was replaced."""
    here, there = store.scope("s"), other.scope("s")
    infos = [here.save(state_of(number)) for number in range(FOLDED_TOGETHER + 1)]
    backend: Any = store.driver.opened.backend
    known = backend._known_scopes.get(here.key)
    there.update(infos[2].id, by_another)
    backend._known_scopes.put(here.key, known)
    here.save(state_of(99))
    assert all_states(url)[2] == {**state_of(2), "by": "another"}
    assert all_states(url)[-1] == state_of(99)


def test_a_state_grows_and_shrinks(store: Store, url: str) -> None:
    scope, expected = store.scope("s"), list[dict[str, Any]]()
    for number in range(150):
        size = 3 * number if number < 75 else 3 * (150 - number)
        expected.append({"n": number, "words": [f"word-{each}" for each in range(size)]})
        scope.save(expected[-1], keep=number % 7 != 3 or number == 149)
    expected = [each for each in expected if each["n"] % 7 != 3 or each["n"] == 149]
    assert all_states(url) == expected
    store.compact()
    assert all_states(url) == expected


def test_compact_folds_what_processes_left(url: str) -> None:
    expected = []
    for number in range(FOLDED_MAX + 20):
        with limpet.open(url) as store:
            expected.append(state_of(number))
            store.scope("s").save(expected[-1])
    with limpet.open(url) as store:
        assert not any(is_folded(bodies(store)))
        store.compact()
        rows = bodies(store)
        whole = [at for at, folded in enumerate(is_folded(rows)) if not folded]
        assert whole == [FOLDED_MAX, len(expected) - 1]
        assert all_states(url) == expected
        store.compact()
        assert bodies(store) == rows
        store.scope("s").prune(keep_last=3)
    assert all_states(url) == expected[-3:]
