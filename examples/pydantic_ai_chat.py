"""A Pydantic AI agent that is killed in the middle of a turn, and goes on where it was.

python examples/pydantic_ai_chat.py                    trip.db in this folder
python examples/pydantic_ai_chat.py sqlite:///my.db    your file, or any other store

Run it twice. The first run plans a trip, asks before it books, and is killed while it books. The
second run finds the question, gets the answer again, and books; then it goes back to an earlier
point and continues there in a fork. The model is a fake: no network is needed.
"""

import asyncio
import os
import signal
import sys
from typing import Any

from pydantic_ai import Agent, Conversation, DeferredToolRequests
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

import limpet
from limpet.compat.pydantic_ai import LimpetConversationStore

CHAT, FORK = "way-to-lisbon", "way-by-train"
DEADLY: set[str] = set()  # the bookings that kill this process


def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """A fake model: proposes a way to travel, books it if asked to, and reports."""
    last = messages[-1].parts[-1]
    if isinstance(last, ToolReturnPart):
        return ModelResponse(parts=[TextPart(f"Done: {last.content}.")])
    assert isinstance(last, UserPromptPart)
    if "book" in str(last.content):
        way = "train" if "train" in str(last.content) else "flight"
        return ModelResponse(parts=[ToolCallPart("book", {"way": way}, tool_call_id=f"book-{way}")])
    return ModelResponse(parts=[TextPart("There is a flight on Monday, and a train on Tuesday.")])


agent = Agent(FunctionModel(model), output_type=[str, DeferredToolRequests])


@agent.tool_plain(requires_approval=True)
def book(way: str) -> str:
    """Book the trip."""
    if way in DEADLY:
        print("  booking ... and the process is killed", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return f"{way} booked"


def words(chat: Conversation) -> str:
    return f"{len(chat.messages)} messages, {chat.usage.requests} requests to the model"


async def turn(conversations: LimpetConversationStore, chat: Conversation, prompt: str) -> Any:
    """Run a turn and save it: its messages, its usage, and what it waits for."""
    print(f"  user: {prompt}", flush=True)
    result = await agent.run(prompt, conversation=chat)
    await conversations.save(result, scope="alice")
    return result


async def approve(conversations: LimpetConversationStore, chat: Conversation) -> Any:
    """Answer what the conversation waits for, and save the rest of the turn."""
    waiting = chat.deferred_tool_requests
    assert waiting is not None
    print(f"  waits for an answer: may I {waiting.approvals[0].tool_name}? yes", flush=True)
    result = await agent.run(
        conversation=chat, deferred_tool_results=waiting.build_results(approve_all=True)
    )
    await conversations.save(result)
    print(f"  agent: {result.output}", flush=True)
    return result


async def first_run(conversations: LimpetConversationStore) -> None:
    print("The first run: a new conversation", flush=True)
    result = await turn(conversations, Conversation(conversation_id=CHAT), "How to Lisbon?")
    print(f"  agent: {result.output}", flush=True)
    await turn(conversations, result.conversation, "Please book the flight.")
    DEADLY.add("flight")
    chat = await conversations.load(CHAT)
    assert chat is not None
    await approve(conversations, chat)


async def second_run(conversations: LimpetConversationStore, chat: Conversation) -> None:
    print(f"The next run: found {words(chat)}", flush=True)
    result = await approve(conversations, chat)
    print(f"  saved: {words(result.conversation)}", flush=True)

    print("A fork of the first two messages", flush=True)
    fork = await conversations.fork(CHAT, at=2, new_conversation_id=FORK)
    result = await turn(conversations, fork, "Please book the train.")
    await approve(conversations, result.conversation)
    for record in await conversations.list_conversations(scope="alice"):
        history = await conversations.read_history(record.head_id)
        print(f"  {record.conversation_id}: {len(history)} messages", flush=True)


async def main(url: str) -> None:
    async with limpet.open_async(url) as store:
        conversations = LimpetConversationStore(store)
        chat = await conversations.load(CHAT)
        if chat is None:
            await first_run(conversations)
        elif chat.deferred_tool_requests is not None:
            await second_run(conversations, chat)
        else:
            print(f"Everything is booked: {words(chat)}. Try: limpet show {CHAT} --url {url}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:] or ["sqlite:///trip.db"]))
