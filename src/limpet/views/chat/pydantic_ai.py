"""Reads the messages of Pydantic AI: requests and responses, and their parts.

A request may hold a system prompt, a question and results of tools: it becomes a turn for each.
"""

from typing import Any

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

_ROLES = {
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
    return _ROLES.get(part["part_kind"], "system")


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
