"""What the queue of runs promises, on every engine."""

import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Generator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet import Conflict, InvalidInput, runs
from limpet.runs import RunError, queue
from tests.present import present
from tests.runs import queue_crew
from tests.runs.conftest import SLOWLY, place_of
from tests.runs.hands import Hands, Place, ends_with
from tests.waiting import until

WAIT_S_MAX = 120.0


class Broken(Exception):
    pass


@pytest.fixture(params=["memory", "sqlite", pytest.param("http", marks=pytest.mark.slow), *SLOWLY])
def place(request: pytest.FixtureRequest) -> Place:
    return place_of(request.param, request)


def work(hands: Hands, **options: Any) -> list[tuple[str, Any, bool]]:
    """Work on all that waits; return what each worker began with."""
    found = []
    for claim in hands.work(**options):
        with claim as run:
            found.append((run.run_id, run.state, run.resumed))
            run.step({"n": run.state["n"] + 1})
    return sorted(found)


def lose(hands: Hands) -> str:
    """Claim a run and lose its lease, as a worker that died."""
    with suppress(Conflict):
        for claim in hands.work():
            with claim as run:
                hands.store.driver.opened.backend.release(run._term.claim)
                raise Conflict
    return str(run.run_id)


def test_each_run_is_done_once(hands: Hands) -> None:
    given = {f"q/{n}": {"n": n} for n in range(3)}
    for run_id, initial in given.items():
        info = hands.enqueue(run_id, initial=initial, task="t", labels={"a": "b"})
        assert (info.status, info.attempt, info.steps, info.task) == ("queued", 0, 0, "t")
        assert hands.enqueue(run_id, initial={"n": 9}) == info  # it waits already
    hands.enqueue("other")
    assert [each.run_id for each in hands.list(status="queued")] == ["other", *given]
    assert work(hands, prefix="q/") == [(*each, False) for each in given.items()]
    assert work(hands, prefix="q/") == []
    for run_id, initial in given.items():
        found = hands.found(run_id)
        assert (found.status, found.attempt, found.steps) == ("completed", 1, 1)
        assert found.info.labels == {"a": "b", "task_name": "t"}
        head = hands.store.scope(run_id, kind="run").load()
        assert head.state == {"n": initial["n"] + 1}  # type: ignore[union-attr]
        assert hands.enqueue(run_id) == found  # it has completed
    assert hands.enqueue("q/0", initial={"n": 7}, again=True).status == "queued"
    assert work(hands, prefix="q/") == [("q/0", {"n": 7}, False)]


def test_what_failed_or_was_aborted_waits_only_if_it_is_enqueued_again(hands: Hands) -> None:
    hands.enqueue("r", initial={"n": 1})
    with ends_with(Broken):
        for claim in hands.work():
            with claim as run:
                run.step({"n": 2})
                raise Broken
    assert (hands.found("r").status, work(hands)) == ("failed", [])
    assert hands.enqueue("r", initial={"n": 9}).error is None
    assert hands.abort("r").status == "aborted"
    assert work(hands) == []
    hands.enqueue("r")
    assert work(hands) == [("r", {"n": 2}, True)]
    history = hands.store.scope("r", kind="run").history()
    assert [each.status for each in history] == ["completed", "failed"]


def test_a_run_that_lost_its_worker_comes_back_behind_the_others(hands: Hands) -> None:
    names = [f"q/{n:02}" for n in range(20)]
    for name in names:
        hands.enqueue(name, initial={"n": 0})
    lost = lose(hands)
    assert hands.found(lost).status == "expired"
    order = []
    for claim in hands.work():
        with claim as run:
            order.append(run.run_id)
    assert sorted(order) == names
    assert order.index(lost) >= 4  # the last of 20, of which a worker takes any of the first 16
    assert Counter(hands.found(name).attempt for name in names) == {1: 19, 2: 1}


def test_only_runs_of_the_queue_are_worked_on(hands: Hands) -> None:
    """A run that was started, and lost its worker, is for those that know how to go on."""
    with suppress(Conflict), hands.start("started") as run:
        hands.store.driver.opened.backend.release(run._term.claim)
        raise Conflict
    assert hands.found("started").status == "expired"
    assert work(hands) == []
    hands.enqueue("started", initial={"n": 0})
    assert work(hands) == [("started", {"n": 0}, True)]


def test_a_claim_that_is_not_entered_comes_back(hands: Hands) -> None:
    """And cannot be entered later, when another worker may have it; nor does the loop go round."""
    hands.enqueue("r", initial={"n": 0})
    for claim in hands.work():
        unused = claim
        assert hands.found("r").status == "running"
        break
    until(lambda: hands.found("r").status == "expired")
    with pytest.raises(Conflict, match="is over"), unused:
        pytest.fail("it has no lease")
    with pytest.raises(InvalidInput, match="with claim as run"):
        [*hands.work()]
    assert work(hands) == [("r", {"n": 0}, True)]
    hands.enqueue("unused", initial={"n": 0})
    for claim in runs.work(hands.store):
        with pytest.raises(InvalidInput, match="with claim as run"):
            claim.step({})  # type: ignore[attr-defined]
        break


def test_a_child_gives_nothing_back(tmp_path: Path) -> None:
    """It was forked between the claim and its block: the parent goes on."""
    with limpet.open(f"sqlite:///{tmp_path}/q.db") as store:
        runs.enqueue(store, "r")
        claims = runs.work(store)
        claim = next(claims)
        pid = os.fork()
        if pid == 0:
            claims.close()  # type: ignore[attr-defined]
            os._exit(0)
        os.waitpid(pid, 0)
        with claim as run:
            run.step(1)
        assert present(runs.get(store, "r")).status == "completed"


