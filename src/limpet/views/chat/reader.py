"""Reads the messages of a state, whatever framework wrote them."""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from limpet.model import JSON
from limpet.views.chat.blocks import (
    parsed,
    read_blocks,
    read_item,
    read_tool_call,
    read_within,
    refused,
)
from limpet.views.chat.media import base64_bytes
from limpet.views.chat.messages import (
    PydanticReader,
    find_agent_results,
    find_messages,
    is_silent,
    read_adk,
    read_ag2,
    read_claude,
    read_langchain,
    read_llama_index,
)
from limpet.views.chat.model import (
    Answer,
    Call,
    Chat,
    ChatTurn,
    Fields,
    Media,
    Part,
    Result,
    Text,
    Value,
    rest,
    text_of,
)

Unread: TypeAlias = dict[str, Any]
"""The members of a message that were not read yet: each `_take_*` removes what it reads."""

_THOUGHTS = ("reasoning_content", "reasoning")
_ROLES = {
    "model": "assistant",
    "agent": "assistant",
    "ai": "assistant",
    "bot": "assistant",
    "human": "user",
    "function": "tool",
}
_NO_ROLE = "message"
_ENDS = 6  # the first question is after the prompts, and a tool's result in the last turn after it


def read_chat(state: JSON, *, ends: bool = False) -> Chat | None:
    """Return the messages of a state as a chat, None if it has none.

    Takes any JSON, in time linear in its size. In the state of several agents, the result of each
    is a turn under its name. With `ends`, only the first question is read, and a few messages at
    the end.
    """
    found = find_messages(state)
    if found is not None:
        messages = list(enumerate(found.messages))
        if found.is_transcript:
            messages = [each for each in messages if read_claude(each[1]) is not None]
        messages = [each for each in messages if not is_silent(each[1])]
        if ends:
            messages[_ENDS : max(_ENDS, len(messages) - _ENDS)] = []
        pydantic = PydanticReader()
        turns: list[ChatTurn] = []
        for left, (index, each) in zip(range(len(messages), 0, -1), messages, strict=True):
            if ends and left > _ENDS and turns and turns[-1].role == "user":
                continue  # the first question is enough
            turns += pydantic.read(each, index) or [_read(each, index)]
        prompt = None if found.prompt is None else _read_prompt(found.prompt)
        return _chat(found.path, [prompt, *turns] if prompt else turns)
    agents = find_agent_results(state)
    if agents is None:
        return None
    turns = [_read_result(*each, index) for index, each in enumerate(agents.results)]
    if agents.task:
        turns.insert(0, _read({"role": "user", "content": agents.task}, -1))
    return _chat(agents.path, turns)


def _chat(path: str, turns: list[ChatTurn]) -> Chat:
    paired = pair(turns)
    last = paired[-1] if paired else None
    said = turns[-1].parts if turns else ()
    results = {id(part.result) for part in said if isinstance(part, Answer)}
    if results and len(results) == len(said):
        calls = (part for turn in paired for part in turn.parts if isinstance(part, Call))
        answered = tuple(call for call in calls if id(call.result) in results)
        last = ChatTurn("tool", None, answered, turns[-1].index) if answered else last
    return Chat(path, paired, last)


def other_values(state: JSON, chat: Chat) -> Iterator[tuple[str, JSON]]:
    """Yield the values of a state that are not part of its chat, by name: `values.mood`."""
    found = find_messages(state)
    keys = chat.path.split("/")[1:]
    shown = {keys[-1], None if found is None else found.prompt_key} if keys else set()
    at, above = state, ""
    for depth, key in enumerate(keys, start=1):
        hidden = shown if depth == len(keys) else {key}
        yield from ((above + name, value) for name, value in at.items() if name not in hidden)
        at, above = at[key], f"{above}{key}."


def _take_text(left: Unread, name: str) -> str | None:
    found = text_of(left, name)
    if found is not None:
        del left[name]
    return found


def _take_fields(left: Unread, name: str) -> Unread:
    found = left.get(name)
    return dict(left.pop(name)) if isinstance(found, dict) else {}


def _take_thoughts(*members: Unread) -> list[Part]:
    """Take the thoughts; the same text under two names counts once."""
    found = [_take_text(left, name) for left in members for name in _THOUGHTS]
    return [Text(said, thinking=True) for said in dict.fromkeys(found) if said is not None]


