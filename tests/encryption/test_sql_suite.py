"""The suite on SQL engines with keys."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from limpet import opening
from limpet.protocol import Backend
from limpet.testing import conformance
from limpet.testing.conformance.listing import Listing
from limpet.testing.conformance.programs import Programs
from tests.conformance.parts import Stored, Sync, some
from tests.conformance.test_postgres import OnReusedPostgres, reused
from tests.encryption.keys import ONE, TWO

__all__ = ["reused"]

# A state is not found by its text, so that of the session that is to be damaged is.
_SPOIL = """UPDATE {0}tails SET checksum = checksum + 1 WHERE seq IN (
    SELECT n.seq FROM {0}snapshots AS n JOIN {0}scopes AS s ON s.pk = n.scope_pk
     WHERE s.session_id = 'bad')"""


class OnEncryptedSqlite(conformance.Kit):
    def open_backend(self, place: Path) -> Backend:
        url = f"sqlite:///{place / 'limpet.db'}"
        return opening.open_backend(url, synchronous="off", keys=ONE)

    def damage(self, place: Path, text: bytes) -> int:
        with closing(sqlite3.connect(place / "limpet.db")) as conn, conn:
            return conn.execute(_SPOIL.format("")).rowcount


class TestEncryptedSqlite(Sync, OnEncryptedSqlite, Listing, Programs):
    """The chapters in which most depends on what is encrypted."""

    programs = some(6)


@pytest.mark.slow
class TestEncryptedSqliteAtLength(Sync, OnEncryptedSqlite, conformance.Suite):
    """Every chapter, with an old key that is still given."""

    programs = some(20, 40)

    def open_backend(self, place: Path) -> Backend:
        url = f"sqlite:///{place / 'limpet.db'}"
        return opening.open_backend(url, synchronous="off", keys=f"{TWO}\n{ONE}")


@pytest.mark.slow
@pytest.mark.torture
class TestEncryptedPostgres(Sync, OnReusedPostgres, Stored):
    def open_backend(self, place: Path) -> Backend:
        return opening.open_backend(self.schemas.url(self.schema_of(place)), keys=ONE)

    def damage(self, place: Path, text: bytes) -> int:
        schema = self.schemas.name(self.schema_of(place))
        with self.postgres.connect() as conn:
            return conn.execute(_SPOIL.format(f"{schema}.")).rowcount
