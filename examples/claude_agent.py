"""A Claude agent that is killed in the middle of a booking, and goes on in another process.

python examples/claude_agent.py                    run it twice: the first run kills itself
python examples/claude_agent.py sqlite:///trip.db  in your file, or any other store

The agent is the real one, which the SDK brings along. Its own files are in a folder that is new in
each run: what the second run knows comes from the store. Only the model is a fake, an HTTP server
in this process, so that no network is needed.
"""

import asyncio
import json
import os
import signal
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import claude_agent_sdk as sdk

import limpet
from limpet.compat.claude import LimpetClaudeStore

BOOK = "mcp__trip__book"


class FakeModel(BaseHTTPRequestHandler):
    """The API of Claude: calls the tool if it is asked to book, else answers with a text."""

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        said = json.dumps([each for each in request["messages"] if each["role"] == "user"][-1])
        block: dict[str, Any] = {"type": "text", "text": ""}
        if "Book" in said and "tool_result" not in said:
            id = f"call_{len(request['messages'])}"
            block = {"type": "tool_use", "id": id, "name": BOOK, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": '{"what": "the night train"}'}
        elif "tool_result" in said:
            delta = {"type": "text_delta", "text": "It is booked. Have a good trip!"}
        else:
            way = "a flight" if "faster" in said else "the night train"
            delta = {"type": "text_delta", "text": f"I would take {way}."}
        stop = {"stop_reason": "end_turn" if block["type"] == "text" else "tool_use"}
        message = {"id": "msg", "type": "message", "role": "assistant", "content": []}
        usage = {"usage": {"input_tokens": 1, "output_tokens": 1}}
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.event("message_start", message={**message, **usage, "model": request["model"]})
        self.event("content_block_start", index=0, content_block=block)
        self.event("content_block_delta", index=0, delta=delta)
        self.event("content_block_stop", index=0)
        self.event("message_delta", delta=stop, **usage)
        self.event("message_stop")

    def event(self, type: str, **fields: Any) -> None:
        data = json.dumps({"type": type, **fields})
        self.wfile.write(f"event: {type}\ndata: {data}\n\n".encode())

    def log_message(self, *_: object) -> None: ...


def fake_model(folder: str) -> dict[str, str]:
    """Start the model; return the environment of an agent that uses it and writes to a folder."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), FakeModel)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return {
        "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{server.server_port}",
        "ANTHROPIC_API_KEY": "fake",
        "CLAUDE_CONFIG_DIR": folder,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }


async def saved(sessions: LimpetClaudeStore) -> list[Any]:
    """Return the messages of the conversation that was changed last."""
    found = await sdk.list_sessions_from_store(sessions)
    id = found[0].session_id if found else ""
    return [*await sdk.get_session_messages_from_store(sessions, id)]


async def talk(options: sdk.ClaudeAgentOptions, *questions: str) -> None:
    async with sdk.ClaudeSDKClient(options) as client:
        for question in questions:
            print(f"  user: {question}", flush=True)
            await client.query(question)
            async for message in client.receive_response():
                for part in message.content if isinstance(message, sdk.AssistantMessage) else []:
                    said = part.text if isinstance(part, sdk.TextBlock) else "(calls the tool)"
                    print(f"  claude: {said}", flush=True)


async def run(sessions: LimpetClaudeStore, options: sdk.ClaudeAgentOptions) -> None:
    found = await sdk.list_sessions_from_store(sessions)
    if len(found) > 1:
        print("Everything is done. Delete the store to begin again.")
        return

    @sdk.tool("book", "Books a ticket.", {"what": str})
    async def book(given: dict[str, Any]) -> dict[str, Any]:
        if not found:
            while len(await saved(sessions)) < 4:  # the SDK saves in the background
                await asyncio.sleep(0.05)
            print("Killed while it books. Run it again!", flush=True)
            os.killpg(0, signal.SIGKILL)
        return {"content": [{"type": "text", "text": f"booked {given['what']}"}]}

    options.mcp_servers = {"trip": sdk.create_sdk_mcp_server("trip", tools=[book])}
    if not found:
        os.setpgrp()  # so that the agent, which is a process of its own, is killed too
        print("A new conversation")
        await talk(options, "How do I get to Lisbon?", "Book it, please.")

    print(f"Found a conversation: {found[0].summary}")
    for each in await saved(sessions):
        print(f"  saved: {each.type} {json.dumps(each.message['content'])[:60]}")
    options.resume = found[0].session_id
    await talk(options, "There was a power cut. Book it again, please.")

    print("A fork of it, after the first answer")
    at = (await saved(sessions))[1].uuid
    fork = await sdk.fork_session_via_store(sessions, options.resume, up_to_message_id=at)
    options.resume = fork.session_id
    await talk(options, "Is there something faster?")
    for info in await sdk.list_sessions_from_store(sessions):
        print(f"Saved: {info.summary}")


def main(url: str) -> None:
    with limpet.open(url) as store, tempfile.TemporaryDirectory() as folder:
        sessions = LimpetClaudeStore(store)
        options = sdk.ClaudeAgentOptions(
            session_store=sessions,
            session_store_flush="eager",  # what is said is saved at once, not once a turn
            env=fake_model(folder),
            model="fake",
            tools=[],
            allowed_tools=[BOOK],
            setting_sources=[],
            stderr=lambda line: None,
        )
        asyncio.run(run(sessions, options))


if __name__ == "__main__":
    main(*sys.argv[1:] or ["sqlite:///claude_agent.db"])
