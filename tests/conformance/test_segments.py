"""The suite on the engine with segments, over a directory."""

import os
import time
from pathlib import Path

import pytest

from limpet import opening
from limpet.backends.buckets.directory.bucket import DirectoryBucket
from limpet.backends.segments.backend import SegmentBackend
from limpet.core.layout import listing_order
from limpet.protocol import Backend
from limpet.testing import conformance
from tests.conformance.parts import AboveEngine, Async, InBoth, Stored, Sync


def directory(place: Path) -> DirectoryBucket:
    return DirectoryBucket(
        f"{place}/store",
        token=lambda: os.urandom(8).hex(),
        now=lambda: time.time_ns() // 1000,
        clock=opening.CLOCK,
        sync=False,
    )


class OnDirectory(conformance.Kit):
    def open_backend(self, place: Path) -> Backend:
        return SegmentBackend(directory(place), clock=opening.CLOCK, draw=opening.draw)

    def order(self, name: str, *, folder: bool = False) -> str:
        return listing_order(name)

    def id_order(self, id: str) -> str:
        return id


class TestSegments(Sync, OnDirectory, Stored):
    pass


class TestSegmentsAsync(Async, OnDirectory, InBoth):
    pass


@pytest.mark.slow
class TestAboveSegments(Sync, OnDirectory, AboveEngine):
    pass
