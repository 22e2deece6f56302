"""A story, and its messages as each framework writes them."""

import json
from base64 import b64encode
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from limpet.model import JSON

Message: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class User:
    text: str
    image: bytes | None = None


@dataclass(frozen=True)
class Say:
    text: str
    thought: str = ""


@dataclass(frozen=True)
class Tool:
    """A call of a tool with its result."""

    name: str
    arguments: dict[str, JSON]
    result: JSON
    thought: str = ""
    failed: bool = False


Beat: TypeAlias = User | Say | Tool
Shape: TypeAlias = Callable[[Beat, str], list[Message]]
"""Makes the messages of a beat; the text is the id of its tool call."""


def messages_of(story: Iterable[Beat], shape: Shape) -> list[Message]:
    return [each for at, beat in enumerate(story) for each in shape(beat, f"call-{at}")]


def strands(beat: Beat, id: str) -> list[Message]:
    if isinstance(beat, User):
        blocks: list[Message] = [{"text": beat.text}]
        if beat.image is not None:
            source = {"bytes": b64encode(beat.image).decode()}
            blocks.append({"image": {"format": "png", "source": source}})
        return [{"role": "user", "content": blocks}]
    thought = {"reasoningContent": {"reasoningText": {"text": beat.thought}}}
    content: list[Message] = [thought] if beat.thought else []
    if isinstance(beat, Say):
        return [{"role": "assistant", "content": [*content, {"text": beat.text}]}]
    use = {"toolUseId": id, "name": beat.name, "input": beat.arguments}
    kind = "text" if isinstance(beat.result, str) else "json"
    status = "error" if beat.failed else "success"
    result = {"toolUseId": id, "status": status, "content": [{kind: beat.result}]}
    return [
        {"role": "assistant", "content": [*content, {"toolUse": use}]},
        {"role": "user", "content": [{"toolResult": result}]},
    ]


def anthropic(beat: Beat, id: str) -> list[Message]:
    if isinstance(beat, User):
        return [{"role": "user", "content": beat.text}]
    thought = {"type": "thinking", "thinking": beat.thought, "signature": "ZGVtbw=="}
    content: list[Message] = [thought] if beat.thought else []
    if isinstance(beat, Say):
        content.append({"type": "text", "text": beat.text})
        return [{"role": "assistant", "content": content}]
    use = {"type": "tool_use", "id": id, "name": beat.name, "input": beat.arguments}
    result: Message = {"type": "tool_result", "tool_use_id": id, "content": _text(beat.result)}
    result |= {"is_error": True} if beat.failed else {}
    return [
        {"role": "assistant", "content": [*content, use]},
        {"role": "user", "content": [result]},
    ]


def openai(beat: Beat, id: str) -> list[Message]:
    if isinstance(beat, User):
        return [{"role": "user", "content": beat.text}]
    thought = {"reasoning_content": beat.thought} if beat.thought else {}
    if isinstance(beat, Say):
        return [{"role": "assistant", "content": beat.text, **thought}]
    function = {"name": beat.name, "arguments": json.dumps(beat.arguments, ensure_ascii=False)}
    calls = [{"id": id, "type": "function", "function": function}]
    return [
        {"role": "assistant", "content": None, "tool_calls": calls, **thought},
        {"role": "tool", "tool_call_id": id, "content": _text(beat.result)},
    ]


def genkit(beat: Beat, id: str) -> list[Message]:
    if isinstance(beat, User):
        parts: list[Message] = [{"text": beat.text}]
        if beat.image is not None:
            url = f"data:image/png;base64,{b64encode(beat.image).decode()}"
            parts.append({"media": {"contentType": "image/png", "url": url}})
        return [{"role": "user", "content": parts}]
    content: list[Message] = [{"reasoning": beat.thought}] if beat.thought else []
    if isinstance(beat, Say):
        return [{"role": "model", "content": [*content, {"text": beat.text}]}]
    request = {"name": beat.name, "ref": id, "input": beat.arguments}
    response = {"name": beat.name, "ref": id, "output": beat.result}
    return [
        {"role": "model", "content": [*content, {"toolRequest": request}]},
        {"role": "tool", "content": [{"toolResponse": response}]},
    ]


def _text(result: JSON) -> str:
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
