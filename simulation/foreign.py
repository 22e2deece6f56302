"""The verdict on runs with a foreign tool, which overwrites the current document blindly.

It may discard drafts, a kept save that is not acknowledged yet, and the order of ids
(docs/format.md, not promised: 8), so that no single order explains such a run. What is left to
promise: acknowledged kept snapshots and updates survive, and losers are never seen.
"""

from collections.abc import Iterator, Sequence

from simulation.checker import ids_of, losers, said, unexpected
from simulation.client import log_of
from simulation.history import Op


def foreign_violations(ops: Sequence[Op], *, faulty: bool, late: bool) -> list[str]:
    """Return what breaks a promise, in words."""
    return [*unexpected(ops, faulty), *losers(ops), *ids_of(ops)[1], *_lost(ops)]


def _lost(ops: Sequence[Op]) -> Iterator[str]:
    last = [op for op in ops if op.settled and op.actor in ("read2", "read3") and op.ok]
    histories = [op for op in last if op.verb == "query" and op.given["query"].scope is not None]
    kept = [op for op in ops if op.verb == "commit" and op.ok and op.answer.kept]
    for history in histories:
        shown = {info.id for info in history.answer}
        for op in kept:
            if op.answer.id not in shown and op.end < history.begin:
                yield f"an acknowledged snapshot is lost (promise 1): {said(op)}"
    for read in last:
        if read.verb == "read" and read.given["id"] is not None:
            yield from _lost_updates(read, kept)


def _lost_updates(read: Op, kept: Sequence[Op]) -> Iterator[str]:
    """Yield acknowledged updates whose line is not in the log of their snapshot, or is twice."""
    log = log_of(read.answer[0][1]) if read.answer else ()
    if len(set(log)) < len(log):
        yield f"an update was applied twice (promise 6): {said(read)}"
    mine = (op for op in kept if op.answer.id == read.given["id"] and op.end < read.begin)
    for op in mine:
        commit = op.given["commit"]
        if commit.replaces is not None and log_of(commit.body)[-1] not in log:
            yield f"an acknowledged update is lost (promise 6): {said(op)}\n    {said(read)}"
