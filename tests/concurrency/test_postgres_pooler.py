"""Behind a pooler in transaction mode: the suite, and what such a pooler does to its clients.

A connection of the server is had for one transaction only: nothing that is prepared, set or locked
for a connection is there in the next one. The pooler is our own, and PgBouncer in the slow tests.
"""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import limpet
from limpet import opening
from limpet.protocol import Backend
from limpet.testing import conformance
from limpet.testing.conformance.functions import Functions
from limpet.testing.conformance.leasing import Leasing
from limpet.testing.conformance.programs import Verbs
from limpet.testing.conformance.threads import Threads
from tests.concurrency.pg_tools import WRITES, fill, opened, outage
from tests.conformance.parts import Sync
from tests.servers.pgbouncer import PgBouncer
from tests.servers.pooler import Pooler
from tests.servers.postgres import Postgres, Schemas, one

POOLERS = [Pooler, pytest.param(PgBouncer, marks=pytest.mark.slow)]


@pytest.fixture(params=POOLERS)
def pooler(
    request: pytest.FixtureRequest, postgres: Postgres, schemas: Schemas
) -> Iterator[Pooler | PgBouncer]:
    with request.param(postgres.url) as pooler:
        yield pooler


class Pooled(conformance.Kit):
    """Opens each store through a pooler that has two connections to the server."""

    @pytest.fixture(autouse=True)
    def _places(self, schemas: Schemas, pooler: Pooler | PgBouncer) -> None:
        self.schemas = schemas
        self.pooler = pooler

    def open_backend(self, place: Path) -> Backend:
        url = self.schemas.url(str(place), server_url=self.pooler.url)
        return opening.open_backend(url, pooler=True)


class TestPooled(Sync, Pooled, Threads):
    """The chapter in which most is asked of transactions."""


@pytest.mark.slow
@pytest.mark.parametrize("pooler", [PgBouncer], indirect=True)
class TestPooledAtLength(Sync, Pooled, Verbs, Functions, Leasing):
    pass


def test_a_pooler_gives_two_connections_in_turn(pooler: Pooler | PgBouncer) -> None:
    """Else all the others would pass, whatever a store leaves to the next transaction."""
    with psycopg.connect(pooler.url, autocommit=True, prepare_threshold=None) as conn:
        pids = [one(conn, "SELECT pg_backend_pid()") for _ in range(4)]
        assert len(set(pids)) == len(set(pids[:2])) == 2
        with conn.transaction():
            assert len({one(conn, "SELECT pg_backend_pid()") for _ in range(4)}) == 1


@pytest.fixture
def url(schemas: Schemas, pooler: Pooler | PgBouncer) -> str:
    return schemas.url(server_url=pooler.url)


@pytest.mark.parametrize("is_made", [True, False], ids=["made", "new"])
def test_a_pooler_that_is_not_named_is_recognised(
    schemas: Schemas, pooler: Pooler | PgBouncer, url: str, is_made: bool
) -> None:
    """Before anything is prepared, set or created on connections that others use."""
    if is_made:
        limpet.open(schemas.url()).close()
    with pytest.raises(limpet.InvalidInput, match=r"through a pooler: open with pooler=True"):
        limpet.open(url)
    with psycopg.connect(pooler.url, autocommit=True, prepare_threshold=None) as conn:
        for _ in range(2):
            assert one(conn, "SHOW lock_timeout") == "0"
            there = "SELECT to_regnamespace(%s) IS NOT NULL"
            assert one(conn, there, schemas.name()) is is_made


def test_nothing_is_left_set_for_others(
    postgres: Postgres, pooler: Pooler | PgBouncer, url: str
) -> None:
    """What a store sets ends with its transaction, and it prepares and locks nothing for long."""
    with opened(postgres, url, pooler=True, lock_wait_s=1.25) as store:
        fill(store.scope("s"))
        for _ in range(10):
            for verb in ("save", "append", "update", "counter"):
                WRITES[verb](store.scope("s"))
            store.scope("s").load()
        with psycopg.connect(pooler.url, autocommit=True, prepare_threshold=None) as conn:
            for _ in range(4):
                assert one(conn, "SHOW lock_timeout") == "0"
                assert one(conn, "SELECT count(*) FROM pg_prepared_statements") == 0


def test_a_scope_that_others_hold_for_too_long(
    postgres: Postgres, schemas: Schemas, url: str
) -> None:
    """The option counts, though it cannot be set for the connection."""
    with opened(postgres, url, pooler=True, lock_wait_s=0.2) as store:
        fill(store.scope("s"))
        with postgres.connect() as conn, conn.transaction():
            conn.execute(f"SELECT * FROM {schemas.name()}.scopes FOR UPDATE")
            for verb in ("save", "append", "update", "counter", "delete"):
                assert "55P03" in str(outage(WRITES[verb], store))
