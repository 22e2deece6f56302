"""The verdict on runs with a foreign tool, which overwrites the current document blindly.

It may discard drafts, a kept save that is not acknowledged yet, and the order of ids
(object_protocol.md 4.5), so that no single order explains such a run. What is left to promise:
acknowledged kept snapshots and updates survive, and losers are never seen.
"""

from collections.abc import Iterator, Sequence

from holdfast.testing.simulation.checker import ids_of, losers, said, unexpected
from holdfast.testing.simulation.history import Op


def foreign_violations(ops: Sequence[Op], *, faulty: bool, late: bool) -> list[str]:
    """Return what breaks a promise, in words."""
    return [*unexpected(ops, faulty), *losers(ops), *ids_of(ops)[1], *_lost(ops)]


def _lost(ops: Sequence[Op]) -> Iterator[str]:
    last = [op for op in ops if op.settled and op.actor == "read2"]
    histories = [op for op in last if op.verb == "query" and op.scope is not None and op.ok]
    shown = {info.id for op in histories for info in op.answer}
    for op in ops:
        if op.verb == "commit" and op.ok and op.answer.kept and op.answer.id not in shown:
            yield f"an acknowledged snapshot is lost (promise 1): {said(op)}"
