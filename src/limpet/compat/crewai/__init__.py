"""States of CrewAI flows: its `FlowPersistence` on every engine.

Each step of a flow is a snapshot, which can be loaded, compared and forked::

    from crewai.flow import Flow, persist
    from limpet.compat.crewai import LimpetFlowPersistence

    store = limpet.open("sqlite:///agents.db")

    @persist(LimpetFlowPersistence(store))
    class Support(Flow): ...

    Support().kickoff(inputs={"id": "chat-42"})

How the terms translate, so that other programs see what is saved here:

| CrewAI                         | Limpet                                                        |
|--------------------------------|---------------------------------------------------------------|
| `id` of the flow's state       | session; the scope is `main`, of kind `agent`                 |
| a saved state                  | a kept snapshot, which becomes the head                       |
| the method that was completed  | label `method`                                                |
| pending feedback               | status `waiting`, then `answered`; the context is in          |
|                                | `metadata["crewai"]`                                          |

So `store.scope("chat-42")` is the flow: its history, diffs and forks.
"""

from limpet.compat.extras import needs

with needs("crewai", "CrewAI", extra="crewai"):
    from limpet.compat.crewai.store import LimpetFlowPersistence

__all__ = ["LimpetFlowPersistence"]
