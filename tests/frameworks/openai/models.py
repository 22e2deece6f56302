"""A model that answers from a script or a function, and an agent with tools that uses it."""

import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from agents import Agent, Model, ModelResponse, Usage, function_tool
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

Answer = Callable[[list[Any]], Any]


def said(text: str) -> ResponseOutputMessage:
    part = ResponseOutputText(text=text, type="output_text", annotations=[])
    return ResponseOutputMessage(
        id=f"msg-{text}", content=[part], role="assistant", status="completed", type="message"
    )


def call(name: str, arguments: str = "{}", id: str = "call-1") -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(
        id=f"fc-{id}", call_id=id, name=name, arguments=arguments, type="function_call"
    )


class FakeModel(Model):
    """Answers with what a function returns for the input: one item."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.inputs: list[list[Any]] = []

    def _answered(self, input: Any) -> Any:
        items = [{"role": "user", "content": input}] if isinstance(input, str) else list(input)
        self.inputs.append(items)
        return self.answer(items)

    async def get_response(  # type: ignore[override,unused-ignore]
        self, system_instructions: Any, input: Any, *rest: Any, **options: Any
    ) -> ModelResponse:
        return ModelResponse(output=[self._answered(input)], usage=Usage(), response_id=None)

    async def stream_response(  # type: ignore[override,unused-ignore]
        self, system_instructions: Any, input: Any, *rest: Any, **options: Any
    ) -> AsyncIterator[Any]:
        response = Response(
            id="resp",
            created_at=time.time(),
            model="fake",
            object="response",
            output=[self._answered(input)],
            tool_choice="none",
            tools=[],
            parallel_tool_calls=False,
        )
        yield ResponseCompletedEvent(
            type="response.completed", response=response, sequence_number=0
        )


def questions(items: list[Any]) -> list[str]:
    return [each["content"] for each in items if each.get("role") == "user"]


def echo(items: list[Any]) -> Any:
    """Answer with how many questions there were, and the last."""
    asked = questions(items)
    return said(f"{len(asked)}: {asked[-1]}")


def with_tool(items: list[Any]) -> Any:
    """Look something up for each question, and then answer."""
    if items[-1].get("type") == "function_call_output":
        return said(f"found: {items[-1]['output']}")
    asked = questions(items)
    return call("look_up", f'{{"word": "{asked[-1]}"}}', id=f"call-{len(asked)}")


@function_tool
def look_up(word: str) -> str:
    """Look up a word."""
    return word.upper()


def agent(answer: Answer = echo, *tools: Any) -> Agent[Any]:
    return Agent(name="helper", model=FakeModel(answer), tools=list(tools))
