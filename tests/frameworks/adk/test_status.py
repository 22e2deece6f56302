"""The status of a session, and its usage, from what ADK itself writes."""

from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import Runner
from google.adk.tools import FunctionTool, LongRunningFunctionTool
from google.genai import types

import limpet
from limpet.compat.adk import LimpetSessionService
from tests.frameworks.kit import standing

USED = types.GenerateContentResponseUsageMetadata(
    prompt_token_count=10, candidates_token_count=4, thoughts_token_count=3, total_token_count=17
)


class Fake(BaseLlm):
    """Calls the tool that it is told to call, and then answers."""

    async def generate_content_async(
        self, llm_request: Any, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        said = llm_request.contents[-1].parts[-1].text
        part = types.Part(text="done")
        if said in ("approve", "danger"):
            part = types.Part(function_call=types.FunctionCall(name=said, args={}))
        yield LlmResponse(content=types.Content(role="model", parts=[part]), usage_metadata=USED)


def approve() -> dict[str, str]:
    """Ask a person, who answers later."""
    return {"status": "pending"}


def danger() -> dict[str, bool]:
    """Do what must be confirmed."""
    return {"ok": True}


async def test_status_and_usage(memory: limpet.Store) -> None:
    tools: list[Any] = [
        LongRunningFunctionTool(approve),
        FunctionTool(danger, require_confirmation=True),
    ]
    agent = LlmAgent(name="a", model=Fake(model="fake"), tools=tools)
    service = LimpetSessionService(memory)
    runner = Runner(app_name="app", agent=agent, session_service=service, auto_create_session=True)

    async def said(session_id: str, part: types.Part) -> str | None:
        """Return the id of the call that only a person answers."""
        message = types.Content(role="user", parts=[part])
        asked = None
        async for event in runner.run_async(
            user_id="u", session_id=session_id, new_message=message
        ):
            asked = next(iter(event.long_running_tool_ids or ()), asked)
        return asked

    await said("plain", types.Part(text="hello"))
    assert standing(memory, "app/u/plain") == ("completed", False, 17)
    for tool, answered in (("approve", "approve"), ("danger", "adk_request_confirmation")):
        asked = await said(tool, types.Part(text=tool))
        assert asked is not None
        assert standing(memory, f"app/u/{tool}")[:2] == ("waiting", True)
        answer = types.FunctionResponse(id=asked, name=answered, response={"confirmed": True})
        await said(tool, types.Part(function_response=answer))
        assert standing(memory, f"app/u/{tool}")[:2] == ("completed", False)
    await said("left", types.Part(text="approve"))
    await said("left", types.Part(text="never mind"))
    assert standing(memory, "app/u/left")[:2] == ("completed", False)
