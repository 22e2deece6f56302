"""The same throughput in several processes, which do not share the GIL."""

import multiprocessing
from collections.abc import Sequence
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from typing import TypeAlias

from benchmarks.measuring import order_of
from benchmarks.postgres.server import schema
from benchmarks.postgres.sides import BARE, SAVE, crowds, make_tables, material_of
from benchmarks.postgres.sizes import CONNECTIONS, Sizes
from benchmarks.postgres.threads import Slice
from tests.servers.postgres import Postgres

START_S_MAX = 120
SIDES = (SAVE, BARE)
Found: TypeAlias = "tuple[int, str, Slice]"


def measure(server: Postgres, size: int, sizes: Sizes) -> Sequence[dict[str, Slice]]:
    """Return what all processes together did, in each repetition."""
    context = multiprocessing.get_context("spawn")
    begin = context.Barrier(sizes.processes)
    found: Queue[Found] = context.Queue()
    with schema(server) as name:
        with server.connect() as connection:
            connection.execute(f"CREATE SCHEMA {name}".encode())
            make_tables(connection, name)
        workers = [
            context.Process(target=work, args=(server.url, name, size, sizes, each, begin, found))
            for each in range(sizes.processes)
        ]
        for worker in workers:
            worker.start()
        slices: list[dict[str, list[Slice]]]
        slices = [{side: [] for side in SIDES} for _ in range(sizes.repetitions)]
        for _ in range(len(SIDES) * sizes.repetitions * sizes.processes):
            number, side, done = found.get(timeout=START_S_MAX)
            slices[number][side].append(done)
        for worker in workers:
            worker.join(START_S_MAX)
    return [{side: _together(each[side]) for side in SIDES} for each in slices]


def _together(slices: Sequence[Slice]) -> Slice:
    return Slice(
        sum(each.calls for each in slices),
        max(each.seconds for each in slices),
        sum(each.cpu for each in slices),
    )


def work(
    dsn: str,
    schema: str,
    size: int,
    sizes: Sizes,
    number: int,
    begin: Barrier,
    found: "Queue[Found]",
) -> None:
    """Be one of the processes."""
    threads = CONNECTIONS // sizes.processes
    with crowds(dsn, schema, material_of(size), threads, f"process {number} ") as sides:
        for side in SIDES:
            begin.wait(START_S_MAX)
            sides[side].work(sizes.warmup_s)
        for repetition in range(sizes.repetitions):
            for side in order_of(SIDES, repetition):
                begin.wait(START_S_MAX)
                found.put((repetition, side, sides[side].work(sizes.slice_s)))
