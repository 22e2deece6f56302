"""The suite on SQLite."""

from pathlib import Path

import pytest

from limpet import opening
from limpet.backends.sqlite.storage import SqliteStorage
from limpet.engine import open_engine
from limpet.engine.rolling import Limits
from limpet.protocol import Backend
from limpet.testing import conformance
from tests.conformance.parts import Async, InBoth, Sync


class OnSqlite(conformance.Kit):
    def open_backend(self, place: Path) -> Backend:
        # What a power cut does is not tested here, and without syncing it is much faster. Tails are
        # rolled after three snapshots, so that every chapter reads segments.
        return open_engine(
            SqliteStorage,
            str(place / "limpet.db"),
            clock=opening.CLOCK,
            draw=opening.draw,
            tails=Limits(snapshots=3),
            synchronous="off",
        )


class TestSqlite(Sync, OnSqlite, conformance.Suite):
    """Every chapter."""


class TestSqliteAsync(Async, OnSqlite, InBoth):
    pass


@pytest.mark.slow
class TestSqliteAtLength(Async, conformance.Suite):
    """Every chapter, with the settings that a user gets."""

    def open_backend(self, place: Path) -> Backend:
        return opening.open_backend(f"sqlite:///{place / 'limpet.db'}")
