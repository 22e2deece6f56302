"""The content of messages in blocks of any framework: with a `type`, or named by their key."""

from collections.abc import Callable
from typing import TypeAlias

from limpet.core import codec, limits
from limpet.errors import Corrupt
from limpet.model import JSON
from limpet.views.chat.media import kind_of, media_at, mime_of, read_media, text_or_media
from limpet.views.chat.model import (
    SEALS,
    Answer,
    Call,
    Fields,
    Inner,
    Media,
    Part,
    Result,
    Text,
    Value,
    rest,
    text_of,
)

_TEXTS = ("text", "input_text", "output_text", "summary_text")
_THOUGHTS = {"thinking": "thinking", "reasoning": "reasoning", "reasoning_text": "text"}
_MEDIA = {
    **{kind: kind for kind in ("image", "document", "audio", "video", "file")},
    **dict.fromkeys(("image_url", "input_image", "computer_screenshot"), "image"),
    **dict.fromkeys(("input_audio", "output_audio"), "audio"),
    **dict.fromkeys(("input_file", "resource"), "file"),
    "video_url": "video",
}


def read_blocks(content: JSON) -> list[Part]:
    """Read the content of a message: a text, a block or several."""
    if content is None or content == "":
        return []
    blocks = content if isinstance(content, list) else [content]
    return [part for block in blocks for part in _block(block)]


def read_within(content: JSON) -> tuple[Inner, ...]:
    """Read the content of a tool result; messages inside it are JSON."""
    if isinstance(content, list) and not any(map(_is_block, content)):
        return (Value(content),)
    if isinstance(content, dict) and not _is_block(content):
        return (Value(content),)
    blocks = content if isinstance(content, list) else [] if content is None else [content]
    found: list[Inner] = []
    for block in blocks:
        parts = _block(block)
        if any(isinstance(part, Call | Answer) for part in parts):
            found.append(Value(block))
        else:
            found += [part for part in parts if not isinstance(part, Call | Answer)]
    return tuple(found)


def _block(block: JSON) -> list[Part]:
    if isinstance(block, str):
        return [text_or_media(block)]
    if not isinstance(block, dict):
        return [Value(block)]
    if isinstance(block.get("type"), str):
        read = _read_typed(block)
        return [Value(block)] if read is None else read
    return _keyed(block)


def _keyed(block: Fields) -> list[Part]:
    """Read a block that is named by its key; several keys are several parts."""
    parts: list[Part] = []
    left: dict[str, JSON] = {}
    is_known = False
    for key, value in block.items():
        found = _member(key, value)
        if found is not None:
            is_known = True
            parts += found
        elif key not in SEALS:
            left[key] = value
    if not is_known:
        return [Value(left or block)]
    if left.get("thought") is True and isinstance(block.get("text"), str):
        parts = [Text(p.text, thinking=True) if isinstance(p, Text) else p for p in parts]
        del left["thought"]
    left = {key: value for key, value in left.items() if value is not None}
    return [*parts, Value(left)] if left else parts


def _is_block(value: JSON) -> bool:
    if not isinstance(value, dict):
        return isinstance(value, str)
    return isinstance(value.get("type"), str) or (
        len(value) == 1 and not _RESULT_KEYS.isdisjoint(value)
    )


def _read_typed(block: Fields) -> list[Part] | None:
    """Read a block with a `type`: Anthropic's, OpenAI's, LangChain's, MCP's. None if unknown."""
    type = text_of(block, "type") or ""
    field = "text" if type in _TEXTS else _THOUGHTS.get(type)
    if field is not None:
        said = block.get(field)
        if not isinstance(said, str):
            return None
        part = text_or_media(said) if type in _TEXTS else Text(said, thinking=True)
        return [part, *rest(block, field)]  # citations, annotations
    if type == "refusal" and isinstance(block.get("refusal"), str):
        return [refused(block["refusal"]), *rest(block, "refusal")]
    if type == "redacted_thinking":
        return [Text("(redacted)", thinking=True)]
    if type in _MEDIA:
        media, said = read_media(block, _MEDIA[type]), text_of(block, "transcript")
        spoken: list[Part] = [] if said is None else [Text(said)]
        return None if media is None else [*spoken, media]
    tool = _tool(type, block)
    return None if tool is None else [tool]


def refused(said: str) -> Text:
    return Text(f"refused: {said}")


