"""What is counted: bytes stored and sent, and requests, in a bucket in memory."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from benchmarks.report import NONE, TIMES, Result
from benchmarks.traces import TRACES, Step
from limpet.api.scope import Scope
from tests.buckets.counting import CountingBucket
from tests.buckets.opened import store_on

KEPT = 50
PAGE = 20


@dataclass
class Chat:
    """A chat that was saved turn by turn, by one process."""

    compress: bool
    turns: int
    bucket: CountingBucket = field(default_factory=CountingBucket)
    ids: list[str] = field(default_factory=list)
    puts: int = 0

    def save(self) -> None:
        scope = self.begun()
        for step in self.steps():
            self.ids.append(scope.save(step.state).id)
        self.puts = self.bucket.take()["PUT"]

    def steps(self) -> list[Step]:
        return list(TRACES["chat"].steps())[: self.turns]

    def begun(self) -> Scope:
        """Return the chat in a process that has read nothing yet."""
        return store_on(self.bucket, compress=self.compress).scope("chat")

    def requests(self, call: Callable[[Scope], object]) -> dict[str, int]:
        self.bucket.take()
        call(self.begun())
        return self.bucket.take()


def measure(turns: int) -> Iterator[Result]:
    text = TRACES["chat"].size().text
    s3, folder = Chat(True, turns), Chat(False, turns)
    for each in (s3, folder):
        each.save()
    name = f"chat of {turns} turns"
    yield _ratio(f"{name}, S3 (zstd): stored, of its text", s3.bucket.stored, text, 0.40)
    yield _ratio(f"{name}, directory: stored, of its text", folder.bucket.stored, text, 1.6)
    yield _ratio(f"{name}, S3: sent, of its text", s3.bucket.sent, text, 10)
    yield _ratio(f"{name}, directory: written, of its text", folder.bucket.sent, text, None)
    yield _ratio(f"{name}: PUTs, of its saves", s3.puts, turns, 1.05)
    yield _requests(f"{name}: `load()`", s3.requests(lambda s: s.load()), 2)
    old = s3.requests(lambda s: s.load(s3.ids[turns // 3]))
    yield _requests(f"{name}: `load(id)`, old", old, 2)
    history = s3.requests(lambda s: list(s.history(limit=PAGE)))
    yield _requests(f"{name}: `history(limit={PAGE})`", history, 2)
    pruned = s3.requests(lambda s: s.prune(keep_last=KEPT))
    yield _requests(f"{name}: `prune` to {KEPT}", pruned, 8)


def measure_traces(turns: int | None) -> Iterator[Result]:
    """Every trace, stored compressed, against the ideal size."""
    for name, trace in TRACES.items():
        bucket = CountingBucket()
        scope = store_on(bucket, compress=True).scope("trace")
        for step in islice(trace.steps(), turns):
            scope.save(step.state)
        yield _ratio(
            f"trace {name}, S3: stored, of the ideal", bucket.stored, trace.size().ideal, 1.2
        )


def _ratio(measure: str, value: int, of: int, most: float | None) -> Result:
    ratio = value / of
    goal = NONE if most is None else f"≤ {most:g} {TIMES}"
    met = None if most is None else ratio <= most
    return Result(measure, f"{value:,} of {of:,}", goal, f"{ratio:.2f} {TIMES}", met)


def _requests(measure: str, found: dict[str, int], most: int) -> Result:
    told = ", ".join(f"{count} {method}" for method, count in sorted(found.items()))
    met = sum(found.values()) <= most
    return Result(measure, told, goal=f"≤ {most} requests", met=met)
