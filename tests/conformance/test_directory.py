"""The suite on a directory."""

from pathlib import Path

from holdfast import opening
from holdfast.protocol import Backend
from holdfast.testing import conformance


class TestDirectory(conformance.Suite):
    def open_backend(self, place: Path) -> Backend:
        # What a power cut does is not tested here, and without syncing it is much faster.
        return opening.open_backend(f"file://{place}/store", sync=False)
