"""OpenAI's items other than messages: thoughts, calls and what they gave, each on its own."""

from limpet.views._chat_media import read_media
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
from limpet.views._chat_typed import parsed

_INPUTS = ("arguments", "args", "input", "action", "queries", "code", "parameters")
_OUTPUTS = (("error", True), ("output", False), ("outputs", False), ("results", False))


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
        parts = (*within(item["output"]), *rest(item, "call_id", "output"))
        return "tool", [Answer(None, id, Result(parts))]
    if type == "image_generation_call" and isinstance(item.get("result"), str):
        media = read_media({"data": item["result"], "format": "png"}, "image")
        return None if media is None else ("assistant", [media, *rest(item, "result")])
    if type.endswith("_call"):
        return "assistant", _call(type, item, id, within)
    return None


def _call(type: str, item: Fields, id: str | None, within: Within) -> list[Part]:
    field = next((name for name in _INPUTS if item.get(name) is not None), "")
    given = parsed(item[field]) if field in ("arguments", "args") else item.get(field, {})
    result, shown = None, ""
    for output, is_error in _OUTPUTS:
        if result is None and item.get(output) is not None:
            result, shown = Result(within(item[output]), is_error), output
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
