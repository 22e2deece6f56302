"""CrewAI: the state of flows on every engine, with every step kept.

::

    from crewai.flow import Flow, persist
    from limpet.compat.crewai import LimpetFlowPersistence

    store = limpet.open("sqlite:///agents.db")

    @persist(LimpetFlowPersistence(store))
    class Support(Flow): ...

    Support().kickoff(inputs={"id": "chat-42"})

| CrewAI                         | Limpet                                                        |
|--------------------------------|---------------------------------------------------------------|
| `id` of the flow's state       | session; the scope is `main`, of kind `agent`                 |
| a saved state                  | a kept snapshot, which becomes the head                       |
| the method that was completed  | label `method`                                                |
| pending feedback               | status `waiting`, then `answered`; the context is in          |
|                                | `metadata["crewai"]`                                          |

So `store.scope("chat-42")` is the flow: its history, diffs and forks. `docs/guides/crewai.md` has
examples.
"""

from limpet.compat.extras import needs

with needs("crewai", "CrewAI", extra="crewai"):
    from limpet.compat.crewai.persistence import LimpetFlowPersistence

__all__ = ["LimpetFlowPersistence"]
