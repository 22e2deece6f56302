"""The suite on PostgreSQL."""

from pathlib import Path

import pytest

from holdfast import opening
from holdfast.protocol import Backend
from holdfast.testing import conformance
from tests.servers.fixtures import postgres, schemas  # noqa: F401
from tests.servers.postgres import Postgres, Schemas


class TestPostgres(conformance.Suite):
    @pytest.fixture(autouse=True)
    def _places(self, postgres: Postgres, schemas: Schemas) -> None:  # noqa: F811
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
