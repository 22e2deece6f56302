"""Genkit for Python: `LimpetGenkitStore` against its `FileSessionStore`."""

import itertools
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from genkit import Message, Part
from genkit.exp.agent import (
    FileSessionStore,
    SessionSnapshot,
    SessionState,
    SessionStore,
    SnapshotStatus,
)

from benchmarks.frameworks.side import Side, limpet_in
from limpet.compat.genkit.python import LimpetGenkitStore

PACKAGE = "genkit"
ABOUT = (
    "The package has no store in a database, so this is its store in files: one for each snapshot, "
    "which are not synced to the disk. A turn is what an agent does in one: it reads the latest "
    "snapshot of the session, and saves one with two messages more. An agent that continues by "
    "`snapshot_id` reads only that file: then both sides take about the same time at turn 200."
)

SESSION = "chat"


class Conversation(Side):
    def __init__(self, store: SessionStore, path: Path, *close: Callable[[], None]) -> None:
        super().__init__(f"`{type(store).__name__}`", path, *close)
        self._store = store
        self._ids = itertools.count()

    async def turn(self, question: str, answer: str) -> None:
        found = await self._store.get_snapshot(session_id=SESSION)
        messages = [] if found is None or found.state is None else found.state.messages or []
        said = (("user", question), ("model", answer))
        new = [Message(role=role, content=[Part.from_text(text)]) for role, text in said]
        saved = SessionSnapshot(
            snapshot_id=f"turn-{next(self._ids)}",
            parent_id=found.snapshot_id if found else "",
            created_at=datetime.now(UTC).isoformat(),
            status=SnapshotStatus.COMPLETED,
            state=SessionState(session_id=SESSION, messages=[*messages, *new], artifacts=[]),
        )
        await self._store.save_snapshot(saved.snapshot_id, lambda _: saved)

    async def count(self) -> int:
        found = await self._store.get_snapshot(session_id=SESSION)
        assert found is not None
        assert found.state is not None
        return len(found.state.messages or [])


def ours(folder: Path) -> Side:
    path, store = limpet_in(folder)
    return Conversation(LimpetGenkitStore(store), path, store.close)


def theirs(folder: Path) -> Side:
    path = folder / "files"
    return Conversation(FileSessionStore(str(path)), path)
