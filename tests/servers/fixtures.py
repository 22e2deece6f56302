"""Servers as fixtures, started when first asked for and shared by the tests of one process.

A test module gets them by `from tests.servers.fixtures import seaweedfs`, or a `conftest.py` does.
However many modules do, there is one server of each kind.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Generic, TypeVar

import pytest

from tests.servers.moto import start_moto
from tests.servers.pg_proxy import PgProxy
from tests.servers.pooler import Pooler
from tests.servers.postgres import Postgres, Schemas, start_postgres
from tests.servers.seaweedfs import start_seaweedfs
from tests.servers.service import Service

Server = TypeVar("Server")


class Shared(Generic[Server]):
    """A server that runs as long as anybody uses it."""

    def __init__(self, start: Callable[[], AbstractContextManager[Server]]) -> None:
        self._start = start
        self._users = 0
        self._stack = ExitStack()
        self._service: Server | None = None

    def __call__(self) -> Iterator[Server]:
        if self._service is None:
            self._service = self._stack.enter_context(self._start())
        self._users += 1
        yield self._service
        self._users -= 1
        if not self._users:
            self._service = None
            self._stack.close()


_seaweedfs = Shared(start_seaweedfs)
_moto = Shared(start_moto)
_postgres = Shared(start_postgres)


@pytest.fixture(scope="session")
def seaweedfs() -> Iterator[Service]:
    """SeaweedFS. Its bucket is shared, so give each test a prefix of its own."""
    yield from _seaweedfs()


@pytest.fixture(scope="session")
def moto() -> Iterator[Service]:
    """Moto. Its bucket is shared, so give each test a prefix of its own."""
    yield from _moto()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """PostgreSQL. Its database is shared, so use `schemas` or `postgres_url`."""
    yield from _postgres()


@pytest.fixture
def schemas(postgres: Postgres) -> Iterator[Schemas]:
    """As many schemas as a test likes: `schemas.url("a")` is the URL of one."""
    with postgres.schemas() as schemas:
        yield schemas


@pytest.fixture
def postgres_url(schemas: Schemas) -> str:
    """The URL of a schema that only this test uses, and that does not exist yet."""
    return schemas.url()


# These two need the schemas only to be gone before those are dropped: whoever talks through them
# may still have a transaction open, for which that would wait.


@pytest.fixture
def pg_proxy(postgres: Postgres, schemas: Schemas) -> Iterator[PgProxy]:
    """A proxy before PostgreSQL: `schemas.url(server_url=pg_proxy.url)`."""
    with PgProxy(postgres.url) as proxy:
        yield proxy


@pytest.fixture
def pooler(postgres: Postgres, schemas: Schemas) -> Iterator[Pooler]:
    """A pooler before PostgreSQL: `schemas.url(server_url=pooler.url)`."""
    with Pooler(postgres.url) as pooler:
        yield pooler
