"""What is timed: CPU of the costly steps at 1 MB, and a save late in the chat on real storage."""

from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

import limpet
from benchmarks.objects.counted import Chat
from benchmarks.report import Result, milliseconds, spread
from limpet.api.store import Store
from tests.servers.service import Service

LATE = 60  # the last saves of the chat, behind one of which the tail is rolled


def measure(folder: Path, service: Service, turns: int, repetitions: int) -> Iterator[Result]:
    rolls, deletes = [], []
    for _ in range(repetitions):
        chat = Chat(True, turns)
        rolls.append(_roll_s(chat))
        deletes.append(_delete_s(chat))
    yield _cpu(f"the last roll in a chat of {turns} turns: CPU", rolls, 0.020)
    yield _cpu(f"`delete_snapshot` of an old one of {turns} turns: CPU", deletes, 0.060)
    with TemporaryDirectory(dir=folder) as place, limpet.open(f"file://{place}") as store:
        yield _late("durable directory", store, turns)
    with limpet.open(f"s3://{service.name}/bench", **service.options) as store:
        yield _late("SeaweedFS", store, turns)


def _roll_s(chat: Chat) -> float:
    """Save the chat; return the CPU of the last save that waited for a roll, beyond the others."""
    scope, plain, roll = chat.begun(), [], 0.0
    for step in chat.steps():
        chat.bucket.take()
        begin = process_time()
        chat.ids.append(scope.save(step.state).id)
        took = process_time() - begin
        if chat.bucket.take()["PUT"] > 1:
            roll = took
        else:
            plain.append(took)
    return roll - median(plain[-LATE:])


def _delete_s(chat: Chat) -> float:
    scope = chat.begun()
    begin = process_time()
    scope.delete_snapshot(chat.ids[len(chat.ids) // 2])
    return process_time() - begin


def _cpu(measure: str, found_s: list[float], most_s: float) -> Result:
    ms = [each * 1000 for each in found_s]
    met = median(found_s) <= most_s
    return Result(measure, spread(ms, "ms", 1), goal=f"≤ {most_s * 1000:.0f} ms", met=met)


def _late(where: str, store: Store, turns: int) -> Result:
    scope, taken = store.scope("chat"), []
    for step in Chat(True, turns).steps():
        begin = perf_counter()
        scope.save(step.state)
        taken.append(perf_counter() - begin)
    late = sorted(taken[-LATE:])
    told = f"median {milliseconds(median(late))}, mean {milliseconds(sum(late) / len(late))}"
    return Result(f"{where}: the last {len(late)} saves of {turns}", told)
