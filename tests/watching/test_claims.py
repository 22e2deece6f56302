"""Leases between real processes: a holder that wakes too late does nothing, or was killed.

That there are never two writers the soak sees, in which all contend for leases.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from limpet import Conflict, Store
from limpet.testing.conformance.leasing import WRITES
from tests.concurrency.crew import Worker
from tests.concurrency.pg_tools import everything
from tests.concurrency.sleepers import go_on, stop_between_writes
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
