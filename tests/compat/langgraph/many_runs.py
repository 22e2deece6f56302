"""A process that takes its turns on a thread that others use at the same time.

It may be killed and started again at any moment: a turn is taken when its answer is in the state.
"""

import operator
import random
import sys
import time
from typing import Annotated, Any, TypedDict

from langgraph.graph import START, StateGraph

import limpet
from limpet.compat.langgraph import LimpetSaver, concurrent

CONFIG: Any = {"configurable": {"thread_id": "shared"}}
TURNS = 5


class State(TypedDict):
    asked: Annotated[list[str], operator.add]
    answered: Annotated[list[str], operator.add]


def answer(state: State) -> Any:
    time.sleep(0.01)
    return {"answered": [each for each in state["asked"] if each not in state["answered"]]}


def graph_of(saver: Any) -> Any:
    return StateGraph(State).add_node("answer", answer).add_edge(START, "answer").compile(saver)


def take_turn(graph: Any, name: str) -> None:
    """Ask, until it is answered. Lost turns are asked again; a doubled one is in the state."""
    while True:
        state = graph.get_state(CONFIG).values
        if name in state.get("answered", ()):
            return
        try:
            graph.invoke({"asked": [] if name in state.get("asked", ()) else [name]}, CONFIG)
        except limpet.Conflict:
            time.sleep(random.uniform(0, 0.05))
            continue
        # It was acknowledged: from here on it must stay.
        assert name in graph.get_state(CONFIG).values["answered"], f"{name} was lost"


def main(url: str, mode: Any, worker: str) -> None:
    concurrent.TTL_S = 1.0
    with limpet.open(url) as store:
        graph = graph_of(LimpetSaver(store, concurrent=mode))
        for turn in range(TURNS):
            take_turn(graph, f"{worker}.{turn}")


if __name__ == "__main__":
    main(*sys.argv[1:])
