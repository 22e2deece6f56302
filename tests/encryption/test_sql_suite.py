"""The suite on SQL engines with keys."""

from pathlib import Path

import pytest

from limpet import opening
from limpet.protocol import Backend
from limpet.testing import conformance
from tests.conformance.parts import Stored, Sync
from tests.conformance.test_postgres import OnReusedPostgres, reused
from tests.encryption.keys import ONE, TWO

__all__ = ["reused"]


class TestEncryptedSqlite(Sync, Stored):
    def open_backend(self, place: Path) -> Backend:
        url = f"sqlite:///{place / 'limpet.db'}"
        return opening.open_backend(url, synchronous="off", keys=ONE)


@pytest.mark.slow
class TestEncryptedSqliteAtLength(conformance.Suite):
    """With a new key and an old one, of which a session may have either."""

    def open_backend(self, place: Path) -> Backend:
        return opening.open_backend(f"sqlite:///{place / 'limpet.db'}", keys=f"{TWO}\n{ONE}")


@pytest.mark.slow
class TestEncryptedPostgres(Sync, OnReusedPostgres, Stored):
    def open_backend(self, place: Path) -> Backend:
        return opening.open_backend(self.schemas.url(self.schema_of(place)), keys=f"{TWO}\n{ONE}")
