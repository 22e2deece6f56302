"""LangGraph: a checkpointer without the quadratic growth, on every engine.

::

    from limpet.compat.langgraph import LimpetSaver

    with limpet.open("sqlite:///agents.db") as store:
        graph = builder.compile(checkpointer=LimpetSaver(store))
        graph.invoke({"messages": [...]}, {"configurable": {"thread_id": "chat-42"}})

Sync and async methods work over a `Store` or an `AsyncStore`. `limpet show`, `log`, `diff` and
`grep` read a thread as a chat; for `copy`, `export`, `restore` and `fork` its checkpoints are
snapshots.

| LangGraph                        | Limpet                                                      |
|----------------------------------|-------------------------------------------------------------|
| `thread_id`                      | session                                                     |
| `checkpoint_ns`                  | scope id: `main`, or `:` and the namespace; kind `thread`   |
| id of a checkpoint               | id of the snapshot                                          |
| the parent in the config         | parent; none at a root                                      |
| the checkpoint without its id    | the state, channels first; `tags` has the format of values  |
| metadata                         | `metadata["langgraph"]`                                     |
| `run_id` of it                   | label                                                       |
| pending writes of a task         | a note on the checkpoint id, named after the task           |
| the latest                       | the head: the checkpoint with the greatest id               |

A state that another application saved in such a scope is read as a checkpoint; its keys are the
channels.

`LimpetStore` is LangGraph's long-term memory (`store=`), in the same store: a namespace is a
session, an item a note of its scope `main` of kind `items`.

`docs/guides/langgraph.md` lists where it differs from LangGraph's savers. As there, exceptions are
stored as text, and subclasses of str, int, float, list and dict as those. If checkpoints
were not saved in the order of their ids and the one with the greatest id is deleted, the last saved
is the latest.
"""

from limpet.compat import needs

with needs("langgraph.checkpoint", "LangGraph", extra="langgraph"):
    from limpet.compat.langgraph.migrate import import_postgres, import_sqlite
    from limpet.compat.langgraph.saver import LimpetSaver
    from limpet.compat.langgraph.store import LimpetStore

__all__ = ["LimpetSaver", "LimpetStore", "import_postgres", "import_sqlite"]
