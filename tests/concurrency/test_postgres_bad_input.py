"""What callers and machines do to a store on PostgreSQL: odd names, large states, wrong clocks."""

import random
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from typing import Any

import pytest

from limpet import InvalidInput, Snapshot, Store, opening
from limpet.opening import store_over
from limpet.testing.kit import Clocked
from tests.concurrency.pg_tools import opened
from tests.servers.postgres import Postgres, Schemas

TEN_YEARS_US = 10 * 365 * 86_400 * 10**6
NOW_US = 1_800_000_000_000_000


@pytest.fixture
def store(postgres: Postgres, postgres_url: str) -> Iterator[Store]:
    with opened(postgres, postgres_url) as store:
        yield store


def present(found: Snapshot | None) -> Snapshot:
    assert found is not None
    return found


# Sizes


@pytest.mark.slow
def test_states_of_twenty_megabytes(store: Store) -> None:
    """Random ones, which nothing makes smaller; the next states cost what changed."""
    scope = store.scope("s")
    state: dict[str, Any] = {"text": random.Random(1).randbytes(10_000_000).hex(), "items": []}
    first = scope.save(state)
    assert first.size > 20_000_000
    stored = store.stats().stored_bytes
    scope.append("items", ["a"])
    middle = len(state["text"]) // 2
    changed = {**state, "text": state["text"][:middle] + "!" + state["text"][middle:]}
    scope.save(changed)
    assert store.stats().stored_bytes < stored * 1.1
    scope.fork(first.id)  # the first fork stores what all of them share
    shared = store.stats().stored_bytes
    fork = scope.fork(first.id, patch={"items": ["forked"]})
    assert store.stats().stored_bytes < shared * 1.1
    assert present(scope.load(first.id)).state == state
    assert present(scope.load()).state == changed
    assert present(fork.load()).state == {**state, "items": ["forked"]}
    assert scope.delete_snapshot(first.id) == 1
    assert present(fork.load()).state == {**state, "items": ["forked"]}


# Names

NAMES = [
    "'", "''", '"', "\\", "\\'", "\\\\", "%", "%%", "%s", "%(id)s", "%(session_id)s", "$1", ":a",
    "?", "{}", "{0}", "{schema}", "--", "/*", "*/", ";", "'; DROP TABLE snapshots; --", "$$",
    "E'\\x00'", "\\x00", "\\000", "\\N", "\\.", "NULL", "null", "limpet.scopes", "a\tb", "a\nb",
    "a\rb", " ", "\x01", "\x1f", "\x7f", "\u0080", "\ufeff", "\ufffe", "\uffff", "\U0010ffff",
    "e\u0301", "\u00e9", "\u0130", "\u0131", "\u00df", "\u1e9e", "\u202e", "\u200b",
]  # fmt: skip


def test_names_that_mean_something_to_sql(store: Store) -> None:
    """Promise 11: as ids of all kinds, labels and statuses, each is itself and no other."""
    for name in NAMES:
        scope = store.scope(name, name)
        info = scope.save(name, id=name, labels={name: name}, status=name, metadata={name: name})
        scope.set_note(name, name)
        scope.set_note(name, [name], on=name)
        assert (info.id, info.labels, info.status) == (name, {name: name}, name)
    assert list(store.sessions()) == sorted(NAMES)
    for name in NAMES:
        scope = store.scope(name, name)
        found = present(scope.load(name))
        assert (found.state, found.labels, found.metadata) == (name, {name: name}, {name: name})
        assert [info.key[:2] for info in store.scopes(name)] == [(name, name)]
        for infos in (
            store.history(labels={name: name}),
            store.history(status=name),
            store.scope(name, name).history(labels={name: name}, status=name),
        ):
            assert [each.session_id for each in infos] == [name]
        assert [each.id for each in scope.leaves()] == list(scope.ids()) == [name]
        assert list(store.sessions(prefix=name)) == sorted(n for n in NAMES if n.startswith(name))
        assert [note.value for note in (*scope.notes(), *scope.notes(on=name))] == [name, [name]]
        assert store.find(name, prefix=name) is not None
    for name in NAMES[::3]:
        assert store.scope(name, name).delete_note(name) == 1
        assert store.delete_session(name) == 1
    assert list(store.sessions()) == sorted(set(NAMES) - set(NAMES[::3]))
    assert list(store.check()) == []


NUL = {"a\0b": "\0", "\0": ["\0\0", {"": "x\0"}]}


