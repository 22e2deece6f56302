"""Runs in the environment of a framework: has the conversation on both sides, turn by turn.

`python -m benchmarks.frameworks.worker NAME conversation.json folder` prints one JSON object.
"""

import asyncio
import importlib
import json
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.frameworks.side import Side


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder."""
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    return sum(each.stat().st_size for each in files)


async def have(sides: list[Side], conversation: list[Any]) -> list[Any]:
    """Have a conversation on all sides, which take turns in an order that changes each time."""
    spent: dict[Side, list[tuple[float, float]]] = {side: [] for side in sides}
    for number, (question, answer) in enumerate(conversation):
        for side in sides if number % 2 else sides[::-1]:
            wall, cpu = time.perf_counter(), time.process_time()
            await side.turn(question["content"], answer["content"])
            spent[side].append((time.perf_counter() - wall, time.process_time() - cpu))
    found = []
    for side in sides:
        count = await side.count()
        if count != 2 * len(conversation):
            raise AssertionError(f"{side.title}: {count} messages after {len(conversation)} turns")
        side.close()
        found.append({"title": side.title, "turns": spent[side], "bytes": size_of(side.path)})
    return found


def main(name: str, conversation: str, folder: str) -> None:
    """Measure, and print what was found."""
    module = importlib.import_module(f"benchmarks.frameworks.{name}")
    turns = json.loads(Path(conversation).read_text(encoding="utf-8"))
    sides = [module.ours(Path(folder)), module.theirs(Path(folder))]
    found = {
        "about": module.ABOUT,
        "version": f"{module.PACKAGE} {version(module.PACKAGE)}",
        "sides": asyncio.run(have(sides, turns)),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
