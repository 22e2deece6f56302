"""Snapshots of the package, and the stores that must treat them alike."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

from genkit import GenkitError, Message, Part
from genkit.exp.agent import (
    SessionSnapshot,
    SessionState,
    SessionStore,
    SnapshotStatus,
    SnapshotSubscriber,
)

from tests.present import present
from tests.waiting import WAIT_S_MAX

PENDING, COMPLETED = SnapshotStatus.PENDING, SnapshotStatus.COMPLETED
ABORTED, FAILED = SnapshotStatus.ABORTED, SnapshotStatus.FAILED


class Watched(SessionStore[Any], SnapshotSubscriber, Protocol):
    """A store whose snapshots can be watched."""


def at(second: int) -> str:
    return f"2026-06-18T12:{second // 60:02}:{second % 60:02}Z"


def row(
    id: str,
    text: str = "hello",
    *,
    session_id: str | None = "s",
    second: int = 0,
    custom: Any = None,
    **facts: Any,
) -> SessionSnapshot:
    """Return a snapshot whose session is named in its state, as agents write it."""
    messages = [Message(role="user", content=[Part.from_text(text)])]
    state = SessionState(session_id=session_id, messages=messages, custom=custom)
    return SessionSnapshot(
        snapshot_id=id, **{"created_at": at(second), "status": COMPLETED, "state": state, **facts}
    )


def text_of(snapshot: SessionSnapshot | None) -> str | None:
    assert snapshot is not None
    assert snapshot.state is not None
    assert snapshot.state.messages
    return snapshot.state.messages[0].content[0].text


async def put(store: SessionStore[Any], snapshot: SessionSnapshot, **more: Any) -> SessionSnapshot:
    """Save a snapshot under its own id."""
    return present(await store.save_snapshot(snapshot.snapshot_id, lambda _: snapshot, **more))


async def get(store: SessionStore[Any], id: str, **more: Any) -> SessionSnapshot:
    """Return a snapshot that must be there."""
    return present(await store.get_snapshot(snapshot_id=id, **more))


async def latest(store: SessionStore[Any], session_id: str = "s", **more: Any) -> str | None:
    found = await store.get_snapshot(session_id=session_id, **more)
    return None if found is None else found.snapshot_id


def changing(**facts: Any) -> Callable[[SessionSnapshot | None], SessionSnapshot]:
    """Return a function for `save_snapshot` that changes fields of what is stored."""

    def change(current: SessionSnapshot | None) -> SessionSnapshot:
        assert current is not None
        return current.model_copy(update=facts)

    return change


async def abort(store: SessionStore[Any], id: str, **more: Any) -> SnapshotStatus | None:
    """Abort a run as an agent does; return the status that was found."""
    seen: SnapshotStatus | None = None

    def flip(current: SessionSnapshot | None) -> SessionSnapshot | None:
        nonlocal seen
        seen = None if current is None else current.status
        return changing(status=ABORTED)(current) if seen == PENDING else None

    await store.save_snapshot(id, flip, **more)
    return seen


async def refused(call: Any) -> str:
    """Return the status of the error that a call raises."""
    try:
        await call
    except GenkitError as error:
        return error.status
    raise AssertionError("nothing was refused")


async def soon(what: Any) -> Any:
    async with asyncio.timeout(WAIT_S_MAX):
        return await what


async def all_of(stream: AsyncIterator[SnapshotStatus]) -> list[SnapshotStatus]:
    """Read a stream to its end."""
    async with asyncio.timeout(WAIT_S_MAX):
        return [each async for each in stream]


def custom_of(snapshot: SessionSnapshot) -> Any:
    assert snapshot.state is not None
    return snapshot.state.custom


def counting(current: SessionSnapshot | None) -> SessionSnapshot:
    """Add one to the number in the state."""
    return row("n", custom={"n": (custom_of(current)["n"] if current else 0) + 1}, status=PENDING)
