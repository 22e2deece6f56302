"""What a checkpoint of LangGraph says besides its values: which nodes made it."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

from limpet.model import JSON

_VALUES = "channel_values"
_SEEN = "versions_seen"
_OWN = frozenset({"v", "ts", "channel_versions", _SEEN, "updated_channels", "pending_sends"})
_TRIGGER = "branch:to:"  # channels that start a node; those of LangGraph itself begin with __


def is_checkpoint(state: JSON) -> TypeGuard[dict[str, Any]]:
    return isinstance(state, dict) and isinstance(state.get(_VALUES), dict) and _SEEN in state


def nodes_of(state: JSON) -> list[str]:
    """Return the nodes whose results are new in a checkpoint; none in other states.

    They are those that have seen the newest version of a channel, since versions only grow.
    """
    if not is_checkpoint(state) or not isinstance(state[_SEEN], dict):
        return []
    newest = {node: max(map(str, seen.values())) for node, seen in _seen(state[_SEEN])}
    last = max(newest.values(), default="")
    return [node for node, at in newest.items() if at == last and not node.startswith("__")]


def _seen(nodes: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for node, seen in nodes.items():
        if isinstance(seen, dict) and seen:
            yield node, seen


def without_internals(state: JSON) -> JSON:
    """Return a checkpoint with the values of the graph alone; any other state as it is."""
    if not is_checkpoint(state):
        return state
    values = {
        name: value
        for name, value in state[_VALUES].items()
        if not name.startswith(("__", _TRIGGER))
    }
    others = {name: value for name, value in state.items() if name not in _OWN}
    return {**others, _VALUES: values}
