"""A small graph runner: a checkpoint after each node, resume, human approval, forks.

python examples/graph_runner.py                                      a SQLite file in this directory
python examples/graph_runner.py postgresql://user@host/database      PostgreSQL

A node is completed only when its result is in a checkpoint. So a run that was killed, that failed
or that waits for an answer is resumed by starting the nodes that are not completed.
"""

import asyncio
import copy
import hashlib
import json
import multiprocessing
import os
import signal
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from typing import Any, NamedTuple

import limpet
from limpet.compat.agentos import Checkpoint, CheckpointStore

State = dict[str, Any]


class Call(NamedTuple):
    """The arguments of a node: its own copy of the state, and a key that is the same in retries."""

    state: State
    key: str


class Update(NamedTuple):
    """A node may return this instead of an output, to change keys of the scratch as well."""

    output: Any
    scratch: dict[str, Any]


@dataclass(frozen=True)
class Node:
    """One step. `effect` is pure, read, write, external, or human (which has a prompt)."""

    run: Callable[[Call], Awaitable[Any]] | None = None
    effect: str = "pure"
    prompt: str = ""
    retries: int = 0


class Edge(NamedTuple):
    """An edge to a next node. The condition must not change the state and must not raise."""

    source: str
    target: str
    when: Callable[[State], bool] | None = None

    @property
    def id(self) -> str:
        return f"{self.source}->{self.target}"


@dataclass(frozen=True)
class Graph:
    """An acyclic graph. Use the same name in every process."""

    name: str
    nodes: Mapping[str, Node]
    edges: tuple[Edge, ...]

    def order(self) -> list[str]:
        """Return the nodes in topological order."""
        before = {name: {e.source for e in self.edges if e.target == name} for name in self.nodes}
        return list(TopologicalSorter(before).static_order())

    def fingerprint(self) -> str:
        """Return a hash that changes when old checkpoints no longer fit."""
        edges = sorted([edge.id, edge.when is not None] for edge in self.edges)
        parts = [self.name, {name: node.effect for name, node in self.nodes.items()}, edges]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


class GraphChanged(Exception):
    """The checkpoint belongs to another version of the graph."""


class Outcome(NamedTuple):
    """The result of a run: completed, failed, or interrupted until the prompts are answered."""

    run_id: str
    status: str
    state: State
    prompts: dict[str, str]


