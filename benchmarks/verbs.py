"""For information, without goals: the other verbs, and the throughput of many writers."""

import multiprocessing
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from multiprocessing.synchronize import Barrier
from statistics import median
from time import perf_counter

import orjson

import limpet
from benchmarks.material import messages, state_of
from benchmarks.measuring import Call, Run, take_turns
from benchmarks.plan import Plan
from benchmarks.report import TIMES, Result, milliseconds, spread
from benchmarks.saving import STATE_BYTES, connect, insert

SIZES = (("10 KB", STATE_BYTES), ("1 MB", 1024 * 1024))
THREADS = (1, 4, 8)


def measure(plan: Plan) -> Iterator[Result]:
    """Yield what loading, appending, updating and writing in crowds cost."""
    for name, size in SIZES:
        yield _loads(plan, name, size)
    for name, size in SIZES:
        yield from _changes(plan, name, size)
    yield _processes(plan)
    for threads in THREADS:
        yield _threads(plan, threads)


def _loads(plan: Plan, name: str, size: int) -> Result:
    state = state_of(0, size_bytes=size)
    with ExitStack() as stack:
        place = stack.enter_context(plan.place())
        scope = stack.enter_context(limpet.open(f"sqlite:///{place}/ours.db")).scope("benchmark")
        conn = stack.enter_context(closing(connect(place / "bare.db")))
        scope.save(state)
        insert(conn, orjson.dumps(state))
        loaded = scope.load()
        if loaded is None or loaded.state != state or _select(conn) != state:
            raise AssertionError("what was loaded is not what was saved")
        sides: dict[str, Call] = {
            "load": lambda number: scope.load(),
            "select": lambda number: _select(conn),
        }
        calls = plan.calls if size < 100_000 else max(10, plan.calls // 10)
        run = take_turns(sides, calls=calls, repetitions=plan.repetitions, warmup=3)
    bare = milliseconds(run.seconds("select", "wall"))
    return Result(
        measure=f"`load` of the head at {name} against a bare SELECT and `orjson.loads`, wall",
        measured=f"{milliseconds(run.seconds('load', 'wall'))} against {bare}",
        ratio=spread(run.ratios("load", "select", "wall")),
    )


def _select(conn: sqlite3.Connection) -> object:
    (body,) = conn.execute("SELECT body FROM states ORDER BY pk DESC LIMIT 1").fetchone()
    return orjson.loads(body)


def _changes(plan: Plan, name: str, size: int) -> Iterator[Result]:
    prose = messages()
    with ExitStack() as stack:
        place = stack.enter_context(plan.place())
        store = stack.enter_context(limpet.open(f"sqlite:///{place}/ours.db"))
        chat, document = store.scope("chat"), store.scope("document")
        chat.save(state_of(0, size_bytes=size))
        saved = document.save(state_of(0, size_bytes=size))

        def step(found: limpet.Snapshot) -> limpet.Snapshot:
            return found.with_(state={**found.state, "step": found.state["step"] + 1})

        sides: dict[str, Call] = {
            "append": lambda number: chat.append("messages", [prose[number % len(prose)]]),
            "update": lambda number: document.update(saved.id, step),
        }
        # Few, since each appended message makes the chat larger.
        run = take_turns(sides, calls=10, repetitions=plan.repetitions, warmup=1)
    yield Result(f"`append` of one message to a chat of {name}, median", _both(run, "append"))
    yield Result(f"`update` of a snapshot of {name}, median", _both(run, "update"))


def _both(run: Run, side: str) -> str:
    cpu, wall = run.seconds(side, "cpu"), run.seconds(side, "wall")
    return f"{milliseconds(cpu)} CPU, {milliseconds(wall)} wall"


def _count(found: limpet.Snapshot) -> limpet.Snapshot:
    return found.with_(state={"count": found.state["count"] + 1})


def work(url: str, snapshot_id: str, updates: int, begin: Barrier) -> None:
    """Make the updates of one process, when all are ready."""
    with limpet.open(url) as store:
        scope = store.scope("benchmark")
        begin.wait()
        for _ in range(updates):
            scope.update(snapshot_id, _count)


def _processes(plan: Plan) -> Result:
    context = multiprocessing.get_context("spawn")
    with plan.place() as place:
        url = f"sqlite:///{place}/ours.db"
        with limpet.open(url) as store:
            saved = store.scope("benchmark").save({"count": 0})
        begin = context.Barrier(plan.processes + 1)
        args = (url, saved.id, plan.updates, begin)
        processes = [context.Process(target=work, args=args) for _ in range(plan.processes)]
        for process in processes:
            process.start()
        begin.wait(timeout=60)
        start = perf_counter()
        for process in processes:
            process.join()
        seconds = perf_counter() - start
        with limpet.open(url) as store:
            last = store.scope("benchmark").load(saved.id)
    total = plan.processes * plan.updates
    if last is None or last.state["count"] != total:
        raise AssertionError("updates were lost")
    return Result(
        f"{plan.processes} processes {TIMES} {plan.updates} `update`s of one snapshot",
        f"{seconds:.1f} s in total, {milliseconds(seconds / total)} each; none lost",
    )


def _threads(plan: Plan, threads: int) -> Result:
    saves = plan.calls
    states = [state_of(number, size_bytes=STATE_BYTES) for number in range(saves)]
    rates, slowest = [], []

    def saved(number: int) -> float:
        start = perf_counter()
        scopes[number % threads].save(states[number])
        return perf_counter() - start

    for _ in range(1 if plan.quick else min(3, plan.repetitions)):
        with (
            plan.place() as place,
            limpet.open(f"sqlite:///{place}/ours.db") as store,
            ThreadPoolExecutor(threads) as pool,
        ):
            scopes = [store.scope(f"benchmark-{number}") for number in range(threads)]
            start = perf_counter()
            spent = sorted(pool.map(saved, range(saves)))
            rates.append(saves / (perf_counter() - start))
            slowest.append(spent[-max(1, saves // 100)])
    return Result(
        f"{threads} thread{'s' if threads > 1 else ''} saving 10 KB, each in a session of its own",
        f"{median(rates):.0f} saves a second ({min(rates):.0f} to {max(rates):.0f}); one in 100 "
        f"takes {milliseconds(median(slowest))} or more",
    )
