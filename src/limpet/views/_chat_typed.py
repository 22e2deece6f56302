"""Content blocks that say in `type` what they are: Anthropic's, OpenAI's, LangChain's, MCP's."""

from typing import NamedTuple

from limpet.core import codec, limits
from limpet.errors import Corrupt
from limpet.model import JSON
from limpet.views._chat_media import read_media, text_or_media
from limpet.views._chat_parts import (
    Answer,
    Call,
    Fields,
    Part,
    Result,
    Text,
    Value,
    Within,
    text_of,
)
from limpet.views._chat_rest import rest

_TEXTS = {
    "text": ("text", None),
    "input_text": ("text", "openai"),
    "output_text": ("text", "openai"),
    "summary_text": ("text", "openai"),
}
_THOUGHTS = {
    "thinking": ("thinking", "anthropic"),
    "reasoning": ("reasoning", "langgraph"),
    "reasoning_text": ("text", "openai"),
}
_MEDIA = {
    "image": ("image", None),
    "document": ("document", "anthropic"),
    "image_url": ("image", "openai"),
    "input_image": ("image", "openai"),
    "input_file": ("file", "openai"),
    "input_audio": ("audio", "openai"),
    "output_audio": ("audio", "openai"),
    "computer_screenshot": ("image", "openai"),
    "file": ("file", None),
    "audio": ("audio", None),
    "video": ("video", None),
    "video_url": ("video", None),
    "resource": ("file", None),
}


class Read(NamedTuple):
    """What a block holds, and whose way of writing it that is, if only one writes so."""

    parts: list[Part]
    family: str | None


def read_typed(block: Fields, within: Within) -> Read | None:
    """Return the parts that a block with a `type` stands for; None if it is not known."""
    type = text_of(block, "type") or ""
    for table, thinking in ((_TEXTS, False), (_THOUGHTS, True)):
        if type in table:
            field, family = table[type]
            said = block.get(field)
            if not isinstance(said, str):
                return None
            part = Text(said, thinking=True) if thinking else text_or_media(said)
            return Read([part, *rest(block, field)], family)  # the rest: citations, annotations
    if type == "refusal" and isinstance(block.get("refusal"), str):
        return Read([refused(block["refusal"]), *rest(block, "refusal")], "openai")
    if type == "redacted_thinking":
        return Read([Text("(redacted)", thinking=True)], "anthropic")
    if type in _MEDIA:
        kind, family = _MEDIA[type]
        media, said = read_media(block, kind), text_of(block, "transcript")
        spoken: list[Part] = [] if said is None else [Text(said)]
        return None if media is None else Read([*spoken, media], family)
    tool = _tool(type, block, within)
    return None if tool is None else Read([tool], _family(type))


def refused(said: str) -> Text:
    """Return what a model said instead of an answer, told apart from one."""
    return Text(f"refused: {said}")


def _family(type: str) -> str:
    return "langgraph" if type == "tool_call" else "anthropic"


def _tool(type: str, block: Fields, within: Within) -> Part | None:
    name = text_of(block, "name")
    if type.endswith("tool_use") and name is not None:  # also those that a server calls
        return Call(name, block.get("input", {}), text_of(block, "id"))
    if type.endswith("tool_result") and "tool_use_id" in block:
        result = Result(within(block.get("content")), block.get("is_error") is True)
        return Answer(None, text_of(block, "tool_use_id"), result)
    if type == "tool_call" and name is not None:
        return Call(name, block.get("args", {}), text_of(block, "id"))
    return None


def read_tool_call(given: JSON) -> tuple[Part, str | None]:
    """Return one of a message's `tool_calls`, and whose way of writing it that is."""
    if not isinstance(given, dict):
        return Value(given), None
    id = text_of(given, "id")
    for field, argument in (("function", "arguments"), ("custom", "input")):
        inner = given.get(field)
        name = text_of(inner, "name") if isinstance(inner, dict) else None
        if isinstance(inner, dict) and name is not None:
            value = inner.get(argument, {})
            return Call(name, parsed(value) if field == "function" else value, id), "openai"
    name = text_of(given, "name")
    if name is None:
        return Value(given), None
    if "arguments" in given:
        return Call(name, parsed(given["arguments"]), id), "openai"
    return Call(name, parsed(given.get("args", {})), id), None


def parsed(arguments: JSON) -> JSON:
    """Return the arguments of a call that are written as JSON in a text; others as they are."""
    if not isinstance(arguments, str):
        return arguments
    if not arguments.strip():
        return {}
    try:
        # A space before it lets integers of any length be read as they are.
        value = codec.decode(b" " + arguments.encode("utf-8", "surrogatepass"))
    except Corrupt:
        return arguments
    return value if isinstance(value, dict | list) and _is_shallow(value) else arguments


def _is_shallow(value: JSON) -> bool:
    """Tell whether a value is nested no deeper than a state can be."""
    level = [value]
    for _ in range(limits.DEPTH_MAX):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return True
    return False
