"""Finds the messages in a state."""

from collections.abc import Iterator
from typing import NamedTuple

from limpet.model import JSON
from limpet.views.chat.messages import (
    find_agent_session,
    is_message,
    is_transcript,
    read_adk,
    read_langchain,
)
from limpet.views.chat.model import Fields

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
_LISTS = ("history", "chat_history", "conversation", "items", "input", "transcript")
_PROMPTS = ("systemPrompt", "system_prompt", "system")
_ITEMS = ("message", "reasoning")


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
        prompt_key = next((key for key in _PROMPTS if _is_prompt(holder.get(key))), None)
        prompt = None if prompt_key is None else holder[prompt_key]
        messages = holder.get("messages")
        # The name is enough, whatever the messages look like.
        if isinstance(messages, list) and (messages or prompt):
            return MessageList(_pointer(*path, "messages"), messages, prompt, prompt_key)
        for name in _LISTS:
            found = holder.get(name)
            if isinstance(found, list) and _are_messages(found):
                if prompt is None and isinstance(holder.get("instructions"), str):
                    prompt_key, prompt = "instructions", holder["instructions"]
                return MessageList(_pointer(*path, name), found, prompt, prompt_key)
        entries = holder.get("entries")
        if is_transcript(entries):
            return MessageList(_pointer(*path, "entries"), entries, is_transcript=True)
        events = holder.get("events")
        if isinstance(events, list) and events and read_adk(events[0]) is not None:
            return MessageList(_pointer(*path, "events"), events)
    session = find_agent_session(state)
    return None if session is None else MessageList(*session)


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


def _is_prompt(value: JSON) -> bool:
    return isinstance(value, str | list) and bool(value)


def _is_message(value: JSON) -> bool:
    if not isinstance(value, dict):
        return False
    if isinstance(value.get("role"), str):
        return not {"content", "parts", "tool_calls"}.isdisjoint(value)
    type = value.get("type")
    is_item = isinstance(type, str) and (type in _ITEMS or type.endswith(("_call", "_output")))
    return is_item or is_message(value) or read_langchain(value) is not None
