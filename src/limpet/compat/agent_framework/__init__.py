"""Checkpoints of Microsoft Agent Framework workflows: its `CheckpointStorage` on every engine.

Each conversation has a history of its own, whose last checkpoint any process can resume::

    from limpet.compat.agent_framework import LimpetCheckpointStorage

    store = limpet.open("sqlite:///agents.db")
    storage = LimpetCheckpointStorage(store, session_id="chat-42")
    workflow = WorkflowBuilder(start_executor=..., name="support", checkpoint_storage=storage)...

How the terms translate, so that other programs see what is saved here:

| Agent Framework                | Limpet                                                        |
|--------------------------------|---------------------------------------------------------------|
| `session_id` of the storage    | session; without it, the name of the workflow, with `%` and   |
|                                | `/` escaped as in URLs                                        |
| `workflow_name`                | scope id; the kind is `workflow`                              |
| `checkpoint_id`                | id of the snapshot                                            |
| `previous_checkpoint_id`       | parent; none at a root                                        |
| the latest                     | the head: the checkpoint that was saved last                  |
| `pending_request_info_events`  | status `waiting` if there are any                             |
| `iteration_count`              | label `iteration`                                             |
| the checkpoint                 | the state, as the framework encodes it                        |

The framework writes what is not JSON as pickles. They are read by its own decoder, when it loads a
checkpoint, and by nothing else.
"""

from limpet.compat.extras import needs

with needs("agent_framework", "Agent Framework", extra="agent-framework"):
    from limpet.compat.agent_framework.store import LimpetCheckpointStorage

__all__ = ["LimpetCheckpointStorage"]
