"""The suite on an engine without an index: what it cannot do it must refuse, and nothing else."""

from pathlib import Path

import pytest

from limpet.errors import Unsupported
from limpet.model import SnapshotInfo, SnapshotRef
from limpet.protocol import Backend, Query
from limpet.testing import conformance
from limpet.testing.conformance.programs import Programs, Verbs
from limpet.testing.conformance.promises import Promises
from limpet.testing.conformance.watching import Watching
from tests.conformance.parts import Sync, some
from tests.memory import Memory


class NoIndex(Memory):
    def __init__(self) -> None:
        super().__init__()
        self.capabilities = frozenset()

    def list_snapshots(self, query: Query, *, limit: int) -> list[SnapshotInfo]:
        if query.scope is None:
            raise Unsupported("this engine has no index")
        return super().list_snapshots(query, limit=limit)

    def find_refs(self, id_prefix: str, *, limit: int) -> list[SnapshotRef]:
        raise Unsupported("this engine has no index")


class OnNoIndex(conformance.Kit):
    def open_backend(self, place: Path) -> Backend:
        return NoIndex()


class TestNoIndex(Sync, OnNoIndex, Promises, Programs, Verbs, Watching):
    """The chapters that use an index."""

    programs = some(5)


@pytest.mark.slow
@pytest.mark.torture
class TestNoIndexAtLength(Sync, OnNoIndex, conformance.Suite):
    """Every chapter."""
