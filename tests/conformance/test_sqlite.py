"""The suite on SQLite."""

from pathlib import Path

import pytest

from limpet import opening
from limpet.protocol import Backend
from limpet.testing import conformance
from tests.conformance.parts import Async, InBoth, Sync


class OnSqlite(conformance.Kit):
    def open_backend(self, place: Path) -> Backend:
        # What a power cut does is not tested here, and without syncing it is much faster.
        return opening.open_backend(f"sqlite:///{place / 'limpet.db'}", synchronous="off")


class TestSqlite(Sync, OnSqlite, conformance.Suite):
    """Every chapter."""


class TestSqliteAsync(Async, OnSqlite, InBoth):
    pass


@pytest.mark.slow
class TestSqliteAtLength(Async, conformance.Suite):
    """Every chapter, with the settings that a user gets."""

    def open_backend(self, place: Path) -> Backend:
        return opening.open_backend(f"sqlite:///{place / 'limpet.db'}")
