"""Leases between real processes: a holder that wakes too late does nothing, or was killed.

That there are never two writers the soak sees, in which all contend for leases.
"""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import pytest

from limpet import Conflict, Scope, Store
from limpet.testing.conformance.leasing import WRITES
from tests.concurrency.crew import Worker
from tests.concurrency.pg_tools import Background, everything
from tests.concurrency.sleepers import go_on, stop, stop_between_writes
from tests.watching.tools import on

TTL_S = 0.5


@contextmanager
def hired(url: str, *names: str) -> Iterator[list[Worker]]:
    """Start processes that have the store open."""
    with ExitStack() as stack:
        module = "tests.watching.worker"
        workers = [stack.enter_context(Worker(module, url, name)) for name in names]
        assert [worker.hear() for worker in workers] == ["ready"] * len(names)
        yield workers


@on()
def test_a_holder_that_wakes_too_late_changes_nothing(url: str, store: Store) -> None:
    """Whatever it writes is Conflict; and it does not give back what is another's by then."""
    scope = store.scope("s")
    with hired(url, "sleeper") as (sleeper,):
        token = sleeper.ask(["hold", TTL_S])
        stop_between_writes(sleeper, url, "s")
        with scope.claim(owner="other", ttl_s=30, wait_s=60) as lease:
            assert lease.token != token
            lease.save({"by": "other"}, id="third")
            lease.set_note("own", 1)
            before = everything(store)
            go_on(sleeper)
            assert sleeper.ask("write") == dict.fromkeys(WRITES, "Conflict")
            assert sleeper.ask("release") == "released"
            assert everything(store) == before

            with pytest.raises(Conflict), scope.claim(owner="third"):
                pass
            lease.save({"by": "other"}, id="fourth")
            assert lease.update("a", lambda s: s.with_(status="seen")) is not None
            lease.delete_note("own")
        with scope.claim(owner="third"):  # it was given back by the one who held it
            pass
    assert list(scope.ids()) == ["a", "b", "fourth", "third"]


def rob(scope: Scope, holder: Worker, taken: threading.Event) -> None:
    with scope.claim(owner="thief", ttl_s=30, wait_s=60) as lease:
        before = [info.id for info in scope.history()]
        taken.set()
        how, saved = holder.hear()
        assert [info.id for info in scope.history()] == before, "stored after the lease passed on"
        # What it saved last may be there although it never heard so.
        assert before[::-1][: len(saved)] == saved
        assert len(before) <= len(saved) + 1
        assert how == "told" or lease.save({"by": "thief"}) == scope.info()


@pytest.mark.slow
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_holder_that_is_stopped_inside_a_save(url: str, store: Store) -> None:
    """Once another's claim was acknowledged no save of the old holder appears, begun or not."""
    chance = random.Random(7)
    with hired(url, "holder") as (holder,):
        for number in range(20):
            asked = {"session": f"s{number}", "ttl_s": TTL_S}
            assert holder.ask(["save_on", asked]) == "begun"
            time.sleep(chance.uniform(0.05, 0.5))  # a moment of chance, not something waited for
            stop(holder)
            taken = threading.Event()
            thief = Background(partial(rob, store.scope(f"s{number}"), holder, taken))
            # A holder that sleeps inside a transaction keeps its lock: then nobody gets the lease
            # before it wakes, perhaps to renew it.
            taken.wait(3 * TTL_S)
            go_on(holder)
            if not taken.wait(TTL_S / 2):
                holder.tell("stop")
            thief.result()
