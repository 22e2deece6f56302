"""Content blocks that say in `type` what they are: Anthropic's, OpenAI's, LangChain's, MCP's."""

from typing import NamedTuple

from holdfast.core import codec, limits
from holdfast.errors import Corrupt
from holdfast.model import JSON
from holdfast.views._chat_media import read_media
from holdfast.views._chat_parts import (
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

_TEXTS = {
    "text": ("text", None),
    "input_text": ("text", "openai"),
    "output_text": ("text", "openai"),
    "summary_text": ("text", "openai"),
    "refusal": ("refusal", "openai"),
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
    "file": ("file", None),
    "audio": ("audio", None),
    "video": ("video", None),
    "video_url": ("video", None),
    "resource": ("file", None),
}
_INPUTS = ("arguments", "args", "input", "action", "queries", "code", "parameters")


class Read(NamedTuple):
    """What a block is, and whose way of writing it that is, if only one writes so."""

    part: Part
    family: str | None


def read_typed(block: Fields, within: Within) -> Read | None:
    """Return the part that a block with a `type` stands for; None if it is not known."""
    type = text_of(block, "type") or ""
    for table, thinking in ((_TEXTS, False), (_THOUGHTS, True)):
        if type in table:
            field, family = table[type]
            said = block.get(field)
            return Read(Text(said, thinking), family) if isinstance(said, str) else None
    if type == "redacted_thinking":
        return Read(Text("(redacted)", thinking=True), "anthropic")
    if type in _MEDIA:
        kind, family = _MEDIA[type]
        media = read_media(block, kind)
        return None if media is None else Read(media, family)
    return _tool(type, block, within)


def _tool(type: str, block: Fields, within: Within) -> Read | None:
    name = text_of(block, "name")
    if type.endswith("tool_use") and name is not None:  # also those that a server calls
        return Read(Call(name, block.get("input", {}), text_of(block, "id")), "anthropic")
    if type.endswith("tool_result") and "tool_use_id" in block:
        content = block.get("content")
        is_error = block.get("is_error") is True
        answer = Answer(None, text_of(block, "tool_use_id"), Result(within(content), is_error))
        return Read(answer, "anthropic")
    if type == "tool_call" and name is not None:
        return Read(Call(name, block.get("args", {}), text_of(block, "id")), "langgraph")
    return None


def read_item(item: Fields, within: Within) -> tuple[str, list[Part]] | None:
    """Return the role and the parts of one of OpenAI's items other than a message; None if it is
    none: `function_call`, `function_call_output`, `reasoning`, and the calls of built-in tools.
    """
    type = text_of(item, "type") or ""
    id = text_of(item, "call_id", "id")
    if type == "reasoning":
        thoughts = _thoughts(item)
        return None if thoughts is None else ("assistant", thoughts)
    if type.endswith("_call_output") and "output" in item:
        return "tool", [Answer(None, id, Result(within(item["output"])))]
    if type == "image_generation_call" and isinstance(item.get("result"), str):
        media = read_media({"data": item["result"], "format": "png"}, "image")
        return None if media is None else ("assistant", [media])
    if type.endswith("_call"):
        return "assistant", [_item_call(type, item, id, within)]
    return None


def _item_call(type: str, item: Fields, id: str | None, within: Within) -> Call:
    field = next((name for name in _INPUTS if item.get(name) is not None), None)
    given = parsed(item[field]) if field in ("arguments", "args") else item.get(field or "", {})
    result = None
    for name, is_error in (("error", True), ("output", False)):
        if result is None and item.get(name) is not None:
            result = Result(within(item[name]), is_error)
    return Call(text_of(item, "name") or type.removesuffix("_call"), given, id, result)


def _thoughts(item: Fields) -> list[Part] | None:
    found: list[Part] = []
    for field in ("summary", "content"):
        blocks = item.get(field)
        for each in blocks if isinstance(blocks, list) else []:
            said = each.get("text") if isinstance(each, dict) else None
            found.append(Text(said, thinking=True) if isinstance(said, str) else Value(each))
    if found:
        return found
    is_known = any(field in item for field in ("summary", "content", "encrypted_content"))
    return [Text("(redacted)", thinking=True)] if is_known else None


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
