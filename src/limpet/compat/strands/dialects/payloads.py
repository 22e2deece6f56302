"""Snapshots of the Strands SDK for TypeScript, in the words of the one for Python, and back.

Both SDKs use the same keys and different documents, and neither reads the other's::

    to_python(document)        # {"schemaVersion": …, "data": {"systemPrompt": …}} -> snake_case
    to_typescript(document)    # and the other way

A document that is in the wanted words already is returned as it is. What comes out shares nothing
with what went in.

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

An agent that waits for an answer goes on in the other SDK: the ids of its interrupts are those that
the tool asks for there (so an answer must name the new id), and the message with the call of the
tool is the last of the conversation in Python and set aside in TypeScript.

Nothing is lost on a way there and back. Fields of `data` that the other SDK does not know, such as
`conversation_manager_state`, stay where they are: it does not look at them. A message or a field
that would not come back as it was is kept whole in `appData` or `app_data`, under
`limpet_bridge`, and counts for as long as nobody has changed what it became. What is lost is
lost by the SDKs: they write back neither unknown fields nor `appData`.

A graph or swarm whose run has ended starts afresh in the other SDK, as it would in its own; the
results of that run are in the bridge. In the middle of a run it cannot be translated, because what
comes next follows from edges that are in neither document.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any, Literal, NamedTuple, TypeAlias

from limpet.compat.strands.dialects import blocks, interrupts
from limpet.compat.strands.dialects.blocks import TO_PYTHON, TO_TYPESCRIPT, Way, renamed
from limpet.compat.strands.records import SCHEMA_VERSION
from limpet.errors import InvalidInput, Unsupported
from limpet.model import JSON

Dialect: TypeAlias = Literal["typescript", "python"]
Data: TypeAlias = dict[str, Any]

BRIDGE = "limpet_bridge"
_WHOLE = ""  # stands in a bridge for all of the data

_ENVELOPE = {"schemaVersion": "schema_version", "createdAt": "created_at", "appData": "app_data"}
_FIELDS = {
    "systemPrompt": "system_prompt",
    "modelState": "model_state",
    "interrupts": "interrupt_state",
    "orchestratorId": "orchestrator_id",
}
_STASH = {"storageType": "storage_type"}


class _Side(NamedTuple):
    """What is said on the way to one of the SDKs; `back` is the way to the other."""

    way: Way
    names: dict[str, str]
    fields: dict[str, str]
    stash: dict[str, str]
    app_data: str
    created_at: str
    schema_version: str
    data: Callable[[Data], Data]
    back: Callable[[Data], Data]


def dialect_of(wire: JSON) -> Dialect | None:
    """Tell whose words a snapshot is in; None if it does not say.

    Documents of Limpet in folders have the fields of TypeScript in any case. Those of Python are
    there only if the data is Python's.
    """
    if not isinstance(wire, dict):
        return None
    if "schema_version" in wire or "created_at" in wire:
        return "python"
    return "typescript" if "schemaVersion" in wire or "createdAt" in wire else None


def to_python(wire: JSON) -> dict[str, JSON]:
    """Return a snapshot as the SDK for Python writes it.

    Raises:
        InvalidInput: it is no object with `data`.
        Unsupported: it is a graph or swarm in the middle of its run.
    """
    return _translated(wire, _PYTHON, "python")


def to_typescript(wire: JSON) -> dict[str, JSON]:
    """Return a snapshot as the SDK for TypeScript writes it.

    Raises:
        InvalidInput: it is no object with `data`.
        Unsupported: it is a graph or swarm in the middle of its run.
    """
    return _translated(wire, _TYPESCRIPT, "typescript")


def _check(wire: JSON) -> JSON:
    if not isinstance(wire, dict) or "data" not in wire:
        raise InvalidInput(f"a snapshot is an object with data. type=`{type(wire).__name__}`")
    return wire


def _translated(wire: JSON, side: _Side, dialect: Dialect) -> dict[str, JSON]:
    try:
        own: dict[str, JSON] = deepcopy(_check(wire))
        return own if dialect_of(own) == dialect else _put_into_words(own, side)
    except RecursionError:
        raise InvalidInput("a snapshot is nested too deep") from None


def _put_into_words(wire: dict[str, JSON], side: _Side) -> dict[str, JSON]:
    # Who says both, says the same; the words of the goal may come from Limpet's own files.
    doubled = [there for here, there in side.names.items() if here in wire and there in wire]
    told = renamed({name: wire[name] for name in wire if name not in doubled}, side.names)
    data = told["data"]
    if isinstance(data, dict):
        is_team = "orchestratorId" in data or "orchestrator_id" in data
        told.setdefault("scope", "multiAgent" if is_team else "agent")
        app_data = told.setdefault(side.app_data, {})
        bridge = app_data.pop(BRIDGE, None) if isinstance(app_data, dict) else None
        told["data"] = _crossed(data, bridge, side)
        # Who does not say whose words they are expects none of them back.
        if dialect_of(wire) is not None and isinstance(app_data, dict):
            app_data |= _lost(data, told["data"], side)
    told.setdefault(side.schema_version, SCHEMA_VERSION)
    told.setdefault(side.created_at, "")
    return told


def _crossed(data: Data, bridge: JSON, side: _Side) -> Data:
    """Return data in the words of the goal, with what it had kept in the bridge."""
    plain = side.data(data)
    if not isinstance(bridge, dict):
        return plain
    kept = _put(plain, bridge)
    return kept if side.back(kept) == data else plain


def _lost(data: Data, told: Data, side: _Side) -> dict[str, JSON]:
    """Return a bridge for what the way back would not bring: fields, or single messages."""
    back = side.back(told)
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
    if put != data or side.data(put) != told:  # it has words of the other SDK for something else
        lost = {_WHOLE: data}
    return {BRIDGE: deepcopy(lost)}


def _put(data: Data, bridge: dict[str, JSON]) -> Data:
    """Return data with what a bridge holds in its places."""
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


def _data(data: Data, side: _Side) -> Data:
    """Return the data of an agent in other words, but for its interrupts."""
    told = renamed(data, side.fields)
    prompt, stash = side.fields.get("systemPrompt", "systemPrompt"), told.get("stash")
    if isinstance(told.get("messages"), list):
        told["messages"] = [blocks.message(each, side.way) for each in told["messages"]]
    if prompt in told:
        told[prompt] = blocks.blocks(told[prompt], side.way)
    if isinstance(stash, dict):
        told["stash"] = renamed(stash, side.stash)
    return told


def _python_data(data: Data) -> Data:
    if "orchestratorId" in data:
        return _python_team(data)
    told = _data(data, _PYTHON)
    found = data.get("interrupts", {})
    if found is None:  # it stands for "leave as it is", for which Python leaves the field out
        del told["interrupt_state"]
    elif "interrupts" in data and isinstance(found, dict):
        told["interrupt_state"] = interrupts.to_python(found)
        pending = told["interrupt_state"].get("pending_tool_execution")
        messages = told.get("messages")
        if pending is not None and isinstance(messages, list):
            asking = pending["assistant_message"]
            told["messages"] = messages if messages[-1:] == [asking] else [*messages, asking]
    return told


def _typescript_data(data: Data) -> Data:
    if "orchestrator_id" in data:
        return _typescript_team(data)
    told = _data(data, _TYPESCRIPT)
    found = data.get("interrupt_state")
    if isinstance(found, dict):
        told["interrupts"] = interrupts.to_typescript(found)
        pending = told["interrupts"].get("pendingToolExecution")
        messages = told.get("messages")
        # There the call and its result are appended together, once it is answered.
        if pending is not None and isinstance(messages, list):
            asking = pending["assistantMessageData"]
            told["messages"] = messages[:-1] if messages[-1:] == [asking] else messages
    return told


def _python_team(data: Data) -> Data:
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


def _typescript_team(data: Data) -> Data:
    state = data.get("state")
    if isinstance(state, dict) and state.get("next_nodes_to_execute"):
        raise _unfinished(data["orchestrator_id"], "state.next_nodes_to_execute")
    told = renamed(data, _TYPESCRIPT.fields)
    told.pop("state", None)  # without one it begins at the beginning
    return told


def _unfinished(name: JSON, field: str) -> Unsupported:
    return Unsupported(
        "what a graph or swarm does next cannot be translated in the middle of its run. "
        f"orchestrator_id=`{name}` field=`{field}`"
    )


def _turned(names: dict[str, str]) -> dict[str, str]:
    return {there: here for here, there in names.items()}


_PYTHON = _Side(
    way=TO_PYTHON,
    names=_ENVELOPE,
    fields=_FIELDS,
    stash=_STASH,
    app_data="app_data",
    created_at="created_at",
    schema_version="schema_version",
    data=_python_data,
    back=_typescript_data,
)

_TYPESCRIPT = _Side(
    way=TO_TYPESCRIPT,
    names=_turned(_ENVELOPE),
    fields=_turned(_FIELDS),
    stash=_turned(_STASH),
    app_data="appData",
    created_at="createdAt",
    schema_version="schemaVersion",
    data=_typescript_data,
    back=_python_data,
)
