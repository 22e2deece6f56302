"""A process that adds to one row, as often as a line of JSON says."""

import asyncio
import json
import sys
from typing import Any

import limpet
from limpet.compat.genkit import SessionStore


def increment(current: Any) -> dict[str, Any]:
    """Count the saves; all that begin the row are the same to the last byte."""
    made = {"sessionId": "s", "createdAt": "2026-01-01T00:00:00.000Z"}
    return {**made, "state": {"n": 1 if current is None else current.state["n"] + 1}}


async def save(sessions: SessionStore[Any], tenant: str, count: int) -> None:
    for _ in range(count):
        await sessions.save_snapshot("a", increment, context=tenant)


def main(url: str, options: str, tenant: str) -> None:
    with limpet.open(url, **json.loads(options)) as store:
        while line := sys.stdin.readline():
            asyncio.run(save(SessionStore(store), tenant, json.loads(line)))
            sys.stdout.write('"done"\n')
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
