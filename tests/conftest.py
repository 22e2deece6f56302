"""What all tests share: the servers, and the choice of slow tests.

A server is started when a test first asks for it; tests of one process share one of each kind,
and those of all processes one PostgreSQL.
"""

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from tests import effort
from tests.servers.pg_proxy import PgProxy
from tests.servers.pooler import Pooler
from tests.servers.postgres import Postgres, Schemas, sharing, start_postgres
from tests.servers.seaweedfs import start_seaweedfs
from tests.servers.service import Service
from tests.servers.stub import Stub

if TYPE_CHECKING:
    from tests.servers.http import Http

MEMORY = Path("/dev/shm")
MEMORY_BYTES_MIN = 4 * 2**30


def files_in_memory() -> None:
    """Keep temporary files in memory if there is enough: no test waits for a disk then.

    Nothing here survives the machine, so nothing has to be on its disk. `TMPDIR` decides otherwise.
    """
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK):
        return
    room = os.statvfs(MEMORY)
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    (kib,) = (int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    if min(room.f_bavail * room.f_frsize, kib * 1024) >= MEMORY_BYTES_MIN:
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None  # which another module may have asked for


files_in_memory()

# On a busy machine everything is slow.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


def pytest_configure(config: pytest.Config) -> None:
    effort.only_fast_tests = config.option.markexpr == "not slow"
    effort.at_length = config.option.markexpr == "torture or long"
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        stack = ExitStack()
        stack.enter_context(sharing())
        config.add_cleanup(stack.close)


def pytest_pycollect_makeitem(name: str, obj: object) -> list[pytest.Item] | None:
    """Leave out what is marked slow before its tests are collected: thousands, in every worker."""
    if effort.only_fast_tests and is_slow(getattr(obj, "pytestmark", ())):
        return []
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: Any) -> None:
    """Likewise the values of parameters that are marked slow."""
    parametrize = metafunc.parametrize

    def only_fast(names: Any, values: Any, *rest: Any, **more: Any) -> None:
        values = list(values)
        fast = [each for each in values if not is_slow(getattr(each, "marks", ()))]
        # Names of values are given for all of them; a test without a value would be skipped.
        given = fast if fast and (callable(more.get("ids")) or not more.get("ids")) else values
        parametrize(names, given, *rest, **more)

    if effort.only_fast_tests:
        metafunc.parametrize = only_fast


def is_slow(marks: Iterable[pytest.Mark | pytest.MarkDecorator]) -> bool:
    return any(each.name == "slow" for each in marks)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, so that no worker is left with it at the end."""
    items.sort(key=lambda item: item.path.name != "test_frameworks.py")


@pytest.fixture(scope="session")
def seaweedfs() -> Iterator[Service]:
    """SeaweedFS. Its bucket is shared, so give each test a prefix of its own."""
    with start_seaweedfs() as service:
        yield service


@pytest.fixture(scope="session")
def small_s3() -> Iterator[Service]:
    """An S3 in this process that lists by bytes, as AWS does. Its bucket is shared as well."""
    with Stub(ignores=()) as stub:
        yield stub.service


@pytest.fixture(scope="session")
def http() -> "Iterator[Http]":
    """A server of the HTTP API: `http.mount(url)` serves a store."""
    # Here, since integrations are also tested where the extra `server` is not installed.
    from tests.servers.http import start_http

    with start_http() as server:
        yield server


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """PostgreSQL. Its database is shared, so use `schemas` or `postgres_url`."""
    with start_postgres() as server:
        yield server


@pytest.fixture
def schemas(postgres: Postgres) -> Iterator[Schemas]:
    """As many schemas as a test needs: `schemas.url("a")` is the URL of one."""
    with postgres.schemas() as schemas:
        yield schemas


@pytest.fixture
def postgres_url(schemas: Schemas) -> str:
    """The URL of a schema that only this test uses, and that does not exist yet."""
    return schemas.url()


# These two need the schemas only to be gone before those are dropped: a client behind them
# may still have a transaction open, for which the drop would wait.


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
