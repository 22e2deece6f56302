"""AgentOS: the `ICheckpointStore` of its graphs, on every engine.

A checkpoint after each node, from which a run is resumed, or a new one forked::

    from limpet.compat.agentos import Checkpoint, CheckpointStore

    checkpoints = CheckpointStore(limpet.open("sqlite:///agents.db"))
    await checkpoints.save(Checkpoint("c1", "report", "run-1", "draft", 1772366400000, state))
    last = await checkpoints.latest("run-1")             # after a crash: the same
    run_id = await checkpoints.fork("c1", {"scratch": {"tone": "bold"}})

`examples/graph_runner.py` is a small runtime over it.

What other programs saved is returned by `get`, and can be forked: its session is the run, its scope
id the graph, the node is empty, and the timestamp is when it was created. The fork has the kind of
its source. `load` and `list` find snapshots by the labels. `Scope.fork` copies the labels, and with
them the run, unless others are given.

`docs/guides/agentos.md` lists where each thing is stored, so that other programs see it.
"""

from limpet.compat.agentos.records import Checkpoint, CheckpointMetadata
from limpet.compat.agentos.store import CheckpointStore
from limpet.compat.wire import ABSENT

__all__ = ["ABSENT", "Checkpoint", "CheckpointMetadata", "CheckpointStore"]
