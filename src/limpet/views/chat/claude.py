"""Transcripts of the Claude Agent SDK: messages, among entries that only programs read."""

from typing import TypeGuard

from limpet.model import JSON
from limpet.views.chat.model import Fields


def is_transcript(entries: JSON) -> TypeGuard[list[JSON]]:
    """Return whether a list is a transcript with messages in it."""
    return isinstance(entries, list) and any(read_entry(each) is not None for each in entries)


def read_entry(entry: JSON) -> Fields | None:
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
