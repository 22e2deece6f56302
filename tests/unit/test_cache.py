"""The last states that an engine keeps in memory."""

import os
import subprocess
import sys
import tracemalloc
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

import limpet
from limpet.backends.sql.commit import LastBody, cache_cost
from limpet.backends.sql.continuing import KNOWN_SCOPES_BYTES_MAX
from limpet.backends.support.recent import Recent
from limpet.core.deltas.delta import diff
from limpet.model import ScopeKey
from limpet.testing.conformance._kit import together

OVERHEAD = 512  # charged for each entry
A, B, C = (ScopeKey(name) for name in "abc")


def new_cache(bytes_max: int) -> Recent[ScopeKey, LastBody]:
    return Recent(bytes_max, cache_cost)


def held(cache: Recent[ScopeKey, LastBody], scope: ScopeKey) -> tuple[str, bytes]:
    found = cache.get(scope)
    assert found is not None
    return found.nonce, found.body


def test_steps_are_applied_when_the_body_is_asked_for() -> None:
    bodies = [b"[" + b"1234567890," * n + b"0]" for n in range(100)]
    last = LastBody("0", bodies[0])
    for n, (before, after) in enumerate(pairwise(bodies), 1):
        last = last.after(str(n), diff(before, after))
        assert len(after) <= last.size < len(after) + 400 * min(n, 33)
        if n in (50, 51):
            assert last.body == after
    assert (last.nonce, last.body, last.size) == ("99", bodies[99], len(bodies[99]))


def test_steps_take_no_more_memory_than_is_counted() -> None:
    states = [b"[" + b"1234567890," * n + b"0]" for n in range(200, 231)]
    cache = new_cache(1024 * 1024)
    tracemalloc.start()
    for number in range(20):
        last = LastBody("0", bytes([number]) + states[0])
        for n, (before, after) in enumerate(pairwise(states), 1):
            last = last.after(str(n), diff(before, after))
        cache.put(ScopeKey(str(number)), last)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < 1.2 * cache.cost_held


@pytest.mark.parametrize("size", [10, 5_000])
def test_a_chat_is_read_whole_after_each_append(size: int, tmp_path: Path) -> None:
    """By the process that appends, by one that interferes, and after an update in place."""
    with (
        limpet.open(f"sqlite:///{tmp_path}/a.db") as ours,
        limpet.open(f"sqlite:///{tmp_path}/a.db") as theirs,
    ):
        chat, other = ours.scope("chat"), theirs.scope("chat")
        said: list[str] = []

        def whole() -> bool:
            found = [each.load() for each in (chat, other)]
            return all(each is not None and each.state == {"items": said} for each in found)

        for n in range(80):
            said.append(f"{n} {'x' * size}")
            (other if n % 17 == 5 else chat).append("items", [said[-1]])
            assert n % 3 or whole()
        said[0] = "changed"
        head = chat.info()
        assert head is not None
        other.update(head, lambda found: found.with_(state={"items": said}))
        assert whole()
        chat.append("items", ["more"])
        said.append("more")
        assert whole()
        chat.delete_snapshot(chat.info() or "")
        said.pop()
        assert whole()
        assert [*ours.check()] == []


def test_what_was_put_is_found_under_its_nonce() -> None:
    cache = new_cache(1000)
    assert cache.get(A) is None
    cache.put(A, LastBody("n1", b"first"))
    cache.put(A, LastBody("n2", b"second"))
    assert held(cache, A) == ("n2", b"second")
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
            assert found is None or len(found.body) == int(found.nonce.partition(".")[2]) % 200

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
    assert held(cache, A) == ("n", b"body")


GROWTH = """
import sys
import limpet
from limpet.backends.sql.commit import LastBody, cache_cost
from limpet.backends.support.recent import Recent
from limpet.core import codec
from limpet.model import ScopeKey

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

count, chars, bytes_max = map(int, sys.argv[1:4])
if len(sys.argv) > 4:
    store = limpet.open(sys.argv[4], synchronous="off", cache_bytes_max=bytes_max)
    def keep(number):
        store.scope(f"session-{number:06}").save({"messages": ["x" * chars], "n": number})
else:
    cache = Recent(bytes_max, cache_cost)
    def keep(number):
        body, _ = codec.encode_state({"messages": ["x" * chars], "n": number})
        cache.put(ScopeKey(f"session-{number:06}"), LastBody(f"{number:016x}", body))
for number in range(1_000):
    keep(number)
before = resident()
for number in range(1_000, count):
    keep(number)
print(resident() - before)
"""

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def growth(*args: object) -> int:
    """Return by how many bytes a process grows that keeps many states."""
    command = [sys.executable, "-c", GROWTH, *map(str, args)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@LINUX
@pytest.mark.parametrize("chars", [50, 3_000])
def test_it_takes_no_more_memory_than_it_counts(chars: int) -> None:
    bytes_max = 8 * 1024 * 1024
    assert growth(20_000, chars, bytes_max) < 1.2 * bytes_max


@LINUX
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_many_scopes_in_one_process_stay_below_the_limit(tmp_path: os.PathLike[str]) -> None:
    """The states and what is known of their scopes, each with a bound of its own."""
    bytes_max = 64 * 1024 * 1024
    grown = growth(100_000, 500, bytes_max, f"sqlite:///{tmp_path}/a.db")
    assert grown < 1.1 * (bytes_max + KNOWN_SCOPES_BYTES_MAX)
