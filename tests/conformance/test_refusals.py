"""The suite on an engine without an index: what it cannot do it must refuse, and nothing else."""

from pathlib import Path

import pytest

from holdfast.backends.memory import MemoryBackend
from holdfast.errors import Unsupported
from holdfast.model import SnapshotInfo, SnapshotRef
from holdfast.protocol import Backend, Query
from holdfast.testing import conformance
from holdfast.testing.conformance.across import Across
from holdfast.testing.conformance.deleting import Deleting
from holdfast.testing.conformance.drafts import Drafts
from holdfast.testing.conformance.listing import Listing
from holdfast.testing.conformance.order import Order
from holdfast.testing.conformance.promises import Promises
from holdfast.testing.conformance.reading import Reading
from holdfast.testing.conformance.repeating import Repeating
from holdfast.testing.conformance.updating import Updating
from holdfast.testing.conformance.watching import Watching
from tests.conformance.parts import Sync


class NoIndex(MemoryBackend):
    capabilities = frozenset()

    def list_snapshots(self, query: Query, *, limit: int) -> list[SnapshotInfo]:
        if query.scope is None:
            raise Unsupported("this engine has no index")
        return super().list_snapshots(query, limit=limit)

    def find_refs(self, id_prefix: str, *, limit: int) -> list[SnapshotRef]:
        raise Unsupported("this engine has no index")


class OnNoIndex(conformance.Kit):
    def open_backend(self, place: Path) -> Backend:
        return NoIndex()


class TestNoIndex(
    Sync,
    OnNoIndex,
    Promises,
    Order,
    Drafts,
    Repeating,
    Updating,
    Reading,
    Listing,
    Deleting,
    Across,
    Watching,
):
    """The chapters in which an index is asked for."""


@pytest.mark.slow
class TestNoIndexAtLength(Sync, OnNoIndex, conformance.Suite):
    """Every chapter."""
