"""The suite on SQLite."""

from pathlib import Path

from holdfast import opening
from holdfast.protocol import Backend
from holdfast.testing import conformance


class TestSqlite(conformance.Suite):
    def open_backend(self, place: Path) -> Backend:
        return opening.open_backend(f"sqlite:///{place / 'holdfast.db'}")
