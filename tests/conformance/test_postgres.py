"""The suite on PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from limpet import opening
from limpet.protocol import Backend
from limpet.testing import conformance
from limpet.testing.conformance.programs import Programs
from tests.conformance.parts import AboveEngine, Async, InBoth, Stored, Sync, some
from tests.effort import times
from tests.servers.postgres import Connection, Postgres, Schemas


class OnPostgres(conformance.Kit):
    """Gives each test a schema of its own."""

    text_order = False  # only across scopes: there the order is that of the clocks

    @pytest.fixture(autouse=True)
    def _places(self, postgres: Postgres, schemas: Schemas) -> None:
        self.postgres = postgres
        self.schemas = schemas

    def schema_of(self, place: Path) -> str:
        """Return the key of the schema for a folder."""
        return str(place)

    def open_backend(self, place: Path) -> Backend:
        return opening.open_backend(self.schemas.url(self.schema_of(place)))

    def damage(self, place: Path, text: bytes) -> int:
        schema = self.schemas.name(self.schema_of(place))
        with self.postgres.connect() as conn:
            rows = conn.execute(f"SELECT seq, body FROM {schema}.tails").fetchall()
            spoiled = [
                (body.replace(text, text[:-1] + b"!"), seq) for seq, body in rows if text in body
            ]
            for row in spoiled:
                conn.execute(f"UPDATE {schema}.tails SET body = %s WHERE seq = %s", row)
        return len(spoiled)


TABLES = ("labels", "notes", "tails", "segments", "shared", "snapshots", "scopes")


class Reused:
    """A schema that all tests share, because creating and dropping one is slow."""

    def __init__(self, schemas: Schemas, conn: Connection) -> None:
        self.schemas = schemas
        self._conn = conn
        self._clear = ";".join(f"DELETE FROM {schemas.name()}.{table}" for table in TABLES)

    def clear(self) -> None:
        self._conn.execute(self._clear)


@pytest.fixture(scope="module")
def reused(postgres: Postgres) -> Iterator[Reused]:
    with postgres.schemas() as schemas, postgres.connect() as conn:
        opening.open_backend(schemas.url()).close()
        yield Reused(schemas, conn)


class OnReusedPostgres(OnPostgres):
    """Gives each test the shared schema, emptied."""

    @pytest.fixture(autouse=True)
    def _places(self, postgres: Postgres, reused: Reused) -> Iterator[None]:
        self.postgres = postgres
        self.schemas = reused.schemas
        self.reused = reused
        yield
        reused.clear()

    def schema_of(self, place: Path) -> str:
        return ""

    def clear(self) -> None:
        self.reused.clear()


class TestPostgres(Sync, OnReusedPostgres, Stored):
    programs = some(4)


@pytest.mark.slow
class TestPostgresAsync(Async, OnReusedPostgres, InBoth):
    pass


@pytest.mark.slow
@pytest.mark.torture
class TestAbovePostgres(Sync, OnReusedPostgres, AboveEngine):
    pass


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(3600)
class TestPostgresAtLength(OnReusedPostgres, Programs):
    """Longer random programs."""

    programs = some(times(4, full=4, torture=40), 40)
