"""What a message holds beside its content: thoughts, calls, what was spoken or refused.

Each function takes what it understands out of the members, so that what is left can be kept.
"""

from typing import Any, TypeAlias

from limpet.views._chat_media import base64_bytes
from limpet.views._chat_parts import Call, Media, Part, Text, Value, text_of
from limpet.views._chat_typed import read_tool_call, refused

Left: TypeAlias = dict[str, Any]
"""The members of a message that nothing was made of yet."""

_THOUGHTS = ("reasoning_content", "reasoning")


def take_text(left: Left, name: str) -> str | None:
    """Take a member that is text and not empty, or None."""
    found = text_of(left, name)
    if found is not None:
        del left[name]
    return found


def take_fields(left: Left, name: str) -> Left:
    """Take a member that is an object, as members of its own."""
    found = left.get(name)
    return dict(left.pop(name)) if isinstance(found, dict) else {}


def take_thoughts(*members: Left) -> list[Part]:
    """Take what was thought, once if it is there under several names."""
    found = [take_text(left, name) for left in members for name in _THOUGHTS]
    return [Text(said, thinking=True) for said in dict.fromkeys(found) if said is not None]


def take_calls(left: Left, older: Left, known: list[Part]) -> tuple[list[Part], list[str]]:
    """Take the calls, without those in `known`; and whose way of writing them it is.

    `older` are the members that LangChain keeps as a model gave them, often for a second time.
    """
    given = left.pop("tool_calls", None)
    same = older.pop("tool_calls", None)
    given = given or same
    ids = {part.id for part in known if isinstance(part, Call)} - {None}
    found: list[Part] = []
    families: list[str] = []
    for each in given if isinstance(given, list) else [] if given is None else [given]:
        part, family = read_tool_call(each)
        families += [] if family is None else [family]
        if not isinstance(part, Call) or part.id not in ids:
            found.append(part)
    names = {part.name for part in [*known, *found] if isinstance(part, Call)}
    for members in (left, older):  # as OpenAI wrote the only call before 2024
        only = members.pop("function_call", None)
        part = read_tool_call({"function": only})[0]
        is_known = members is older and isinstance(part, Call) and part.name in names
        if only is not None and not is_known:
            found.append(part)
    if isinstance(left.get("invalid_tool_calls"), list):
        found += map(Value, left.pop("invalid_tool_calls"))
    return found, families


def take_spoken(*members: Left) -> list[Part]:
    """Take what was said as audio, and what was said instead of an answer."""
    found: list[Part] = []
    for left in members:
        audio = left.get("audio")
        data = text_of(audio, "data") if isinstance(audio, dict) else None
        if isinstance(audio, dict) and (data or text_of(audio, "transcript", "id")):
            del left["audio"]
            said = text_of(audio, "transcript")
            found += [] if said is None else [Text(said)]
            size = None if data is None else base64_bytes(data)
            found.append(Media("audio", text_of(audio, "id"), None, size))
        refusal = take_text(left, "refusal")
        found += [] if refusal is None else [refused(refusal)]
    return found
