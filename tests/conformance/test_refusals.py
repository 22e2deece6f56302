"""The suite on an engine without an index: what it cannot do it must refuse, and nothing else."""

from pathlib import Path

from holdfast.backends.memory import MemoryBackend
from holdfast.errors import Unsupported
from holdfast.model import SnapshotInfo
from holdfast.protocol import Backend, Query
from holdfast.testing import conformance
from tests.conformance.one_face import Sync


class NoIndex(MemoryBackend):
    capabilities = frozenset()

    def list_snapshots(self, query: Query, *, limit: int) -> list[SnapshotInfo]:
        if query.scope is None:
            raise Unsupported("this engine has no index")
        return super().list_snapshots(query, limit=limit)


class TestNoIndex(Sync, conformance.Suite):
    def open_backend(self, place: Path) -> Backend:
        return NoIndex()
