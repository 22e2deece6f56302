"""One message after the other, of any shape, and the shape that they turn out to have."""

from collections import Counter
from collections.abc import Iterable

from holdfast.model import JSON
from holdfast.views import _chat_genkit, _chat_strands
from holdfast.views._chat_langgraph import unwrap
from holdfast.views._chat_parts import (
    Answer,
    Call,
    Fields,
    Inner,
    Part,
    Result,
    Text,
    Turn,
    Value,
    text_of,
)
from holdfast.views._chat_typed import parsed, read_item, read_tool_call, read_typed

_ROLES = {
    "model": "assistant",
    "agent": "assistant",
    "ai": "assistant",
    "bot": "assistant",
    "human": "user",
    "developer": "system",
    "function": "tool",
}
_NO_ROLE = "message"
_BESIDE = frozenset({"metadata", "cache_control"})  # beside what a block is, and not worth seeing


class Reader:
    """Reads messages, and remembers whose way of writing them it met."""

    def __init__(self) -> None:
        self._sure: Counter[str] = Counter()
        self._unsure: Counter[str] = Counter()

    @property
    def shape(self) -> str:
        """Whose messages they are, by what most of them have that no others have."""
        if self._sure["langgraph"]:  # whose messages hold the blocks of the models behind it
            return "langgraph"
        votes = self._sure or self._unsure
        return votes.most_common(1)[0][0] if votes else "plain"

    def read(self, message: JSON, index: int) -> Turn:
        """Return a message as a turn: what is not understood is in it as it is."""
        if isinstance(message, str):
            return Turn(_NO_ROLE, None, (Text(message),), index)
        if not isinstance(message, dict):
            return Turn(_NO_ROLE, None, (Value(message),), index)
        inner = message.get("message")
        if "role" not in message and isinstance(inner, dict) and "role" in inner:
            message = inner  # one of a log of messages, with its number and its time
        found = unwrap(message)
        if found is not None:
            self._sure["langgraph"] += 1
            return self._turn(found.fields, found.role, index)
        role = message.get("role")
        if not isinstance(role, str):
            return self._without_role(message, index)
        if role == "model":
            self._sure["genkit"] += 1
        return self._turn(message, _ROLES.get(role, role), index)

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

    def _turn(self, message: Fields, role: str, index: int) -> Turn:
        name = text_of(message, "name")
        content = message["content"] if "content" in message else message.get("parts")
        call_id = text_of(message, "tool_call_id")
        parts: list[Part]
        if role == "tool" and (call_id is not None or isinstance(content, str)):
            parts = [self._answer(message, name, call_id, content)]
        else:
            parts = [*self._thoughts(message), *self._blocks(content)]
            parts += self._calls(message, {p.id for p in parts if isinstance(p, Call)})
            refusal = message.get("refusal")
            if isinstance(refusal, str):
                parts.append(Text(refusal))
        if not parts and "content" not in message and "parts" not in message:
            parts = [Value({key: value for key, value in message.items() if key != "role"})]
        return Turn(role, name, tuple(parts), index)

    def _answer(self, message: Fields, name: str | None, id: str | None, content: JSON) -> Part:
        if id is not None:
            self._sure["openai"] += 1
        result = Result(self._within(content), message.get("status") == "error")
        for field in ("args", "arguments"):  # a call and its result in one message
            if id is None and name is not None and field in message:
                return Call(name, parsed(message[field]), None, result)
        return Answer(name, id, result)

    def _thoughts(self, message: Fields) -> Iterable[Text]:
        more = message.get("additional_kwargs")
        for fields in (message, more if isinstance(more, dict) else {}):
            said = text_of(fields, "reasoning_content")
            if said is not None:
                yield Text(said, thinking=True)

    def _calls(self, message: Fields, known: set[str | None]) -> list[Part]:
        """Return the calls that stand beside the content, without those that stand in it too."""
        more = message.get("additional_kwargs")
        older: Fields = more if isinstance(more, dict) else {}
        given = message.get("tool_calls") or older.get("tool_calls")
        found: list[Part] = []
        for each in given if isinstance(given, list) else [] if given is None else [given]:
            part, family = read_tool_call(each)
            if family is not None:
                self._sure[family] += 1
            if not isinstance(part, Call) or part.id is None or part.id not in known:
                found.append(part)
        if message.get("function_call") is not None:  # as OpenAI wrote the only call before 2024
            found.append(read_tool_call({"function": message["function_call"]})[0])
        invalid = message.get("invalid_tool_calls")
        return found + [Value(each) for each in (invalid if isinstance(invalid, list) else [])]

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
            return [Text(block)]
        if not isinstance(block, dict):
            return [Value(block)]
        if isinstance(block.get("type"), str):
            read = read_typed(block, self._within)
            if read is None:
                return [Value(block)]
            votes = self._unsure if read.family is None else self._sure
            votes[read.family or "anthropic"] += 1
            return [read.part]
        return self._keyed(block)

    def _keyed(self, block: Fields) -> list[Part]:
        """Read a block in which a key says what it is; several keys are several parts."""
        parts: list[Part] = []
        rest: dict[str, JSON] = {}
        for key, value in block.items():
            found: list[Part] | None = None
            if key == "text" and isinstance(value, str):
                self._unsure["strands"] += 1
                found = [Text(value)]
            for keys, read, family in _FAMILIES:
                if found is None and key in keys:
                    found = read(key, value, self._within)
                    if found is not None:
                        self._sure[family] += 1
            if found is not None:
                parts += found
            elif key not in _BESIDE:
                rest[key] = value
        return [*parts, Value(rest)] if rest or not block else parts


_FAMILIES = (
    (_chat_strands.KEYS, _chat_strands.read_strands, "strands"),
    (_chat_genkit.KEYS, _chat_genkit.read_genkit, "genkit"),
)
_BLOCK_KEYS = {"text", *_chat_strands.KEYS, "media"}


def _is_block(value: JSON) -> bool:
    """Tell whether a part of a result is content, and not just any JSON."""
    if not isinstance(value, dict):
        return isinstance(value, str)
    return isinstance(value.get("type"), str) or (
        len(value) == 1 and not _BLOCK_KEYS.isdisjoint(value)
    )
