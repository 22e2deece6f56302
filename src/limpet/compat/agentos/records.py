"""The records of `ICheckpointStore`.

Only the fields by which a checkpoint is found are checked. All others pass through unchanged.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from limpet.api.integrations import limits
from limpet.compat.wire import ABSENT, WireRecord
from limpet.errors import InvalidInput
from limpet.model import JSON


@dataclass(frozen=True)
class Checkpoint(WireRecord):
    """The state of a graph run after one of its nodes.

    `timestamp` is in milliseconds since 1970. `state` is an object with the partitions `input`,
    `scratch`, `artifacts` and `diagnostics`. `node_results` holds the result of each node,
    `visited_nodes` the completed ones in order. `memory_snapshot` and `skipped_nodes` are optional.
    `forked_from` is written by `fork`: the `checkpointId` and `runId` that the run began from, and
    the `patchState` if there was one.
    """

    id: str
    graph_id: str
    run_id: str
    node_id: str
    timestamp: float
    state: JSON
    memory_snapshot: JSON = ABSENT
    node_results: JSON = field(default_factory=dict)
    visited_nodes: JSON = field(default_factory=list)
    skipped_nodes: JSON = ABSENT
    pending_edges: JSON = field(default_factory=list)
    forked_from: JSON = ABSENT
    extra: Mapping[str, JSON] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        self._check_extra()

    def check(self) -> Self:
        """Return it, or raise InvalidInput if it cannot be saved."""
        limits.check_id("id", self.id)
        for name in ("graph_id", "run_id", "node_id"):
            check_name(name, getattr(self, name))
        if not is_timestamp(self.timestamp):
            kind = type(self.timestamp).__name__
            raise InvalidInput(f"the timestamp must be a number of milliseconds. type=`{kind}`")
        if not isinstance(self.state, dict):
            raise InvalidInput(f"the state must be an object. type=`{type(self.state).__name__}`")
        return self


@dataclass(frozen=True)
class CheckpointMetadata(WireRecord):
    """What a listing shows of a checkpoint.

    `state_size` is the length of the state as JavaScript writes it, in units of UTF-16.
    """

    id: str
    run_id: str
    graph_id: str
    node_id: str
    timestamp: float
    state_size: int
    has_memory_snapshot: bool


def check_name(name: str, value: object) -> str:
    """Return the id of a run, a graph or a node. They are labels, of up to 256 characters."""
    return limits.check_text(name, value, chars_min=1, chars_max=limits.LABEL_CHARS_MAX)


def is_timestamp(value: object) -> bool:
    """Return whether a value is a number; saving it refuses one that is not finite."""
    return isinstance(value, int | float) and not isinstance(value, bool)
