"""AgentOS: the `ICheckpointStore` of its graphs, on every engine.

A checkpoint after each node, from which a run is resumed, or another one forked::

    from limpet.compat.agentos import Checkpoint, CheckpointStore

    checkpoints = CheckpointStore(limpet.open("sqlite:///agents.db"))
    await checkpoints.save(Checkpoint("c1", "report", "run-1", "draft", 1772366400000, state))
    last = await checkpoints.latest("run-1")             # after a crash: the same
    run_id = await checkpoints.fork("c1", {"scratch": {"tone": "bold"}})

`examples/graph_runner.py` is a small runtime over it.

How the words translate, and where what is saved is seen by others:

| AgentOS                      | Limpet                                                |
|------------------------------|---------------------------------------------------------|
| `runId` at the first save    | session, for good                                       |
| `graphId` at the first save  | scope id, for good; the kind is `graph`                 |
| `id`                         | id of the snapshot                                      |
| `state`                      | the state                                               |
| `runId`, `graphId`, `nodeId` | labels `run_id`, `graph_id`, `node_id`                  |
| `timestamp`                  | when the snapshot was created; and beside the others    |
| the other fields             | `metadata["agentos"]`, word for word                    |
| `stateSize`                  | `metadata["state_size"]`                                |
| a fork                       | the first snapshot of a new session, with `forked_from` |

What others saved is returned by `get`, and can be forked: its session is the run, its scope id the
graph, the node is empty, and the timestamp is when it was created. The fork stays in the kind of
its source. `load` and `list` see what has the labels. A `fork` of the store itself copies labels,
and with them the run, unless others are given.

Where AgentOS (0.9.164) does something else than it documents, or loses data, we do the better
thing:

| there                                                     | here                              |
|-----------------------------------------------------------|-----------------------------------|
| no store is shipped but one in memory                     | every engine                      |
| of checkpoints of one millisecond the first is the latest | the last                          |
| what is saved and returned is shared with the caller      | a copy                            |
| a value that is not JSON makes every later list fail      | InvalidInput, with its path       |
| a fork does not say where it came from                    | `forked_from`                     |
| a patch stays shared with the fork                        | a copy                            |
| a patch that is no object is spread, or a TypeError       | InvalidInput                      |
| to patch a partition that is missing is a TypeError       | it is created                     |
| ids may be empty, or missing                              | 1 to 256 characters; 512 for `id` |
| a `limit` may be a fraction, or text                      | InvalidInput                      |
"""

from limpet.compat.agentos.records import Checkpoint, CheckpointMetadata
from limpet.compat.agentos.store import CheckpointStore
from limpet.compat.wire import ABSENT

__all__ = ["ABSENT", "Checkpoint", "CheckpointMetadata", "CheckpointStore"]
