"""The suite on a directory."""

from pathlib import Path

import pytest

from limpet import opening
from limpet.core.names import name_of
from limpet.engine.rolling import Limits
from limpet.protocol import Backend
from limpet.testing import conformance
from tests.buckets.opened import engine_on
from tests.conformance.parts import AboveEngine, Async, InBoth, Stored, Sync, some

OBJECT_TAILS = Limits(snapshots=3, newest_bytes=100, wholes=False)


class OnDirectory(conformance.Kit):
    def open_backend(self, place: Path) -> Backend:
        # What a power cut does is not tested here, and without syncing it is much faster.
        return opening.open_backend(f"file://{place}/store", sync=False)

    text_order = False  # of names: docs/format.md

    def open_program(self, place: Path) -> Backend:
        bucket = opening.open_files(f"file://{place}/store", sync=False)
        return engine_on(bucket, tails=OBJECT_TAILS)

    def folder_order(self, name: str) -> str:
        return f"{name_of(name)}."


class TestDirectory(Sync, OnDirectory, Stored):
    programs = some(6)


@pytest.mark.slow
class TestDirectoryAsync(Async, OnDirectory, InBoth):
    pass


@pytest.mark.slow
@pytest.mark.torture
class TestAboveDirectory(Sync, OnDirectory, AboveEngine):
    pass
