"""Where in a state the messages are."""

from collections.abc import Iterator
from typing import NamedTuple

from limpet.model import JSON
from limpet.views.chat.blocks import unwrap
from limpet.views.chat.model import Fields

# The ways to the object that holds the list: the state itself, LangGraph's checkpoint and what
# its `get_state` gives, the files of Strands, and those of Genkit.
_WAYS: tuple[tuple[str, ...], ...] = (
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


class Place(NamedTuple):
    """A list of messages: where it is, and the system prompt beside it."""

    path: str
    messages: list[JSON]
    prompt: JSON = None
    prompt_key: str | None = None


class Nodes(NamedTuple):
    """What several agents gave: where it stands, the task, and each with its name."""

    path: str
    task: JSON
    results: list[tuple[str, Fields]]


def find_messages(state: JSON) -> Place | None:
    """Return the first list of messages that is not empty, or has a system prompt beside it."""
    if isinstance(state, list):
        return Place("", state) if _are_messages(state) else None
    for way, holder in _holders(state):
        prompt_key = next((key for key in _PROMPTS if _is_prompt(holder.get(key))), None)
        prompt = None if prompt_key is None else holder[prompt_key]
        messages = holder.get("messages")
        # The name is enough: messages of an unknown kind are messages.
        if isinstance(messages, list) and (messages or prompt):
            return Place(_pointer(*way, "messages"), messages, prompt, prompt_key)
        for name in _LISTS:
            found = holder.get(name)
            if isinstance(found, list) and _are_messages(found):
                if prompt is None and isinstance(holder.get("instructions"), str):
                    prompt_key, prompt = "instructions", holder["instructions"]
                return Place(_pointer(*way, name), found, prompt, prompt_key)
    return None


def find_nodes(state: JSON) -> Nodes | None:
    """Return what several agents of Strands gave, in TypeScript or in Python."""
    for way, holder in _holders(state):
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
            return Nodes(_pointer(*way, "state", key), task, results)
    return None


def _holders(state: JSON) -> Iterator[tuple[tuple[str, ...], Fields]]:
    for way in _WAYS:
        at = state
        for key in way:
            at = at.get(key) if isinstance(at, dict) else None
        if isinstance(at, dict):
            yield way, at


def _pointer(*keys: str) -> str:
    return "".join(f"/{key}" for key in keys)


def _are_messages(found: list[JSON]) -> bool:
    """Tell whether a list can be nothing else."""
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
    return is_item or unwrap(value) is not None
