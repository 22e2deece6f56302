"""A LlamaIndex memory whose process is killed in the middle of a turn, and that branches.

python examples/llama_index_chat.py                      a SQLite file in this folder
python examples/llama_index_chat.py sqlite:///trip.db    your file, or any other store

Run it twice. The first run is killed while the model answers the second question. The second run
finds the question, answers it, and goes back to ask another one. The model is a fake: no network is
needed.
"""

import asyncio
import os
import signal
import sys

from llama_index.core.llms import ChatMessage
from llama_index.core.memory import Memory

import limpet
from limpet.compat.llama_index import LimpetAsyncChatStore

TRIP, FORK = "chat-about-lisbon", "chat-without-a-plane"
KILLED_AT: set[str] = set()  # the questions that this process does not survive
ANSWERS = {
    "Two days in Lisbon?": "Stay in Alfama, and take tram 28.",
    "How do I get there?": "Fly to Lisbon, then take the metro.",
    "And without a plane?": "Take the night train from Madrid.",
}


def model(messages: list[ChatMessage]) -> ChatMessage:
    question = messages[-1].content or ""
    if question in KILLED_AT:
        print("  the process is killed before it has the answer", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return ChatMessage(role="assistant", content=ANSWERS[question])


async def answer(memory: Memory) -> None:
    said = model(await memory.aget())
    await memory.aput(said)
    print(f"  assistant: {said.content}", flush=True)


async def ask(memory: Memory, question: str) -> None:
    print(f"  user: {question}", flush=True)
    await memory.aput(ChatMessage(role="user", content=question))
    await answer(memory)


async def main(url: str) -> None:
    async with limpet.open_async(url) as store:
        chats = LimpetAsyncChatStore(store)

        def memory_of(session_id: str) -> Memory:
            return Memory.from_defaults(session_id=session_id, chat_store=chats)

        memory = memory_of(TRIP)
        found = await memory.aget()
        if not found:
            print("A new trip", flush=True)
            await ask(memory, "Two days in Lisbon?")
            KILLED_AT.add("How do I get there?")
            await ask(memory, "How do I get there?")
        elif found[-1].role == "user":
            print(f"Found {len(found)} messages; the last question has no answer yet")
            await answer(memory)

            print("Back to the first answer, and on from there in another conversation")
            trip = store.scope(TRIP, kind="conversation")
            _question, first_turn, *_ = [info async for info in trip.history()][::-1]
            await trip.fork(first_turn, to=FORK)
            await ask(memory_of(FORK), "And without a plane?")
        else:
            print(f"The trip is planned. To see it: limpet show {TRIP} --url {url}")
            print(f"Delete it to begin again: limpet rm {TRIP} {FORK} --url {url}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:] or ["sqlite:///llama_index_chat.db"]))
