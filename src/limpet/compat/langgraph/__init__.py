"""LangGraph: a checkpointer without the quadratic growth, on every engine.

::

    from limpet.compat.langgraph import LimpetSaver

    with limpet.open("sqlite:///agents.db") as store:
        graph = builder.compile(checkpointer=LimpetSaver(store))
        graph.invoke({"messages": [...]}, {"configurable": {"thread_id": "chat-42"}})

Plain and async methods are both real, over either face of a store. A thread is a chat for
`limpet show`, `log`, `diff` and `grep`; its checkpoints are snapshots for `copy`, `export`,
`restore` and `fork`.

How the words translate, and where what is saved is seen by others:

| LangGraph                        | Limpet                                                    |
|----------------------------------|-------------------------------------------------------------|
| `thread_id`                      | session                                                     |
| `checkpoint_ns`                  | scope id: `main`, or `:` and the namespace; kind `thread`   |
| id of a checkpoint               | id of the snapshot                                          |
| the parent in the config         | parent; none at a root                                      |
| the checkpoint without its id    | the state, channels first (`forms` says how values stand)   |
| metadata                         | `metadata["langgraph"]`                                     |
| `run_id` of it                   | label                                                       |
| what a task wrote                | a note on the checkpoint id, named as the task              |
| the latest                       | the head: the checkpoint with the greatest id               |

What somebody else saved in such a scope is a checkpoint whose channels are the keys of its state.

What the savers of LangGraph (checkpoint 4.3.1, sqlite 3.1.2, postgres 3.2.0) do, and what is done
here:

| there                                                | here                                    |
|------------------------------------------------------|-----------------------------------------|
| checkpoints, or changed channels, are stored whole   | what differs from the one before        |
| all messages are encoded again at each step          | those that are new or changed           |
| no `delete_for_runs`, no `copy_thread`               | both                                    |
| `prune` in Postgres alone                            | on every engine, by number and age, too |
| `prune` refuses threads with delta channels          | what is needed of the past is kept      |
| no list of threads, and no sizes                     | `threads`, `sizes`                      |
| what is named in stored bytes is imported and called | nothing but what is allowed             |
| what is not allowed is read as something else        | InvalidInput, when saved or read        |
| tuples become lists, lone surrogates `?`             | they come back as they are              |
| NUL vanishes from metadata                           | it comes back                           |
| NUL, NaN, integers beyond 64 bits may be refused     | they come back as they are              |
| bare values and metadata are not encrypted           | all but names, versions and labels      |
| what was never encrypted is accepted                 | InvalidInput                            |
| a history is in memory before it is shown            | states are made when they are looked at |

Exceptions are stored as their text, and values of subclasses of str, int, float, list and dict as
plain ones, as there. Of several checkpoints that were saved in another order than that of their
ids, the last saved is the latest once the one with the greatest id is deleted.
"""

from limpet.compat.langgraph.migrate.transfer import import_postgres, import_sqlite
from limpet.compat.langgraph.saver import LimpetSaver

__all__ = ["LimpetSaver", "import_postgres", "import_sqlite"]
