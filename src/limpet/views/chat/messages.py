"""The messages of each framework in one shape: a role, a name, and the content or parts.

Each function returns None for what its framework did not write. The messages of Pydantic AI have
several roles: they become turns at once.
"""

from collections.abc import Iterator
from typing import Any, TypeGuard

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

# Google's Agent Development Kit: the events that its sessions store

_SHOWN = ("state_delta", "transfer_to_agent", "rewind_before_invocation_id", "escalate")
_ERRORS = ("error_code", "error_message")


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
    message.update({key: actions[key] for key in _SHOWN if actions.get(key)})
    message.update({key: event[key] for key in _ERRORS if event.get(key)})
    return message


def is_silent(value: JSON) -> bool:
    """Return whether this is an event that says and changes nothing, like the end of an agent."""
    message = read_adk(value)
    if message is None:
        return False
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

_ROLES = {
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
        kind, fields = _class_of(message.get("id")), message.get("kwargs")
    else:
        kind = text_of(message, "type")
        if "role" in message:
            return None
        if "content" not in message:
            fields = message.get("data")
    role = _ROLES.get((kind or "").removesuffix("Chunk").removesuffix("Message").lower())
    if role is None or not isinstance(fields, dict) or "content" not in fields:
        return None
    return (text_of(fields, "role") or role if role == "chat" else role), fields


def _class_of(id: JSON) -> str | None:
    return id[-1] if isinstance(id, list) and id and isinstance(id[-1], str) else None


# Microsoft Agent Framework: a checkpoint holds the sessions of its agents. Other messages in it are
# pickles, which are never read here.

_STATES = "_executor_state"


def find_agent_session(state: JSON) -> tuple[str, list[JSON]] | None:
    """Return the JSON Pointer and messages of the agent that has most; None if none has any."""
    found = max(_sessions(state), key=lambda each: len(each[1]), default=None)
    if found is None:
        return None
    keys, messages = found
    if any("/" in key or "~" in key for key in keys):
        keys = keys[:2]
    return "".join(f"/{key}" for key in keys), [_plain(each) for each in messages]


def _sessions(state: JSON) -> Iterator[tuple[tuple[str, ...], list[JSON]]]:
    for executor, held in _fields(_fields(_fields(state).get("state")).get(_STATES)).items():
        session = _fields(_fields(held).get("agent_session"))
        for provider, kept in _fields(session.get("state")).items():
            messages = _fields(kept).get("messages")
            if isinstance(messages, list) and messages:
                path = ("state", _STATES, executor, "agent_session", "state", provider, "messages")
                yield path, messages


def _fields(value: JSON) -> Fields:
    return value if isinstance(value, dict) else {}


def _plain(message: JSON) -> JSON:
    """Return a message with the names and blocks that others use."""
    if not isinstance(message, dict) or not isinstance(message.get("contents"), list):
        return message
    known = ("type", "contents", "author_name")
    return {
        **{name: value for name, value in message.items() if name not in known},
        "name": message.get("author_name"),
        "content": [_block(each) for each in message["contents"]],
    }


def _block(block: JSON) -> JSON:
    if not isinstance(block, dict):
        return block
    type, id = text_of(block, "type"), block.get("call_id")
    if type == "text_reasoning":
        return {"type": "thinking", "thinking": block.get("text")}
    if type == "function_call":
        given = parsed(block.get("arguments"))
        return {"type": "tool_use", "id": id, "name": block.get("name"), "input": given}
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
_RESULTS = ("tool-return", "builtin-tool-return", "retry-prompt")
_CALLS = ("tool-call", "builtin-tool-call")
_MEDIA = {
    "image-url": "image",
    "audio-url": "audio",
    "video-url": "video",
    "document-url": "document",
    "uploaded-file": "file",
}
# What only programs read, next to what `model.TECHNICAL` names.
_TECHNICAL = (
    *("kind", "part_kind", "tool_kind", "dynamic_ref", "run_id", "conversation_id"),
    *("model_name", "model_id", "provider_name", "provider_url", "provider_details"),
    *("provider_response_id", "canonical_system", "workspace_ref", "history_digest"),
    *("content_file_digests", "retry"),
)


def is_message(value: JSON) -> bool:
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
        message: Any = entry if is_message(entry) else value
        if not is_message(message):
            return None
        is_request = message["kind"] == "request"
        turns: list[tuple[str, list[Part]]] = []
        if is_request and message.get("instructions") != self._instructions:
            self._instructions = message.get("instructions")
            turns += [("system", _content(self._instructions))] if self._instructions else []
        for part in message["parts"]:
            role = _role(part) if is_request else "assistant"
            if not turns or turns[-1][0] != role:
                turns.append((role, []))
            turns[-1][1].extend(_part(part))
        known = ("parts", "instructions") if is_request else ("parts",)
        if message.get("state") == "complete":
            known = (*known, "state")
        others = [
            *rest(message, *known, *_TECHNICAL),
            *(rest(value, "message") if message is entry else []),
        ]
        if others or not turns:
            turns = turns or [("user" if is_request else "assistant", [])]
            turns[-1][1].extend(others)
        return [ChatTurn(role, None, tuple(parts), index) for role, parts in turns]


def _role(part: JSON) -> str:
    if not isinstance(part, dict) or not isinstance(part.get("part_kind"), str):
        return "user"
    if part["part_kind"] == "retry-prompt" and part.get("tool_name") is None:
        return "user"  # about an answer, not about a call
    return _PART_ROLES.get(part["part_kind"], "system")


def _part(part: JSON) -> list[Part]:
    if not isinstance(part, dict):
        return [Value(part)]
    kind, content = part.get("part_kind"), part.get("content")
    if kind in _CALLS and isinstance(part.get("tool_name"), str):
        called = Call(part["tool_name"], parsed(part.get("args")), text_of(part, "tool_call_id"))
        return [called, *rest(part, "tool_name", "args", "tool_call_id", *_TECHNICAL)]
    if kind in _RESULTS and isinstance(part.get("tool_name"), str):
        return [_answer(part)]
    if kind == "thinking" and isinstance(content, str):
        return [Text(content, thinking=True), *rest(part, "content", *_TECHNICAL)]
    if kind == "speech":
        said, audio = text_of(part, "transcript"), part.get("audio")
        spoken: list[Part] = [] if said is None else [Text(said)]
        spoken += [] if audio is None else _item(audio)
        return [*spoken, *rest(part, "transcript", "audio", "speaker", *_TECHNICAL)]
    if content is None:
        return [Value(part)]
    return [*_content(content), *rest(part, "content", *_TECHNICAL)]


def _answer(part: Fields) -> Answer:
    outcome = part.get("outcome", "success")
    is_error = part["part_kind"] == "retry-prompt" or outcome != "success"
    known = ("tool_name", "content", "tool_call_id", *_TECHNICAL)
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
    return value["kind"] == "binary" or value["kind"] in _MEDIA


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
        media = read_media(item, _MEDIA.get(kind) or kind_of(mime_of(item)))
    return [Value(item) if media is None else media]
