"""A lease is renewed for as long as it is held, whatever goes wrong meanwhile, and given back."""

import asyncio
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import limpet
from limpet import Conflict, Store, Unavailable
from limpet.protocol import Claim, Hold
from tests.waiting import until
from tests.watching.tools import on

TTL_S = 0.6
ENGINES = ("sqlite", "directory", "postgres")


Renew = Callable[[Claim], Hold]


class Faulty:
    """Lets the renewals of a store fail for some time."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch, fault: Exception) -> None:
        self.calls = 0
        self.is_on = True
        self._fault = fault
        backend: Any = store.driver.opened.backend
        self._real: Renew = backend.renew
        monkeypatch.setattr(backend, "renew", self._renew, raising=False)

    def _renew(self, claim: Claim) -> Hold:
        self.calls += 1
        if self.is_on:
            raise self._fault
        return self._real(claim)


@on("sqlite")
def test_a_renewal_without_an_answer_is_tried_again(
    url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after the lease has ended, as long as nobody else has claimed the scope."""
    scope = store.scope("s")
    with scope.claim(owner="one", ttl_s=TTL_S) as lease:
        faulty = Faulty(store, monkeypatch, Unavailable("no answer"))
        ended = lease.expires_at.timestamp()
        until(lambda: time.time() > ended + 0.2 and faulty.calls > 3)
        faulty.is_on = False
        until(lambda: lease.expires_at.timestamp() > ended)
        with (
            limpet.open(url) as rival,
            pytest.raises(Conflict),
            rival.scope("s").claim(owner="two"),
        ):
            pass
        lease.save({"n": 1})


@on("sqlite")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_fault_in_one_renewal_does_not_end_those_to_come(
    url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store.scope("a").claim(owner="one", ttl_s=TTL_S):
        faulty = Faulty(store, monkeypatch, RuntimeError("a fault"))
        until(lambda: faulty.calls)
        faulty.is_on = False
        with store.scope("b").claim(owner="one", ttl_s=TTL_S) as lease:
            ended = lease.expires_at
            until(lambda: lease.expires_at > ended)


@on(*ENGINES)
def test_a_claim_that_is_cancelled_holds_nothing(url: str, store: Store) -> None:
    """At whatever moment: the scope is free at once, not when the lease would have ended."""
    chance, count = random.Random(3), 60

    async def hold(at: int) -> None:
        async with store.aio.scope("s", f"n{at}").claim(owner="one", ttl_s=300, wait_s=5):
            await asyncio.sleep(chance.choice((0, 0.01)))

    async def main() -> None:
        for at in range(count):
            task = asyncio.create_task(hold(at))
            await asyncio.sleep(chance.uniform(0, 0.02))
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    asyncio.run(main())
    for at in range(count):
        with store.scope("s", f"n{at}").claim(owner="two", wait_s=20):
            pass


@on(*ENGINES)
def test_leases_are_given_back_when_the_store_is_closed(url: str) -> None:
    """Inside their blocks; and no thread is left."""
    before = set(threading.enumerate())
    with limpet.open(url) as rival:
        store = limpet.open(url)
        with store.scope("s").claim(owner="one", ttl_s=300) as lease:
            lease.save({"n": 1})
            store.close()
            with rival.scope("s").claim(owner="two") as other:
                other.save({"n": 2})
        with rival.scope("s").claim(owner="three"):
            pass
    until(lambda: set(threading.enumerate()) <= before)
