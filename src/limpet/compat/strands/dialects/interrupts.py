"""Translates the interrupt state of agents that wait for an answer.

Tools and hooks find an answer by an id that each SDK computes in its own way, from the origin and
the name of the interrupt. So ids are translated; an id that neither SDK computes is kept.
"""

from collections.abc import Callable
from hashlib import sha1
from typing import Any

from limpet.compat.strands.dialects import blocks
from limpet.compat.strands.dialects.blocks import TO_PYTHON, TO_TYPESCRIPT
from limpet.model import JSON

# For each origin of an interrupt the prefix of its id in TypeScript and in Python, and its source
# in TypeScript.
_ORIGINS = (
    ("tool", "v1:tool_call", "tool"),
    ("hook:beforeToolCall", "v1:before_tool_call", "hook"),
    ("hook:beforeTools", "v1:before_tools", "hook"),
    ("middleware:executeTool", "v1:middleware_execute_tool", "middleware"),
    ("middleware:agentStream", "v1:middleware_agent_stream", "middleware"),
)

_OBJECT_IDS = bytes.fromhex("6ba7b8129dad11d180b400c04fd430c8")


def to_python(found: dict[str, Any]) -> dict[str, Any]:
    ids: dict[str, str] = {}
    asked: dict[str, JSON] = {}
    for each in _records(found):
        ids[each["id"]] = id = _python_id(each["id"], each.get("name"))
        facts = {"name": each.get("name"), "reason": each.get("reason")}
        asked[id] = {"id": id, **facts, "response": each.get("response")}
    answers = found.get("resumeResponses")
    translated: dict[str, Any] = {
        "interrupts": asked,
        "context": {"responses": _answers(answers, ids)} if answers else {},
        "activated": found.get("activated", False),
    }
    pending = found.get("pendingToolExecution")
    if isinstance(pending, dict):
        results = pending.get("completedToolResults")
        values = results.values() if isinstance(results, dict) else ()
        translated["pending_tool_execution"] = {
            "assistant_message": blocks.message(pending.get("assistantMessageData"), TO_PYTHON),
            "completed_tool_results": [
                blocks.tool_result(each.get("toolResult"), TO_PYTHON)
                for each in values
                if isinstance(each, dict)
            ],
        }
    return translated


def to_typescript(found: dict[str, Any]) -> dict[str, Any]:
    ids: dict[str, str] = {}
    asked: dict[str, JSON] = {}
    for each in _records(found):
        ids[each["id"]], source = _typescript_id(each["id"], each.get("name"))
        id = ids[each["id"]]
        said = {name: each[name] for name in ("reason", "response") if each.get(name) is not None}
        asked[id] = {"id": id, "name": each.get("name"), **said, **source}
    translated: dict[str, Any] = {"interrupts": asked}
    context = found.get("context")
    if isinstance(context, dict) and context.get("responses"):
        translated["resumeResponses"] = _answers(context["responses"], ids)
    translated["activated"] = found.get("activated", False)
    pending = found.get("pending_tool_execution")
    if isinstance(pending, dict):
        results = pending.get("completed_tool_results")
        translated["pendingToolExecution"] = {
            "assistantMessageData": blocks.message(pending.get("assistant_message"), TO_TYPESCRIPT),
            "completedToolResults": {
                each["toolUseId"]: {"toolResult": blocks.tool_result(each, TO_TYPESCRIPT)}
                for each in (results if isinstance(results, list) else ())
                if isinstance(each, dict) and isinstance(each.get("toolUseId"), str)
            },
        }
    return translated


def _records(found: dict[str, Any]) -> list[dict[str, Any]]:
    asked = found.get("interrupts")
    values = asked.values() if isinstance(asked, dict) else ()
    return [each for each in values if isinstance(each, dict) and isinstance(each.get("id"), str)]


def _answers(found: JSON, ids: dict[str, str]) -> JSON:
    if not isinstance(found, list):
        return found
    return [_answer(each, ids) for each in found]


def _answer(found: JSON, ids: dict[str, str]) -> JSON:
    response = found.get("interruptResponse") if isinstance(found, dict) else None
    if not isinstance(response, dict) or str(response.get("interruptId")) not in ids:
        return found
    named = {"interruptId": ids[str(response["interruptId"])]}
    return {**found, "interruptResponse": {**response, **named}}


def _python_id(id: str, name: JSON) -> str:
    for ours, theirs, _ in _ORIGINS:
        found = _between(id, ours, name, lambda text: text)
        if found is not None:
            return f"{theirs}{found}:{_hashed(name)}"
    return id


def _typescript_id(id: str, name: JSON) -> tuple[str, dict[str, str]]:
    """Return the id, and the source if it is known."""
    for theirs, ours, source in _ORIGINS:
        found = _between(id, ours, name, _hashed)
        if found is not None:
            return f"{theirs}{found}:{name}", {"source": source}
    return id, {}


def _between(id: str, start: str, name: JSON, end_of: Callable[[str], str]) -> str | None:
    """Return the part of an id between its prefix and the name: empty, or the id of a tool call."""
    if not isinstance(name, str) or not id.startswith(f"{start}:"):
        return None
    end = f":{end_of(name)}"
    if not id.endswith(end) or len(id) < len(start) + len(end):
        return None
    return id[len(start) : len(id) - len(end)]


def _hashed(name: str) -> str:
    """Return what Python's ids have instead of the name: its UUID 5 in the namespace OID."""
    found = sha1(_OBJECT_IDS + name.encode(errors="surrogatepass"), usedforsecurity=False)
    number = int.from_bytes(found.digest()[:16])
    number = number & ~(0xF << 76) | 5 << 76
    digits = f"{number & ~(3 << 62) | 2 << 62:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
