"""One of many writer processes, which imports only what it needs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.synchronize import Barrier
from typing import Any

import limpet

SESSION = "benchmark"


@dataclass(frozen=True, slots=True)
class Place:
    """A store, and how to open it."""

    name: str
    url: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def open(self) -> limpet.Store:
        """Open it."""
        return limpet.open(self.url, **self.options)


def _count(found: limpet.Snapshot) -> limpet.Snapshot:
    return found.with_(state={"count": found.state["count"] + 1})


def work(place: Place, snapshot_id: str, updates: int, begin: Barrier) -> None:
    """Make the updates of one process, when all are ready."""
    with place.open() as store:
        scope = store.scope(SESSION)
        scope.load(snapshot_id)
        begin.wait()
        for _ in range(updates):
            scope.update(snapshot_id, _count)
