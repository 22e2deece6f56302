"""The messages in a checkpoint of Microsoft Agent Framework: those of its agents' sessions.

Other messages are pickles, which are never read here.
"""

from collections.abc import Iterator

from limpet.model import JSON
from limpet.views.chat.blocks import parsed
from limpet.views.chat.media import kind_of
from limpet.views.chat.model import Fields, text_of

_STATES = "_executor_state"


def find_session(state: JSON) -> tuple[str, list[JSON]] | None:
    """Return the JSON Pointer and messages of the agent that has most; None if none has any."""
    found = max(_sessions(state), key=lambda each: len(each[1]), default=None)
    if found is None:
        return None
    keys, messages = found
    if any("/" in key or "~" in key for key in keys):
        keys = keys[:2]
    return "".join(f"/{key}" for key in keys), [_message(each) for each in messages]


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


def _message(message: JSON) -> JSON:
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
