"""Translates snapshots of the Strands SDK for TypeScript to those of the SDK for Python.

Both SDKs use the same keys for different documents, and neither reads those of the other;
`docs/guides/strands_python.md` lists which word becomes which.

An agent that waits for an answer continues in Python: its interrupts get the ids that the tool
computes there (so an answer must name the new id). The message with the tool call is the last one
of the conversation in Python, and stored separately in TypeScript.

A graph or swarm that has finished its run starts again in Python, as it would in TypeScript. An
unfinished run cannot be translated, because the next node follows from edges that are in neither
document.
"""

from collections.abc import Mapping
from copy import deepcopy
from hashlib import sha1
from typing import Any, Literal, TypeAlias

from limpet.compat.strands.records import SCHEMA_VERSION, Wire
from limpet.compat.wire import require
from limpet.errors import InvalidInput, Unsupported
from limpet.model import JSON

Dialect: TypeAlias = Literal["typescript", "python"]
Object: TypeAlias = dict[str, Any]

_ENVELOPE = {"schemaVersion": "schema_version", "createdAt": "created_at", "appData": "app_data"}
_FIELDS = {
    "systemPrompt": "system_prompt",
    "modelState": "model_state",
    "interrupts": "interrupt_state",
    "orchestratorId": "orchestrator_id",
}
_BLOCKS = {"reasoning": "reasoningContent", "citations": "citationsContent"}
_MEDIA = ("audio", "document", "image", "video")
_REASONING = ("text", "signature")
_LOCATIONS = {"searchResult": "searchResultLocation"}

_OBJECT_IDS = bytes.fromhex("6ba7b8129dad11d180b400c04fd430c8")

# For each origin of an interrupt the prefix of its id in TypeScript and in Python.
_ORIGINS = (
    ("tool", "v1:tool_call"),
    ("hook:beforeToolCall", "v1:before_tool_call"),
    ("hook:beforeTools", "v1:before_tools"),
    ("middleware:executeTool", "v1:middleware_execute_tool"),
    ("middleware:agentStream", "v1:middleware_agent_stream"),
)


def dialect_of(wire: JSON) -> Dialect | None:
    """Return the dialect of a snapshot; None if it is unknown.

    Documents of `FileStorage` and `S3Storage` always have the fields of TypeScript, and those of
    Python only if the data is Python's.
    """
    if not isinstance(wire, dict):
        return None
    if "schema_version" in wire or "created_at" in wire:
        return "python"
    return "typescript" if "schemaVersion" in wire or "createdAt" in wire else None


def to_python(wire: JSON) -> Wire:
    """Return a snapshot as the SDK for Python writes it. It shares nothing with the argument.

    One that is in this dialect already is returned as a copy; unknown values are left as they are.

    Raises:
        InvalidInput: it is not an object with `data`.
        Unsupported: it is a graph or swarm that has not finished its run.
    """
    is_snapshot = isinstance(wire, dict) and "data" in wire
    require(is_snapshot, "a snapshot must be an object with data", wire)
    try:
        own: Wire = deepcopy(wire)
        if dialect_of(own) == "python":
            return own
        result = _renamed(own, _ENVELOPE)
        data = result["data"]
        if isinstance(data, dict):
            is_graph = "orchestratorId" in data
            result["data"] = _graph(data) if is_graph else _agent(data)
            result.setdefault("scope", "multiAgent" if is_graph else "agent")
            result.setdefault("app_data", {})
        result.setdefault("schema_version", SCHEMA_VERSION)
        result.setdefault("created_at", "")
        return result
    except RecursionError:
        raise InvalidInput("the snapshot is nested too deep") from None


def _renamed(found: Mapping[str, Any], names: Mapping[str, str]) -> Object:
    return {names.get(name, name): value for name, value in found.items()}


def _agent(data: Object) -> Object:
    result, stash = _renamed(data, _FIELDS), data.get("stash")
    if isinstance(result.get("messages"), list):
        result["messages"] = [_message(each) for each in result["messages"]]
    if "system_prompt" in result:
        result["system_prompt"] = _blocks(result["system_prompt"])
    if isinstance(stash, dict):
        result["stash"] = _renamed(stash, {"storageType": "storage_type"})
    asked = data.get("interrupts", {})
    if asked is None:  # it means "unchanged", for which Python leaves the field out
        del result["interrupt_state"]
    elif "interrupts" in data and isinstance(asked, dict):
        result["interrupt_state"] = _interrupts(asked)
        pending = result["interrupt_state"].get("pending_tool_execution")
        messages = result.get("messages")
        if pending is not None and isinstance(messages, list):
            asking = pending["assistant_message"]
            result["messages"] = messages if messages[-1:] == [asking] else [*messages, asking]
    return result


def _graph(data: Object) -> Object:
    state = data.get("state")
    if isinstance(state, dict):
        nodes = state.get("nodes")
        found = nodes.items() if isinstance(nodes, dict) else ()
        busy = [name for name, each in found if not _is_idle(each)]
        if "_pendingInput" in state or busy:
            field = f"state.nodes.{busy[0]}.status" if busy else "state._pendingInput"
            raise Unsupported(
                "a graph or swarm that has not finished its run cannot be translated. "
                f"orchestrator_id=`{data['orchestratorId']}` field=`{field}`"
            )
    ended = {"id": data["orchestratorId"], "status": "completed", "next_nodes_to_execute": []}
    return {**_renamed(data, _FIELDS), "state": ended}


