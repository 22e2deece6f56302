"""What a message holds that no shape knows: it is kept, unless it is only for programs."""

from typing import Final

from limpet.views._chat_parts import Fields, Value

SEALS: Final = frozenset(
    {
        "metadata",
        "cache_control",
        "signature",
        "thoughtSignature",
        "thought_signature",
        "encrypted_content",
    }
)
"""Members of messages and of their blocks that are for programs only."""

TECHNICAL: Final = SEALS | {
    # What it is called and where it stands.
    *("id", "uuid", "message_id", "messageId", "trackingId", "tracking_id"),
    *("type", "object", "role", "index"),
    # When it was said.
    *("timestamp", "created", "created_at", "createdAt", "updated_at", "updatedAt"),
    # What the model used and why it stopped.
    *("model", "usage", "usage_metadata", "usageMetadata", "response_metadata"),
    *("stop_reason", "stopReason", "stop_sequence", "finish_reason", "finishReason"),
    # LangChain's marks, and the pieces of calls that it keeps beside the calls.
    *("$message", "$message+", "example", "chunk_position", "tool_call_chunks"),
    *("__openai_function_call_ids__", "__gemini_function_call_thought_signatures__"),
}
"""All members of a message that are never shown. Whatever else is in it is."""

_ORDINARY = ("completed", "success")  # a `status` that says that there is nothing to say


def rest(fields: Fields, *known: str) -> list[Value]:
    """Return the members that are neither known nor technical nor empty, as one value if any."""
    left = {
        name: value
        for name, value in fields.items()
        if name not in known and name not in TECHNICAL and not _is_empty(name, value)
    }
    return [Value(left)] if left else []


def _is_empty(name: str, value: object) -> bool:
    if isinstance(value, str) and name == "status" and value in _ORDINARY:
        return True
    return value is None or (isinstance(value, str | list | dict) and not value)
