"""Goal 1: how many saves a server takes over 16 connections, against bare inserts and commits."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.measuring import order_of
from benchmarks.postgres import processes
from benchmarks.postgres.server import is_contended, schema, sync_seconds
from benchmarks.postgres.sides import BARE, EXTERNAL, SAVE, crowds, make_tables, material_of
from benchmarks.postgres.sizes import CONNECTIONS, STATES, Sizes
from benchmarks.postgres.threads import Crowd, Slice
from benchmarks.report import NONE, Result, milliseconds, spread
from tests.servers.postgres import Connection, Postgres, one

SHARE_MIN = 0.7
Repetition = Mapping[str, Slice]


@dataclass(frozen=True, slots=True)
class Rates:
    """Several repetitions of sides that had the machine in turn."""

    repetitions: Sequence[Repetition]
    contended: int = 0

    def shares(self, base: str) -> list[float]:
        """Return the saves for each call of the base, in each repetition."""
        return [each[SAVE].rate / each[base].rate for each in self.repetitions]

    def told(self, side: str) -> str:
        """Return the throughput of a side and what a call costs its client."""
        rate = median(each[side].rate for each in self.repetitions)
        cpu = median(each[side].cpu_each for each in self.repetitions)
        return f"{rate:,.0f}/s ({milliseconds(cpu)} CPU)"


def measure(server: Postgres, folder: Path, sizes: Sizes) -> Iterator[Result]:
    """Yield how throughput compares, for each size of state."""
    for name, size in STATES:
        yield from _rows(_in_threads(server, folder, size, sizes), name)
    for name, size in STATES[1:2] if sizes.quick else STATES:
        rates = Rates(processes.measure(server, size, sizes))
        what = f"{sizes.processes} processes of {CONNECTIONS // sizes.processes} connections"
        yield _row(rates, BARE, f"`save` of {name}, {what}, against a bare INSERT", None)


def _in_threads(server: Postgres, folder: Path, size: int, sizes: Sizes) -> Rates:
    done, contended = [], 0
    with schema(server) as name, server.connect() as connection:
        connection.execute(f"CREATE SCHEMA {name}".encode())
        make_tables(connection, name)
        with crowds(server.url, name, material_of(size), CONNECTIONS) as sides:
            for crowd in sides.values():
                crowd.work(sizes.warmup_s)
            for number in range(sizes.repetitions):
                # Else what one side left behind would be written while the other is measured.
                connection.execute(b"CHECKPOINT")
                contended += is_contended(sync_seconds(folder))
                order = order_of(list(sides), number)
                done.append({side: sides[side].work(sizes.slice_s) for side in order})
            _check_work(connection, name, sides)
    return Rates(done, contended)


def _check_work(connection: Connection, schema: str, sides: Mapping[str, Crowd]) -> None:
    for table, side in (("snapshots", SAVE), (BARE, BARE), (EXTERNAL, EXTERNAL)):
        found = one(connection, f"SELECT count(*) FROM {schema}.{table}")
        if found != sides[side].calls:
            raise AssertionError(f"{side}: {sides[side].calls} calls left {found} rows")


def _rows(rates: Rates, name: str) -> Iterator[Result]:
    what = f"`save` of {name}, {CONNECTIONS} threads and connections, against a bare INSERT"
    yield _row(rates, BARE, what, SHARE_MIN)
    yield _row(rates, EXTERNAL, f"{what} that the server does not compress", None)


def _row(rates: Rates, base: str, what: str, share_min: float | None) -> Result:
    shares = rates.shares(base)
    met: bool | None = None
    if share_min is not None:
        met = median(shares) >= share_min
        if met and median(shares) < 1 and rates.contended > len(shares) / 2:
            met = None  # both sides waited for the same disk, which draws them together
    return Result(
        measure=f"throughput of {what}",
        goal=NONE if share_min is None else f"≥ {share_min:.0%}".replace("%", " %"),
        measured=f"{rates.told(SAVE)} against {rates.told(base)}",
        ratio=spread([100 * share for share in shares], "%", 0),
        met=met,
        contended=rates.contended,
    )
