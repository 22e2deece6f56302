"""One store, five interfaces: a snapshot saved by one is visible to the others.

    python examples/one_store.py

AgentOS forks a Strands session, Genkit watches and changes the fork, and a worker saves the
checkpoint of its run as the Go store does. Limpet's own API shows where the fork came from.
"""

import asyncio
from dataclasses import replace
from typing import Any

import limpet
from limpet.compat.agentos import CheckpointStore
from limpet.compat.genkit import SessionSnapshot, SessionStore
from limpet.compat.runs import AsyncRunStore, Checkpoint
from limpet.compat.strands import Snapshot, SnapshotLocation, StoreStorage

PLANNER = SnapshotLocation("chat-42", "agent", "planner")
MOMENT = "019c9bf1-14e5-7eef-96fb-cc07ae54210f"


async def tell(store: limpet.AsyncStore) -> list[str]:
    """Use all five interfaces on one conversation; return a line for each step."""
    story: list[str] = []

    # Strands saves a snapshot of a conversation.
    state = {"messages": ["Two days in Lisbon?"], "scratch": {"tone": "calm"}}
    first_turn = Snapshot("agent", "1.0", "2026-03-01T12:00:00.000Z", state)
    strands = StoreStorage(store)
    await strands.save_snapshot(PLANNER, MOMENT, is_latest=False, snapshot=first_turn)
    story.append(f"Strands kept {await strands.list_snapshot_ids(PLANNER)}")

    # AgentOS forks it into a new run.
    graphs = CheckpointStore(store)
    run_id = await graphs.fork(MOMENT, {"scratch": {"tone": "bold"}})
    begun = await graphs.latest(run_id)
    assert begun is not None
    story.append(f"AgentOS forked it, with {begun.state['scratch']}")

    # Genkit watches the fork and changes it.
    sessions: SessionStore[Any] = SessionStore(store)
    seen: asyncio.Queue[int] = asyncio.Queue()
    stop = sessions.on_snapshot_state_change(
        begun.id, lambda row: seen.put_nowait(len(row.state["messages"]))
    )

    def answer(row: SessionSnapshot[Any] | None) -> SessionSnapshot[Any]:
        assert row is not None
        return replace(row, state={**row.state, "messages": [*row.state["messages"], "Porto!"]})

    counts = [await seen.get()]
    await sessions.save_snapshot(begun.id, answer)
    counts.append(await seen.get())
    stop()
    story.append(f"Genkit saw it grow from {counts[0]} message to {counts[1]}")

    # A worker saves the checkpoint of its run in the same store.
    runs = AsyncRunStore(store)
    await runs.save(Checkpoint("nightly-1", "report", iteration=3))
    story.append(f"a worker is at iteration {(await runs.list())[0].iteration}")

    # Limpet's own API sees all of them.
    fork = store.scope(run_id, "planner")
    first = [info async for info in fork.history()][-1]
    assert first.forked_from is not None
    source = first.forked_from
    story.append(f"the fork came from {source.scope.session_id}, snapshot {source.id[:8]}")
    kinds = sorted([info.key.kind async for info in store.scopes()])
    story.append(f"scopes of the kinds {', '.join(kinds)}")
    return story


async def main() -> None:
    async with limpet.open_async("memory:") as store:
        for line in await tell(store):
            print(line)


if __name__ == "__main__":
    asyncio.run(main())
