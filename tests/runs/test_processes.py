"""Runs over several processes: killed, paused, adopted and aborted."""

import json
import subprocess
import sys
import time
from pathlib import Path

from limpet import Store, runs
from tests.concurrency.crew import Worker
from tests.concurrency.sleepers import go_on, stop_between_writes
from tests.present import present
from tests.runs.hands import Place
from tests.waiting import WAIT_S_MAX

TTL_S = 1.0
ABORT_S_MAX = 15.0  # it does not wait for the end of the lease


def worker(place: Place) -> Worker:
    return Worker("tests.runs.worker", place.url, json.dumps(dict(place.options)))


def kill_in_the_middle(place: Place, run_id: str) -> int:
    """Kill a worker between two steps, or in one; return the last that it acknowledged."""
    killed = worker(place)
    killed.tell(["count", run_id, TTL_S])
    last = 0
    while last < 15:
        last = killed.hear()
    killed.process.kill()
    for line in killed._from:
        if line.endswith("\n"):
            last = json.loads(line)
    killed.end()
    return last


def is_expired(store: Store, run_id: str) -> bool:
    found = present(runs.get(store, run_id))
    return found.status == "expired"


def test_a_killed_workers_run_is_adopted(shared: Place) -> None:
    """Nothing that it acknowledged is lost, and at most the one step under way is more."""
    last = kill_in_the_middle(shared, "r")
    with shared.open() as store:
        assert is_expired(store, "r")
        assert [each.run_id for each in runs.list(store, status="expired")] == ["r"]
        assert [*runs.list(store, status="running")] == []
        with runs.adopt(store, "r") as run:
            assert run.state in (last, last + 1)
            run.step("adopted", keep=True)
        found = present(runs.get(store, "r"))
        assert (found.status, found.attempt) == ("completed", 2)
        assert found.steps in (last + 1, last + 2)
        assert [*store.check()] == []


def test_an_abort_is_seen_in_another_process(shared: Place) -> None:
    with shared.open() as store, worker(shared) as other:
        assert other.ask(["idle", "r", 30]) == "ready"
        for number in range(3):
            time.sleep(0.1 * number)
            begun = time.monotonic()
            assert runs.abort(store, "r").status == "aborted"
            assert other.hear() == "aborted"
            assert time.monotonic() - begun < ABORT_S_MAX
            assert other.hear() == "left"
            found = present(runs.get(store, "r"))
            assert (found.status, found.attempt) == ("aborted", number + 1)
            assert other.ask(["idle", "r", 30]) == "ready"
        runs.abort(store, "r")
        assert [other.hear(), other.hear()] == ["aborted", "left"]


def test_a_worker_that_was_asleep_finds_its_run_taken(shared: Place) -> None:
    with shared.open() as store, worker(shared) as asleep:
        assert asleep.ask(["doze", "r", TTL_S]) == "ready"
        stop_between_writes(asleep, shared.url, "r", "main", "run", **shared.options)
        try:
            with runs.adopt(store, "r", wait_s=WAIT_S_MAX, on_success="keep") as run:
                assert run.state == "dozing"
                before = run.step("mine", keep=True)
                go_on(asleep)
                assert asleep.ask("wake up") == "Conflict"
                run.check()
        finally:
            go_on(asleep)
        found = present(runs.get(store, "r"))
        assert (found.status, found.attempt, found.info.id) == ("completed", 2, before.id)


FORKER = """
import os, sys
import limpet
from limpet import runs
with limpet.open(sys.argv[1]) as store, runs.start(store, "r") as run:
    before = run.step(1)
    if os.fork() == 0:
        sys.exit(3)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 3
    assert runs.get(store, "r").info == before
    os._exit(0)
"""


def test_a_child_does_not_close_the_run_of_its_parent(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    subprocess.run([sys.executable, "-c", FORKER, url], check=True, timeout=WAIT_S_MAX)