def _is_idle(node: JSON) -> bool:
    return isinstance(node, dict) and node.get("status") in ("PENDING", "COMPLETED")


# Messages


def _message(found: JSON) -> JSON:
    if not isinstance(found, dict):
        return found
    result = _renamed(found, {"trackingId": "tracking_id"})
    if "content" in result:
        result["content"] = _blocks(result["content"])
    return result


def _blocks(found: JSON) -> JSON:
    if not isinstance(found, list):
        return found
    return [_block(each) if isinstance(each, dict) else each for each in found]


def _block(found: Object) -> Object:
    return {
        _BLOCKS.get(name, name): _inner(name, value) if isinstance(value, dict) else value
        for name, value in found.items()
    }


def _inner(name: str, value: Object) -> JSON:
    if name in _MEDIA:
        return _media(value)
    if name == "toolResult":
        return _tool_result(value)
    if name == "cachePoint":
        return _renamed(value, {"cacheType": "type"})
    if name == "guardContent" and isinstance(value.get("image"), dict):
        return {**value, "image": _media(value["image"])}
    if name in ("reasoning", "reasoningContent"):
        return _reasoning(value)
    if name in ("citations", "citationsContent") and isinstance(value.get("citations"), list):
        return {**value, "citations": [_citation(each) for each in value["citations"]]}
    return value


def _tool_result(found: JSON) -> JSON:
    if not isinstance(found, dict) or "content" not in found:
        return found
    return {**found, "content": _blocks(found["content"])}


def _media(value: Object) -> Object:
    result, source = dict(value), value.get("source")
    if isinstance(source, dict) and "bytes" in source:
        result["source"] = {**source, "bytes": _bytes(source["bytes"])}
    if value.get("format") == "3gp":
        result["format"] = "three_gp"
    return result


def _reasoning(value: Object) -> Object:
    text = {name: value[name] for name in _REASONING if name in value}
    rest = {name: each for name, each in value.items() if name not in _REASONING}
    if "redactedContent" in rest:
        rest["redactedContent"] = _bytes(rest["redactedContent"])
    return {"reasoningText": text, **rest} if text else rest


def _citation(found: JSON) -> JSON:
    """`{"type": kind, …}`, the location, becomes `{kind: {…}}`."""
    location = found.get("location") if isinstance(found, dict) else None
    kind = location.get("type") if isinstance(location, dict) else None
    if not isinstance(found, dict) or not isinstance(location, dict) or not isinstance(kind, str):
        return found
    rest = {name: value for name, value in location.items() if name != "type"}
    return {**found, "location": {_LOCATIONS.get(kind, kind): rest}}


def _bytes(found: JSON) -> JSON:
    return {"__bytes_encoded__": True, "data": found} if isinstance(found, str) else found


# Interrupts


def _interrupts(found: Object) -> Object:
    """Translate the state of an agent that waits for an answer.

    Tools and hooks find an answer by an id that each SDK computes in its own way, from the origin
    and the name of the interrupt. An id that TypeScript does not compute is kept.
    """
    ids: dict[str, str] = {}
    asked: dict[str, JSON] = {}
    records = found.get("interrupts")
    for each in records.values() if isinstance(records, dict) else ():
        if isinstance(each, dict) and isinstance(each.get("id"), str):
            ids[each["id"]] = id = _interrupt_id(each["id"], each.get("name"))
            facts = {name: each.get(name) for name in ("name", "reason", "response")}
            asked[id] = {"id": id, **facts}
    answers = found.get("resumeResponses")
    if isinstance(answers, list):
        answers = [_answer(each, ids) for each in answers]
    result: Object = {
        "interrupts": asked,
        "context": {"responses": answers} if answers else {},
        "activated": found.get("activated", False),
    }
    pending = found.get("pendingToolExecution")
    if isinstance(pending, dict):
        results = pending.get("completedToolResults")
        result["pending_tool_execution"] = {
            "assistant_message": _message(pending.get("assistantMessageData")),
            "completed_tool_results": [
                _tool_result(each.get("toolResult"))
                for each in (results.values() if isinstance(results, dict) else ())
                if isinstance(each, dict)
            ],
        }
    return result


def _answer(found: JSON, ids: Mapping[str, str]) -> JSON:
    response = found.get("interruptResponse") if isinstance(found, dict) else None
    if not isinstance(found, dict) or not isinstance(response, dict):
        return found
    asked = str(response.get("interruptId"))
    return {**found, "interruptResponse": {**response, "interruptId": ids.get(asked, asked)}}


def _interrupt_id(id: str, name: JSON) -> str:
    """Return the id in Python, whose names are hashed: `<prefix>[:<tool call>]:<hash>`."""
    if not isinstance(name, str):
        return id
    for theirs, ours in _ORIGINS:
        call_chars = len(id) - len(theirs) - len(f":{name}")
        if call_chars >= 0 and id.startswith(f"{theirs}:") and id.endswith(f":{name}"):
            call = id[len(theirs) : len(theirs) + call_chars]
            return f"{ours}{call}:{_hashed(name)}"
    return id


def _hashed(name: str) -> str:
    found = sha1(_OBJECT_IDS + name.encode(errors="surrogatepass"), usedforsecurity=False)
    number = int.from_bytes(found.digest()[:16])
    number = number & ~(0xF << 76) | 5 << 76
    digits = f"{number & ~(3 << 62) | 2 << 62:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
