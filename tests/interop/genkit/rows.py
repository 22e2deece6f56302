"""Snapshots for both sides."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from limpet.compat.genkit import SessionSnapshot, SessionStore

Wire = dict[str, Any]


def wire(id: str, session_id: str, parent_id: str | None = None, **more: Any) -> Wire:
    """Return a snapshot as it stands on the wire, one second after its number."""
    second = int("".join(filter(str.isdigit, id)) or "0") % 60
    at = f"2026-01-01T00:00:{second:02d}.000Z"
    parent = {} if parent_id is None else {"parentId": parent_id}
    return {
        "snapshotId": id,
        "sessionId": session_id,
        **parent,
        "createdAt": at,
        "updatedAt": at,
        "status": "completed",
        "finishReason": "stop",
        "state": {"sessionId": session_id, "messages": [], "custom": {"n": 0}},
        **more,
    }


def run(what: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(what)


class Ours:
    """A store as we see it, one call after the other."""

    def __init__(self, store: SessionStore[Any]) -> None:
        self.store = store

    def save(self, row: Wire, *, tenant: str | None = None) -> None:
        given = row["snapshotId"]
        saved = self.store.save_snapshot(given, lambda current: row, context=tenant)
        assert run(saved) == given

    def change(self, id: str, mutator: Callable[[SessionSnapshot[Any]], Any]) -> Any:
        def present(current: SessionSnapshot[Any] | None) -> Any:
            assert current is not None
            return mutator(current)

        return run(self.store.save_snapshot(id, present))

    def get(self, id: str, *, tenant: str | None = None) -> Any:
        found = run(self.store.get_snapshot(snapshot_id=id, context=tenant))
        return None if found is None else found.to_json()

    def latest(self, session_id: str, *, tenant: str | None = None) -> Any:
        found = run(self.store.get_snapshot(session_id=session_id, context=tenant))
        return None if found is None else found.snapshot_id
