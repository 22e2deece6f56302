"""Two runs at once on one thread: nothing is lost or doubled, and branching still works."""

import asyncio
import gc
import itertools
import random
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

import limpet
from limpet import Conflict, InvalidInput, Store
from limpet.compat.langgraph import LimpetSaver
from tests.cases import for_each
from tests.compat.langgraph.graphs import approving, nested
from tests.compat.langgraph.kit import Places
from tests.compat.langgraph.many_runs import CONFIG, TURNS, graph_of, take_turn

WORKERS = 8


def in_threads(count: int, work: Callable[[int], None]) -> None:
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors


def check_turns(graph: Any, workers: int, turns: int) -> None:
    values = graph.get_state(CONFIG).values
    expected = sorted(f"{worker}.{turn}" for worker in range(workers) for turn in range(turns))
    assert sorted(values["asked"]) == expected
    assert sorted(values["answered"]) == expected


def test_threads_that_are_refused_lose_and_double_no_turn(store: Store) -> None:
    graph = graph_of(LimpetSaver(store))

    def work(number: int) -> None:
        for turn in range(3):
            take_turn(graph, f"{number}.{turn}")

    in_threads(3, work)
    check_turns(graph, 3, 3)


def test_a_run_that_waits_does_not_fail(store: Store) -> None:
    graph = graph_of(LimpetSaver(store, concurrent="wait"))

    def work(number: int) -> None:
        for turn in range(3):
            graph.invoke({"asked": [f"{number}.{turn}"]}, CONFIG)

    in_threads(3, work)
    check_turns(graph, 3, 3)


async def test_tasks_wait_for_each_other_too(store: Store) -> None:
    graph = graph_of(LimpetSaver(store, concurrent="wait"))
    await asyncio.gather(*(graph.ainvoke({"asked": [f"{each}.0"]}, CONFIG) for each in range(4)))
    check_turns(graph, 4, 1)


# A run with the durability "exit" saves at its end alone, so that another one surely overtakes it.


async def test_a_run_that_another_one_has_overtaken_is_refused(store: Store) -> None:
    graph = graph_of(LimpetSaver(store))
    await graph.ainvoke({"asked": ["0"]}, CONFIG)
    slow = graph.astream({"asked": ["a"]}, CONFIG, stream_mode="values", durability="exit")
    await anext(slow)
    await asyncio.create_task(graph.ainvoke({"asked": ["b"]}, CONFIG))
    with pytest.raises(Conflict, match="another run has continued this thread"):
        [each async for each in slow]
    assert (await graph.aget_state(CONFIG)).values["answered"] == ["0", "b"]


def test_allow_is_what_other_savers_do(store: Store) -> None:
    """Both runs succeed, and the turn of one is lost: this is why it is not the default."""
    for saver in (LimpetSaver(store, concurrent="allow"), InMemorySaver()):
        graph = graph_of(saver)
        graph.invoke({"asked": ["0"]}, CONFIG)
        slow = graph.stream({"asked": ["a"]}, CONFIG, stream_mode="values", durability="exit")
        next(slow)
        assert graph.invoke({"asked": ["b"]}, CONFIG)["answered"] == ["0", "b"]
        assert [*slow][-1]["answered"] == ["0", "a"]
        assert graph.get_state(CONFIG).values["answered"] == ["0", "a"]


@pytest.mark.parametrize("mode", ["refuse", "wait"])
def test_going_back_is_not_refused(store: Store, mode: Any) -> None:
    graph = graph_of(LimpetSaver(store, concurrent=mode))
    for each in "abc":
        graph.invoke({"asked": [each]}, CONFIG)
    states = list(graph.get_state_history(CONFIG))
    after_a = next(each for each in states if each.values["answered"] == ["a"] and not each.next)
    before_b = next(
        each for each in states if each.values["asked"] == ["a", "b"] and each.next == ("answer",)
    )

    assert graph.invoke({"asked": ["x"]}, after_a.config)["answered"] == ["a", "x"]
    assert graph.invoke(None, before_b.config)["answered"] == ["a", "b"]
    changed = graph.update_state(after_a.config, {"asked": ["y"]}, as_node="__start__")
    assert graph.invoke(None, changed)["answered"] == ["a", "y"]
    assert graph.invoke({"asked": ["z"]}, CONFIG)["answered"] == ["a", "y", "z"]
    # Having addressed one by its id does not make a later run a branch of it.
    latest = graph.get_state(graph.get_state(CONFIG).config)
    assert graph.invoke({"asked": ["end"]}, CONFIG)["answered"][:-1] == latest.values["answered"]


