"""Graphs whose state has values of each kind, all in the middle of a run when the process dies.

Each graph has two nodes next to each other: what `costly` wrote is stored when the other one waits
for the rest of the graphs. Then the process kills itself, or goes on.
"""

import json
import operator
import os
import signal
import sys
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import InitVar, dataclass, field
from enum import Enum
from threading import Barrier
from typing import Annotated, Any, NamedTuple, NotRequired, TypedDict

import numpy as np
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import create_react_agent
from pydantic import BaseModel

import limpet
from limpet.compat.langgraph import LimpetSaver

Log = Annotated[list[str], operator.add]


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Place(NamedTuple):
    name: str
    at: tuple[float, float]


class Address(BaseModel):
    street: str
    colour: Colour = Colour.RED


class Order(BaseModel):
    number: int
    to: Address | None = None
    before: "list[Order]" = []


@dataclass
class Line:
    title: str
    cents: int
    where: Place | None = None


@dataclass
class Bill:
    """Computes on the way in: made again from its fields it would be another one."""

    cents: int
    tax: InitVar[int] = 19
    total: int = field(init=False)

    def __post_init__(self, tax: int) -> None:
        self.cents += 1
        self.total = self.cents * (100 + tax)
        self.seen = [self.cents]


class PydanticState(BaseModel):
    log: Log = []
    order: Order | None = None


@dataclass
class DataclassState:
    log: Log = field(default_factory=list)
    line: Line | None = None


class EnumState(TypedDict):
    log: Log
    colour: Colour


class Inner(TypedDict, total=False):
    lines: "dict[str, Line]"


class NestedState(TypedDict):
    log: Log
    inner: NotRequired[Inner]
    lines: Annotated[list[Line], operator.add]


class BillState(TypedDict):
    log: Log
    bill: Bill


class DequeState(TypedDict):
    log: Log
    last: deque[int]


class ArtifactState(TypedDict):
    log: Log
    messages: Annotated[list[AnyMessage], add_messages]


class PromptState(TypedDict):
    log: Log
    prompt: ChatPromptTemplate


class Report(BaseModel):
    """What an agent answers with."""

    verdict: str
    colour: Colour


class AgentState(MessagesState):
    log: Log
    structured_response: Any


@dataclass
class Receipt:
    line: Line
    paid: bool


def prompt() -> ChatPromptTemplate:
    return ChatPromptTemplate.from_messages(
        [("system", "speak {tongue}"), MessagesPlaceholder("history"), HumanMessage("now", id="h")]
    )


def artifact() -> ToolMessage:
    table = np.array([[1.5, np.nan], [0.0, -1.0]], order="F")
    return ToolMessage("done", tool_call_id="c", id="t", artifact=table)


LINE = Line("tea", 250, Place("shop", (1.0, 2.0)))
ORDER = Order(number=1, to=Address(street="Elm", colour=Colour.BLUE), before=[Order(number=0)])
STATES: dict[str, tuple[Any, Callable[[], dict[str, Any]]]] = {
    "pydantic state": (PydanticState, lambda: {"order": ORDER}),
    "dataclass state": (DataclassState, lambda: {"line": LINE}),
    "enum": (EnumState, lambda: {"colour": Colour.BLUE}),
    "nested": (NestedState, lambda: {"inner": {"lines": {"a": LINE}}, "lines": [LINE]}),
    "post init": (BillState, lambda: {"bill": Bill(100)}),
    "deque": (DequeState, lambda: {"last": deque([1, 2, 3], maxlen=3)}),
    "artifact": (ArtifactState, lambda: {"messages": [artifact()]}),
    "prompt": (PromptState, lambda: {"prompt": prompt()}),
}
COLLECTED = ("pydantic state", "dataclass state", "enum", "nested", "post init")
"""The kinds whose classes LangGraph collects by itself, in its strict mode."""
KINDS = [*STATES, "agent", "task"]
ALLOW = [*(schema for schema, _ in STATES.values()), Report, Receipt]

WAIT_S_MAX = 30

Pause = Callable[[str], None]


