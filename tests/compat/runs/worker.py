"""A process that saves one run over and over: for each line of JSON a number of times."""

import json
import sys

import limpet
from limpet.compat.runs import Checkpoint, GoRunStore, RunStore
from tests.compat.runs.hands import Runs

PARTS = 200


def checkpoint(number: int) -> Checkpoint:
    """Return one of which every part shows whether it belongs to the others."""
    words = [{"n": number, "text": "x" * (number % 50)}] * PARTS
    return Checkpoint("r", str(number), number, words, str(number), number, number)


def check(found: Checkpoint) -> int:
    """Fail if a checkpoint is made of parts of several; return its number."""
    expected = checkpoint(found.iteration)
    assert {**found.to_json(), "created_at": ""} == expected.to_json()
    return found.iteration


def open_runs(kind: str, folder: str) -> Runs:
    if kind == "go":
        return GoRunStore(folder)
    # What a power cut does is not tested here, and without syncing it is much faster.
    return RunStore(limpet.open(f"file://{folder}", sync=False))


def main(kind: str, folder: str, first: str) -> None:
    runs = open_runs(kind, folder)
    while line := sys.stdin.readline():
        for number in range(json.loads(line)):
            runs.save(checkpoint(int(first) + number))
            check(runs.load("r"))
            assert len(runs.list()) == 1
        sys.stdout.write('"done"\n')
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
