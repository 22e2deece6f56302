"""Graphs with values of every kind: they end as with the saver of LangGraph."""

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, NamedTuple

import pytest
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import create_react_agent
from pydantic import BaseModel

from limpet.compat.langgraph import LimpetSaver
from tests.cases import for_each
from tests.compat.langgraph.kit import Places

pytestmark = pytest.mark.filterwarnings("ignore:create_react_agent has been moved")

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


class PydanticState(BaseModel):
    log: Log = []
    order: Order | None = None


@dataclass
class DataclassState:
    log: Log = field(default_factory=list)
    line: Line | None = None


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


LINE = Line("tea", 250, Place("shop", (1.0, 2.0)))
ORDER = Order(number=1, to=Address(street="Elm", colour=Colour.BLUE), before=[Order(number=0)])
STATES: dict[str, tuple[Any, Callable[[], dict[str, Any]]]] = {
    "pydantic state": (PydanticState, lambda: {"order": ORDER}),
    "dataclass state": (DataclassState, lambda: {"line": LINE}),
}
KINDS = [*STATES, "agent", "task"]
ALLOW = [*(schema for schema, _ in STATES.values()), Report, Receipt]


class Model(FakeMessagesListChatModel):
    def with_structured_output(self, schema: Any, **kwargs: Any) -> Any:
        return RunnableLambda(lambda _: schema(verdict="fine", colour=Colour.RED))

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


def agent() -> Any:
    model = Model(responses=[AIMessage("I think so", id="a")])
    return create_react_agent(model, [], response_format=Report)


def graph_of(kind: str, saver: Any) -> Any:
    if kind == "task":
        return tasks(saver)
    schema, update = STATES.get(kind, (AgentState, None))
    graph = StateGraph(schema)
    graph.add_node("make", agent() if update is None else lambda state: update())
    graph.add_node("other", lambda state: {"log": ["other"]})
    graph.add_edge(START, "make")
    graph.add_edge("make", "other")
    return graph.compile(checkpointer=saver)


def tasks(saver: Any) -> Any:
    @task
    def pay(cents: int) -> Receipt:
        return Receipt(LINE, cents == LINE.cents)

    @task
    def other(receipt: Receipt) -> list[Receipt]:
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
        return graph_of(kind, saver).invoke(begin(kind), config(kind))


@for_each("kind", KINDS)
def test_a_graph_ends_as_with_the_saver_of_langgraph(places: Places, kind: str) -> None:
    wanted = expected(kind)
    with places.open("memory") as store:
        graph = graph_of(kind, LimpetSaver(store, allow=ALLOW))
        assert graph.invoke(begin(kind), config(kind)) == wanted
        other = graph_of(kind, LimpetSaver(store, allow=ALLOW))
        state = other.get_state(config(kind)).values
        assert state == (wanted if kind == "task" else {**state, **wanted})