def _take_calls(left: Unread, older: Unread, known: list[Part]) -> list[Part]:
    """Take the tool calls that are not in `known`.

    `older` is LangChain's `additional_kwargs`, which often repeats the calls.
    """
    given = left.pop("tool_calls", None)
    same = older.pop("tool_calls", None)
    given = given or same
    ids = {part.id for part in known if isinstance(part, Call)} - {None}
    found: list[Part] = []
    for each in given if isinstance(given, list) else [] if given is None else [given]:
        part = read_tool_call(each)
        if not isinstance(part, Call) or part.id not in ids:
            found.append(part)
    names = {part.name for part in [*known, *found] if isinstance(part, Call)}
    for members in (left, older):  # OpenAI's format before 2024
        only = members.pop("function_call", None)
        part = read_tool_call({"function": only})
        is_known = members is older and isinstance(part, Call) and part.name in names
        if only is not None and not is_known:
            found.append(part)
    if isinstance(left.get("invalid_tool_calls"), list):
        found += map(Value, left.pop("invalid_tool_calls"))
    return found


def _take_spoken(*members: Unread) -> list[Part]:
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
        refusal = _take_text(left, "refusal")
        found += [] if refusal is None else [refused(refusal)]
    return found


def _read(message: JSON, index: int) -> ChatTurn:
    if isinstance(message, str):
        return ChatTurn(_NO_ROLE, None, (Text(message),), index)
    if not isinstance(message, dict):
        return ChatTurn(_NO_ROLE, None, (Value(message),), index)
    message = read_adk(message) or read_ag2(message) or read_llama_index(message) or message
    message = read_claude(message) or message
    around: list[Value] = []
    inner = message.get("message")
    if "role" not in message and isinstance(inner, dict) and "role" in inner:
        around = rest(message, "message")
        message = inner  # an entry of a message log
    found = read_langchain(message)
    if found is not None:
        role, fields = found
        if fields is not message:
            around += rest(message, "lc", "kwargs", "data")
        return _turn(fields, role, index, around)
    role = message.get("role")
    if not isinstance(role, str):
        return _without_role(message, index)
    return _turn(message, _ROLES.get(role, role), index, around)


def _read_prompt(prompt: JSON) -> ChatTurn | None:
    parts = read_blocks(prompt)
    return ChatTurn("system", None, tuple(parts), -1) if parts and prompt else None


def _read_result(name: str, result: Fields, index: int) -> ChatTurn:
    """Return the result of one of several agents as a turn under its name."""
    inner = result.get("result")
    held: Fields = inner if isinstance(inner, dict) else result
    message = held.get("message")
    if isinstance(message, dict) and "content" in message:
        held = message
    elif isinstance(message, str):
        held = {"content": message}
    parts = read_blocks(held["content"]) if "content" in held else [Value(result)]
    if result.get("error") is not None:
        parts.append(Value({"error": result["error"]}))
    return ChatTurn("assistant", name, tuple(parts), index)


def _without_role(message: Fields, index: int) -> ChatTurn:
    found = read_item(message)
    if found is not None:
        return ChatTurn(found[0], None, tuple(found[1]), index)
    return ChatTurn(_NO_ROLE, None, tuple(read_blocks(message)), index)


def _turn(message: Fields, role: str, index: int, around: list[Value]) -> ChatTurn:
    """Read a message; `around` are the other members of the object that wraps it."""
    left = dict(message)
    name = _take_text(left, "name")
    content = message["content"] if "content" in message else message.get("parts")
    call_id = text_of(message, "tool_call_id")
    if role == "tool" and (call_id is not None or isinstance(content, str)):
        return ChatTurn(role, name, (_answer(left, name, around),), index)
    older = _take_fields(left, "additional_kwargs")
    parts = [*_take_thoughts(left, older), *_content(left)]
    parts += _take_calls(left, older, parts)
    parts += _take_spoken(left, older)
    if not parts and "content" not in message and "parts" not in message:
        parts = [Value({key: value for key, value in message.items() if key != "role"})]
    else:
        parts += [*rest(left), *rest(older)]
    return ChatTurn(role, name, (*parts, *around), index)


