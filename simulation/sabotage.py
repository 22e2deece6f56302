"""Engines that are broken on purpose: what the checker must catch, or it has no teeth.

Each wraps the bucket of an engine and does one thing as an obvious but wrong design does.
The engine itself is the real one.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from limpet.backends.buckets.protocol import Bucket
from limpet.core.commits import check_fence
from limpet.model import SnapshotInfo
from limpet.protocol import Backend, Clock, Commit, Stamp
from simulation.sabotage_reads import (
    ForgetsNotes,
    ForkWithoutCheck,
    HeadBeforeCopy,
    IdsFromTheClock,
    ListBeforeHead,
    NoBump,
    NoTouch,
    ShortMemory,
)
from simulation.sabotage_writes import (
    AcknowledgedEarly,
    BareDelete,
    BareDeleteOfHead,
    BlindCopy,
    BlindHead,
    BlindNotes,
    DraftsSkipRollForward,
    HeadsLast,
    Honest,
    NoRollForward,
    PointersAfterCopy,
    Resends,
    SaysFailed,
)
from simulation.world import Opener


def one_line(backend: Any) -> None:
    """Give every life of a scope the same line, so that an old copy is not recognised."""
    writer = backend._saver._writer
    line = writer.new_line(0)
    writer.new_line = lambda _now: line[:8] + "-0000-7000-8000-000000000000"


def lease_merely_read(backend: Any) -> None:
    """Look at the lease before a save, and not for its key in the head that is replaced."""
    save = backend._saver.commit

    def commit(commit: Commit) -> SnapshotInfo:
        if commit.fence is not None:
            hold = backend.read_lease(commit.scope, now=0)
            check_fence(commit.fence, None if hold is None else hold.key, commit.scope)
        saved: SnapshotInfo = save(commit._replace(fence=None))
        return saved

    backend._saver.commit = commit


class Sabotage(NamedTuple):
    """What is broken, in the bucket or in the engine, and where it shows."""

    wrap: Callable[[Bucket], Bucket]
    scenario: str
    mode: str
    engine: Callable[[Backend], None] | None = None


SABOTAGES: Final = {
    "blind copy": Sabotage(BlindCopy, "B", "none"),
    "blind head": Sabotage(BlindHead, "A", "none"),
    "blind notes": Sabotage(BlindNotes, "F", "none"),
    "bare delete": Sabotage(BareDelete, "C", "none"),
    "bare delete of the head": Sabotage(BareDeleteOfHead, "C", "none"),
    "no roll-forward": Sabotage(NoRollForward, "A", "crash"),
    "drafts skip the roll-forward": Sabotage(DraftsSkipRollForward, "A", "crash"),
    "acknowledged early": Sabotage(AcknowledgedEarly, "A", "none"),
    "no trail": Sabotage(ShortMemory, "P", "lost"),
    "resent by itself": Sabotage(Resends, "B", "lost"),
    "lost is failed": Sabotage(SaysFailed, "A", "lost"),
    "head before copy": Sabotage(HeadBeforeCopy, "B", "none"),
    "list before head": Sabotage(ListBeforeHead, "A", "none"),
    "ids from the clock": Sabotage(IdsFromTheClock, "A", "none"),
    "pointers after the copy": Sabotage(PointersAfterCopy, "G", "crash"),
    "heads last": Sabotage(HeadsLast, "H", "crash"),
    "no line": Sabotage(Honest, "D", "none", one_line),
    "lease merely read": Sabotage(Honest, "I", "none", lease_merely_read),
    "no bump": Sabotage(NoBump, "V", "none"),
    "no touch": Sabotage(NoTouch, "E", "none"),
    "notes stay": Sabotage(ForgetsNotes, "Q", "none"),
    "fork without check": Sabotage(ForkWithoutCheck, "H", "none"),
}
"""By name, each with the scenario and the mode in which it is caught soonest."""


def sabotaged(opener: Opener, name: str) -> Opener:
    """Return an opener whose engine works over a sabotaged bucket."""

    def open_(bucket: Bucket, index: bool, clock: Clock, draw: Callable[[], Stamp]) -> Backend:
        sabotage = SABOTAGES[name]
        backend = opener(sabotage.wrap(bucket), index, clock, draw)
        if sabotage.engine is not None:
            sabotage.engine(backend)
        return backend

    return open_
