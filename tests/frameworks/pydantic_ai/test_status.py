"""The status of a conversation, and its usage, from what Pydantic AI itself writes."""

from typing import Any

from pydantic_ai import Agent, Conversation, DeferredToolRequests, DeferredToolResults
from pydantic_ai.models.test import TestModel

import limpet
from limpet.compat.pydantic_ai import LimpetConversationStore
from tests.frameworks.kit import standing


async def test_status_and_usage(memory: limpet.Store) -> None:
    conversations = LimpetConversationStore(memory)
    agent: Any = Agent(TestModel(), output_type=[str, DeferredToolRequests])

    @agent.tool_plain(requires_approval=True)
    def delete(name: str) -> str:
        return name

    asked = await agent.run("Clean", conversation=Conversation(conversation_id="c"))
    await conversations.save(asked)
    status, needs_attention, tokens = standing(memory)
    assert (status, needs_attention) == ("waiting", True)
    assert tokens == asked.usage.total_tokens > 0

    answers = DeferredToolResults(
        approvals={each.tool_call_id: True for each in asked.output.approvals}
    )
    chat = await conversations.load("c")
    done = await agent.run(conversation=chat, deferred_tool_results=answers)
    await conversations.save(done)
    status, needs_attention, tokens = standing(memory)
    assert (status, needs_attention) == ("completed", False)
    assert tokens == done.usage.total_tokens  # of the whole conversation
