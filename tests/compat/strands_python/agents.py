"""Real agents of the Strands SDK for Python, with a stub for a model."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from strands import Agent, ToolContext, tool
from strands.models import Model
from strands.multiagent import GraphBuilder
from strands.multiagent.graph import Graph
from strands.session import SnapshotSessionManager
from strands.storage import Storage

from limpet import AsyncStore, Store
from limpet.compat.strands.python import ByteStorage

FIXTURES = Path(__file__).parents[2] / "interop" / "fixtures"
PROMPT = "You repeat what you hear."
USE = {"name": "confirm", "toolUseId": "tu-9", "input": {}}

T = TypeVar("T")


def wait(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end."""
    return asyncio.run(work)


class Echo(Model):
    """Says what it hears; on "confirm" it uses a tool, whose result it then says.

    `calls` hears of each call. A model that fails is heard too.
    """

    def __init__(self, name: str = "", calls: list[str] | None = None, fails: bool = False) -> None:
        self._name, self._fails = name, fails
        self._calls = [] if calls is None else calls

    def get_config(self) -> dict[str, Any]:
        return {}

    def update_config(self, **config: Any) -> None:
        pass

    def structured_output(self, *args: Any, **kwargs: Any) -> AsyncGenerator[dict[str, Any], None]:
        raise NotImplementedError

    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncIterable[Any]:
        self._calls.append(self._name)
        if self._fails:
            raise ConnectionError("the model is away")
        last = messages[-1]["content"][0]
        uses = last.get("text") == "confirm"
        yield {"messageStart": {"role": "assistant"}}
        if uses:
            yield {"contentBlockStart": {"start": {"toolUse": {**USE}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps({})}}}}
        else:
            said = last["text"] if "text" in last else last["toolResult"]["content"][0]["text"]
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": f"echo: {said}"}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if uses else "end_turn"}}
        usage = {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}
        yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 1}}}


@tool(context=True)
def confirm(tool_context: ToolContext) -> str:
    """Ask a person."""
    answer: str = tool_context.interrupt("approve", reason={"why": "dangerous"})
    return f"approved: {answer}"


def manager_on(storage: Storage, session_id: str, **options: Any) -> SnapshotSessionManager:
    return SnapshotSessionManager(session_id, storage=storage, **options)


def agent_on(
    storage: Storage, session_id: str = "chat-42", agent_id: str = "planner", **options: Any
) -> Agent:
    """Return a new agent, which knows what its session knows."""
    return Agent(
        agent_id=agent_id,
        model=Echo(),
        tools=[confirm],
        system_prompt=PROMPT,
        callback_handler=None,
        session_manager=manager_on(storage, session_id, **options),
    )


def graph_on(storage: Storage, calls: list[str], fails: bool = False) -> Graph:
    """Return a graph of two agents, one after the other; the second may fail."""
    builder = GraphBuilder()
    for name, is_failing in (("first", False), ("second", fails)):
        model = Echo(name, calls, is_failing)
        builder.add_node(Agent(agent_id=name, model=model, callback_handler=None), name)
    builder.add_edge("first", "second")
    builder.set_graph_id("team")
    builder.set_max_node_executions(10)
    builder.set_session_manager(manager_on(storage, "chat-42"))
    return builder.build()


def answer_to(asked: Any, response: str) -> Any:
    """Return what an agent is told that waits for an answer; `asked` are its interrupts."""
    [interrupt] = asked
    return [{"interruptResponse": {"interruptId": interrupt.id, "response": response}}]


def storage_on(store: Store | AsyncStore) -> ByteStorage:
    return ByteStorage(store)


def said(messages: Any) -> list[str]:
    """Return the texts of a conversation, in order."""
    return [
        block["text"] for message in messages for block in message["content"] if "text" in block
    ]
