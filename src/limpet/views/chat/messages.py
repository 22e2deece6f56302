"""The messages of each framework in one shape, and where a state holds them.

A message has a role, a name, and the content or parts. Each function returns None for what its
framework did not write. The messages of Pydantic AI have several roles: they become turns at once.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeGuard

from limpet.model import JSON
from limpet.views.chat.blocks import parsed
from limpet.views.chat.media import kind_of, mime_of, read_media, text_or_media
from limpet.views.chat.model import (
    Answer,
    Call,
    ChatTurn,
    Fields,
    Inner,
    Part,
    Result,
    Text,
    Value,
    rest,
    text_of,
)

# Where a state holds its messages

# Paths to the object that holds the list: the state itself, LangGraph's checkpoint and the result
# of its `get_state`, the files of Strands, and those of Genkit.
_HOLDER_PATHS: tuple[tuple[str, ...], ...] = (
    (),
    ("channel_values",),
    ("values",),
    ("checkpoint", "channel_values"),
    ("data",),
    ("state",),
)
_LIST_NAMES = ("history", "chat_history", "conversation", "items", "input", "transcript")
_PROMPT_NAMES = ("systemPrompt", "system_prompt", "system")
_ITEM_TYPES = ("message", "reasoning")


class MessageList(NamedTuple):
    """A list of messages, its JSON Pointer, and the system prompt next to it."""

    path: str
    messages: list[JSON]
    prompt: JSON = None
    prompt_key: str | None = None
    is_transcript: bool = False


class AgentResults(NamedTuple):
    """The results of several agents by agent name, their JSON Pointer, and the task."""

    path: str
    task: JSON
    results: list[tuple[str, Fields]]


def find_messages(state: JSON) -> MessageList | None:
    """Return the first list of messages that is not empty or has a system prompt next to it."""
    if isinstance(state, list):
        return MessageList("", state) if _are_messages(state) else None
    for path, holder in _holders(state):
        prompt_key = next((key for key in _PROMPT_NAMES if _is_prompt(holder.get(key))), None)
        prompt = None if prompt_key is None else holder[prompt_key]
        messages = holder.get("messages")
        # The name is enough, whatever the messages look like.
        if isinstance(messages, list) and (messages or prompt):
            return MessageList(_pointer(*path, "messages"), messages, prompt, prompt_key)
        for name in _LIST_NAMES:
            found = holder.get(name)
            if isinstance(found, list) and _are_messages(found):
                if prompt is None and isinstance(holder.get("instructions"), str):
                    prompt_key, prompt = "instructions", holder["instructions"]
                return MessageList(_pointer(*path, name), found, prompt, prompt_key)
        entries = holder.get("entries")
        if is_transcript(entries):
            return MessageList(_pointer(*path, "entries"), entries, is_transcript=True)
        events = holder.get("events")
        if isinstance(events, list) and events and _are_events(events):
            return MessageList(_pointer(*path, "events"), events)
    return _find_agent_session(state)


def find_agent_results(state: JSON) -> AgentResults | None:
    """Return the results of a Strands multi-agent state, from TypeScript or Python."""
    for path, holder in _holders(state):
        inner = holder.get("state")
        if not isinstance(inner, dict) or not ({"orchestratorId", "orchestrator_id"} & {*holder}):
            continue
        task = inner.get("current_task") or inner.get("_pendingInput")
        listed, named = inner.get("results"), inner.get("node_results")
        results: list[tuple[str, Fields]] = []
        if isinstance(listed, list):
            results = [(str(each.get("nodeId")), each) for each in listed if isinstance(each, dict)]
        elif isinstance(named, dict):
            results = [(name, each) for name, each in named.items() if isinstance(each, dict)]
        if results or task:
            key = "results" if isinstance(listed, list) else "node_results"
            return AgentResults(_pointer(*path, "state", key), task, results)
    return None


def _holders(state: JSON) -> Iterator[tuple[tuple[str, ...], Fields]]:
    for path in _HOLDER_PATHS:
        at = state
        for key in path:
            at = at.get(key) if isinstance(at, dict) else None
        if isinstance(at, dict):
            yield path, at


def _pointer(*keys: str) -> str:
    return "".join(f"/{key}" for key in keys)


def _are_messages(found: list[JSON]) -> bool:
    if not found:
        return False
    return _is_message(found[0]) or all(isinstance(each, str) for each in found)


def _are_events(found: list[JSON]) -> bool:
    return read_adk(found[0]) is not None or any(read_ag2(each) is not None for each in found)


def _is_prompt(value: JSON) -> bool:
    return isinstance(value, str | list) and bool(value)


def _is_message(value: JSON) -> bool:
    if not isinstance(value, dict):
        return False
    if isinstance(value.get("role"), str):
        return not {"content", "parts", "tool_calls"}.isdisjoint(value)
    type = value.get("type")
    is_item = isinstance(type, str) and (type in _ITEM_TYPES or type.endswith(("_call", "_output")))
    return is_item or is_pydantic(value) or read_langchain(value) is not None


# Google's Agent Development Kit: the events that its sessions store

_ADK_ACTIONS = ("state_delta", "transfer_to_agent", "rewind_before_invocation_id", "escalate")
_ADK_ERRORS = ("error_code", "error_message")


def read_adk(event: JSON) -> Fields | None:
    """Return an event as a message: what was said, by whom, and what it changed."""
    if not isinstance(event, dict) or "role" in event:
        return None
    author, actions, content = text_of(event, "author"), event.get("actions"), event.get("content")
    if author is None or not isinstance(actions, dict):
        return None
    message: dict[str, JSON] = {"role": "user" if author == "user" else "assistant"}
    if author != "user":
        message["name"] = author
    message["parts"] = content.get("parts") if isinstance(content, dict) else content
    message.update({key: actions[key] for key in _ADK_ACTIONS if actions.get(key)})
    message.update({key: event[key] for key in _ADK_ERRORS if event.get(key)})
    return message


def is_silent(value: JSON) -> bool:
    """Return whether this is an event that says and changes nothing, like the end of an agent."""
    if not isinstance(value, dict) or value.keys().isdisjoint(("author", "__event__")):
        return False
    message = read_adk(value)
    if message is None:
        return "__event__" in value and read_ag2(value) is None
    return not any(each for key, each in message.items() if key not in ("role", "name"))


# The Claude Agent SDK: transcripts with messages, among entries that only programs read


def is_transcript(entries: JSON) -> TypeGuard[list[JSON]]:
    """Return whether a list is a transcript with messages in it."""
    return isinstance(entries, list) and any(read_claude(each) is not None for each in entries)


def read_claude(entry: JSON) -> Fields | None:
    """Return the message of an entry, without what the API and the program noted about it.

    None for a title, a mode, an attachment and the like, and for what was said to the model alone.
    """
    if not isinstance(entry, dict) or entry.get("type") not in ("user", "assistant"):
        return None
    message = entry.get("message")
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        return None
    if "sessionId" not in entry or entry.get("isMeta") is True:
        return None
    return {"role": message["role"], "content": message.get("content")}


# LangChain, as LangGraph stores its messages

_LANGCHAIN_ROLES = {
    "human": "user",
    "ai": "assistant",
    "system": "system",
    "tool": "tool",
    "function": "tool",
    "chat": "chat",
}


def read_langchain(message: Fields) -> tuple[str, Fields] | None:
    """Return the role and the fields of a LangChain message; None if it is not one.

    It has three forms: `{"type": "human", "content": ...}`, `{"type": "human", "data": {...}}` and
    `{"lc": 1, "type": "constructor", "id": [..., "HumanMessage"], "kwargs": {...}}`.
    """
    fields: JSON = message
    if "lc" in message:
        kind, fields = _langchain_class(message.get("id")), message.get("kwargs")
    else:
        kind = text_of(message, "type")
        if "role" in message:
            return None
        if "content" not in message:
            fields = message.get("data")
    role = _LANGCHAIN_ROLES.get((kind or "").removesuffix("Chunk").removesuffix("Message").lower())
    if role is None or not isinstance(fields, dict) or "content" not in fields:
        return None
    return (text_of(fields, "role") or role if role == "chat" else role), fields


def _langchain_class(id: JSON) -> str | None:
    return id[-1] if isinstance(id, list) and id and isinstance(id[-1], str) else None


# LlamaIndex: messages of blocks, which hold nothing that others have not


def read_llama_index(message: Fields) -> Fields | None:
    """Return a message with the names and blocks that others use."""
    blocks = message.get("blocks")
    if not isinstance(blocks, list) or "role" not in message:
        return None
    more = _object(message.get("additional_kwargs"))  # the call that a tool answers, among others
    known = ("blocks", "additional_kwargs")
    plain = {name: value for name, value in message.items() if name not in known}
    return {**more, **plain, "content": [_llama_block(each) for each in blocks]}


def _llama_block(block: JSON) -> JSON:
    kind = _object(block).get("block_type")
    if not isinstance(block, dict) or not isinstance(kind, str):
        return block
    if kind == "thinking":
        return {"type": kind, "thinking": block.get("content")}
    if kind == "tool_call":
        id, name = block.get("tool_call_id"), block.get("tool_name")
        return _call(id, name, block.get("tool_kwargs"))
    if kind in ("image", "audio", "video", "document"):
        data, mime = block.get(kind, block.get("data")), block.get(f"{kind}_mimetype")
        return {**block, "type": kind, "data": data, "uri": block.get("path"), "media_type": mime}
    if kind == "cache":
        return {"cachePoint": {}}
    return {**{name: value for name, value in block.items() if name != "block_type"}, "type": kind}


# AG2: the events of a stream. Calls and results are also events of their own, which say the same.


def read_ag2(event: JSON) -> Fields | None:
    """Return an event as a message; None for those that are none, or part of another."""
    said = _object(event)
    kind = (text_of(said, "__event__") or "").rpartition(".")[2]
    if kind == "ModelRequest":
        return {"role": "user", "content": _ag2_parts(said.get("parts"))}
    if kind == "ModelResponse":
        text = _object(said.get("message")).get("content")
        calls = [_object(each) for each in _list(_object(said.get("tool_calls")).get("calls"))]
        blocks = [_call(each.get("id"), each.get("name"), each.get("arguments")) for each in calls]
        return {"role": "assistant", "content": [*([text] if text else []), *blocks]}
    if kind == "ToolResultsEvent":
        results = [_object(each) for each in _list(said.get("results"))]
        return {"role": "tool", "content": [_ag2_result(each) for each in results]}
    return None


def _ag2_parts(parts: JSON) -> list[JSON]:
    """Return texts as they are, and other parts as JSON."""
    return [each.get("content", each.get("data", each)) for each in map(_object, _list(parts))]


def _ag2_result(result: Fields) -> JSON:
    parts = _ag2_parts(_object(_object(result.get("result")).get("data")).get("parts"))
    id, failed = result.get("parent_id"), "error" in result
    return {"type": "tool_result", "tool_use_id": id, "content": parts, "is_error": failed}


def _list(value: JSON) -> list[JSON]:
    return value if isinstance(value, list) else []


# Microsoft Agent Framework: a checkpoint holds the sessions of its agents. Other messages in it are
# pickles, which are never read here.

_EXECUTORS = "_executor_state"


def _find_agent_session(state: JSON) -> MessageList | None:
    """Return the messages of the agent that has most; None if none has any."""
    keys, messages = max(_agent_sessions(state), key=lambda each: len(each[1]), default=((), []))
    if not messages:
        return None
    if any("/" in key or "~" in key for key in keys):
        keys = keys[:2]
    return MessageList(_pointer(*keys), [_usual_message(each) for each in messages])


def _agent_sessions(state: JSON) -> Iterator[tuple[tuple[str, ...], list[JSON]]]:
    for executor, held in _object(_object(_object(state).get("state")).get(_EXECUTORS)).items():
        session = _object(_object(held).get("agent_session"))
        for provider, kept in _object(session.get("state")).items():
            messages = _object(kept).get("messages")
            if isinstance(messages, list) and messages:
                path = (
                    "state",
                    _EXECUTORS,
                    executor,
                    "agent_session",
                    "state",
                    provider,
                    "messages",
                )
                yield path, messages


def _object(value: JSON) -> Fields:
    return value if isinstance(value, dict) else {}


def _usual_message(message: JSON) -> JSON:
    """Return a message with the names and blocks that others use."""
    if not isinstance(message, dict) or not isinstance(message.get("contents"), list):
        return message
    known = ("type", "contents", "author_name")
    return {
        **{name: value for name, value in message.items() if name not in known},
        "name": message.get("author_name"),
        "content": [_usual_block(each) for each in message["contents"]],
    }


def _call(id: JSON, name: JSON, given: JSON) -> JSON:
    return {"type": "tool_use", "id": id, "name": name, "input": parsed(given)}


def _usual_block(block: JSON) -> JSON:
    if not isinstance(block, dict):
        return block
    type, id = text_of(block, "type"), block.get("call_id")
    if type == "text_reasoning":
        return {"type": "thinking", "thinking": block.get("text")}
    if type == "function_call":
        return _call(id, block.get("name"), block.get("arguments"))
    if type == "function_result":
        failed = bool(block.get("exception"))
        content = block.get("exception") if failed else block.get("result")
        return {"type": "tool_result", "tool_use_id": id, "content": content, "is_error": failed}
    if type in ("uri", "data"):
        return {**block, "type": kind_of(text_of(block, "media_type"))}
    return block


# Pydantic AI: requests and responses, and their parts. A request may hold a system prompt,
# a question and results of tools: it becomes a turn for each.

_PART_ROLES = {
    "system-prompt": "system",
    "user-prompt": "user",
    "tool-return": "tool",
    "retry-prompt": "tool",
    "retry-feedback": "user",
}
_RESULT_PARTS = ("tool-return", "builtin-tool-return", "retry-prompt")
_CALL_PARTS = ("tool-call", "builtin-tool-call")
_FILE_KINDS = {
    "image-url": "image",
    "audio-url": "audio",
    "video-url": "video",
    "document-url": "document",
    "uploaded-file": "file",
}
# What only programs read, next to what `model.TECHNICAL` names.
_PYDANTIC_TECHNICAL = (
    *("kind", "part_kind", "tool_kind", "dynamic_ref", "run_id", "conversation_id"),
    *("model_name", "model_id", "provider_name", "provider_url", "provider_details"),
    *("provider_response_id", "canonical_system", "workspace_ref", "history_digest"),
    *("content_file_digests", "retry"),
)


def is_pydantic(value: JSON) -> bool:
    """Return whether this is a message of Pydantic AI."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("parts"), list)
        and isinstance(value.get("kind"), str)
        and value["kind"] in ("request", "response")
    )


