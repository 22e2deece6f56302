"""A run whose worker died is taken over: at once if that can be seen here, else when it may be."""

import json
import os
import re
import signal
import time
from typing import Any

import pytest

from limpet import Conflict, Store, runs
from limpet.runs import processes
from tests.concurrency.crew import Worker
from tests.present import present
from tests.runs.hands import Hands, Place, desert
from tests.waiting import until

TTL_S = 600  # nobody waits for this
SHORT_TTL_S = 1.5
AT_ONCE_S = 300.0  # on a busy machine


@pytest.fixture
def place(shared: Place) -> Place:
    """Only where other processes can be."""
    return shared


def dozing(place: Place, run_id: str = "r", *, ttl_s: float = TTL_S) -> Worker:
    """Return a worker that has saved "dozing" and does nothing more."""
    worker = Worker("tests.runs.worker", place.url, json.dumps(dict(place.options)))
    assert worker.ask(["doze", run_id, ttl_s]) == "ready"
    return worker


def kill(worker: Worker) -> None:
    worker.process.kill()
    worker.end()


def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be on another machine than every worker before: its processes cannot be seen from here."""
    monkeypatch.setattr(processes, "_place", lambda: "0123456789abcdef")


@pytest.mark.parametrize("verb", ["start", "adopt"])
def test_a_dead_process_is_noticed_at_once(hands: Hands, place: Place, verb: str) -> None:
    kill(dozing(place))
    begun = time.monotonic()
    found = hands.found("r")
    assert (found.status, found.owner) == ("expired", "the dozer")
    assert [each.run_id for each in hands.list(status="expired")] == ["r"]
    assert hands.list(status="running") == []
    with getattr(hands, verb)("r") as run:
        assert (run.state, run.resumed) == ("dozing", True)
        run.step("on")
    assert time.monotonic() - begun < AT_ONCE_S
    assert (hands.found("r").status, hands.found("r").attempt) == ("completed", 2)
    assert [*hands.store.check()] == []


def test_a_process_that_nobody_waited_for_is_dead(store: Store, place: Place) -> None:
    """It is a zombie, and has a pid, until its parent asks for its exit code."""
    worker = dozing(place)
    worker.process.kill()
    until(lambda: processes.is_alive(_owner_of_lease(store)) is False)
    with runs.start(store, "r") as run:
        assert run.state == "dozing"
    worker.end()


def _owner_of_lease(store: Store) -> str:
    held = present(store.driver.opened.backend.read_lease(store.scope("r", kind="run").key, now=0))
    return held.owner


def test_another_process_with_its_pid_is_another(hands: Hands) -> None:
    desert(hands.store, "r", 1)
    before = processes.with_process("ann").replace(processes._started(os.getpid()) or "", "1")
    assert before != processes.with_process("ann")
    with hands.store.scope("r", kind="run").claim(owner=before, ttl_s=TTL_S):
        assert hands.found("r").status == "expired"
        with hands.start("r") as run:
            assert run.state == 1


def test_a_living_worker_of_this_host_is_reported_at_once(hands: Hands, place: Place) -> None:
    with dozing(place) as worker:
        os.kill(worker.process.pid, signal.SIGSTOP)  # asleep, and perhaps awake soon
        try:
            begun = time.monotonic()
            for verb in (hands.start, hands.adopt):
                with pytest.raises(Conflict, match="another worker holds") as caught, verb("r"):
                    pass
            assert time.monotonic() - begun < AT_ONCE_S
        finally:
            os.kill(worker.process.pid, signal.SIGCONT)
        assert hands.found("r").status == "running"
        assert "owner=`the dozer`" in str(caught.value)
        named = present(re.search(r"until \d\d:\d\d:\d\d UTC \((\d+) s\)", str(caught.value)))
        assert TTL_S / 2 < int(named[1]) <= TTL_S
        assert worker.ask("wake up") == "done"


@pytest.mark.slow
def test_a_dead_worker_elsewhere(
    hands: Hands, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill(dozing(place, ttl_s=SHORT_TTL_S))
    elsewhere(monkeypatch)
    with hands.start("r") as run:
        assert (run.state, run.resumed) == ("dozing", True)
        run.step("on")


@pytest.mark.slow
def test_a_living_worker_elsewhere(
    hands: Hands, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is reported once it renews its lease."""
    with dozing(place, ttl_s=SHORT_TTL_S) as worker:
        elsewhere(monkeypatch)
        with pytest.raises(Conflict, match="owner=`the dozer`"), hands.start("r"):
            pass
        assert worker.ask("wake up") == "done"


def test_the_owner_of_a_lease_names_its_process() -> None:
    for owner in ("ann", "ann [x:1 y z]", "vm:1", "x" * 512):
        marked = processes.with_process(owner)
        assert len(marked) <= 512
        assert f":{os.getpid()} " in marked
        assert processes.without_process(marked) == owner[: len(processes.without_process(marked))]
        assert processes.is_alive(marked)
    assert processes.without_process(processes.with_process("ann")) == "ann"
    for other in ("ann", "", "vm:1", "ann [vm:1 - -]", "ann [vm:1 0123456789abcdef 5]"):
        assert processes.is_alive(other) is None


def test_a_container_has_processes_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an equal host name, and pids that mean other processes."""
    marked = processes.with_process("ann")
    links: dict[str, str] = {"/proc/self/ns/pid": "pid:[1]"}
    with monkeypatch.context() as patch:
        patch.setattr(os, "readlink", links.__getitem__)
        assert processes.is_alive(marked) is None
    assert processes.is_alive(marked) is True


def _refuse(error: type[OSError]) -> Any:
    def kill(pid: int, number: int) -> None:
        raise error

    return kill


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_a_process_that_cannot_be_inspected(monkeypatch: pytest.MonkeyPatch, platform: str) -> None:
    """Of another user, where /proc hides it; or on a system without /proc."""
    monkeypatch.setattr("sys.platform", platform)
    marked = processes.with_process("ann")
    monkeypatch.setattr(processes, "_stat", lambda pid: None)
    assert processes.is_alive(marked) is None
    monkeypatch.setattr(os, "kill", _refuse(PermissionError))
    assert processes.is_alive(marked) is None
    monkeypatch.setattr(os, "kill", _refuse(ProcessLookupError))
    assert processes.is_alive(marked) is False
