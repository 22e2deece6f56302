"""Nodes for graphs, and what is done to their runs."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest

from examples.graph_runner import Call, Edge, Graph, Node, Runner, Update
from limpet.compat.agentos import Checkpoint

GATE = Node(effect="human", prompt="approve?")


class Hands:
    """The functions of nodes: what ran, with which keys, and what goes wrong how often."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.keys: list[str] = []
        self.failures: dict[str, int] = {}
        self.stuck: set[str] = set()  # nodes that never end

    def __getitem__(self, name: str) -> Callable[[Call], Awaitable[Any]]:
        async def run(call: Call) -> Update:
            self.ran.append(name)
            self.keys.append(call.key)
            call.state["scratch"]["mine"] = name  # a copy, so that nobody sees it
            if self.failures.get(name):
                self.failures[name] -= 1
                raise ConnectionError("a text that stays out of the checkpoint")
            if name in self.stuck:
                await asyncio.Event().wait()
            return Update(f"{name}-out", {name: 1})

        return run

    def line(self, *names: str, effect: str = "pure", **nodes: Node) -> Graph:
        """Return a graph of nodes one after the other; those given are taken as they are."""
        made = {name: nodes.get(name, Node(self[name], effect)) for name in names}
        return Graph("line", made, tuple(Edge(*pair) for pair in pairwise(names)))


async def kill(runner: Runner, run: Awaitable[Any], hands: Hands, *stuck: str) -> str:
    """Stop a run while some nodes are under way, as a crash would; return its id."""
    hands.stuck = set(stuck)
    task = asyncio.ensure_future(run)
    while not hands.stuck <= set(hands.ran):
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    hands.stuck = set()
    hands.ran.clear()
    (last,) = await runner.checkpoints.list(runner._graph.name, limit=1)
    return last.run_id


async def every(runner: Runner, run_id: str) -> list[Checkpoint]:
    """Return the checkpoints of a run, the oldest first."""
    listed = await runner.checkpoints.list(runner._graph.name, run_id=run_id)
    found = [await runner.checkpoints.get(each.id) for each in reversed(listed)]
    return [each for each in found if each is not None]