def _tool(type: str, block: Fields) -> Part | None:
    name = text_of(block, "name")
    if type.endswith("tool_use") and name is not None:  # also server_tool_use
        return Call(name, block.get("input", {}), text_of(block, "id"))
    if type.endswith("tool_result") and "tool_use_id" in block:
        result = Result(read_within(block.get("content")), block.get("is_error") is True)
        return Answer(None, text_of(block, "tool_use_id"), result)
    if type == "tool_call" and name is not None:
        return Call(name, block.get("args", {}), text_of(block, "id"))
    return None


def read_tool_call(given: JSON) -> Part:
    """Read one of a message's `tool_calls`."""
    if not isinstance(given, dict):
        return Value(given)
    id = text_of(given, "id")
    for field, argument in (("function", "arguments"), ("custom", "input")):
        inner = given.get(field)
        name = text_of(inner, "name") if isinstance(inner, dict) else None
        if isinstance(inner, dict) and name is not None:
            value = inner.get(argument, {})
            return Call(name, parsed(value) if field == "function" else value, id)
    name = text_of(given, "name")
    if name is None:
        return Value(given)
    return Call(name, parsed(given.get("arguments", given.get("args", {}))), id)


def parsed(arguments: JSON) -> JSON:
    """Parse arguments that are written as JSON in a text; return others as they are."""
    if not isinstance(arguments, str):
        return arguments
    if not arguments.strip():
        return {}
    try:
        # The space makes the codec read integers of any length exactly.
        value = codec.decode(b" " + arguments.encode("utf-8", "surrogatepass"))
    except Corrupt:
        return arguments
    return value if isinstance(value, dict | list) and _is_shallow(value) else arguments


def _is_shallow(value: JSON) -> bool:
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


# OpenAI

_INPUTS = ("arguments", "args", "input", "action", "queries", "code", "parameters")
_OUTPUTS = (("error", True), ("output", False), ("outputs", False), ("results", False))


def read_item(item: Fields) -> tuple[str, list[Part]] | None:
    """Return the role and the parts of an item that is not a message; None if it is unknown.

    Items: `function_call`, `function_call_output`, `reasoning`, and the calls of built-in tools.
    """
    type = text_of(item, "type") or ""
    id = text_of(item, "call_id", "id")
    if type == "reasoning":
        thoughts = _thoughts(item)
        return None if thoughts is None else ("assistant", thoughts)
    if type.endswith("_call_output") and "output" in item:
        parts = (*read_within(item["output"]), *rest(item, "call_id", "output"))
        return "tool", [Answer(None, id, Result(parts))]
    if type == "image_generation_call" and isinstance(item.get("result"), str):
        media = read_media({"data": item["result"], "format": "png"}, "image")
        return None if media is None else ("assistant", [media, *rest(item, "result")])
    if type.endswith("_call"):
        return "assistant", _call(type, item, id)
    return None


def _call(type: str, item: Fields, id: str | None) -> list[Part]:
    field = next((name for name in _INPUTS if item.get(name) is not None), "")
    given = parsed(item[field]) if field in ("arguments", "args") else item.get(field, {})
    result, shown = None, ""
    for output, is_error in _OUTPUTS:
        if result is None and item.get(output) is not None:
            result, shown = Result(read_within(item[output]), is_error), output
    name = text_of(item, "name")
    call = Call(name or type.removesuffix("_call"), given, id, result)
    return [call, *rest(item, "call_id", field, shown, "name" if name else "")]


def _thoughts(item: Fields) -> list[Part] | None:
    found: list[Part] = []
    for field in ("summary", "content"):
        blocks = item.get(field)
        for each in blocks if isinstance(blocks, list) else []:
            said = each.get("text") if isinstance(each, dict) else None
            found.append(Text(said, thinking=True) if isinstance(said, str) else Value(each))
    if found:
        return [*found, *rest(item, "summary", "content")]
    is_known = any(field in item for field in ("summary", "content", "encrypted_content"))
    return [Text("(redacted)", thinking=True)] if is_known else None


# Strands, Bedrock, Genkit and Gemini: a block is an object with one key, `{"toolUse": {...}}`.

_Read: TypeAlias = Callable[[Fields], list[Part] | None]
_GEMINI_MEDIA = ("inlineData", "inline_data", "fileData", "file_data")
_VALUES = ("json", "data", "custom")


