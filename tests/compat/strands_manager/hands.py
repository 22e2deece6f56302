"""A plain agent, and a storage that says what is asked of it and fails when told to."""

from limpet import JSON, Unavailable
from limpet.compat.strands import SessionError, Snapshot, SnapshotStorage, StoreStorage
from limpet.compat.strands.manager import SessionManager, Turn
from limpet.compat.strands.store import AnyLocation, AnySnapshot
from tests.present import present

SESSION, AGENT = "chat-42", "planner"
PLACE = {"sessionId": SESSION, "scope": "agent", "scopeId": AGENT}


class Plain:
    """An agent that keeps what it hears, and answers with how much that is."""

    def __init__(self, agent_id: str = AGENT) -> None:
        self.agent_id = agent_id
        self.messages: list[JSON] = []

    def take_snapshot(self) -> dict[str, JSON]:
        return {"messages": list(self.messages)}

    def load_snapshot(self, data: dict[str, JSON]) -> None:
        messages = data["messages"]
        assert isinstance(messages, list)
        self.messages = messages

    def hear(self, text: str) -> int:
        self.messages.append(text)
        return len(self.messages)


async def turn_of(manager: SessionManager, agent: Plain, *texts: str) -> Turn:
    """Run one turn in which an agent hears something."""
    async with manager.invocation(agent) as turn:
        for text in texts:
            agent.hear(text)
            await turn.message_added()
    return turn


async def latest_of(storage: SnapshotStorage) -> Snapshot:
    return present(await storage.load_snapshot(PLACE))


class Observed(StoreStorage):
    """Remembers what was saved, and fails to save or load where told to."""

    saved: list[str]
    fails_to: frozenset[str] = frozenset()  # of "history", "latest" and "load"

    async def save_snapshot(
        self, location: AnyLocation, snapshot_id: str, is_latest: bool, snapshot: AnySnapshot
    ) -> None:
        what = "latest" if is_latest else "history"
        self._check(what)
        await super().save_snapshot(location, snapshot_id, is_latest, snapshot)
        self.__dict__.setdefault("saved", []).append(what)

    async def load_snapshot(
        self, location: AnyLocation, snapshot_id: str | None = None
    ) -> Snapshot | None:
        self._check("load")
        return await super().load_snapshot(location, snapshot_id)

    def taken(self) -> list[str]:
        """Return what was saved since this was asked last."""
        saved: list[str] = self.__dict__.pop("saved", [])
        return saved

    def _check(self, what: str) -> None:
        if what in self.fails_to:
            raise SessionError("the storage is away") from Unavailable("no answer")
