"""Graphs that ask, fan out and hold others, for the tests of savers."""

import operator
from typing import Annotated, Any

from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Send, interrupt


class State(MessagesState):
    approved: bool
    notes: Annotated[list[str], operator.add]


def ask(state: State) -> Any:
    answer = interrupt({"question": ["send it?", len(state["messages"])]})
    return {"approved": answer, "messages": [AIMessage(f"answer {answer}", id="a1")]}


def approving(saver: Any) -> Any:
    """Two nodes side by side, one that asks, as many workers as it likes, and a last one."""
    graph = StateGraph(State)
    graph.add_node("ask", ask)
    graph.add_node("worker", lambda state: {"notes": [f"worker {state['n']}"]})
    graph.add_node("left", lambda state: {"notes": ["left"]})
    graph.add_node("right", lambda state: {"notes": ["right"]})
    graph.add_node("last", lambda state: {"messages": [AIMessage("done", id="a2")]})
    graph.add_edge(START, "left")
    graph.add_edge(START, "right")
    graph.add_edge(["left", "right"], "ask")
    sends = [Send("worker", {"n": n}) for n in range(3)]
    graph.add_conditional_edges("ask", lambda state: sends, ["worker"])
    graph.add_edge("worker", "last")
    graph.add_edge("last", END)
    return graph.compile(checkpointer=saver)


def nested(saver: Any) -> Any:
    """A graph inside another one, which asks."""
    inner = StateGraph(State)
    inner.add_node("think", lambda state: {"messages": [AIMessage("think", id="i1")]})
    inner.add_node("ask", ask)
    inner.add_edge(START, "think")
    inner.add_edge("think", "ask")
    outer = StateGraph(State)
    outer.add_node("inner", inner.compile())
    outer.add_edge(START, "inner")
    return outer.compile(checkpointer=saver)
