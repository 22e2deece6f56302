"""A process that counts in one snapshot, and adds snapshots to one session, as often as told."""

import asyncio
import json
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

from limpet.compat.genkit import SessionSnapshot
from limpet.compat.genkit.node_files.store import JsonFileSessionStore


def counted(current: SessionSnapshot[Any] | None) -> Mapping[str, Any]:
    """Return a snapshot that says one more, of which every part shows that it is whole."""
    n = 0 if current is None else current.state["n"]
    if current is not None:
        assert current.state["fill"] == [n] * 500
    return {"sessionId": "count", "state": {"n": n + 1, "fill": [n + 1] * 500}}


async def work(files: JsonFileSessionStore[Any], name: str, times: int) -> None:
    parent = None
    for number in range(times):
        await files.save_snapshot("n", counted)
        if number % 5 == 0:
            row = {"sessionId": "grow", "parentId": parent}
            parent = await files.save_snapshot(f"{name}-{number}", partial(answered, row))


def answered(row: Mapping[str, Any], current: SessionSnapshot[Any] | None) -> Mapping[str, Any]:
    assert current is None
    return row


def main(folder: str, name: str) -> None:
    files: JsonFileSessionStore[Any] = JsonFileSessionStore(folder)
    while line := sys.stdin.readline():
        asyncio.run(work(files, name, json.loads(line)))
        sys.stdout.write('"done"\n')
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
