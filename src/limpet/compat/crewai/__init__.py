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

try:
    import crewai.flow.persistence  # noqa: F401
except ModuleNotFoundError as cause:
    raise ModuleNotFoundError(
        "CrewAI is not installed: pip install 'limpet[crewai]'", name=cause.name
    ) from None

from limpet.compat.crewai.persistence import LimpetFlowPersistence

__all__ = ["LimpetFlowPersistence"]
