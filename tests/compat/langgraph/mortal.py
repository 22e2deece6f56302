"""A process that runs a graph and is killed in the middle of it, then goes on in another one.

With the word `die` it ends by SIGKILL inside the second step: what the first node of that step
wrote is stored (`put_writes`), the checkpoint that would follow (`put`) is not. It says on its
output which nodes ran.
"""

import operator
import os
import signal
import sys
from typing import Annotated, Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph

import limpet
from limpet.compat.langgraph import LimpetSaver

CONFIG: Any = {"configurable": {"thread_id": "t"}}


class State(MessagesState):
    log: Annotated[list[str], operator.add]


def say(name: str) -> None:
    sys.stdout.write(f"{name}\n")
    sys.stdout.flush()


def graph_of(saver: LimpetSaver, die: bool) -> Any:
    def plan(state: State) -> Any:
        say("plan")
        return {"messages": [AIMessage("a plan", id="p")], "log": ["plan"]}

    def costly(state: State) -> Any:
        say("costly")
        return {"log": ["costly"]}

    def deadly(state: State) -> Any:
        say("deadly")
        if die:
            while not (found := saver.get_tuple(CONFIG)) or not any(
                value == ["costly"] for _, _, value in found.pending_writes or []
            ):
                pass
            os.kill(os.getpid(), signal.SIGKILL)
        return {"log": ["deadly"]}

    graph = StateGraph(State)
    for node in (plan, costly, deadly):
        graph.add_node(node.__name__, node)
    graph.add_edge(START, "plan")
    graph.add_edge("plan", "costly")
    graph.add_edge("plan", "deadly")
    return graph.compile(checkpointer=saver)


def main(url: str, word: str) -> None:
    with limpet.open(url) as store:
        graph = graph_of(LimpetSaver(store), word == "die")
        begin = {"messages": [HumanMessage("hi", id="h")], "log": []} if word == "die" else None
        graph.invoke(begin, CONFIG)
        state = graph.get_state(CONFIG)
        say(f"{sorted(state.values['log'])} {[m.content for m in state.values['messages']]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