def _answer(left: Unread, name: str | None, around: list[Value]) -> Part:
    id = _take_text(left, "tool_call_id")
    content = left.pop("content" if "content" in left else "parts", None)
    is_error = left.get("status") == "error"
    if is_error:
        del left["status"]
    given = None
    for field in ("args", "arguments"):  # a call and its result in one message
        if id is None and name is not None and given is None and field in left:
            given = [parsed(left.pop(field))]
    # Other members move with the result into its call.
    result = Result((*read_within(content), *rest(left), *around), is_error)
    if given is not None and name is not None:
        return Call(name, given[0], None, result)
    return Answer(name, id, result)


def _content(left: Unread) -> list[Part]:
    """Take the content; some frameworks write it both as a text and as parts."""
    content, parts = left.pop("content", None), read_blocks(left.pop("parts", None))
    said = "".join(p.text for p in parts if isinstance(p, Text) and not p.thinking)
    return parts if parts and content == said else [*read_blocks(content), *parts]


_Position = tuple[int, int]  # of a turn, and of a part in it
_Key = tuple[str, str]


def pair(turns: Iterable[ChatTurn]) -> tuple[ChatTurn, ...]:
    """Return the turns with every result inside its call; turns that become empty are dropped.

    Calls and results are joined by id, or by name if neither has one. Frameworks reuse ids: of
    several open calls with the same id, those of the latest turn come first, in their order.
    """
    turns = tuple(turns)
    waiting: defaultdict[_Key, list[tuple[int, deque[_Position]]]] = defaultdict(list)
    results: dict[_Position, Result] = {}
    paired: set[_Position] = set()
    for at, turn in enumerate(turns):
        for position, part in enumerate(turn.parts):
            if isinstance(part, Call) and part.result is None:
                open_calls = waiting[_key(part)]
                if not open_calls or open_calls[-1][0] != at:
                    open_calls.append((at, deque()))
                open_calls[-1][1].append((at, position))
            elif isinstance(part, Answer):
                open_calls = waiting.get(_key(part), [])
                if open_calls:
                    results[open_calls[-1][1].popleft()] = part.result
                    paired.add((at, position))
                    if not open_calls[-1][1]:
                        open_calls.pop()
    return tuple(_joined(turns, results, paired))


def _key(part: Call | Answer) -> _Key:
    return ("id", part.id) if part.id is not None else ("name", part.name or "")


def _joined(
    turns: tuple[ChatTurn, ...], results: dict[_Position, Result], paired: set[_Position]
) -> Iterator[ChatTurn]:
    for at, turn in enumerate(turns):
        parts: list[Part] = []
        for position, part in enumerate(turn.parts):
            result = results.get((at, position))
            if isinstance(part, Call) and result is not None:
                parts.append(replace(part, result=result))
            elif (at, position) not in paired:
                parts.append(part)
        if parts or not turn.parts:
            yield replace(turn, parts=tuple(parts))


class News(NamedTuple):
    """The new turns, and whether earlier ones were replaced.

    A late result of a known call is in a turn of the role `tool`, inside its call.
    """

    turns: tuple[ChatTurn, ...]
    is_replaced: bool = False


def chat_news(before: tuple[ChatTurn, ...], after: tuple[ChatTurn, ...]) -> News:
    """Return the turns that were added.

    If the messages were replaced (by a summary, or by fewer of them): the turns that are not among
    the earlier ones, in any position.
    """
    late: list[ChatTurn] = []
    for old, new in zip(before, after, strict=False):
        if old == new:
            continue
        if _bare(old) != _bare(new):
            return _replaced(before, after)
        parts = tuple(n for o, n in zip(old.parts, new.parts, strict=True) if o != n)
        late.append(ChatTurn("tool", None, parts, new.index))
    if len(after) < len(before):
        return _replaced(before, after)
    return News((*late, *after[len(before) :]))


def _replaced(before: tuple[ChatTurn, ...], after: tuple[ChatTurn, ...]) -> News:
    known = Counter(map(_content_of, before))
    new = []
    for turn in after:
        content = _content_of(turn)
        if known[content]:
            known[content] -= 1
        else:
            new.append(turn)
    return News(tuple(new), is_replaced=True)


def _bare(turn: ChatTurn) -> ChatTurn:
    """Return a turn without the results of its calls, which come later than it."""
    parts = (replace(p, result=None) if isinstance(p, Call) else p for p in turn.parts)
    return replace(turn, parts=tuple(parts))


def _content_of(turn: ChatTurn) -> str:
    return repr(replace(_bare(turn), index=0))
