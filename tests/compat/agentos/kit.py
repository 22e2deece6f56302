"""What the tests of `CheckpointStore` share: stores of each kind, and something to save in them.

The stores of one process are shared, so each test has runs and graphs of its own.
"""

import secrets
from collections.abc import Mapping
from typing import Any

from limpet.compat.agentos import Checkpoint, CheckpointStore
from tests import effort
from tests.compat.strands.kit import Grounds, store_of

FAST = ("memory", "sqlite")
ENGINES = effort.slowly((*FAST, "directory", "postgres", "s3"), but=FAST)

DIAGNOSTICS = {"totalTokensUsed": 0, "nodeTimings": {}, "checkpointsSaved": 0}


def fresh(what: str) -> str:
    """Return an id that nobody else has."""
    return f"{what}-{secrets.token_hex(6)}"


def make_checkpoint(**changes: Any) -> Checkpoint:
    """Return a checkpoint, in a run and a graph of its own unless they are given."""
    facts: dict[str, Any] = {
        "id": fresh("c"),
        "graph_id": fresh("g"),
        "run_id": fresh("r"),
        "node_id": "a",
        "timestamp": 1_794_701_072_000,
        "state": {
            "input": {"q": "hello"},
            "scratch": {"a": 1, "nested": {"x": 1, "y": 2}, "list": [1, 2]},
            "artifacts": {"a": "a-out"},
            "diagnostics": DIAGNOSTICS,
        },
        "node_results": {"a": {"effectClass": "pure", "output": "a-out", "durationMs": 8}},
        "visited_nodes": ["a"],
        "skipped_nodes": [],
        "pending_edges": ["e1"],
    }
    return Checkpoint(**{**facts, **changes})


async def save_some(
    checkpoints: CheckpointStore, *changes: Mapping[str, Any], **common: Any
) -> list[Checkpoint]:
    """Save checkpoints of one run and one graph unless told otherwise, in the order given."""
    names = {"run_id": fresh("r"), "graph_id": fresh("g"), **common}
    saved = [make_checkpoint(**{**names, **each}) for each in changes]
    for each in saved:
        await checkpoints.save(each)
    return saved


def on(engine: str, grounds: Grounds) -> CheckpointStore:
    """Return checkpoints in the shared store of an engine."""
    return CheckpointStore(store_of(grounds[engine].storage))
