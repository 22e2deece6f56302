"""Checkpoints of which every part shows whether it belongs to the others."""

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
