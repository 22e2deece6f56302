"""Strands' `SnapshotSessionManager` on local files: an immutable snapshot a turn, and the latest.

The manager is called as the agent calls it after an invocation, by its hook, with a trigger that
always fires. No model is asked.
"""

import asyncio
import os
from typing import Any

from strands import Agent
from strands.hooks import AfterInvocationEvent
from strands.models import Model
from strands.session import SnapshotSessionManager
from strands.storage import LocalFileStorage

from benchmarks.peers.harness import Job, Message, Peer, drive


class NoModel(Model):
    """A model that an agent requires and never calls."""

    def update_config(self, **config: Any) -> None:
        """Nothing to configure."""

    def get_config(self) -> Any:
        """Nothing is configured."""
        return {}

    def structured_output(self, *args: Any, **more: Any) -> Any:
        """Never asked."""
        raise NotImplementedError

    def stream(self, *args: Any, **more: Any) -> Any:
        """Never asked."""
        raise NotImplementedError


class Files(Peer):
    """One immutable snapshot a turn, and the latest."""

    packages = ("strands-agents",)

    def __init__(self, job: Job) -> None:
        self.folder = f"{job.folder}/strands"
        self.runner = asyncio.Runner()
        self.agent = self.opened()

    def opened(self) -> Any:
        """Return an agent with a manager of its own; it restores what is there."""
        manager = SnapshotSessionManager(
            "session",
            storage=LocalFileStorage(self.folder),
            save_latest_on="trigger",
            snapshot_trigger=lambda **given: True,
        )
        self.manager = manager
        return Agent(model=NoModel(), agent_id="agent", session_manager=manager)

    def prepare(self, turn: int, new: list[Message]) -> None:
        """Add the messages to the agent's."""
        self.agent.state.set("turn", turn)
        for message in new:
            content = [{"text": message["content"]}]
            self.agent.messages.append({"role": message["role"], "content": content})

    def save(self) -> None:
        """Do what the agent does when an invocation is over."""
        event = AfterInvocationEvent(agent=self.agent)
        self.runner.run(self.agent.hooks.invoke_callbacks_async(event))

    def load(self) -> int:
        """Restore the latest snapshot into the agent."""
        if not self.runner.run(self.manager.restore_snapshot(self.agent)):
            raise AssertionError("there is no snapshot")
        return len(self.agent.messages)

    def disk_bytes(self) -> int:
        """Return the sum of all files."""
        files = (
            os.path.join(top, name) for top, _, names in os.walk(self.folder) for name in names
        )
        return sum(map(os.path.getsize, files))

    def durability(self) -> str:
        """Return what its source says: the files are renamed into place, and never synced."""
        return "files, renamed into place, no fsync: a power cut can lose what was acknowledged"

    def close(self) -> None:
        """Nothing is open but the loop."""
        self.runner.close()


if __name__ == "__main__":
    drive(Files)
