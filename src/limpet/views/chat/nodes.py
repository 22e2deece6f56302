"""What a checkpoint of LangGraph says besides its values: which nodes made it."""

import re
from itertools import chain
from typing import Any, TypeGuard

from limpet.model import JSON

_VALUES = "channel_values"
_VERSIONS, _SEEN = "channel_versions", "versions_seen"
_OWN = frozenset({"v", "ts", _VERSIONS, _SEEN, "updated_channels", "pending_sends"})
_NUMBER = re.compile(r"[0-9]{1,99}")  # what comes after a point is chance
_TRIGGERS = ("branch:to:", "join:", "__")  # of channels that only start nodes


def is_checkpoint(state: JSON) -> TypeGuard[dict[str, Any]]:
    return isinstance(state, dict) and isinstance(state.get(_VALUES), dict) and _SEEN in state


def nodes_of(state: JSON) -> list[str]:
    """Return the nodes whose results are new in a checkpoint; none in other states.

    Those are the nodes that have seen what the step before wrote. A node that was started by a
    `Send` leaves no trace, so it is not among them.
    """
    if not is_checkpoint(state):
        return []
    newest = _newest(state.get(_VERSIONS))
    seen = state[_SEEN] if isinstance(state[_SEEN], dict) else {}
    steps = {node: _newest(each) for node, each in seen.items() if not node.startswith("__")}
    return [node for node, step in steps.items() if step and step >= newest - 1]


def _newest(versions: JSON) -> int:
    """Return the number of the last step that wrote one of some channels, 0 if none did."""
    given = versions.values() if isinstance(versions, dict) else ()
    texts = (_NUMBER.match(each) for each in given if isinstance(each, str))
    numbers = (each for each in given if isinstance(each, int))
    return max(chain(numbers, (int(found[0]) for found in texts if found)), default=0)


def without_internals(state: JSON) -> JSON:
    """Return a checkpoint with the values of the graph alone; any other state as it is."""
    if not is_checkpoint(state):
        return state
    channels = state[_VALUES].items()
    values = {name: value for name, value in channels if not name.startswith(_TRIGGERS)}
    others = {name: value for name, value in state.items() if name not in _OWN}
    return {**others, _VALUES: values}
