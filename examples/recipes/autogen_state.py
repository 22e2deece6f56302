"""AutoGen: the state of an agent is saved after each message, and a killed turn goes on.

python autogen_state.py --crash      # is killed after the tool, before the answer
python autogen_state.py              # answers, without calling the tool again
"""

import asyncio
import sys
from signal import SIGKILL, raise_signal

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import ToolCallExecutionEvent
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, ModelFamily, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient  # a fake model

import limpet


def weather() -> str:
    print("looking at the sky")
    return "sunny"


def guide(*answers):
    names = ("vision", "json_output", "structured_output")
    can = {**dict.fromkeys(names, False), "function_calling": True, "family": ModelFamily.UNKNOWN}
    model = ReplayChatCompletionClient([*answers], model_info=can)
    return AssistantAgent("guide", model, tools=[weather], max_tool_iterations=9)


async def run(chat, agent, task=None):
    """Go on with the messages that the agent has, or with a task."""
    async for message in agent.run_stream(task=task):
        await chat.save(dict(await agent.save_state()))  # a team: only when it has stopped
        if "--crash" in sys.argv and isinstance(message, ToolCallExecutionEvent):
            raise_signal(SIGKILL)
    return message.messages[-1].content


async def main():
    used, name = RequestUsage(prompt_tokens=0, completion_tokens=0), "weather"
    look = [FunctionCall(id="1", name=name, arguments="{}")]
    call = CreateResult(content=look, usage=used, finish_reason="function_calls", cached=False)
    async with limpet.open_async() as store:  # $LIMPET_URL, or else limpet.db in this folder
        chat = store.scope("weather")
        if (last := await chat.load()) is None:
            print(await run(chat, guide(call, "A hat."), "What to wear?"))
        else:
            agent = guide("A hat.")
            await agent.load_state(last.state)
            print(await run(chat, agent))


asyncio.run(main())