class PydanticReader:
    """Reads one message after the other; instructions are shown where they change."""

    def __init__(self) -> None:
        self._instructions: JSON = None

    def read(self, value: JSON, index: int) -> list[ChatTurn] | None:
        """Return the turns of a message, or of a stored entry; None if it is neither."""
        entry = value.get("message") if isinstance(value, dict) else None
        message: Any = entry if is_pydantic(entry) else value
        if not is_pydantic(message):
            return None
        is_request = message["kind"] == "request"
        turns: list[tuple[str, list[Part]]] = []
        if is_request and message.get("instructions") != self._instructions:
            self._instructions = message.get("instructions")
            turns += [("system", _content(self._instructions))] if self._instructions else []
        for part in message["parts"]:
            role = _pydantic_role(part) if is_request else "assistant"
            if not turns or turns[-1][0] != role:
                turns.append((role, []))
            turns[-1][1].extend(_pydantic_part(part))
        known = ("parts", "instructions") if is_request else ("parts",)
        if message.get("state") == "complete":
            known = (*known, "state")
        others = [
            *rest(message, *known, *_PYDANTIC_TECHNICAL),
            *(rest(value, "message") if message is entry else []),
        ]
        if others or not turns:
            turns = turns or [("user" if is_request else "assistant", [])]
            turns[-1][1].extend(others)
        return [ChatTurn(role, None, tuple(parts), index) for role, parts in turns]