def test_a_generator_that_is_closed_leaves_its_block(hands: Hands) -> None:
    """Its run has failed, and its lease is free."""

    def held() -> Generator[None, None, None]:
        with hands.start("r"), hands.store.scope("s").claim(owner="me"):
            yield

    generator = held()
    next(generator)
    generator.close()
    assert present(hands.found("r").error).type == "GeneratorExit"
    for scope in (hands.store.scope("s"), hands.store.scope("r", kind="run")):
        with scope.claim(owner="another"):
            pass


def test_an_idle_worker_hears_of_a_run(hands: Hands) -> None:
    """Long before the next listing."""
    hands.enqueue("first")
    done = []
    for claim in hands.work(wait_s=0 if "second" in done else WAIT_S_MAX, ttl_s=2 * WAIT_S_MAX):
        with claim as run:
            done.append(run.run_id)
            if run.run_id == "first":
                threading.Timer(0.1, runs.enqueue, (hands.store, "second")).start()
        if len(done) == 2:
            break
    assert done == ["first", "second"]


@dataclass
class Report:
    pages: list[str]


def test_states_of_a_class(hands: Hands) -> None:
    with ends_with(Broken), hands.start("r", model=Report, initial=Report([])) as run:
        assert run.state == Report([])
        run.step(Report(["one"]))
        with pytest.raises(InvalidInput):
            run.step({"pages": []})
        raise Broken
    hands.enqueue("r")
    hands.enqueue("odd", initial={"pages": 1})
    with pytest.raises(InvalidInput):
        hands.enqueue("typed", initial={"pages": []}, model=Report)
    for claim in hands.work(model=Report):
        with suppress(InvalidInput), claim as run:
            run.state.pages.append("two")
            run.step(run.state)
    assert present(hands.store.scope("r", kind="run").load()).state == {"pages": ["one", "two"]}
    assert hands.found("odd").status == "failed"  # its state does not fit


def test_metadata_leaves_room_for_the_error(hands: Hands) -> None:
    """So a run never stays running because it cannot say that it failed."""
    for verb in (hands.enqueue, hands.start):
        with pytest.raises(InvalidInput, match="leaves no room"):
            verb("r", metadata={"a": "x" * 29_000})
    assert hands.get("r") is None
    with ends_with(Broken), hands.start("r", metadata={"a": "x" * 27_500}, traceback=True) as run:
        with pytest.raises(InvalidInput, match="leaves no room"):
            run.step(1, metadata={"b": "x" * 3_000})
        raise Broken("\1" * 9_000)
    found = hands.found("r")
    assert (found.status, found.error) == ("failed", RunError("Broken", "\1" * 500))


def test_a_traceback_is_kept_if_it_is_asked_for(hands: Hands) -> None:
    for asked in (False, True):
        with ends_with(Broken), hands.start("r", traceback=asked):
            raise Broken("no paper")
        text = present(hands.found("r").error).traceback or ""
        assert ("raise Broken" in text, text.endswith("Broken: no paper")) == (asked, asked)
        assert "limpet/" not in text.replace(str(Path(__file__)), "")
    with ends_with(Broken), hands.start("r", traceback=True):
        raise Broken("x\n" * 9_000)
    assert len(present(present(hands.found("r").error).traceback)) <= 4_000


def test_a_damaged_run_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if nothing else is on the page."""
    monkeypatch.setattr(queue, "_PAGE_MAX", 1)
    url = f"sqlite:///{tmp_path}/q.db"
    with limpet.open(url) as store:
        for name in ("bad", "good"):
            runs.enqueue(store, name, initial={"n": 0})
    with closing(sqlite3.connect(tmp_path / "q.db")) as conn, conn:
        conn.execute("UPDATE tails SET body = x'00' WHERE rowid = (SELECT min(rowid) FROM tails)")
    with limpet.open(url) as store, Hands("sync", store) as hands:
        assert [each[0] for each in work(hands)] == ["good"]


@pytest.mark.parametrize(
    ("engine", "workers"),
    [
        ("sqlite", 3),
        *(pytest.param(each, 16, marks=pytest.mark.slow) for each in ("sqlite", "postgres")),
    ],
)
def test_processes_that_are_killed(
    engine: str, workers: int, request: pytest.FixtureRequest
) -> None:
    """Each run is completed, and none is begun again once it is."""
    place = place_of(engine, request)
    folder: Path = request.getfixturevalue("tmp_path")
    names = [f"q/{n}" for n in range(2 * workers)]
    with place.open() as store:
        for name in names:
            runs.enqueue(store, name)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            "-m",
            "tests.runs.queue_crew",
            place.url,
            folder,
            str(workers),
        ],
        env=environment,
        timeout=WAIT_S_MAX,
        check=True,
    )
    done: Counter[str] = Counter()
    for path in folder.glob("*.json"):
        done.update(json.loads(path.read_text()))
    assert not [name for name, times in done.items() if times > 1]
    with place.open() as store:
        for name in names:
            found, attempts = runs.get(store, name), queue_crew.deaths(name) + 1
            assert found is not None
            assert (found.status, found.attempt) == ("completed", attempts), name
            state = store.scope(name, kind="run").load()
            after_step = [each for each in range(1, attempts) if each % 2 == 0]
            assert state is not None
            assert state.state == [*after_step, attempts]