def test_nul_is_kept_in_values_and_refused_in_names(store: Store) -> None:
    scope = store.scope("s")
    scope.save(NUL, id="a", metadata=NUL)
    scope.set_note("n", NUL)
    scope.append("\0", ["\0"])
    assert present(scope.load("a")).state == NUL
    assert present(scope.load("a")).metadata == NUL
    assert [note.value for note in scope.notes()] == [NUL]
    assert present(scope.load()).state == {**NUL, "\0": [*NUL["\0"], "\0"]}
    refused: list[dict[str, Any]] = [
        {"id": "a\0"},
        {"parent": "a\0"},
        {"labels": {"a\0": "b"}},
        {"labels": {"a": "b\0"}},
        {"status": "\0"},
    ]
    for options in refused:
        with pytest.raises(InvalidInput):
            scope.save({}, **options)
    with pytest.raises(InvalidInput):
        store.scope("s\0")
    with pytest.raises(InvalidInput):
        scope.set_note("n\0", 1)
    assert len(list(scope.history())) == 2


def long(seed: int, chars: int) -> str:
    """Return a text of characters of four bytes that no index makes shorter."""
    chance = random.Random(seed)
    return "".join(chr(chance.randrange(0x20000, 0x2A6D0)) for _ in range(chars))


@pytest.mark.parametrize("what", ["emoji", "anything"])
def test_the_longest_names(store: Store, what: str) -> None:
    """Everything that is indexed, at its longest in bytes, both as it likes to be and at worst."""
    numbers = count()

    def name(chars: int = 512) -> str:
        number = next(numbers)
        if what == "emoji":
            return "\U0001f980" * (chars - 1) + chr(0x1F600 + number)
        return long(number, chars)

    session, scope_id, parent, id = name(), name(), name(), name()
    scope = store.scope(session, scope_id, "k" * 64)
    labels = {name(256): name(256) for _ in range(64)}
    status = name(256)
    scope.save(1, id=parent)
    scope.save(2, parent=None)
    scope.save(3, id=id, parent=parent, labels=labels, status=status)
    notes = sorted((name(), name()) for _ in range(3))
    for on, called in notes:
        scope.set_note(called, called, on=on)
        scope.set_note(called, called)
    found = present(scope.load(id))
    assert (found.parent_id, found.labels, found.status) == (parent, labels, status)
    for pair in labels.items():
        (listed,) = store.history(labels=dict([pair]), prefix=session)
        assert listed.id == id
    assert store.find(id, prefix=session) is not None
    assert list(store.sessions(prefix=session[:-1])) == [session]
    assert [note.name for note in scope.notes()] == sorted(called for _, called in notes)
    for on, called in notes:
        assert [note.name for note in scope.notes(on=on)] == [called]
    fork = scope.fork(id, to=name())
    assert present(fork.load()).labels == labels
    assert [leaf.id for leaf in scope.leaves()][:1] == [id]
    assert scope.delete_snapshot(id) == 1
    assert store.delete_session(session) == 2
    with pytest.raises(InvalidInput):
        store.scope(name(513))


# Clocks


@pytest.mark.parametrize("first", [-1, 1], ids=["slow one first", "fast one first"])
def test_clocks_that_are_ten_years_off(schemas: Schemas, first: int) -> None:
    """Promise 7: two writers take turns, twenty years apart; order is that of the commits."""
    ticks = count()

    def times(direction: int) -> Iterator[int]:
        while True:
            yield NOW_US + direction * TEN_YEARS_US + next(ticks)

    saved = []
    with ExitStack() as stack:
        stores = [
            stack.enter_context(
                store_over(Clocked(opening.open_backend(schemas.url()), times(direction)).backend)
            )
            for direction in (first, -first)
        ]
        for number in range(20):
            scope = stores[number % 2].scope("s")
            saved.append(scope.save({"n": number}, keep=number % 5 != 4).id)
            if number % 7 == 3:
                scope.update(saved[-1], lambda s: s.with_(status="seen"))
            assert present(stores[1 - number % 2].scope("s").load()).state == {"n": number}
        assert saved == sorted(saved)
        for store in stores:
            kept = [id for number, id in enumerate(saved) if number % 5 != 4]
            assert [info.id for info in store.scope("s").history()] == kept[::-1]
            fork = store.scope("s").fork(saved[0])
            assert [fork.save(n).id for n in range(2)] == sorted(fork.ids())[1:]
            assert {finding.severity for finding in store.check()} <= {"info"}
        assert stores[1].scope("s").delete_snapshot(saved[0]) == 1


@pytest.mark.parametrize("now_us", [-(10**15), 0, 8 * 10**15, 2 * 10**17])
def test_clocks_that_make_no_sense(schemas: Schemas, now_us: int) -> None:
    """Before 1970, or centuries ahead: it is saved in order, or refused; what follows is well."""
    backend = opening.open_backend(schemas.url())
    with store_over(Clocked(backend, [now_us] * 10).backend) as odd:
        made = []
        for number in range(3):
            try:
                made.append(odd.scope("s").save(number).id)
            except InvalidInput:
                assert not 0 <= now_us < 8 * 10**15
        with store_over(opening.open_backend(schemas.url())) as store:
            made.append(store.scope("s").save("after").id)
            assert [info.id for info in store.scope("s").history()] == made[::-1]
