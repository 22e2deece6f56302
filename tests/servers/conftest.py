from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.servers.postgres import Connect, Connection, Postgres, Schemas


@pytest.fixture
def connect(schemas: Schemas) -> Iterator[Connect]:
    """Connects in autocommit, and closes before the schemas are dropped."""
    opened = []

    def connect(url: str, **options: Any) -> Connection:
        options = {"autocommit": True, "connect_timeout": 10, **options}
        opened.append(psycopg.connect(url, **options))
        return opened[-1]

    yield connect
    for each in opened:
        each.close()


@pytest.fixture
def table(postgres: Postgres, schemas: Schemas) -> str:
    """The name of an empty table with the column `n`."""
    name = schemas.name()
    with postgres.connect() as connection:
        connection.execute(f"CREATE SCHEMA {name}; CREATE TABLE {name}.t (n int)")
    return f"{name}.t"
