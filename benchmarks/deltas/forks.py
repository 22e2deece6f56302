"""`fork` inside a session: a large state costs what a small one costs."""

import sqlite3
from collections.abc import Mapping
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import limpet
from benchmarks.deltas.bare import SESSION, url_of, used_bytes
from benchmarks.deltas.outcome import Outcome, limit, ratios, raw_run, seconds, within
from benchmarks.measuring import SYNC, Call, Run, Times, repeated, take_turns
from benchmarks.plan import Plan
from benchmarks.report import Result
from benchmarks.saving import syncing
from benchmarks.traces import long_conversation

RATIO_MAX = 2.0
BYTES_MAX = 8 * 1024
FORKS = 128  # many, since pages are taken whole
SIZES = {"large": 10_000_000, "small": 10_000}
TURN_BYTES = 2_150


def measure(plan: Plan) -> Outcome:
    """Return what a fork of 10 MB costs against one of 10 KB, in time and on the disk."""
    with ExitStack() as stack:
        place = stack.enter_context(plan.place())
        scopes, sizes = {}, {}
        for name, size in SIZES.items():
            store = stack.enter_context(limpet.open(url_of(place / f"{name}.db")))
            scopes[name], sizes[name] = _grown(store, size)
        grown = {name: _fork_bytes(place / f"{name}.db", scopes[name]) for name in SIZES}
        sync = stack.enter_context(syncing(place / "sync.bin"))
        run = repeated(partial(_one, plan, scopes, sync), plan.repetitions)
    large, small = f"{sizes['large'] / 1e6:.1f} MB", f"{sizes['small'] / 1e3:.1f} KB"
    return Outcome(
        [_timed(run, large, small), _on_disk(grown, large)],
        {"fork": raw_run(run), "fork_bytes": grown},
    )


def _grown(store: limpet.Store, size: int) -> tuple[limpet.Scope, int]:
    """Save a chat of about so many bytes, then some turns more: the head is no lone whole row."""
    *turns, last, end = long_conversation(max(5, size // TURN_BYTES))
    scope = store.scope(SESSION)
    scope.save({"turn": len(turns), "messages": [each for turn in turns for each in turn]})
    scope.append("messages", list(last))
    scope.append("messages", list(end))
    info = scope.info()
    if info is None:
        raise AssertionError("what was saved is missing")
    return scope, info.size


def _fork(scope: limpet.Scope, id: str, number: int) -> None:
    scope.fork(id)


def _one(plan: Plan, scopes: Mapping[str, limpet.Scope], sync: Call) -> Mapping[str, Times]:
    sides = {name: partial(_fork, scope, _head(scope)) for name, scope in scopes.items()}
    calls = 10 if plan.quick else 40
    both: dict[str, Call] = {**sides, SYNC: sync}
    run = take_turns(both, calls=calls, repetitions=1, warmup=2)
    return run.repetitions[0]


def _head(scope: limpet.Scope) -> str:
    info = scope.info()
    if info is None:
        raise AssertionError("what was saved is missing")
    return info.id


def _fork_bytes(path: Path, scope: limpet.Scope) -> float:
    """Return how many bytes of pages each fork takes, the mean over several.

    Pages that were free before count as well: a fork that fills them takes them from a later save.
    """
    head = _head(scope)
    with closing(sqlite3.connect(path)) as conn:
        before = used_bytes(conn)
        for _ in range(FORKS):
            scope.fork(head)
        return (used_bytes(conn) - before) / FORKS


def _timed(run: Run, large: str, small: str) -> Result:
    return Result(
        measure=f"`fork` of {large} inside a session against one of {small}",
        goal=limit(RATIO_MAX),
        measured=f"{seconds(run, 'large')} against {seconds(run, 'small')}",
        ratio=ratios(run, "large", "small"),
        met=within(run, "large", "small", RATIO_MAX),
        contended=run.contended,
    )


def _on_disk(grown: Mapping[str, float], large: str) -> Result:
    return Result(
        measure=f"pages taken by a `fork` of {large}, mean of {FORKS}",
        goal=f"≤ {BYTES_MAX // 1024} KB",
        measured=f"{grown['large'] / 1024:.1f} KB (of a small one: {grown['small'] / 1024:.1f} KB)",
        met=grown["large"] <= BYTES_MAX,
    )
