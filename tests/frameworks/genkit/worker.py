"""A process with an agent. `detach URL` starts a long turn; `count URL` changes one snapshot."""

import asyncio
import sys

import limpet
from limpet.compat.genkit.python import LimpetGenkitStore
from tests.frameworks.genkit.agents import ended, guide
from tests.frameworks.genkit.rows import counting

COUNT = 25


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def detach(url: str) -> None:
    """Print the id of the snapshot, and its status once the work has ended."""
    with limpet.open(url) as store:
        agent = guide(LimpetGenkitStore(store))
        chat = agent.chat(session_id="s")
        await chat.send("hello")
        task = await chat.detach("work hard")
        say(task.snapshot_id)
        await ended()
        found = await agent.get_snapshot(snapshot_id=task.snapshot_id)
        assert found is not None
        say(str(found.status))


async def count(url: str) -> None:
    with limpet.open(url) as store:
        for _ in range(COUNT):
            await LimpetGenkitStore(store).save_snapshot("n", counting)


if __name__ == "__main__":
    verb, url = sys.argv[1:]
    asyncio.run({"detach": detach, "count": count}[verb](url))
