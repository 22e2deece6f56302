from collections.abc import Iterator

import pytest

from tests.concurrency.crew import Crew
from tests.servers.postgres import Connection, Postgres, Schemas


@pytest.fixture(scope="session")
def crew() -> Iterator[Crew]:
    """Eight processes, started once."""
    crew = Crew()
    yield crew
    crew.dismiss()


@pytest.fixture
def conn(postgres: Postgres, schemas: Schemas) -> Iterator[Connection]:
    """A plain connection to PostgreSQL, closed before the schemas are dropped."""
    with postgres.connect() as conn:
        yield conn
