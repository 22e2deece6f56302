"""One message after the other, of any shape, and the shape that they turn out to have."""

from collections import Counter
from typing import Any, TypeAlias

from limpet.model import JSON
from limpet.views.chat import blocks
from limpet.views.chat.blocks import parsed, read_item, read_tool_call, read_typed, refused, unwrap
from limpet.views.chat.media import base64_bytes, text_or_media
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
    Turn,
    Value,
    rest,
    text_of,
)

# What a message holds beside its content: thoughts, calls, what was spoken or refused.
#
# Each function takes what it understands out of the members, so that what is left can be kept.

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


_ROLES = {
    "model": "assistant",
    "agent": "assistant",
    "ai": "assistant",
    "bot": "assistant",
    "human": "user",
    "function": "tool",
}
_NO_ROLE = "message"


class Reader:
    """Reads messages, and remembers whose way of writing them it met."""

    def __init__(self) -> None:
        self._sure: Counter[str] = Counter()
        self._unsure: Counter[str] = Counter()

    @property
    def shape(self) -> str:
        """Whose messages they are, by what most of them have that no others have."""
        # LangGraph's messages hold the blocks of the models behind it, and Gemini's have roles that
        # are Genkit's too.
        for family in ("langgraph", "gemini"):
            if self._sure[family]:
                return family
        votes = self._sure or self._unsure
        return votes.most_common(1)[0][0] if votes else "plain"

    def read(self, message: JSON, index: int) -> Turn:
        """Return a message as a turn: what is not understood is in it as it is."""
        if isinstance(message, str):
            return Turn(_NO_ROLE, None, (Text(message),), index)
        if not isinstance(message, dict):
            return Turn(_NO_ROLE, None, (Value(message),), index)
        around: list[Value] = []
        inner = message.get("message")
        if "role" not in message and isinstance(inner, dict) and "role" in inner:
            around = rest(message, "message")
            message = inner  # one of a log of messages, with its number and its time
        found = unwrap(message)
        if found is not None:
            self._sure["langgraph"] += 1
            if found.fields is not message:
                around += rest(message, "lc", "kwargs", "data")
            return self._turn(found.fields, found.role, index, around)
        role = message.get("role")
        if not isinstance(role, str):
            return self._without_role(message, index)
        if role == "model":
            self._sure["genkit"] += 1
        return self._turn(message, _ROLES.get(role, role), index, around)

    def system(self, prompt: JSON) -> Turn | None:
        """Return a system prompt that stands beside the messages; None if it is empty."""
        parts = self._blocks(prompt)
        return Turn("system", None, tuple(parts), -1) if parts and prompt else None

    def node(self, name: str, result: Fields, index: int) -> Turn:
        """Return what one of several agents gave, as a turn under its name."""
        self._sure["strands"] += 1
        inner = result.get("result")
        held: Fields = inner if isinstance(inner, dict) else result
        message = held.get("message")
        if isinstance(message, dict) and "content" in message:
            held = message
        elif isinstance(message, str):
            held = {"content": message}
        parts = self._blocks(held["content"]) if "content" in held else [Value(result)]
        if result.get("error") is not None:
            parts.append(Value({"error": result["error"]}))
        return Turn("assistant", name, tuple(parts), index)

    def _without_role(self, message: Fields, index: int) -> Turn:
        found = read_item(message, self._within)
        if found is not None:
            self._sure["openai"] += 1
            return Turn(found[0], None, tuple(found[1]), index)
        return Turn(_NO_ROLE, None, tuple(self._block(message)), index)

    def _turn(self, message: Fields, role: str, index: int, around: list[Value]) -> Turn:
        """Read a message; `around` is what the object that it stood in held besides it."""
        left = dict(message)
        name = take_text(left, "name")
        content = message["content"] if "content" in message else message.get("parts")
        call_id = text_of(message, "tool_call_id")
        if role == "tool" and (call_id is not None or isinstance(content, str)):
            return Turn(role, name, (self._answer(left, name, around),), index)
        older = take_fields(left, "additional_kwargs")
        parts = [*take_thoughts(left, older), *self._content(left)]
        calls, families = take_calls(left, older, parts)
        self._sure.update(families)
        parts += [*calls, *take_spoken(left, older)]
        if not parts and "content" not in message and "parts" not in message:
            parts = [Value({key: value for key, value in message.items() if key != "role"})]
        else:
            parts += [*rest(left), *rest(older)]
        return Turn(role, name, (*parts, *around), index)

    def _answer(self, left: Left, name: str | None, around: list[Value]) -> Part:
        id = take_text(left, "tool_call_id")
        if id is not None:
            self._sure["openai"] += 1
        content = left.pop("content" if "content" in left else "parts", None)
        is_error = left.get("status") == "error"
        if is_error:
            del left["status"]
        given = None
        for field in ("args", "arguments"):  # a call and its result in one message
            if id is None and name is not None and given is None and field in left:
                given = [parsed(left.pop(field))]
        # What else there is goes where the result goes: into its call.
        result = Result((*self._within(content), *rest(left), *around), is_error)
        if given is not None and name is not None:
            return Call(name, given[0], None, result)
        return Answer(name, id, result)

    def _content(self, left: Left) -> list[Part]:
        """Take the content, which some write both as a text and in parts."""
        content, parts = left.pop("content", None), self._blocks(left.pop("parts", None))
        said = "".join(p.text for p in parts if isinstance(p, Text) and not p.thinking)
        return parts if parts and content == said else [*self._blocks(content), *parts]

    def _blocks(self, content: JSON) -> list[Part]:
        if content is None or content == "":
            return []
        blocks = content if isinstance(content, list) else [content]
        return [part for block in blocks for part in self._block(block)]

    def _within(self, content: JSON) -> tuple[Inner, ...]:
        """Read what stands in a result; a tool that gives back messages gives back JSON."""
        if isinstance(content, list) and not any(map(_is_block, content)):
            return (Value(content),)
        if isinstance(content, dict) and not _is_block(content):
            return (Value(content),)
        blocks = content if isinstance(content, list) else [] if content is None else [content]
        found: list[Inner] = []
        for block in blocks:
            parts = self._block(block)
            if any(isinstance(part, Call | Answer) for part in parts):
                found.append(Value(block))
            else:
                found += [part for part in parts if not isinstance(part, Call | Answer)]
        return tuple(found)

    def _block(self, block: JSON) -> list[Part]:
        if isinstance(block, str):
            return [text_or_media(block)]
        if not isinstance(block, dict):
            return [Value(block)]
        if isinstance(block.get("type"), str):
            read = read_typed(block, self._within)
            if read is None:
                return [Value(block)]
            votes = self._unsure if read.family is None else self._sure
            votes[read.family or "anthropic"] += 1
            return read.parts
        return self._keyed(block)

    def _keyed(self, block: Fields) -> list[Part]:
        """Read a block in which a key says what it is; several keys are several parts."""
        parts: list[Part] = []
        left: dict[str, JSON] = {}
        is_known = False
        for key, value in block.items():
            found = self._member(key, value)
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

    def _member(self, key: str, value: JSON) -> list[Part] | None:
        if key == "text" and isinstance(value, str):
            self._unsure["strands"] += 1
            return [text_or_media(value)]
        for keys, read, family in _FAMILIES:
            found = read(key, value, self._within) if key in keys else None
            if found is not None:
                self._sure[family] += 1
                return found
        return None


_FAMILIES = (
    (blocks.STRANDS_KEYS, blocks.read_strands, "strands"),
    (blocks.GENKIT_KEYS, blocks.read_genkit, "genkit"),
    (blocks.GEMINI_KEYS, blocks.read_gemini, "gemini"),
)
_BLOCK_KEYS = {"text", "media", *blocks.STRANDS_KEYS, *blocks.GEMINI_MEDIA}


def _is_block(value: JSON) -> bool:
    """Tell whether a part of a result is content, and not just any JSON."""
    if not isinstance(value, dict):
        return isinstance(value, str)
    return isinstance(value.get("type"), str) or (
        len(value) == 1 and not _BLOCK_KEYS.isdisjoint(value)
    )
