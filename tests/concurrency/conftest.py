from collections.abc import Iterator

import pytest

from tests.concurrency.crew import Crew
from tests.servers.postgres import Connection, Postgres, PrivatePostgres, Schemas


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


@pytest.fixture(scope="session")
def server() -> Iterator[PrivatePostgres]:
    """A server that tests may ill-treat, and leave as they found it."""
    # What is not asked to be durable stays in memory for long, to be lost by a crash.
    with PrivatePostgres(settings={"wal_writer_delay": "10s"}) as server:
        yield server


@pytest.fixture
def space(server: PrivatePostgres) -> Iterator[Schemas]:
    if server._process is None:  # a test that failed has stopped it
        server.start()
    with server.schemas() as schemas:
        yield schemas
