"""One process of several that save the latest snapshot of one scope in one folder."""

import asyncio
import sys

from limpet.compat.strands import FileStorage, Snapshot, SnapshotLocation


async def main(base: str, session_id: str, number: int, count: int) -> None:
    """Save as often as told, each time as soon as the one before is there."""
    location = SnapshotLocation(session_id, "agent", "a1")
    async with FileStorage(base) as storage:
        for index in range(count):
            snapshot = Snapshot("agent", "1.0", "then", {"by": number, "index": index})
            await storage.save_snapshot(location, "latest", True, snapshot)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
