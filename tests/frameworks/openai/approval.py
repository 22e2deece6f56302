"""An agent that may delete files if a person approves, and processes that ask, approve and die.

`python -m tests.frameworks.openai.approval ask|approve|die URL LOG`
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agents import Agent, Runner, function_tool, set_tracing_disabled

import limpet
from limpet.compat.openai import LimpetSession
from tests.frameworks.openai.models import FakeModel, call, said

set_tracing_disabled(True)


def janitor(do: Callable[[str], object], files: Sequence[str] = ("old.txt",)) -> Agent[Any]:
    """Return an agent that asks before it deletes each file; `do` is called for each deletion."""

    @function_tool(needs_approval=True)
    def delete(name: str) -> str:
        """Delete a file."""
        do(name)
        return name

    def answer(items: list[Any]) -> Any:
        deleted = [each["output"] for each in items if each.get("type") == "function_call_output"]
        if len(deleted) == len(files):
            return said(f"deleted: {', '.join(deleted)}")
        name = files[len(deleted)]
        return call("delete", json.dumps({"name": name}), id=f"call-{name}")

    return Agent(name="janitor", model=FakeModel(answer), tools=[delete])


async def main(what: str, url: str, log: Path) -> str:
    def do(name: str) -> None:
        with log.open("a", encoding="utf-8") as file:
            file.write(f"{name}\n")

    agent = janitor(do)
    async with limpet.open_async(url) as store:
        session = LimpetSession("chat", store)
        if what == "ask":
            result = await Runner.run(agent, "Clean up", session=session)
            await session.save_run(result.to_state())
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            async with session.resume_run(agent) as state:
                if what == "die":
                    os.kill(os.getpid(), signal.SIGKILL)
                for question in state.get_interruptions():
                    state.approve(question)
                result = await Runner.run(agent, state, session=session)
        except limpet.NotFound as error:
            return str(error).partition(".")[0]
        return str(result.final_output)


if __name__ == "__main__":
    _, what, url, log = sys.argv
    sys.stdout.write(json.dumps(asyncio.run(main(what, url, Path(log)))))
