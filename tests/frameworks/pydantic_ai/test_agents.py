"""Real agents over the store: tools, questions that wait for people, new processes, streaming."""

from typing import Any

import pytest
from pydantic_ai import Agent, Conversation, DeferredToolRequests, ModelRetry, ToolDenied
from pydantic_ai.conversation_store import ConversationConflict
from pydantic_ai.exceptions import UsageLimitExceeded
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import UsageLimits

import limpet
from limpet.compat.pydantic_ai import LimpetConversationStore
from tests.frameworks.pydantic_ai.chats import loaded
from tests.present import present

RUN_S_MAX = 300


def paying(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    last = messages[-1].parts[-1]
    if isinstance(last, ToolReturnPart):
        return ModelResponse(parts=[TextPart(f"it says: {last.content}")])
    return ModelResponse(parts=[ToolCallPart("pay", {"sum": 12}, tool_call_id="c1")])


def careful() -> Agent[None, Any]:
    """Return an agent that asks before it pays."""
    agent = Agent(
        FunctionModel(paying), output_type=[str, DeferredToolRequests], instructions="Be careful."
    )

    @agent.tool_plain(requires_approval=True)
    def pay(sum: int) -> str:
        return f"paid {sum}"

    return agent


async def test_turns_with_tools(store: limpet.Store) -> None:
    conversations = LimpetConversationStore(store)
    agent = Agent(TestModel(), system_prompt="You count.")
    calls: list[str] = []

    @agent.tool_plain(retries=2)
    def count(word: str) -> int:
        calls.append(word)
        if len(calls) == 1:
            raise ModelRetry("try again")
        return len(word)

    chat = Conversation(conversation_id="chat")
    for turn in range(3):
        result = await agent.run(f"turn {turn}", conversation=chat)
        await conversations.save(result)
        chat = await loaded(LimpetConversationStore(store), "chat")
        assert chat.messages == result.all_messages()
        assert chat.usage == result.conversation.usage


async def test_a_conversation_stops_at_fifty_requests(memory: limpet.Store) -> None:
    """As the guide says: its usage is stored, and counts against the limit of each run."""
    conversations, agent = LimpetConversationStore(memory), Agent(TestModel())
    chat = Conversation(conversation_id="chat")
    for _ in range(50):
        await conversations.save(await agent.run("more", conversation=chat))
        chat = await loaded(conversations, "chat")
    with pytest.raises(UsageLimitExceeded, match="50"):
        await agent.run("more", conversation=chat)
    for limit in (None, chat.usage.requests + 50):
        limits = UsageLimits(request_limit=limit)
        result = await agent.run("more", conversation=chat, usage_limits=limits)
        assert result.conversation.usage.requests == 51
    assert (await conversations.fork("chat", at=2, new_conversation_id="other")).usage.requests == 0


async def test_a_question_waits_in_the_store(memory: limpet.Store) -> None:
    conversations = LimpetConversationStore(memory)
    result = await careful().run("Pay!", conversation=Conversation(conversation_id="chat"))
    assert isinstance(result.output, DeferredToolRequests)
    await conversations.save(result)
    chat = await loaded(conversations, "chat")
    waiting = present(chat.deferred_tool_requests)
    assert waiting == result.output
    twin = await loaded(conversations, "chat")
    results = waiting.build_results(approvals={"c1": ToolDenied("too much")})
    result = await careful().run(conversation=chat, deferred_tool_results=results)
    await conversations.save(result)
    assert result.output == "it says: too much"
    assert (await loaded(conversations, "chat")).deferred_tool_requests is None
    answers = waiting.build_results(approve_all=True)  # a second person answers, too late
    late = await careful().run(conversation=twin, deferred_tool_results=answers)
    with pytest.raises(ConversationConflict):
        await conversations.save(late)