def _member(key: str, value: JSON) -> list[Part] | None:
    """Read what a block has under a key; None if the key is unknown."""
    if key == "text" and isinstance(value, str):
        return [text_or_media(value)]
    if key in _VALUES:
        return [Value(value)]
    if key == "reasoning" and isinstance(value, str):
        return [Text(value, thinking=True)]
    read = _READERS.get(key)
    return read(value) if read is not None and isinstance(value, dict) else None


def _media(kind: str) -> _Read:
    return lambda value: _some(read_media(value, kind or kind_of(mime_of(value))))


def _some(media: Media | None) -> list[Part] | None:
    return None if media is None else [media]


def _linked(value: Fields) -> list[Part] | None:
    url = text_of(value, "url", "uri")
    return None if url is None else [media_at(url, text_of(value, "contentType"))]


def _called(id: str) -> _Read:
    """Return a reader of calls, whose id has this name."""

    def read(value: Fields) -> list[Part] | None:
        name = text_of(value, "name")
        return None if name is None else [Call(name, value.get("input", {}), text_of(value, id))]

    return read


def _strands_result(value: Fields) -> list[Part]:
    result = Result(read_within(value.get("content")), value.get("status") == "error")
    return [Answer(None, text_of(value, "toolUseId"), result)]


def _genkit_result(value: Fields) -> list[Part]:
    parts = (*read_within(value.get("output")), *read_within(value.get("content")))
    return [Answer(text_of(value, "name"), text_of(value, "ref"), Result(parts))]


def _gemini_call(value: Fields) -> list[Part] | None:
    name, given = text_of(value, "name"), value.get("args")
    if name is None:
        return None
    call = Call(name, {} if given is None else given, text_of(value, "id"))
    return [call, *rest(value, "name", "id", "args")]


def _gemini_result(value: Fields) -> list[Part] | None:
    name, given = text_of(value, "name"), value.get("response")
    if name is None:
        return None
    # A tool's result is under `output`, or under `error` if it failed.
    is_error = isinstance(given, dict) and given.get("error") is not None and "output" not in given
    more = rest(value, "name", "id", "response", "parts")
    result = Result((*read_within(given), *read_within(value.get("parts")), *more), is_error)
    return [Answer(name, text_of(value, "id"), result)]


def _reasoning(value: Fields) -> list[Part] | None:
    said = value.get("reasoningText", value)
    if isinstance(said, dict) and isinstance(said.get("text"), str):
        return [Text(said["text"], thinking=True)]
    return [Text("(redacted)", thinking=True)] if "redactedContent" in value else None


def _guard(value: Fields) -> list[Part] | None:
    said, image = value.get("text"), value.get("image")
    if isinstance(said, dict) and isinstance(said.get("text"), str):
        return [Text(said["text"])]
    return _some(read_media(image, "image")) if isinstance(image, dict) else None


def _cited(value: Fields) -> list[Part] | None:
    content = value.get("content")
    if not isinstance(content, list):
        return None
    parts: list[Part] = []
    for each in content:
        said = each.get("text") if isinstance(each, dict) else None
        parts.append(Text(said) if isinstance(said, str) else Value(each))
    return [*parts, *rest(value, "content")] or None


_STRANDS: dict[str, _Read] = {
    **{kind: _media(kind) for kind in ("image", "document", "audio", "video")},
    "toolUse": _called("toolUseId"),
    "toolResult": _strands_result,
    "reasoning": _reasoning,
    "reasoningContent": _reasoning,
    "cachePoint": lambda value: [],
    "guardContent": _guard,
    "citations": _cited,
    "citationsContent": _cited,
}
_GENKIT: dict[str, _Read] = {
    "toolRequest": _called("ref"),
    "toolResponse": _genkit_result,
    "media": _linked,
    "resource": _linked,
}
_GEMINI: dict[str, _Read] = {  # in the spellings of its API and of its Python library
    **dict.fromkeys(("functionCall", "function_call"), _gemini_call),
    **dict.fromkeys(("functionResponse", "function_response"), _gemini_result),
    **dict.fromkeys(_GEMINI_MEDIA, _media("")),
}
_READERS = _STRANDS | _GENKIT | _GEMINI

_RESULT_KEYS = {"text", "media", "json", *_STRANDS, *_GEMINI_MEDIA}
"""The keys of blocks that a tool result may hold."""