@dataclass
class Progress:
    """The progress of a run. All branches share one state, so none loses the keys of another."""

    graph: Graph
    run_id: str
    state: State
    results: dict[str, Any] = field(default_factory=dict)
    completed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)  # edges to nodes that are not completed yet
    timestamp: int = 0

    def ready(self) -> list[str]:
        """Return the nodes that can start; mark the unreachable ones as skipped."""
        found = []
        for name in self.graph.order():
            into = [edge for edge in self.graph.edges if edge.target == name]
            settled = {*self.completed, *self.skipped}
            if name in settled or any(edge.source not in settled for edge in into):
                continue
            if not into or any(edge.id in self.taken for edge in into):
                found.append(name)
            else:
                self.skipped.append(name)
        return found

    def note(self, name: str, status: str, began: float = 0, **facts: Any) -> None:
        """Record the status of a node. Only `ok` counts as completed."""
        duration = round((time.monotonic() - began) * 1000) if began else 0
        effect = self.graph.nodes[name].effect
        self.results[name] = {
            "effectClass": effect,
            "durationMs": duration,
            "status": status,
            **facts,
        }

    def complete(self, name: str, result: Any, began: float = 0) -> None:
        """Merge the result of a node into the state, and evaluate its outgoing edges once."""
        output, scratch = result if isinstance(result, Update) else (result, {})
        self.state["artifacts"][name] = output
        self.state["scratch"] |= scratch
        self.note(name, "ok", began, output=output)
        self.completed.append(name)
        into = {edge.id for edge in self.graph.edges if edge.target == name}
        self.taken = [id for id in self.taken if id not in into]
        for edge in self.graph.edges:
            if edge.source == name and (edge.when is None or edge.when(self.state)):
                self.taken.append(edge.id)
        self.ready()  # so that the checkpoint contains the nodes skipped by this

    def checkpoint(self, name: str) -> Checkpoint:
        """Return the next checkpoint."""
        # Never step back with the clock: then an older checkpoint would be the latest.
        self.timestamp = max(self.timestamp, time.time_ns() // 10**6)
        self.state["diagnostics"]["checkpointsSaved"] += 1
        return Checkpoint(
            id=str(uuid.uuid4()),
            graph_id=self.graph.name,
            run_id=self.run_id,
            node_id=name,
            timestamp=self.timestamp,
            state=self.state,
            node_results=self.results,
            visited_nodes=self.completed,
            skipped_nodes=self.skipped,
            pending_edges=self.taken,
            extra={"fingerprint": self.graph.fingerprint()},
        )


class Runner:
    """Runs one graph over a store. One runner at a time holds a run; others wait."""

    def __init__(self, store: limpet.Store, graph: Graph, *, lease_s: float = 2.0) -> None:
        self.checkpoints = CheckpointStore(store)
        self._store = store.aio
        self._graph = graph
        self._lease_s = lease_s  # how long others wait for a killed runner

    async def start(self, input: Any, answers: Mapping[str, Any] | None = None) -> Outcome:
        """Start a run."""
        diagnostics = {"checkpointsSaved": 0}
        state = {"input": input, "scratch": {}, "artifacts": {}, "diagnostics": diagnostics}
        progress = Progress(self._graph, str(uuid.uuid4()), state)
        await self.checkpoints.save(progress.checkpoint("__start__"))
        return await self.resume(progress.run_id, answers)

    async def resume(self, run_id: str, answers: Mapping[str, Any] | None = None) -> Outcome:
        """Continue a run. `answers` are for human nodes; a node without an answer keeps waiting."""
        wait_s = 3 * self._lease_s
        run = self._store.scope(run_id, self._graph.name, "graph")
        async with run.claim(owner="graph_runner", ttl_s=self._lease_s, wait_s=wait_s):
            last = await self.checkpoints.latest(run_id)
            if last is None:
                raise limpet.NotFound(f"the run has no checkpoint. run_id=`{run_id}`")
            if last.extra.get("fingerprint") != self._graph.fingerprint():
                raise GraphChanged(f"the checkpoint is of another graph. run_id=`{run_id}`")
            progress = Progress(
                graph=self._graph,
                run_id=run_id,
                state=last.state,
                results=last.node_results,
                completed=last.visited_nodes,
                skipped=last.skipped_nodes,
                taken=last.pending_edges,
                timestamp=int(last.timestamp),
            )
            return await self._go_on(progress, answers or {})

    async def fork(self, checkpoint_id: str, patch: Mapping[str, Any] | None = None) -> str:
        """Fork a run at any checkpoint; `resume` continues it."""
        return await self.checkpoints.fork(checkpoint_id, patch)

    async def _go_on(self, progress: Progress, answers: Mapping[str, Any]) -> Outcome:
        tasks: dict[asyncio.Task[Any], tuple[str, float]] = {}
        prompts: dict[str, str] = {}
        failed = False
        try:
            while True:
                if not failed:
                    await self._begin(progress, answers, tasks, prompts)
                if not tasks:
                    break
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    name, began = tasks.pop(task)
                    error = _error_of(task)
                    if error is None:
                        progress.complete(name, task.result(), began)
                    else:
                        failed = True  # start no new node; let the running ones end
                        progress.note(name, "failed", began, error=type(error).__name__)
                    await self.checkpoints.save(progress.checkpoint(name))
        finally:
            for task in tasks:
                task.cancel()
        status = "failed" if failed else "interrupted" if prompts else "completed"
        return Outcome(progress.run_id, status, progress.state, prompts)

    async def _begin(
        self,
        progress: Progress,
        answers: Mapping[str, Any],
        tasks: dict[asyncio.Task[Any], tuple[str, float]],
        prompts: dict[str, str],
    ) -> None:
        """Start all nodes that are ready. An answer makes more of them ready."""
        while True:
            begun = {*prompts, *(name for name, _ in tasks.values())}
            ready = [name for name in progress.ready() if name not in begun]
            if not ready:
                return
            for name in ready:
                node = self._graph.nodes[name]
                if node.run is None and name in answers:
                    progress.complete(name, answers[name])
                elif node.run is None:
                    prompts[name] = node.prompt
                    progress.note(name, "interrupted", output={"prompt": node.prompt})
                elif node.effect in ("write", "external"):
                    progress.note(name, "started")  # so that it is visible after a crash
                if node.effect in ("write", "external", "human"):
                    await self.checkpoints.save(progress.checkpoint(name))
                if node.run is not None:
                    call = Call(copy.deepcopy(progress.state), f"{progress.run_id}/{name}")
                    tasks[asyncio.create_task(attempt(node, call))] = name, time.monotonic()


def _error_of(task: asyncio.Task[Any]) -> BaseException | None:
    return asyncio.CancelledError() if task.cancelled() else task.exception()


async def attempt(node: Node, call: Call) -> Any:
    """Run a node, with retries."""
    assert node.run is not None
    for _ in range(node.retries):
        try:
            return await node.run(call._replace(state=copy.deepcopy(call.state)))
        except Exception:
            pass
    return await node.run(call)


# The example: a release that fails in three ways.

TROUBLE: set[str] = set()  # the nodes that fail


def say(line: str) -> None:
    print(line, flush=True)


async def build(call: Call) -> Update:
    version = call.state["input"]["version"]
    say(f"  build {version}")
    return Update(f"limpet-{version}.whl", {"version": version})


async def test(call: Call) -> str:
    say(f"  test {call.state['artifacts']['build']}")
    return "green"


async def docs(call: Call) -> str:
    if "docs" in TROUBLE:
        await asyncio.sleep(1)
        say("  docs: the process is killed")
        os.kill(os.getpid(), signal.SIGKILL)
    say("  docs")
    return f"pages of {call.state['scratch']['version']}"


async def ship(call: Call) -> str:
    say("  ship: asks the index")
    if "ship" in TROUBLE:
        raise ConnectionError("the index does not answer")
    return "shipped"


async def scrap(call: Call) -> str:
    say("  scrap")
    return "scrapped"


def is_approved(state: State) -> bool:
    return bool(state["artifacts"]["approve"]["approved"])


RELEASE = Graph(
    "release",
    {
        "build": Node(build),
        "test": Node(test, effect="read"),
        "docs": Node(docs, effect="read"),
        "approve": Node(effect="human", prompt="ship it?"),
        "ship": Node(ship, effect="external", retries=1),
        "scrap": Node(scrap, effect="write"),
    },
    (
        Edge("build", "test"),
        Edge("build", "docs"),
        Edge("test", "approve"),
        Edge("docs", "approve"),
        Edge("approve", "ship", is_approved),
        Edge("approve", "scrap", lambda state: not is_approved(state)),
    ),
)


def begin(url: str) -> None:
    """Start a run in a process that is killed before the end."""
    TROUBLE.add("docs")
    with limpet.open(url) as store:
        asyncio.run(Runner(store, RELEASE).start({"version": "1.0"}))


async def tell(store: limpet.Store) -> None:
    runner = Runner(store, RELEASE)
    (last,) = await runner.checkpoints.list("release", limit=1)
    say(f"another process resumes behind {last.node_id}")
    found = await runner.resume(last.run_id)
    say(f"{found.status}: {found.prompts}")
    found = await runner.resume(last.run_id)
    say(f"resumed without an answer: {found.status}, and nothing was shipped")
    TROUBLE.add("ship")
    found = await runner.resume(last.run_id, {"approve": {"approved": True}})
    say(f"approved, but {found.status}")
    TROUBLE.clear()
    found = await runner.resume(last.run_id)
    say(f"{found.status}: {found.state['artifacts']['ship']}")

    built = await runner.checkpoints.load(last.run_id, "build")
    assert built is not None
    fork = await runner.fork(built.id, {"scratch": {"version": "2.0"}})
    say("a fork behind build, of another version")
    found = await runner.resume(fork, {"approve": {"approved": False}})
    first = (await runner.checkpoints.list("release", run_id=fork))[-1]
    origin = await runner.checkpoints.get(first.id)
    assert origin is not None
    assert origin.forked_from["runId"] == last.run_id
    say(f"{found.status}: {found.state['artifacts']['docs']}, {found.state['artifacts']['scrap']}")


def main(url: str) -> None:
    say("a release begins")
    process = multiprocessing.get_context("spawn").Process(target=begin, args=(url,))
    process.start()
    process.join()
    with limpet.open(url) as store:
        asyncio.run(tell(store))


if __name__ == "__main__":
    main(*sys.argv[1:] or ["sqlite:///graphs.db"])
