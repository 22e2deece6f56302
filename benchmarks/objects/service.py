"""S3: `save` and `load` against the bare requests that they consist of."""

import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from statistics import median

import limpet
from benchmarks.deltas.outcome import limit
from benchmarks.measuring import Bare, Call, Run, take_turns
from benchmarks.objects.bare import BareWriter, bare_store, load
from benchmarks.objects.material import HEAD, SCOPE, Material, material_of, new_keys
from benchmarks.objects.sizes import STATES, Sizes
from benchmarks.report import NONE, Result, milliseconds, spread
from limpet.core.layout import Layout
from tests.servers.service import Service

RATIO_MAX = 1.3
WARMUP = 5
OURS = "ours/"


def measure(service: Service, sizes: Sizes) -> Iterator[Result]:
    """Yield how each verb compares, for each size of state."""
    for name, size in STATES:
        yield from _Comparison(service, sizes, name, size).rows()


def _ignoring(call: Bare, number: int) -> None:
    call()


class _Comparison:
    """All verbs over states of one size, below a prefix of its own."""

    def __init__(self, service: Service, sizes: Sizes, name: str, size: int) -> None:
        self._name = name
        self._calls = sizes.calls_of(size)
        self._repetitions = sizes.repetitions
        self._material: Material = material_of(size)
        self._service = service
        self._bare = bare_store(service)
        self._root = f"saving-{uuid.uuid4()}/"
        self._keys = new_keys(WARMUP + self._calls * self._repetitions)

    def rows(self) -> Iterator[Result]:
        """Yield the rows."""
        with ExitStack() as stack:
            url = f"s3://{self._service.name}/{self._root}{OURS}"
            store = stack.enter_context(limpet.open(url, **self._service.options))
            pool = stack.enter_context(ThreadPoolExecutor(2))
            yield from self._kept(store.scope(*SCOPE), pool)
            yield self._draft(store.scope("drafts"), pool)
            yield from self._loads(store.scope(*SCOPE))

    def _turns(self, sides: dict[str, Call]) -> Run:
        return take_turns(sides, calls=self._calls, repetitions=self._repetitions, warmup=WARMUP)

    def _kept(self, scope: limpet.Scope, pool: ThreadPoolExecutor) -> Iterator[Result]:
        material, keys = self._material, self._keys
        line, best = (BareWriter(self._bare, f"{self._root}{at}/", pool) for at in ("line", "best"))
        run = self._turns(
            {
                "save": lambda number: scope.save(material.state(number)),
                "line": lambda number: line.save(material.document(number), keys[number]),
                "best": lambda number: best.save_best(material.document(number), keys[number]),
            }
        )
        self._check_work(OURS, "line/", "best/")
        what = f"S3: kept `save` of {self._name} against its four bare PUTs"
        yield self._row(run, "save", "line", f"{what}, one after the other", RATIO_MAX)
        yield self._row(run, "save", "best", f"{what}, the two pointers in parallel")

    def _draft(self, scope: limpet.Scope, pool: ThreadPoolExecutor) -> Result:
        material = self._material
        bare = BareWriter(self._bare, f"{self._root}draft/", pool)
        run = self._turns(
            {
                "save": lambda number: scope.save(material.state(number), keep=False),
                "put": lambda number: bare.put_head(material.document(number)),
            }
        )
        what = f"S3: `save(…, keep=False)` of {self._name} against one bare PUT"
        return self._row(run, "save", "put", what, RATIO_MAX)

    def _loads(self, scope: limpet.Scope) -> Iterator[Result]:
        *_, first = scope.history(limit=2)  # below the head
        head = f"{self._root}{OURS}{HEAD}"
        copy = f"{self._root}{OURS}{Layout().copy_key(SCOPE, first.id)}"
        verbs: Sequence[tuple[str, str, str | None, Sequence[str]]] = (
            ("load()", "one bare GET", None, [head]),
            ("load(id)", "two bare GETs", first.id, [head, copy]),
        )
        for verb, against, id, keys in verbs:
            run = self._turns(
                {
                    "load": partial(_ignoring, partial(scope.load, id)),
                    "get": partial(_ignoring, partial(load, self._bare, keys)),
                }
            )
            what = f"S3: `{verb}` of {self._name} against {against} and `orjson.loads`"
            yield self._row(run, "load", "get", what)

    def _row(
        self, run: Run, side: str, base: str, what: str, ratio_max: float | None = None
    ) -> Result:
        found = run.ratios(side, base, "wall")
        seconds = [milliseconds(run.seconds(each, "wall")) for each in (side, base)]
        return Result(
            measure=f"{what}, wall, median",
            goal=NONE if ratio_max is None else limit(ratio_max),
            measured=" against ".join(seconds),
            ratio=spread(found),
            met=None if ratio_max is None else median(found) <= ratio_max,
        )

    def _check_work(self, *sides: str) -> None:
        done = []
        for side in sides:
            pages = self._bare.list(self._root + side)
            found = [each["size"] for page in pages for each in page]
            done.append((len(found), sum(found)))
        for count, size in done:
            if count != done[0][0] or not 0.9 < size / done[0][1] < 1.1:
                raise AssertionError(f"the sides did different work: {done}")