def _pydantic_role(part: JSON) -> str:
    if not isinstance(part, dict) or not isinstance(part.get("part_kind"), str):
        return "user"
    if part["part_kind"] == "retry-prompt" and part.get("tool_name") is None:
        return "user"  # about an answer, not about a call
    return _PART_ROLES.get(part["part_kind"], "system")


def _pydantic_part(part: JSON) -> list[Part]:
    if not isinstance(part, dict):
        return [Value(part)]
    kind, content = part.get("part_kind"), part.get("content")
    if kind in _CALL_PARTS and isinstance(part.get("tool_name"), str):
        called = Call(part["tool_name"], parsed(part.get("args")), text_of(part, "tool_call_id"))
        return [called, *rest(part, "tool_name", "args", "tool_call_id", *_PYDANTIC_TECHNICAL)]
    if kind in _RESULT_PARTS and isinstance(part.get("tool_name"), str):
        return [_answer(part)]
    if kind == "thinking" and isinstance(content, str):
        return [Text(content, thinking=True), *rest(part, "content", *_PYDANTIC_TECHNICAL)]
    if kind == "speech":
        said, audio = text_of(part, "transcript"), part.get("audio")
        spoken: list[Part] = [] if said is None else [Text(said)]
        spoken += [] if audio is None else _item(audio)
        return [*spoken, *rest(part, "transcript", "audio", "speaker", *_PYDANTIC_TECHNICAL)]
    if content is None:
        return [Value(part)]
    return [*_content(content), *rest(part, "content", *_PYDANTIC_TECHNICAL)]


