"""The suite on the engine with segments, over a real S3 server."""

import hashlib
from pathlib import Path

import pytest
import zstandard

from limpet import opening
from limpet.backends.segments.backend import SegmentBackend
from limpet.core.layout import listing_order
from limpet.model import ANY
from limpet.protocol import Backend
from limpet.testing import conformance
from limpet.testing.conformance.damage import Damage
from limpet.testing.conformance.leasing import Leasing
from limpet.testing.conformance.saving import Saving
from limpet.testing.conformance.threads import Threads
from limpet.testing.conformance.updating import Updating
from tests.conformance.parts import Async, InBoth, Sync
from tests.servers.service import Service

POLL_S = 0.1  # how often watches poll


class OnSeaweedFS(conformance.Kit):
    service: Service

    @pytest.fixture(autouse=True)
    def _served(self, seaweedfs: Service) -> None:
        self.service = seaweedfs

    def open_backend(self, place: Path) -> Backend:
        bucket = self.service.open(_prefix(place))
        return SegmentBackend(
            bucket, clock=opening.CLOCK, draw=opening.draw, compress=True, poll_s=POLL_S
        )

    def damage(self, place: Path, text: bytes) -> int:
        """Spoil the last frame of each object that has the text in one of its frames."""
        bucket = self.service.open(_prefix(place))
        found = 0
        for each in bucket.list("", limit=1000):
            (stored,) = bucket.get([each.key])
            if stored is None or text not in _plain(stored.data):
                continue
            found += 1
            bucket.put(each.key, stored.data[:-6] + b"spoilt", expect=ANY)
        bucket.close()
        return found

    def order(self, name: str, *, folder: bool = False) -> str:
        # It keeps a tree, so folders are sorted by their names alone.
        order = listing_order(name)
        return order[:-1] if folder else order

    def id_order(self, id: str) -> str:
        return id


def _plain(data: bytes) -> bytes:
    reader = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True)
    try:
        return reader.read()
    except zstandard.ZstdError:
        return data


def _prefix(place: Path) -> str:
    return hashlib.sha256(str(place).encode()).hexdigest()[:16]


class TestSeaweedFS(Sync, OnSeaweedFS, Damage, Saving, Updating, Threads, Leasing):
    """The chapters that depend most on the storage."""


@pytest.mark.slow
class TestSeaweedFSAtLength(Sync, OnSeaweedFS, conformance.Suite):
    """Every chapter."""


@pytest.mark.slow
class TestSeaweedFSAsync(Async, OnSeaweedFS, InBoth):
    pass
