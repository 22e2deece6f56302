"""A kept save to a folder against writing the same four files by hand."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import limpet
from benchmarks.deltas.outcome import limit, ratios, within
from benchmarks.measuring import SYNC, Call, Run, Times, repeated, take_turns
from benchmarks.objects.hand import Hand
from benchmarks.objects.material import SCOPE, Material, material_of, new_keys
from benchmarks.objects.sizes import STATES, Sizes
from benchmarks.plan import Plan
from benchmarks.report import Result, milliseconds
from benchmarks.saving import syncing

RATIO_MAX = 2.0
WARMUP = 5


def measure(plan: Plan, sizes: Sizes) -> Iterator[Result]:
    """Yield how a kept save compares, for each size, with and without waiting for the disk."""
    for sync in (True, False):
        for name, size in STATES:
            material = material_of(size)
            one = partial(_one, plan, sizes.calls_of(size), material, sync)
            # A quick run does not repeat what was contended.
            run = Run([one()]) if sizes.quick else repeated(one, sizes.repetitions)
            yield from _rows(run, name, sync)


def _one(plan: Plan, calls: int, material: Material, sync: bool) -> Mapping[str, Times]:
    """Measure one repetition, in folders that are new."""
    keys = new_keys(WARMUP + calls)
    with ExitStack() as stack:
        place = stack.enter_context(plan.place())
        ours, book, least = (place / name for name in ("ours", "book", "least"))
        scope = stack.enter_context(limpet.open(f"file://{ours}", sync=sync)).scope(*SCOPE)
        by_book, by_least = (Hand(each, keys[0], sync=sync) for each in (book, least))
        sides: dict[str, Call] = {
            "save": lambda number: scope.save(material.state(number)),
            "book": lambda number: by_book.save(material.document(number), keys[number]),
            "least": lambda number: by_least.save_least(material.document(number), keys[number]),
        }
        if sync:
            sides[SYNC] = stack.enter_context(syncing(place / "sync.bin"))
        run = take_turns(sides, calls=calls, repetitions=1, warmup=WARMUP)
        _compare(_contents(ours), _contents(book), _contents(least))
    return run.repetitions[0]


def _contents(root: Path) -> tuple[int, int]:
    """Return how many files there are, and their bytes."""
    found = [path.stat().st_size for path in root.rglob("*") if path.is_file()]
    return len(found), sum(found)


def _compare(ours: tuple[int, int], *others: tuple[int, int]) -> None:
    for files, size in others:
        # The headers of documents grow a little with the first saves.
        if files != ours[0] or not 0.9 < size / ours[1] < 1.1:
            raise AssertionError(f"the sides did different work: {ours} and {(files, size)}")


def _rows(run: Run, name: str, sync: bool) -> Iterator[Result]:
    how = "durable" if sync else "`sync=false`"
    bases = (
        ("book", "each in a temporary file, synced, renamed, its directory synced", RATIO_MAX),
        ("least", "with the fewest steps", None),
    )
    for base, about, ratio_max in bases:
        if not sync:
            about = about.replace(", synced", "").replace(", its directory synced", "")
        seconds = [milliseconds(run.seconds(side, "wall")) for side in ("save", base)]
        yield Result(
            measure=f"directory: kept `save` of {name}, {how}, against the same files by hand, "
            f"{about}, median",
            goal="-" if ratio_max is None else limit(ratio_max, ", wall"),
            measured=" against ".join(seconds),
            ratio=ratios(run, "save", base),
            met=None if ratio_max is None else within(run, "save", base, ratio_max, ("wall",)),
            contended=run.contended,
        )
