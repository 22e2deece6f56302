"""Translates snapshots of the Strands SDK for TypeScript to those for Python, and back.

Both SDKs use the same keys for different documents, and neither reads those of the other::

    to_python(document)        # {"schemaVersion": …, "data": {"systemPrompt": …}} -> snake_case
    to_typescript(document)    # and the other way

A document that is in the target dialect already is returned as a copy. The result shares nothing
with the argument.

| TypeScript                             | Python                                              |
|----------------------------------------|-----------------------------------------------------|
| `schemaVersion`, `createdAt`, `appData` | `schema_version`, `created_at`, `app_data`         |
| `trackingId` of a message              | `tracking_id`                                       |
| `reasoning`, `citations`, `cachePoint` | `reasoningContent`, `citationsContent`, `cachePoint` |
| bytes as base64                        | `{"__bytes_encoded__": true, "data": base64}`       |
| `systemPrompt`, `modelState`           | `system_prompt`, `model_state`                      |
| `interrupts`                           | `interrupt_state`                                   |
| `stash.storageType`                    | `stash.storage_type`                                |
| `orchestratorId`                       | `orchestrator_id`                                   |

An agent that waits for an answer continues in the other SDK: its interrupts get the ids that the
tool computes there (so an answer must name the new id). The message with the tool call is the last
one of the conversation in Python, and stored separately in TypeScript.

A round trip loses nothing. Fields of `data` that the other SDK does not know, such as
`conversation_manager_state`, stay where they are and are ignored there. A message or field that
would come back changed is kept whole in `appData` or `app_data`, under `limpet_bridge`, and is used
as long as its translation has not been changed. The SDKs themselves write back neither unknown
fields nor `appData`.

A graph or swarm that has finished its run starts again in the other SDK, as it would in its own;
the results of that run are in the bridge. An unfinished run cannot be translated, because the next
node follows from edges that are in neither document.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any, Literal, NamedTuple, TypeAlias

from limpet.compat.strands.dialects import blocks, interrupts
from limpet.compat.strands.dialects.blocks import (
    TO_PYTHON,
    TO_TYPESCRIPT,
    BlockNames,
    inverted,
    renamed,
)
from limpet.compat.strands.records import SCHEMA_VERSION
from limpet.errors import InvalidInput, Unsupported
from limpet.model import JSON

Dialect: TypeAlias = Literal["typescript", "python"]
Data: TypeAlias = dict[str, Any]

BRIDGE = "limpet_bridge"
_WHOLE = ""  # the key in a bridge for all of the data

_ENVELOPE = {"schemaVersion": "schema_version", "createdAt": "created_at", "appData": "app_data"}
_FIELDS = {
    "systemPrompt": "system_prompt",
    "modelState": "model_state",
    "interrupts": "interrupt_state",
    "orchestratorId": "orchestrator_id",
}
_STASH = {"storageType": "storage_type"}


class _Target(NamedTuple):
    """How to translate to the dialect of one SDK; `back` translates data to the other."""

    blocks: BlockNames
    names: dict[str, str]
    fields: dict[str, str]
    stash: dict[str, str]
    data: Callable[[Data], Data]
    back: Callable[[Data], Data]


def dialect_of(wire: JSON) -> Dialect | None:
    """Return the dialect of a snapshot; None if it is unknown.

    Documents of Limpet in folders always have the fields of TypeScript, and those of Python only if
    the data is Python's.
    """
    if not isinstance(wire, dict):
        return None
    if "schema_version" in wire or "created_at" in wire:
        return "python"
    return "typescript" if "schemaVersion" in wire or "createdAt" in wire else None


def to_python(wire: JSON) -> dict[str, JSON]:
    """Return a snapshot as the SDK for Python writes it.

    Raises:
        InvalidInput: it is not an object with `data`.
        Unsupported: it is a graph or swarm that has not finished its run.
    """
    return _translated(wire, _PYTHON, "python")


def to_typescript(wire: JSON) -> dict[str, JSON]:
    """Return a snapshot as the SDK for TypeScript writes it.

    Raises:
        InvalidInput: it is not an object with `data`.
        Unsupported: it is a graph or swarm that has not finished its run.
    """
    return _translated(wire, _TYPESCRIPT, "typescript")


def _translated(wire: JSON, to: _Target, dialect: Dialect) -> dict[str, JSON]:
    if not isinstance(wire, dict) or "data" not in wire:
        raise InvalidInput(f"a snapshot must be an object with data. type=`{type(wire).__name__}`")
    try:
        own: dict[str, JSON] = deepcopy(wire)
        return own if dialect_of(own) == dialect else _translate(own, to)
    except RecursionError:
        raise InvalidInput("the snapshot is nested too deep") from None


def _translate(wire: dict[str, JSON], to: _Target) -> dict[str, JSON]:
    schema_version, created_at, app_data_name = to.names.values()
    # If a field has both names, the values are equal: Limpet's own files may hold both.
    doubled = [there for here, there in to.names.items() if here in wire and there in wire]
    result = renamed({name: wire[name] for name in wire if name not in doubled}, to.names)
    data = result["data"]
    if isinstance(data, dict):
        is_graph = "orchestratorId" in data or "orchestrator_id" in data
        result.setdefault("scope", "multiAgent" if is_graph else "agent")
        app_data = result.setdefault(app_data_name, {})
        bridge = app_data.pop(BRIDGE, None) if isinstance(app_data, dict) else None
        result["data"] = _translate_data(data, bridge, to)
        # Without a known dialect there is no way back.
        if dialect_of(wire) is not None and isinstance(app_data, dict):
            app_data |= _bridge(data, result["data"], to)
    result.setdefault(schema_version, SCHEMA_VERSION)
    result.setdefault(created_at, "")
    return result


def _translate_data(data: Data, bridge: JSON, to: _Target) -> Data:
    """Return translated data, with the values that the bridge kept from an earlier translation."""
    plain = to.data(data)
    if not isinstance(bridge, dict):
        return plain
    kept = _put(plain, bridge)
    return kept if to.back(kept) == data else plain


def _bridge(data: Data, translated: Data, to: _Target) -> dict[str, JSON]:
    """Return a bridge with the fields and messages that the way back would change."""
    back = to.back(translated)
    if back == data:
        return {}
    lost: dict[str, JSON] = {}
    for name, value in data.items():
        there = back.get(name)
        if name in back and there == value:
            continue
        if name == "messages" and isinstance(there, list) and len(there) == len(value):
            numbered = enumerate(zip(value, there, strict=True))
            lost |= {f"messages/{number}": old for number, (old, new) in numbered if old != new}
        else:
            lost[name] = value
    put = _put(back, lost)
    if put != data or to.data(put) != translated:  # it uses names of the other SDK otherwise
        lost = {_WHOLE: data}
    return {BRIDGE: deepcopy(lost)}


def _put(data: Data, bridge: dict[str, JSON]) -> Data:
    if isinstance(bridge.get(_WHOLE), dict):
        return dict(bridge[_WHOLE])
    put = dict(data)
    for name, value in bridge.items():
        field, _, number = name.partition("/")
        found = put.get(field)
        if not number:
            put[name] = value
        elif isinstance(found, list) and number.isdecimal() and int(number) < len(found):
            put[field] = [*found[: int(number)], value, *found[int(number) + 1 :]]
    return put


def _agent_data(data: Data, to: _Target) -> Data:
    """Translate the data of an agent, except its interrupts."""
    result = renamed(data, to.fields)
    prompt, stash = to.fields.get("systemPrompt", "systemPrompt"), result.get("stash")
    if isinstance(result.get("messages"), list):
        result["messages"] = [blocks.message(each, to.blocks) for each in result["messages"]]
    if prompt in result:
        result[prompt] = blocks.blocks(result[prompt], to.blocks)
    if isinstance(stash, dict):
        result["stash"] = renamed(stash, to.stash)
    return result


def _python_data(data: Data) -> Data:
    if "orchestratorId" in data:
        return _python_graph(data)
    result = _agent_data(data, _PYTHON)
    found = data.get("interrupts", {})
    if found is None:  # it means "unchanged", for which Python leaves the field out
        del result["interrupt_state"]
    elif "interrupts" in data and isinstance(found, dict):
        result["interrupt_state"] = interrupts.to_python(found)
        pending = result["interrupt_state"].get("pending_tool_execution")
        messages = result.get("messages")
        if pending is not None and isinstance(messages, list):
            asking = pending["assistant_message"]
            result["messages"] = messages if messages[-1:] == [asking] else [*messages, asking]
    return result


def _typescript_data(data: Data) -> Data:
    if "orchestrator_id" in data:
        return _typescript_graph(data)
    result = _agent_data(data, _TYPESCRIPT)
    found = data.get("interrupt_state")
    if isinstance(found, dict):
        result["interrupts"] = interrupts.to_typescript(found)
        pending = result["interrupts"].get("pendingToolExecution")
        messages = result.get("messages")
        # TypeScript appends the call and its result together, once it is answered.
        if pending is not None and isinstance(messages, list):
            asking = pending["assistantMessageData"]
            result["messages"] = messages[:-1] if messages[-1:] == [asking] else messages
    return result


def _python_graph(data: Data) -> Data:
    state = data.get("state")
    if isinstance(state, dict):
        nodes = state.get("nodes")
        found = nodes.items() if isinstance(nodes, dict) else ()
        busy = [name for name, each in found if not _is_idle(each)]
        if "_pendingInput" in state or busy:
            field = f"state.nodes.{busy[0]}.status" if busy else "state._pendingInput"
            raise _unfinished(data["orchestratorId"], field)
    ended = {"id": data["orchestratorId"], "status": "completed", "next_nodes_to_execute": []}
    return {**renamed(data, _FIELDS), "state": ended}


def _is_idle(node: JSON) -> bool:
    return isinstance(node, dict) and node.get("status") in ("PENDING", "COMPLETED")


def _typescript_graph(data: Data) -> Data:
    state = data.get("state")
    if isinstance(state, dict) and state.get("next_nodes_to_execute"):
        raise _unfinished(data["orchestrator_id"], "state.next_nodes_to_execute")
    result = renamed(data, _TYPESCRIPT.fields)
    result.pop("state", None)  # without a state the run starts at the beginning
    return result


def _unfinished(name: JSON, field: str) -> Unsupported:
    return Unsupported(
        "a graph or swarm that has not finished its run cannot be translated. "
        f"orchestrator_id=`{name}` field=`{field}`"
    )


_PYTHON = _Target(
    blocks=TO_PYTHON,
    names=_ENVELOPE,
    fields=_FIELDS,
    stash=_STASH,
    data=_python_data,
    back=_typescript_data,
)

_TYPESCRIPT = _Target(
    blocks=TO_TYPESCRIPT,
    names=inverted(_ENVELOPE),
    fields=inverted(_FIELDS),
    stash=inverted(_STASH),
    data=_typescript_data,
    back=_python_data,
)
