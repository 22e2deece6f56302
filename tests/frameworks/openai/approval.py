"""An agent that may delete files if a person approves."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from agents import Agent, function_tool, set_tracing_disabled

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
