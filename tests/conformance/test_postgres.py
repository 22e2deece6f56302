"""The suite on PostgreSQL."""

from pathlib import Path

import pytest

from holdfast import opening
from holdfast.protocol import Backend
from holdfast.testing import conformance
from holdfast.testing.conformance.leasing import Leasing
from holdfast.testing.conformance.promises import Promises
from holdfast.testing.conformance.threads import Threads
from holdfast.testing.conformance.watching import Watching
from tests.conformance.one_face import Async, Sync
from tests.servers.postgres import Postgres, Schemas


class OnPostgres(conformance.Kit):
    """Gives each test a schema of its own."""

    @pytest.fixture(autouse=True)
    def _places(self, postgres: Postgres, schemas: Schemas) -> None:
        self.postgres = postgres
        self.schemas = schemas

    def open_backend(self, place: Path) -> Backend:
        return opening.open_backend(self.schemas.url(str(place)))

    def damage(self, place: Path, text: bytes) -> int:
        schema = self.schemas.name(str(place))
        with self.postgres.connect() as conn:
            rows = conn.execute(f"SELECT seq, body FROM {schema}.bodies").fetchall()
            spoiled = [
                (body.replace(text, text[:-1] + b"!"), seq) for seq, body in rows if text in body
            ]
            for row in spoiled:
                conn.execute(f"UPDATE {schema}.bodies SET body = %s WHERE seq = %s", row)
        return len(spoiled)


class TestPostgres(Sync, OnPostgres, conformance.Suite):
    """Every chapter."""


class TestPostgresAsync(Async, OnPostgres, Promises, Threads, Leasing, Watching):
    """The chapters that are about more than one caller."""


@pytest.mark.slow
class TestPostgresAtLength(OnPostgres, conformance.Suite):
    """Every chapter, in both faces."""
