"""The example of a runner: what AgentOS's runtime does with checkpoints, without its defects."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import limpet
from examples.graph_runner import Edge, Graph, GraphChanged, Node, Runner, State
from limpet import Store
from tests.cases import for_each
from tests.compat.agentos.hands import GATE, Hands, every, kill
from tests.compat.agentos.kit import ENGINES, fresh, on
from tests.compat.strands.kit import Grounds
from tests.present import present
from tests.waiting import WAIT_S_MAX

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "graph_runner.py"
FIXTURES = Path(__file__).parent / "fixtures"


@pytest.fixture
def store() -> Iterator[Store]:
    with limpet.open("memory:") as store:
        yield store


@pytest.fixture
def hands() -> Hands:
    return Hands()


# What the runtime does


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_run_is_resumed_and_forked(engine: str, grounds: Grounds, hands: Hands) -> None:
    graph = replace(hands.line("a", "gate", "b", gate=GATE), name=fresh("g"))
    store = on(engine, grounds)._store.sync
    first = await Runner(store, graph).start({"q": 1})
    assert (first.status, first.prompts) == ("interrupted", {"gate": "approve?"})
    runner = Runner(store, graph)
    done = await runner.resume(first.run_id, {"gate": "yes"})
    assert done.status == "completed"
    assert done.state["artifacts"] == {"a": "a-out", "gate": "yes", "b": "b-out"}
    early = present(await runner.checkpoints.load(first.run_id, "a"))
    fork = await runner.fork(early.id, {"scratch": {"tone": "bold"}})
    other = await runner.resume(fork, {"gate": "no"})
    assert other.state["scratch"] == {"a": 1, "tone": "bold", "b": 1}
    assert hands.ran == ["a", "b", "b"]


# What it does not do


def is_long(state: State) -> bool:
    return bool(state["input"]["long"])


async def test_of_a_branch_one_arm_runs_also_when_it_is_resumed(store: Store, hands: Hands) -> None:
    """The choice is made once, and stands in the checkpoint."""
    edges = (
        Edge("a", "long", is_long),
        Edge("a", "short", lambda state: not is_long(state)),
        Edge("short", "deep"),
        Edge("long", "end"),
        Edge("deep", "end"),
    )
    nodes = {name: Node(hands[name], "write") for name in ("a", "long", "short", "deep", "end")}
    runner = Runner(store, Graph("branch", nodes, edges))
    run_id = await kill(runner, runner.start({"long": True}), hands, "long")
    last = present(await runner.checkpoints.latest(run_id))
    assert (last.pending_edges, last.skipped_nodes) == (["a->long"], ["short", "deep"])
    done = await runner.resume(run_id)
    assert (done.status, hands.ran) == ("completed", ["long", "end"])
    assert done.state["artifacts"].keys() == {"a", "long", "end"}
    hands.ran.clear()
    fork = await runner.fork(last.id, {"input": {"long": False}})
    await runner.resume(fork)
    assert hands.ran == ["long", "end"]


async def test_branches_at_once_lose_nothing(store: Store, hands: Hands) -> None:
    """There a checkpoint holds one branch alone, and the artifacts of all are dropped."""
    names = ["l", "m", "r"]
    nodes = {name: Node(hands[name]) for name in ("a", *names, "end")}
    edges = (*(Edge("a", each) for each in names), *(Edge(each, "end") for each in names))
    runner = Runner(store, Graph("fan", nodes, edges))
    run_id = await kill(runner, runner.start({}), hands, "m")
    while len((last := (await every(runner, run_id))[-1]).visited_nodes) < 3:
        run_id = await kill(runner, runner.resume(run_id), hands, "m")
    for each in await every(runner, run_id):
        assert list(each.state["artifacts"]) == each.visited_nodes == list(each.state["scratch"])
    assert set(last.visited_nodes) == {"a", "l", "r"}
    hands.ran.clear()
    done = await runner.resume(run_id)
    assert hands.ran == ["m", "end"]
    assert done.state["artifacts"].keys() == done.state["scratch"].keys() == nodes.keys()


@for_each("effect", ["pure", "read", "write", "external"])
async def test_a_failed_node_is_not_skipped(store: Store, hands: Hands, effect: str) -> None:
    """There it is, if it has effects, and the run ends as if it were well."""
    hands.ran.clear()
    hands.failures["b"] = 2
    runner = Runner(store, hands.line("a", "b", "c", effect=effect))
    done = await runner.start({})
    assert (await runner.resume(done.run_id)).status == "failed"
    done = await runner.resume(done.run_id)
    assert done.status == "completed"
    assert done.state["artifacts"]["b"] == "b-out"
    assert hands.ran == ["a", "b", "b", "b", "c"]


async def test_an_effect_that_may_have_happened_is_tried_again_under_its_key(
    store: Store, hands: Hands
) -> None:
    runner = Runner(store, hands.line("a", "pay", effect="external"))
    run_id = await kill(runner, runner.start({}), hands, "pay")
    last = present(await runner.checkpoints.latest(run_id))
    assert last.node_results["pay"]["status"] == "started"
    await runner.resume(run_id)
    assert hands.keys == [f"{run_id}/a", *[f"{run_id}/pay"] * 2]


async def test_a_run_of_another_graph_is_refused(store: Store, hands: Hands) -> None:
    runner = Runner(store, hands.line("a", "gate", "b", gate=GATE))
    first = await runner.start({})
    changed = [
        hands.line("a", "b"),
        hands.line("a", "gate", "b"),
        hands.line("a", "gate", "b", gate=GATE, b=Node(hands["b"], "external")),
    ]
    for graph in changed:
        with pytest.raises(GraphChanged):
            await Runner(store, graph).resume(first.run_id, {"gate": 1})
    assert hands.ran == ["a"]


@for_each("name", ["human_interrupt", "failed_external_node"])
async def test_checkpoints_without_edges_are_refused(store: Store, hands: Hands, name: str) -> None:
    """As AgentOS writes them: with results, but not how these came about, and no edges taken."""
    wire = json.loads((FIXTURES / f"{name}.json").read_text("utf-8"))
    runner = Runner(store, hands.line("a", "h", "b", h=GATE))
    await runner.checkpoints.save({**wire, "graphId": "line"})
    with pytest.raises(GraphChanged):
        await runner.resume(wire["runId"], {"h": "yes"})
    assert hands.ran == []


async def test_of_two_who_resume_one_runs_the_nodes(store: Store, hands: Hands) -> None:
    runner = Runner(store, hands.line("a", "gate", "pay", gate=GATE))
    first = await runner.start({})
    both = (Runner(store, runner._graph).resume(first.run_id, {"gate": 1}) for _ in range(2))
    assert [each.status for each in await asyncio.gather(*both)] == ["completed"] * 2
    assert hands.ran == ["a", "pay"]


# The story


def test_the_example_prints_what_happens(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLE, f"sqlite:///{tmp_path}/graphs.db"],
        capture_output=True,
        text=True,
        timeout=WAIT_S_MAX,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    killed, rest = done.stdout.split("  docs: the process is killed\n")
    assert killed == "a release begins\n  build 1.0\n  test limpet-1.0.whl\n"
    assert "build" not in rest.partition("a fork behind build")[0]
    assert rest.endswith(
        "  docs\n"
        "interrupted: {'approve': 'ship it?'}\n"
        "resumed without an answer: interrupted, and nothing was shipped\n"
        "  ship: asks the index\n"
        "  ship: asks the index\n"
        "approved, but failed\n"
        "  ship: asks the index\n"
        "completed: shipped\n"
        "a fork behind build, of another version\n"
        "  test limpet-1.0.whl\n"
        "  docs\n"
        "  scrap\n"
        "completed: pages of 2.0, scrapped\n"
    )
    with limpet.open(f"sqlite:///{tmp_path}/graphs.db") as store:
        assert [*store.check()] == []