class Model(FakeMessagesListChatModel):
    def with_structured_output(self, schema: Any, **kwargs: Any) -> Any:
        return RunnableLambda(lambda _: schema(verdict="fine", colour=Colour.RED))

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


def agent() -> Any:
    model = Model(responses=[AIMessage("I think so", id="a")])
    return create_react_agent(model, [], response_format=Report)


def graph_of(kind: str, saver: Any, pause: Pause) -> Any:
    if kind == "task":
        return tasks(saver, pause)
    schema, update = STATES.get(kind, (AgentState, None))
    graph = StateGraph(schema)
    graph.add_node("make", agent() if update is None else lambda state: update())
    graph.add_node("costly", lambda state: {"log": ["costly"]})

    def other(state: Any) -> Any:
        pause(kind)
        return {"log": ["other"]}

    graph.add_node("other", other)
    graph.add_edge(START, "make")
    graph.add_edge("make", "costly")
    graph.add_edge("make", "other")
    return graph.compile(checkpointer=saver)


def tasks(saver: Any, pause: Pause) -> Any:
    @task
    def pay(cents: int) -> Receipt:
        return Receipt(LINE, cents == LINE.cents)

    @task
    def other(receipt: Receipt) -> list[Receipt]:
        pause("task")
        return [receipt]

    @entrypoint(checkpointer=saver)
    def shop(given: dict[str, Any]) -> list[Receipt]:
        return other(pay(LINE.cents).result()).result()

    return shop


def config(kind: str) -> Any:
    return {"configurable": {"thread_id": kind}}


def begin(kind: str) -> dict[str, Any]:
    messages = {"messages": [HumanMessage("well?", id="q")]} if kind == "agent" else {}
    return {"log": ["begin"], **messages}


def expected(kind: str) -> Any:
    """Return the final state of a run that nothing interrupts, with LangGraph's own saver."""
    with SqliteSaver.from_conn_string(":memory:") as saver:
        return graph_of(kind, saver, lambda kind: None).invoke(begin(kind), config(kind))


def same(found: Any, wanted: Any) -> bool:
    """Tell whether two values are the same, as far as their text shows it."""
    return type(found) is type(wanted) and shown(found) == shown(wanted)


def shown(value: Any) -> str:
    if isinstance(value, dict):
        return str({key: shown(each) for key, each in value.items()})
    if isinstance(value, Bill):
        return str(vars(value))
    if isinstance(value, list):
        return str([shown(each) for each in value])
    if isinstance(value, ToolMessage):
        facts = value.artifact.dtype, value.artifact.flags.f_contiguous, value.artifact.tolist()
        return f"{value!r} {facts}"
    return repr(value)


def main(url: str, word: str) -> None:
    strict = word.startswith("strict")
    kinds = [*COLLECTED] if strict else KINDS
    with limpet.open(url) as store:
        saver = LimpetSaver(store) if strict else LimpetSaver(store, allow=ALLOW)
        if word.endswith("go on"):
            found = {each: resumed(each, saver) for each in kinds}
            sys.stdout.write(json.dumps(found))
            return
        barrier = Barrier(len(kinds) + 1)

        def pause(kind: str) -> None:
            knowing = LimpetSaver(store, allow=ALLOW)
            while not ((at := knowing.get_tuple(config(kind))) and at.pending_writes):
                if barrier.broken:
                    return
            barrier.wait(WAIT_S_MAX)
            barrier.wait(WAIT_S_MAX)

        with ThreadPoolExecutor(len(kinds)) as pool:
            for each in kinds:
                pool.submit(graph_of(each, saver, pause).invoke, begin(each), config(each))
            barrier.wait(WAIT_S_MAX)
            os.kill(os.getpid(), signal.SIGKILL)


def resumed(kind: str, saver: LimpetSaver) -> str:
    ran: list[str] = []
    found = graph_of(kind, saver, ran.append).invoke(None, config(kind))
    wanted = expected(kind)
    if ran != [kind]:
        return f"ran {ran}"
    return "" if same(found, wanted) else f"{shown(found)} is not {shown(wanted)}"


if __name__ == "__main__":
    main(*sys.argv[1:])
