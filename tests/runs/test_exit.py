"""A process that ends inside a claim or a run, without leaving it, ends all the same.

Daemon threads stop where they are when the interpreter ends, also while they hold a lock.
"""

import subprocess
import sys

import pytest

from tests.runs.conftest import place_of

PROGRAM = """
import sys, threading, time
import limpet
from limpet import runs
from limpet.api import leases

url, how = sys.argv[1:]
store = limpet.open(url)

def claim(number):
    return store.scope(f"s{number}").claim(owner="worker", ttl_s=0.1)

def work(number):
    with claim(number):
        yield number

if how == "entered":
    held = [claim(number) for number in range(4)]
    for each in held:
        each.__enter__()
elif how == "generator":
    held = [work(number) for number in range(4)]
    for each in held:
        next(each)
elif how == "run":
    held = [runs.start(store, f"run-{number}", ttl_s=0.1) for number in range(3)]
    for each in held:
        each.__enter__()
time.sleep(0.3)

# As a thread that was stopped with the lock: it is held for good.
locking = threading.Thread(target=store.driver.opened.service(leases.Renewals)._changed.acquire)
locking.start()
locking.join()
print("ending")
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["entered", "generator", "run"])
@pytest.mark.parametrize("engine", ["memory", "sqlite", "directory", "postgres"])
def test_a_process_that_ends_inside(engine: str, how: str, request: pytest.FixtureRequest) -> None:
    command = [sys.executable, "-c", PROGRAM, place_of(engine, request).url, how]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "ending\n", "")
