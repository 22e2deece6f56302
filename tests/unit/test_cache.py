"""The last states that an engine keeps in memory."""

import os
from functools import partial

from limpet.backends.sql.commit import LastBody, cache_cost
from limpet.backends.support.recent import Recent
from limpet.model import ScopeKey
from limpet.testing.conformance._kit import together

OVERHEAD = 512  # charged for each entry
A, B, C = (ScopeKey(name) for name in "abc")


def new_cache(bytes_max: int) -> Recent[ScopeKey, LastBody]:
    return Recent(bytes_max, cache_cost)


def test_what_was_put_is_found_under_its_nonce() -> None:
    cache = new_cache(1000)
    assert cache.get(A) is None
    cache.put(A, LastBody("n1", b"first"))
    cache.put(A, LastBody("n2", b"second"))
    assert cache.get(A) == ("n2", b"second")
    assert cache.cost_held == 6 + OVERHEAD
    cache.clear()
    assert cache.get(A) is None
    assert cache.cost_held == 0


def test_it_is_bounded_in_bytes_and_drops_what_was_not_used_for_longest() -> None:
    cache = new_cache(2 * OVERHEAD + 100)
    cache.put(A, LastBody("n", b"x" * 40))
    cache.put(B, LastBody("n", b"x" * 40))
    assert cache.get(A) is not None
    cache.put(C, LastBody("n", b"x" * 40))
    assert [cache.get(each) is not None for each in (A, B, C)] == [True, False, True]
    assert cache.cost_held == 2 * OVERHEAD + 80
    cache.put(A, LastBody("n", b"x" * (OVERHEAD + 101)))  # too large, and the old one is stale
    assert cache.get(A) is None
    assert cache.cost_held == OVERHEAD + 40


def test_many_threads() -> None:
    cache = new_cache(5000)

    def work(seed: int) -> None:
        for number in range(500):
            scope = ScopeKey(str((seed * number) % 17))
            cache.put(scope, LastBody(f"{seed}.{number}", b"x" * (number % 200)))
            found = cache.get(scope)
            assert found is None or len(found[1]) == int(found[0].partition(".")[2]) % 200

    together(partial(work, seed) for seed in range(1, 9))
    assert 0 <= cache.cost_held <= 5000


def test_a_forked_child_begins_with_an_empty_and_unlocked_one() -> None:
    cache = new_cache(1000)
    cache.put(A, LastBody("n", b"body"))
    with cache._lock:
        child = os.fork()
        if child == 0:
            os._exit(0 if cache.get(A) is None else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert cache.get(A) == ("n", b"body")
