"""What an engine keeps in memory: bounded, and never believed when another process changed it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from limpet.backends.support.recent import Recent


def new_cache(bytes_max: int) -> Recent[str, bytes]:
    return Recent(bytes_max, len)


def test_what_was_put_is_found() -> None:
    cache = new_cache(1000)
    assert cache.get("a") is None
    cache.put("a", b"first")
    cache.put("a", b"second")
    assert (cache.get("a"), cache.cost_held) == (b"second", 6)
    cache.clear()
    assert (cache.get("a"), cache.cost_held) == (None, 0)


def test_it_is_bounded_and_drops_what_was_not_used_for_longest() -> None:
    cache = new_cache(100)
    cache.put("a", b"x" * 40)
    cache.put("b", b"x" * 40)
    assert cache.get("a") is not None
    cache.put("c", b"x" * 40)
    assert [cache.get(each) is not None for each in "abc"] == [True, False, True]
    assert cache.cost_held == 80
    cache.put("a", b"x" * 101)  # too large, and the old one is stale
    assert (cache.get("a"), cache.cost_held) == (None, 40)


def test_a_forked_child_begins_with_an_empty_and_unlocked_one() -> None:
    cache = new_cache(1000)
    cache.put("a", b"body")
    with cache._lock:
        child = os.fork()
        if child == 0:
            os._exit(0 if cache.get("a") is None else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert cache.get("a") == b"body"


GROWTH = """
import sys
import limpet
from limpet.core import limits

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

url, count, chars, limits.CACHE_BYTES_MAX = sys.argv[1], *map(int, sys.argv[2:])
store = limpet.open(url, synchronous="off")
for number in range(count):
    if number == 1_000:
        before = resident()
    store.scope(f"session-{number:06}").save({"messages": ["x" * chars], "n": number})
print(resident() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("count", "chars"), [(6_000, 50), pytest.param(8_000, 3_000, marks=pytest.mark.slow)]
)
def test_it_takes_no_more_memory_than_it_counts(tmp_path: Path, count: int, chars: int) -> None:
    """A process that has many scopes grows by the limit of what it knows of them."""
    bytes_max = 8 * 1024 * 1024
    given = [f"sqlite:///{tmp_path}/a.db", count, chars, bytes_max]
    command = [sys.executable, "-c", GROWTH, *map(str, given)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert int(done.stdout) < 1.2 * bytes_max
