"""The checker itself: it accepts an engine that is right, and none that is wrong."""

from collections.abc import Callable
from typing import Any

import pytest

from limpet import opening
from limpet.backends.buckets.protocol import Bucket
from limpet.core import codec
from limpet.errors import Conflict
from limpet.model import ANY, Pruned, ScopeKey
from limpet.protocol import Backend, Clock, Commit, Stamp
from simulation import SCENARIOS, simulate
from simulation.checker import losers
from simulation.history import OK, Op
from simulation.world import Opener
from tests.cases import for_each
from tests.effort import times
from tests.memory import Memory

RUNS = times(8, full=20)
SEEDS_MAX = 300


class Yielding:
    """An engine whose every call is one step that others may come before and after."""

    def __init__(self, inner: Any, bucket: Any) -> None:
        self._inner = inner
        self._step: Callable[[], None] = bucket._storage.step

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._inner, name)

        def yielding(*arguments: Any, **options: Any) -> Any:
            self._step()
            try:
                return call(*arguments, **options)
            finally:
                self._step()

        return yielding


def shared(engine: Any) -> Opener:
    """Return an opener that gives all processes one engine in memory."""

    def opener(bucket: Bucket, clock: Clock, draw: Callable[[], Stamp]) -> Backend:
        backend: Any = Yielding(engine, bucket)
        return backend  # type: ignore[no-any-return]

    return opener


@for_each("scenario", SCENARIOS)
def test_what_is_one_step_is_accepted(scenario: str) -> None:
    for seed in range(RUNS):
        run = simulate(scenario, "none", seed, shared(Memory()))
        assert not run.broken, run.report()


Call = Callable[..., Any]
"""Does what a method of an engine does, given that method and its arguments, but wrongly."""


def ignores_expect(commit: Call, given: Any) -> Any:
    return commit(given._replace(expect=ANY))


def ignores_fence(commit: Call, given: Any) -> Any:
    return commit(given._replace(fence=None))


def loses_updates(commit: Call, given: Any) -> Any:
    if given.replaces is None:
        return commit(given)
    info = commit.__self__.read_info(given.scope, given.id)  # type: ignore[attr-defined]
    return commit(given._replace(replaces=info.revision if info else "0.0.0"))


def applies_twice(commit: Call, given: Any) -> Any:
    info = commit(given)
    if given.id is None and given.keep and not given.again and given.source is None:
        commit(given._replace(expect=ANY))
    return info


class FifthCall:
    """Refuses for nothing: after it has stored something, or before."""

    def __init__(self, *, stores: bool) -> None:
        self.calls, self.stores = 0, stores

    def __call__(self, commit: Call, given: Any) -> Any:
        self.calls += 1
        if not self.stores and self.calls > 5 and given.replaces is not None:
            raise Conflict("for no reason")
        info = commit(given)
        if self.stores and self.calls == 5:
            raise Conflict("it is stored all the same")
        return info


class ReadsThePast:
    past: Any = None

    def __call__(self, read: Call, scope: Any, ids: Any) -> Any:
        now = read(scope, ids)
        if list(ids) != [None]:
            return now
        past, self.past = self.past, now
        return now if past is None else past


def hides_one(listed: Call, query: Any, limit: int) -> Any:
    found = listed(query, limit=limit)
    return found[:1] + found[2:]


def forgets_notes(write: Call, given: Any) -> Any:
    note = write(given)
    write.__self__.delete_note(given.scope, given.name, on=given.on)  # type: ignore[attr-defined]
    return note


# What is wrong with which method, and the scenario in which that is noticed.
WRONG: list[tuple[str, Callable[[], Call], str]] = [
    ("commit", lambda: ignores_expect, "A"),
    ("commit", lambda: ignores_fence, "I"),
    ("commit", lambda: loses_updates, "B"),
    ("commit", lambda: applies_twice, "A"),
    ("commit", lambda: FifthCall(stores=False), "B"),
    ("commit", lambda: FifthCall(stores=True), "A"),
    ("read_snapshots", ReadsThePast, "A"),
    (
        "read_snapshots",
        lambda: lambda was, *given: [(info, codec.encode({"log": []})) for info, _ in was(*given)],
        "A",
    ),
    ("list_snapshots", lambda: hides_one, "A"),
    ("list_snapshots", lambda: lambda was, query, limit: was(query, limit=limit)[::-1], "A"),
    (
        "list_snapshots",
        lambda: lambda was, query, limit: [] if query.labels else was(query, limit=limit),
        "G",
    ),
    ("delete_snapshots", lambda: lambda was, scope, ids, **_: Pruned(len(ids), 0), "C"),
    ("delete_snapshots", lambda: lambda was, scope, ids, **_: was(scope, ids), "E"),
    ("delete_session", lambda: lambda was, session_id: 0, "D"),
    ("write_note", lambda: forgets_notes, "F"),
    ("delete_note", lambda: lambda was, *given, **options: 1, "F"),
]


def spoilt(method: str, wrong: Call) -> Memory:
    engine = Memory()
    was = getattr(engine, method)
    setattr(engine, method, lambda *given, **options: wrong(was, *given, **options))
    return engine


@for_each("method, wrong, scenario", WRONG)
def test_what_is_wrong_is_caught(method: str, wrong: Callable[[], Call], scenario: str) -> None:
    for seed in range(SEEDS_MAX):
        if simulate(scenario, "none", seed, shared(spoilt(method, wrong()))).broken:
            return
    pytest.fail(f"nothing was noticed in {SEEDS_MAX} runs")


@for_each(
    "outcome, begins, faulty, is_loser",
    [
        ("Conflict", 5, True, False),
        ("Conflict", 5, False, True),  # nothing has gone wrong that could excuse it
        ("Conflict", 8, True, True),  # the deletion was over
        ("refused", 5, True, True),  # the service said that it was not executed
    ],
)
def test_what_is_refused_may_be_seen_until_it_is_deleted(
    outcome: str, begins: int, faulty: bool, is_loser: bool
) -> None:
    """It was stored, answered as if it had not been, and deleted before its writer looked again."""
    engine, key = Memory(), ScopeKey("s", "main")
    commit = Commit(key, b"{}", None, b"{}", b"{}", opening.draw())
    info = engine.commit(commit)
    ops = [
        Op("a", "commit", key, {"commit": commit, "log": ()}, 1, 9, outcome),
        Op("b", "delete_session", None, {"session": "s"}, 2, 7, OK, 1),
        Op("c", "info", key, {"ids": [None]}, begins, 10, OK, info),
    ]
    assert bool(list(losers(ops, faulty))) is is_loser
