"""For information: what listing and finding take in a long history, and many writers at once."""

import asyncio
import multiprocessing
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter

import limpet
from benchmarks.objects.bare import bare_store
from benchmarks.objects.crowd import SESSION, Place, work
from benchmarks.objects.material import SCOPE
from benchmarks.objects.sizes import Sizes
from benchmarks.plan import Plan
from benchmarks.report import TIMES, Result, milliseconds, spread
from tests.servers.service import Service

LABEL_EVERY = 50
UPLOADS = 64  # at a time
START_S_MAX = 120


def measure(plan: Plan, sizes: Sizes, service: Service) -> Iterator[Result]:
    """Yield the rows of both engines."""
    with plan.place() as folder:
        ids = _fill(folder, sizes)
        prefix = f"history-{uuid.uuid4()}"
        asyncio.run(_upload(folder, service, prefix))
        history = (
            Place("directory", f"file://{folder}"),
            Place("S3", f"s3://{service.name}/{prefix}", service.options),
        )
        for place in history:
            yield from _lookups(place, sizes, ids)
    with plan.place() as folder:
        crowds = (
            Place("directory", f"file://{folder}"),
            Place("S3", f"s3://{service.name}/crowd-{uuid.uuid4()}", service.options),
        )
        for place in crowds:
            yield _crowd(place, sizes)


def _fill(folder: Path, sizes: Sizes) -> list[str]:
    """Make a long history in a folder; return its ids."""
    with limpet.open(f"file://{folder}", sync=False) as store:
        scope = store.scope(*SCOPE)
        return [
            scope.save({"n": n}, labels={"every": "50"} if n % LABEL_EVERY == 0 else None).id
            for n in range(sizes.history)
        ]


async def _upload(folder: Path, service: Service, prefix: str) -> None:
    """Copy a folder into a bucket file by file: both hold the same."""
    store = bare_store(service)
    paths = iter([path for path in folder.rglob("*") if path.is_file()])

    async def work() -> None:
        for path in paths:
            key = f"{prefix}/{path.relative_to(folder).as_posix()}"
            await store.put_async(key, path.read_bytes(), use_multipart=False)

    await asyncio.gather(*(work() for _ in range(UPLOADS)))


def _lookups(place: Place, sizes: Sizes, ids: list[str]) -> Iterator[Result]:
    with place.open() as store:
        scope = store.scope(*SCOPE)
        calls: dict[str, Callable[[int], int]] = {
            f"`ids(limit={sizes.page})`": lambda _: len(list(scope.ids(limit=sizes.page))),
            "`history(limit=20)`": lambda _: len(list(scope.history(limit=20))),
            f"`store.history(limit=20)` by a label on one in {LABEL_EVERY}": lambda _: len(
                list(store.history(labels={"every": "50"}, limit=20))
            ),
            "`store.find(id)`": lambda n: int(store.find(ids[n * 37 % len(ids)]) is not None),
            "`load(id)`": lambda n: int(scope.load(ids[n * 37 % len(ids)]) is not None),
        }
        wanted = (sizes.page, 20, min(20, sizes.history // LABEL_EVERY), 1, 1)
        for (what, call), count in zip(calls.items(), wanted, strict=True):
            seconds = []
            for number in range(1 + sizes.lookups):
                start = perf_counter()
                found = call(number)
                seconds.append(perf_counter() - start)
                if found != count:
                    raise AssertionError(f"{place.name}: {what} found {found} and not {count}")
            yield Result(
                measure=f"{place.name}: {what} in a history of {sizes.history:,}",
                measured=spread([1000 * each for each in seconds[1:]], "ms"),
            )


def _crowd(place: Place, sizes: Sizes) -> Result:
    with place.open() as store:
        saved = store.scope(SESSION).save({"count": 0})
    context = multiprocessing.get_context("spawn")
    begin = context.Barrier(sizes.processes + 1)
    args = (place, saved.id, sizes.updates, begin)
    processes = [context.Process(target=work, args=args) for _ in range(sizes.processes)]
    for process in processes:
        process.start()
    begin.wait(timeout=START_S_MAX)
    start = perf_counter()
    for process in processes:
        process.join()
    seconds = perf_counter() - start
    with place.open() as store:
        last = store.scope(SESSION).load(saved.id)
    total = sizes.processes * sizes.updates
    if last is None or last.state["count"] != total:
        raise AssertionError("updates were lost")
    return Result(
        f"{place.name}: {sizes.processes} processes {TIMES} {sizes.updates} `update`s of one "
        "snapshot",
        f"{seconds:.1f} s in total, {milliseconds(seconds / total)} each; none lost",
    )
