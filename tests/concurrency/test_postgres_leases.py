"""Leases on PostgreSQL: between several processes' stores, by the clock of the server."""

from collections.abc import Iterator
from typing import cast

import pytest

from limpet import Conflict, ScopeKey
from limpet.backends.postgres.raw import Connection
from limpet.backends.postgres.storage import PostgresStorage
from limpet.engine import Engine, open_engine
from limpet.opening import CLOCK, draw
from limpet.protocol import Claim
from tests.servers.pg_proxy import PgProxy
from tests.servers.postgres import Postgres, Schemas
from tests.waiting import until

KEY = ScopeKey("s")
SHORT_US = 50_000
LONG_US = 60_000_000


def claim_of(key: str, ttl_us: int = LONG_US, scope: ScopeKey = KEY) -> Claim:
    return Claim(scope, key, f"owner of {key}", ttl_us, draw())


@pytest.fixture
def pair(postgres: Postgres, schemas: Schemas) -> Iterator[list[Engine]]:
    """Two engines over one store, as two processes have them."""
    made = [
        open_engine(PostgresStorage, postgres.url, clock=CLOCK, draw=draw, schema=schemas.name())
        for _ in range(2)
    ]
    yield made
    for each in made:
        each.close()


def test_the_clock_is_the_servers(pair: list[Engine], conn: Connection) -> None:
    """Two hosts whose clocks are a year apart agree on when a lease ends."""
    one, two = pair
    year_us = 365 * 86_400 * 1_000_000
    early, late = claim_of("a"), claim_of("b")
    early = early._replace(stamp=early.stamp._replace(now=early.stamp.now - year_us))
    late = late._replace(stamp=late.stamp._replace(now=late.stamp.now + year_us))
    assert one.claim(early).key == "a"
    assert two.claim(late).key == "a"
    hold = two.read_lease(KEY, now=0)
    assert hold is not None
    assert LONG_US - 10_000_000 < hold.left_us <= LONG_US


@pytest.mark.parametrize("verb", ["claim", "renew"])
def test_what_a_lost_answer_said_may_be_so_no_more(
    postgres: Postgres, schemas: Schemas, pg_proxy: PgProxy, verb: str
) -> None:
    """Its answer comes when another holds the lease: that is what is told."""
    one, two = (
        open_engine(PostgresStorage, url, clock=CLOCK, draw=draw, schema=schemas.name())
        for url in (pg_proxy.url, postgres.url)
    )
    if verb == "renew":
        one.claim(claim_of("a", SHORT_US))
    one.read_lease(KEY, now=0)  # so that the next connection is that of the second attempt
    pool = cast(PostgresStorage, one.storage)._server._pool
    connect = pool._connect

    def connect_late() -> Connection:
        until(lambda: two.claim(claim_of("b")).key == "b")
        return connect()

    pool._connect = connect_late
    pg_proxy.drop_reply(text="commit")
    if verb == "claim":
        assert one.claim(claim_of("a", SHORT_US)).key == "b"
    else:
        with pytest.raises(Conflict):
            one.renew(claim_of("a", SHORT_US))
    one.close()
    two.close()
