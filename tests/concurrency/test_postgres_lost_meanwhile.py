"""Answers that are lost while others go on: what they wrote stays, and nothing is done twice.

An engine whose answer was lost pauses before it asks again; here it is in the pause that others
write, as many as the test says.
"""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from limpet import Scope, Store, Unavailable
from limpet.backends.postgres.storage import PostgresStorage
from limpet.engine import open_engine
from limpet.opening import draw, store_over
from limpet.protocol import Clock
from tests.concurrency.pg_tools import opened
from tests.servers.pg_proxy import PgProxy
from tests.servers.postgres import Postgres, Schemas

SAYS = "t"  # is in SELECT, INSERT, UPDATE, DELETE and COMMIT, and not where nothing is said
# Changes by others after which it is still known what became of one: a trail has 16 changes, also
# that one and the one before it.
REMEMBERED = 14
SLOW = pytest.mark.slow


@pytest.fixture
def direct(postgres: Postgres, schemas: Schemas) -> Iterator[Store]:
    """The store, past the proxy."""
    with opened(postgres, schemas.url()) as store:
        yield store


class Pausing:
    """A clock; what `meanwhile` is set to is run in the next pause."""

    def __init__(self) -> None:
        self.meanwhile: Callable[[], object] | None = None
        self.clock = Clock(time.monotonic, self._sleep, random.random)

    def _sleep(self, seconds: float) -> None:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        time.sleep(seconds)


@contextmanager
def pausing(proxy: PgProxy, schemas: Schemas) -> Iterator[tuple[Store, Pausing]]:
    """Open a store behind the proxy, with the clock of its pauses."""
    pauses = Pausing()
    backend = open_engine(
        PostgresStorage,
        proxy.url,
        clock=pauses.clock,
        draw=draw,
        schema=schemas.name(),
        connections=1,
        retry_s=20,
    )
    with store_over(backend) as store:
        yield store, pauses


def times_saved(scope: Scope) -> int:
    return sum(found.state == {"by": "me"} for found in scope.load_many(scope.ids()))


def times_counted(scope: Scope) -> int:
    found = scope.note("n")
    return 0 if found is None else found.value["mine"]


def times_updated(scope: Scope) -> int:
    found = scope.load("first")
    assert found is not None
    return int(found.state["mine"])


def count(who: str) -> Callable[[Any], Any]:
    return lambda value: {**value, who: value[who] + 1}


# What I do once, what others do meanwhile, and how often mine can be seen to have been done.
Work = tuple[Callable[[Scope], object], Callable[[Scope], object], Callable[[Scope], int]]
WORK: dict[str, Work] = {
    "save": (lambda s: s.save({"by": "me"}), lambda s: s.save({"by": "others"}), times_saved),
    "counter": (
        lambda s: s.set_note("n", count("mine")),
        lambda s: s.set_note("n", count("theirs")),
        times_counted,
    ),
    "update": (
        lambda s: s.update("first", lambda f: f.with_(state=count("mine")(f.state))),
        lambda s: s.update("first", lambda f: f.with_(state=count("theirs")(f.state))),
        times_updated,
    ),
}


# What can be said of it, and how often it may have been done then.
POSSIBLE = {"done": {1}, "nothing": {0}, "doubt": {0, 1}}


def attempt(work: Callable[[Scope], object], scope: Scope) -> str:
    try:
        work(scope)
    except Unavailable as error:
        return "nothing" if error.outcome_known else "doubt"
    return "done"


def prepare(scope: Scope) -> None:
    scope.set_note("n", {"mine": 0, "theirs": 0})
    scope.save({"mine": 0, "theirs": 0}, id="first")


@pytest.mark.parametrize("others", [1, REMEMBERED, pytest.param(REMEMBERED + 1, marks=SLOW)])
@pytest.mark.parametrize("kind", ["reply", pytest.param("request", marks=SLOW)])
@pytest.mark.parametrize("work", WORK)
def test_others_move_on_before_it_is_asked_what_became(
    pg_proxy: PgProxy, schemas: Schemas, direct: Store, work: str, kind: str, others: int
) -> None:
    """Promises 3, 4 and 6, at every batch; doubt is allowed only when too many came in between."""
    mine, theirs, times_done = WORK[work]
    with pausing(pg_proxy, schemas) as (store, pauses):
        for at in range(1, 30):
            scope, rival = store.scope(f"s{at}"), direct.scope(f"s{at}")
            prepare(scope)
            drop = pg_proxy.drop_reply if kind == "reply" else pg_proxy.drop_request
            drop(text=SAYS, nth=at)
            pg_proxy.drop_request(text=SAYS, nth=at + 1)  # so that it pauses before it is answered
            pauses.meanwhile = lambda rival=rival: [theirs(rival) for _ in range(others)]
            outcome = attempt(mine, scope)
            left = pg_proxy.faults_left()
            pg_proxy.forget()
            pauses.meanwhile = None
            assert times_done(rival) in POSSIBLE[outcome], f"batch {at}: {outcome}"
            assert outcome != "doubt" or others > REMEMBERED
            if left == 2:
                assert at > 1
                return
    raise AssertionError("there is no end to it")


MINE_GOES: dict[str, Callable[[Scope], object]] = {
    "delete_snapshot": lambda scope: scope.delete_snapshot("b"),
    "delete": lambda scope: scope.delete(),
    "delete_session": lambda scope: Store(scope.driver).delete_session(scope.session_id),
}


@pytest.mark.parametrize("work", MINE_GOES)
def test_what_others_created_again_is_not_deleted(
    pg_proxy: PgProxy, schemas: Schemas, direct: Store, work: str
) -> None:
    """A deletion whose answer was lost is not made again over what came after it."""
    with pausing(pg_proxy, schemas) as (store, pauses):
        for at in range(1, 30):
            scope, rival = store.scope(f"s{at}"), direct.scope(f"s{at}")
            scope.save("old", id="a")
            scope.save("old", id="b")
            pg_proxy.drop_reply(text=SAYS, nth=at)
            pg_proxy.drop_request(text=SAYS, nth=at + 1)
            begun: list[str] = []

            def meanwhile(rival: Scope = rival, begun: list[str] = begun) -> None:
                if rival.info("b") is None:  # it is gone, so the deletion has taken place
                    begun.append(rival.save("new", id="b").id)

            pauses.meanwhile = meanwhile
            MINE_GOES[work](scope)
            left = pg_proxy.faults_left()
            pg_proxy.forget()
            pauses.meanwhile = None
            found = rival.load("b")
            assert (found is not None) == bool(begun), f"batch {at}"
            if left == 2:
                return
    raise AssertionError("there is no end to it")
