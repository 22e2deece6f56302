"""FastAPI: chats in one store, for any number of processes. Of two requests at once to one chat
one is answered; the other gets 409, reads what is new, and asks again.

    uvicorn fastapi_chat:app --workers 4
    curl -X POST 'localhost:8000/chats/42?text=hello'; curl localhost:8000/chats/42
"""

import asyncio
from contextlib import asynccontextmanager
from uuid import uuid4

from fastapi import FastAPI, HTTPException

import limpet


@asynccontextmanager
async def lifespan(app):
    async with limpet.open_async() as store:  # $LIMPET_URL, or else limpet.db in this folder
        app.state.store = store
        yield


app = FastAPI(lifespan=lifespan)


async def ask_model(messages):
    await asyncio.sleep(0.2)  # your model
    return {"role": "assistant", "content": f"You said: {messages[-1]['content']}"}


@app.get("/chats/{chat_id}")
async def read(chat_id: str):
    last = await app.state.store.scope(chat_id).load()
    return last.state["messages"] if last else []


@app.post("/chats/{chat_id}")
async def ask(chat_id: str, text: str):
    chat = app.state.store.scope(chat_id)
    last = await chat.load()
    question = {"role": "user", "content": text}
    answer = await ask_model([*(last.state["messages"] if last else []), question])
    try:  # both messages or none, and only if nobody else was faster
        await chat.append("messages", [question, answer], expect=last.revision if last else None)
    except limpet.Conflict:
        raise HTTPException(409, "this chat has new messages: read them, and ask again") from None
    return answer


@app.post("/chats/{chat_id}/fork")
async def fork(chat_id: str, turns: int):
    """Begin a new chat with the first turns of this one."""
    chat, copy = app.state.store.scope(chat_id), uuid4().hex
    history = [info async for info in chat.history()]
    if not 0 < turns <= len(history):
        raise HTTPException(404, "there is no such turn")
    await chat.fork(history[-turns], to=copy)
    return {"chat_id": copy}