def _answer(part: Fields) -> Answer:
    outcome = part.get("outcome", "success")
    is_error = part["part_kind"] == "retry-prompt" or outcome != "success"
    known = ("tool_name", "content", "tool_call_id", *_PYDANTIC_TECHNICAL)
    others = rest(part, *known, *(["outcome"] if outcome == "success" else []))
    within = (*_within(part.get("content")), *others)
    return Answer(part["tool_name"], text_of(part, "tool_call_id"), Result(within, is_error))


def _content(content: JSON) -> list[Part]:
    items = content if isinstance(content, list) else [content]
    return [part for item in items for part in _item(item)]


def _within(content: JSON) -> list[Inner]:
    """Read what a tool returned: text, files, or any JSON."""
    if content is None:
        return []
    if isinstance(content, list) and not any(map(_is_file, content)):
        return [Value(content)]
    return [
        part
        for item in (content if isinstance(content, list) else [content])
        for part in _item(item)
    ]


def _is_file(value: JSON) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        return False
    return value["kind"] == "binary" or value["kind"] in _FILE_KINDS


def _item(item: JSON) -> list[Inner]:
    if isinstance(item, str):
        return [text_or_media(item)] if item else []
    if not isinstance(item, dict) or not isinstance(item.get("kind"), str):
        return [Value(item)]
    kind = item["kind"]
    if kind == "text-content" and isinstance(item.get("content"), str):
        return [Text(item["content"])]
    if kind == "cache-point":
        return []
    media = None
    if _is_file(item):
        media = read_media(item, _FILE_KINDS.get(kind) or kind_of(mime_of(item)))
    return [Value(item) if media is None else media]
