"""LangGraph's own savers, filled by graphs that were left in every state that a graph can be in."""

import operator
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import psycopg
import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command
from psycopg import sql
from typing_extensions import TypedDict

from limpet import Store
from limpet.compat.langgraph import import_postgres, import_sqlite
from limpet.compat.wire import Transfer
from tests.compat.langgraph.graphs import State, approving, nested
from tests.servers.postgres import Schemas, with_option


class Origin(NamedTuple):
    """A saver of LangGraph's, and how its threads come into a store."""

    saver: Any
    import_into: Callable[..., Transfer]


@contextmanager
def sqlite_origin(path: Path, **options: Any) -> Iterator[Origin]:
    with closing(sqlite3.connect(path, check_same_thread=False)) as conn:

        def import_into(store: Any, **more: Any) -> Transfer:
            return import_sqlite(store, path, **more)

        yield Origin(SqliteSaver(conn, **options), import_into)


@contextmanager
def postgres_origin(schemas: Schemas) -> Iterator[Origin]:
    name = schemas.name("langgraph")
    url = with_option(schemas.server_url, "options", f"-csearch_path%3D{name}")
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name)))

    def import_into(store: Any, **more: Any) -> Transfer:
        return import_postgres(store, url, **more)

    with PostgresSaver.from_conn_string(url) as saver:
        saver.setup()
        yield Origin(saver, import_into)


def make_origin(kind: str, request: pytest.FixtureRequest, folder: Path) -> Any:
    if kind == "postgres":
        return postgres_origin(request.getfixturevalue("schemas"))
    return sqlite_origin(folder / "langgraph.db")


# Graphs


def fail(state: State) -> Any:
    raise ValueError("the tool is broken")


def failing(saver: Any) -> Any:
    """One node that ends well beside one that does not."""
    graph = StateGraph(State)
    graph.add_node("well", lambda state: {"notes": ["well"]})
    graph.add_node("fail", fail)
    graph.add_edge(START, "well")
    graph.add_edge(START, "fail")
    return graph.compile(checkpointer=saver)


def extend(state: list[Any], writes: Any) -> list[Any]:
    return [*state, *(each for write in writes for each in write)]


class DeltaState(TypedDict):
    log: Annotated[list[Any], DeltaChannel(extend, snapshot_frequency=5)]
    count: Annotated[int, operator.add]


def with_deltas(saver: Any) -> Any:
    graph = StateGraph(DeltaState)
    graph.add_node("node", lambda state: {"log": [AIMessage(f"{state['count']}")], "count": 1})
    graph.add_edge(START, "node")
    return graph.compile(checkpointer=saver)


def on(thread_id: str) -> Any:
    return {"configurable": {"thread_id": thread_id, "tenant": "acme"}, "metadata": {"n": 1}}


def hello() -> Any:
    return {"messages": [HumanMessage("hi", id="h1")], "notes": []}


def fill(saver: Any) -> None:
    """Leave graphs in every state: asking, resumed, taken back, failed, with deltas."""
    approving(saver).invoke(hello(), on("alice/asks"))
    graph = approving(saver)
    graph.invoke(hello(), on("alice/done"))
    graph.invoke(Command(resume="yes"), on("alice/done"))
    past = next(s for s in graph.get_state_history(on("alice/done")) if s.next == ("ask",))
    graph.invoke(Command(resume="no"), past.config)
    update = {"messages": [RemoveMessage(id="h1"), HumanMessage("new", id="h2")]}
    graph.update_state(past.config, update, as_node="ask")
    nested(saver).invoke(hello(), on("bob/nested"))
    with pytest.raises(ValueError, match="broken"):
        failing(saver).invoke(hello(), on("bob/failed"))
    for turn in range(6):
        with_deltas(saver).invoke({"log": [("in", turn)], "count": 0}, on("bob/deltas"))


# What savers must agree on


def told(found: Any) -> Any:
    """Return all that a saver says of a checkpoint."""
    return (
        found.config["configurable"],
        found.checkpoint,
        dict(found.metadata),
        found.parent_config and found.parent_config["configurable"],
        [(*each,) for each in found.pending_writes or ()],
    )


def everything(saver: Any, thread_id: str) -> list[Any]:
    """Return all that a saver says of a thread: what it lists, and what it has by id."""
    listed = list(saver.list({"configurable": {"thread_id": thread_id}}))
    namespaces = sorted({each.config["configurable"]["checkpoint_ns"] for each in listed})
    places = [{"thread_id": thread_id, "checkpoint_ns": each} for each in namespaces]
    there: list[Any] = [saver.list({"configurable": each}) for each in places]
    latest = [saver.get_tuple({"configurable": each}) for each in places]
    by_id = [saver.get_tuple(each.config) for each in listed]
    return [[told(each) for each in group] for group in (listed, *there, latest, by_id)]


def threads_of(store: Store) -> list[str]:
    return list(store.sessions())