def test_an_update_of_what_is_no_longer_the_latest_is_refused(store: Store) -> None:
    saver = LimpetSaver(store)
    graph = graph_of(saver)
    graph.invoke({"asked": ["a"]}, CONFIG)
    loaded = saver.get_tuple

    def slowly(config: Any) -> Any:
        found = loaded(config)
        saver.get_tuple = loaded  # type: ignore[method-assign]
        in_threads(1, lambda _: graph.invoke({"asked": ["b"]}, CONFIG) and None)
        return found

    saver.get_tuple = slowly  # type: ignore[method-assign]
    with pytest.raises(Conflict):
        graph.update_state(CONFIG, {"asked": ["c"]}, as_node="__start__")
    assert graph.get_state(CONFIG).values["answered"] == ["a", "b"]


def test_an_update_during_a_run_that_others_wait_for_is_refused(store: Store) -> None:
    graph = graph_of(LimpetSaver(store, concurrent="wait"))
    run = graph.stream({"asked": ["a"]}, CONFIG, stream_mode="values")
    next(run)
    with pytest.raises(Conflict, match="a run is active"):
        graph.update_state(CONFIG, {"asked": ["b"]}, as_node="__start__")
    assert [*run][-1]["answered"] == ["a"]


@pytest.mark.parametrize("how", ["fails", "is abandoned"])
def test_the_next_run_goes_on_after_one_that(store: Store, how: str) -> None:
    graph = graph_of(LimpetSaver(store, concurrent="wait"))
    run = graph.stream({"asked": ["a"]}, CONFIG, stream_mode="values")
    next(run)
    if how == "fails":
        with pytest.raises(RuntimeError):
            run.throw(RuntimeError("no"))
    else:
        del run
    assert graph.invoke({"asked": ["b"]}, CONFIG)["answered"] == ["a", "b"]


@pytest.mark.parametrize("build", [approving, nested])
def test_the_lease_ends_with_the_run(store: Store, build: Any) -> None:
    """Also if it asks, or has nodes side by side; and without waiting for the garbage collector."""
    graph = build(LimpetSaver(store, concurrent="wait"))
    thread = store.scope("shared", kind="thread")
    turns: list[Any] = [{"messages": [HumanMessage("hi", id="h")]}, Command(resume=True)]
    gc.disable()
    try:
        for given in turns:
            graph.invoke(given, CONFIG)
            with thread.claim(owner="another", wait_s=10):
                pass
    finally:
        gc.enable()


def turns_of(saver: Any, durability: Any) -> list[Any]:
    """Return what a graph with a subgraph answers, in three turns with an interrupt each."""
    graph, seen = nested(saver), []
    for number in range(3):
        begin = {"messages": [HumanMessage("hi", id=f"h{number}")], "notes": [str(number)]}
        graph.invoke(begin, CONFIG, durability=durability)
        seen.append(graph.invoke(Command(resume=number), CONFIG, durability=durability))
    return [(each["approved"], each["notes"], len(each["messages"])) for each in seen]


@for_each("mode, durability", itertools.product(["refuse", "wait"], ["sync", "async", "exit"]))
def test_one_run_after_the_other_is_never_refused(
    places: Places, mode: Any, durability: str
) -> None:
    with places.open("memory") as store:
        found = turns_of(LimpetSaver(store, concurrent=mode), durability)
    assert found == turns_of(InMemorySaver(), durability)


def test_an_unknown_mode_is_refused(store: Store) -> None:
    with pytest.raises(InvalidInput, match="refuse"):
        LimpetSaver(store, concurrent="never")  # type: ignore[arg-type]


def url_of(engine: str, places: Places, request: pytest.FixtureRequest) -> str:
    if engine != "s3":
        return places.url(engine)
    service = request.getfixturevalue("seaweedfs")
    return f"s3://{service.name}/{uuid.uuid4()}?{urlencode(service.options)}"


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["refuse", "wait"])
@pytest.mark.parametrize("engine", ["sqlite", "postgres", "s3"])
def test_processes_that_are_killed_lose_and_double_no_turn(
    places: Places, request: pytest.FixtureRequest, engine: str, mode: Any
) -> None:
    url = url_of(engine, places, request)
    command = [sys.executable, "-m", "tests.compat.langgraph.many_runs", url, mode]

    def start(number: int) -> subprocess.Popen[str]:
        return subprocess.Popen([*command, str(number)], stderr=subprocess.PIPE, text=True)

    rng = random.Random(1)
    workers = {number: start(number) for number in range(WORKERS)}
    kills = 0
    while workers:
        time.sleep(0.2)
        for number, process in list(workers.items()):
            if process.poll() is not None:
                _, errors = process.communicate()
                if process.returncode == 0:
                    del workers[number]
                    continue
                assert process.returncode == -9, errors
                workers[number] = start(number)
        if workers and kills < 2 * WORKERS and rng.random() < 0.1:
            workers[rng.choice([*workers])].kill()
            kills += 1
    with limpet.open(url) as store:
        check_turns(graph_of(LimpetSaver(store)), WORKERS, TURNS)
