"""Claude Agent SDK: `LimpetClaudeStore` against the transcript file that its agent writes."""

import json
import os
from pathlib import Path
from typing import Any
from uuid import UUID

from claude_agent_sdk import SessionKey

from benchmarks.frameworks.side import Side, limpet_in
from limpet.compat.claude import LimpetClaudeStore

PACKAGE = "claude-agent-sdk"
ABOUT = """\
The SDK brings no store for a disk, only one in memory. The nearest thing is the local transcript of
its agent: a file to which each entry is appended as a line of JSON. Both are measured from Python.
A turn reads all entries and appends those of a question and an answer, with the members that the
agent writes; then the file is synced, as Limpet syncs its own. (The agent does not sync: it is
faster by that, and a power cut can take what it wrote last.) A file is on one machine, and has no
summaries, no earlier moments and nothing against two writers. While it is short, a plain file is
faster."""

SESSION = "6f9b1c0e-6d0d-4c5e-9a3e-2f1f5b7c8d90"
KEY: SessionKey = {"project_key": "-home-ada-shop", "session_id": SESSION}


def entries_of(number: int, question: str, answer: str) -> list[Any]:
    """Return what the agent writes in a turn."""
    when = f"2026-11-18T10:{number // 60 % 60:02}:{number % 60:02}.000Z"
    common = {
        "isSidechain": False,
        "userType": "external",
        "entrypoint": "sdk-py",
        "cwd": "/home/ada/shop",
        "sessionId": SESSION,
        "version": "2.1.326",
        "gitBranch": "main",
        "timestamp": when,
    }
    asked, said = (str(UUID(int=(number * 2 + each) * 0x9E3779B97F4A7C15)) for each in (1, 2))
    before = str(UUID(int=number * 2 * 0x9E3779B97F4A7C15)) if number else None
    usage = {
        "input_tokens": 12 + number,
        "cache_creation_input_tokens": 431,
        "cache_read_input_tokens": 900 * number,
        "output_tokens": 250,
        "service_tier": "standard",
        "cache_creation": {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": 431},
    }
    message = {
        "id": f"msg_{said[:8]}",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-5",
        "content": [{"type": "text", "text": answer}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": usage,
    }
    mark = {"timestamp": when, "sessionId": SESSION}
    return [
        {"type": "queue-operation", "operation": "enqueue", **mark, "content": question},
        {"type": "queue-operation", "operation": "dequeue", **mark},
        {
            "parentUuid": before,
            "type": "user",
            "message": {"role": "user", "content": question},
            "uuid": asked,
            "permissionMode": "default",
            **common,
        },
        {
            "parentUuid": asked,
            "type": "assistant",
            "message": message,
            "requestId": f"req_{said[-12:]}",
            "uuid": said,
            **common,
        },
        {"type": "last-prompt", "lastPrompt": question[:200], "leafUuid": said, **mark},
    ]


def said_in(entries: list[Any]) -> int:
    return sum(each["type"] in ("user", "assistant") for each in entries)


class Ours(Side):
    def __init__(self, folder: Path) -> None:
        path, store = limpet_in(folder)
        super().__init__("`LimpetClaudeStore`", path, store.close)
        self._sessions = LimpetClaudeStore(store)
        self._turns = 0

    async def turn(self, question: str, answer: str) -> None:
        await self._sessions.load(KEY)
        await self._sessions.append(KEY, entries_of(self._turns, question, answer))
        self._turns += 1

    async def count(self) -> int:
        return said_in(await self._sessions.load(KEY) or [])


class Theirs(Side):
    def __init__(self, folder: Path) -> None:
        super().__init__("the agent's transcript file", folder / f"{SESSION}.jsonl")
        self.path.touch()
        self._turns = 0

    async def turn(self, question: str, answer: str) -> None:
        self._read()
        new = entries_of(self._turns, question, answer)
        with self.path.open("a", encoding="utf-8") as file:
            file.writelines(
                json.dumps(each, ensure_ascii=False, separators=(",", ":")) + "\n" for each in new
            )
            file.flush()
            os.fsync(file.fileno())
        self._turns += 1

    def _read(self) -> list[Any]:
        with self.path.open(encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    async def count(self) -> int:
        return said_in(self._read())


ours, theirs = Ours, Theirs
