"""The suite on an engine without an index: what it cannot do it must refuse, and nothing else."""

from pathlib import Path

import pytest

from limpet.errors import Unsupported
from limpet.model import SnapshotInfo, SnapshotRef
from limpet.protocol import Backend, Query
from limpet.testing import conformance
from limpet.testing.conformance.deleting import Deleting
from limpet.testing.conformance.drafts import Drafts
from limpet.testing.conformance.listing import Listing
from limpet.testing.conformance.order import Order
from limpet.testing.conformance.promises import Promises
from limpet.testing.conformance.reading import Reading
from limpet.testing.conformance.repeating import Repeating
from limpet.testing.conformance.store_history import StoreHistory
from limpet.testing.conformance.updating import Updating
from limpet.testing.conformance.watching import Watching
from limpet.testing.oracle import Oracle
from tests.conformance.parts import Sync


class NoIndex(Oracle):
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
    StoreHistory,
    Watching,
):
    """The chapters that use an index."""


@pytest.mark.slow
class TestNoIndexAtLength(Sync, OnNoIndex, conformance.Suite):
    """Every chapter."""
