"""What a run promises, on every engine."""

import os
from contextlib import ExitStack
from typing import Any

import pytest

import limpet
from limpet import Conflict, NotFound, runs
from limpet.runs import Aborted, RunError
from tests.cases import for_each
from tests.present import present
from tests.runs.hands import Hands, desert, ends_with
from tests.waiting import WAIT_S_MAX, until


class Broken(Exception):
    pass


def fail(hands: Hands, run_id: str, *states: Any, error: BaseException | None = None) -> None:
    """Let a run fail after some steps."""
    error = error or Broken("no paper")
    with ends_with(type(error)), hands.start(run_id) as run:
        for state in states:
            run.step(state)
        raise error


# From beginning to end.


def test_a_run_is_gone_when_it_succeeds_if_that_was_asked_for(hands: Hands) -> None:
    assert hands.get("r") is None
    with hands.start("r", task="report", on_success="delete") as run:
        assert (run.run_id, run.state, run.resumed, run.aborted) == ("r", None, False, False)
        assert not run.completed
        found = hands.found("r")
        assert (found.run_id, found.task, found.status) == ("r", "report", "running")
        assert (found.attempt, found.steps, found.error) == (1, 0, None)
        assert found.owner is not None
        assert found.owner.endswith(f":{os.getpid()}")
        assert found.info == run.info
        run.check()
        run.step({"n": 1})
    assert hands.get("r") is None
    assert list(hands.store.scopes()) == []


def test_a_step_is_what_the_scope_shows(hands: Hands) -> None:
    scope = hands.store.scope("r", "main", "run")
    with hands.start("r", task="t", labels={"team": "x"}, metadata={"cost": 1}) as run:
        began = hands.found("r").started_at
        first = run.step({"n": 1}, labels={"phase": "1"}, metadata={"more": [2]})
        second = run.step({"n": 2}, keep=False)
        head = present(scope.load())
        assert (head.state, head.status, head.id) == ({"n": 2}, "running", second.id)
        assert first.labels == {"phase": "1", "task_name": "t", "team": "x"}
        assert second.labels == {"task_name": "t", "team": "x"}
        assert {**first.metadata, "run": 0} == {"cost": 1, "more": [2], "run": 0}
        assert {**second.metadata, "run": 0} == {"cost": 1, "run": 0}
        assert [each.id for each in scope.history()] == [first.id]
        found = hands.found("r")
        assert (found.steps, found.started_at, found.info) == (2, began, second)
        assert run.info == second


def test_a_failed_run_keeps_its_error_and_resumes(hands: Hands) -> None:
    fail(hands, "r", {"n": 1}, {"n": 2})
    failed = hands.found("r")
    assert (failed.status, failed.steps) == ("failed", 2)
    assert failed.error == RunError("Broken", "no paper")

    with hands.start("r") as run:
        assert (run.state, run.resumed) == ({"n": 2}, True)
        found = hands.found("r")
        assert (found.status, found.attempt, found.steps) == ("running", 2, 2)
        assert (found.error, found.started_at) == (None, failed.started_at)
        run.step({"n": 3})
        assert hands.found("r").steps == 3
    assert hands.found("r").status == "completed"


def test_a_run_has_its_initial_state_until_its_first_step(hands: Hands) -> None:
    initial: Any = {"pages": []}
    for resumed in (False, True):
        with ends_with(Broken), hands.start("r", initial=initial) as run:
            assert (run.state, run.resumed) == ({"pages": []}, resumed)
            run.state["pages"].append("lost")
            raise Broken
    assert initial == {"pages": []}
    assert hands.found("r").steps == 0
    assert hands.store.scope("r", "main", "run").load().state == initial  # type: ignore[union-attr]
    with ends_with(Broken), hands.start("r") as run:
        assert run.state == initial  # of the first attempt
        raise Broken
    with ends_with(Broken), hands.start("r", initial={"pages": ["title"]}) as run:
        assert run.state == {"pages": ["title"]}  # nothing is lost by a new one
        raise Broken
    with hands.start("r") as run:
        assert run.state == {"pages": ["title"]}
        run.step({"pages": ["title", "one"]})
    with hands.start("r", initial=initial) as run:
        assert (run.completed, run.state) == (True, {"pages": ["title", "one"]})


def test_a_dead_worker_without_a_step_leaves_the_initial_state(hands: Hands) -> None:
    firsts: list[Any] = [None, {"n": 0}]
    for first in firsts:
        adopted, started = f"adopted {first}", f"started {first}"
        desert(hands.store, adopted, task="t", initial=first)
        with hands.adopt(adopted) as run:
            assert (run.state, run.resumed) == (first, True)
            run.step({"n": 1})
            assert hands.found(adopted).task == "t"
        desert(hands.store, started, initial=first)
        with hands.start(started, initial={"n": 7}) as run:
            assert run.state == {"n": 7}


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError


@for_each(
    "error, message",
    [
        (Broken("x" * 501), "x" * 500),
        (Broken("a\ud800b\0c"), "a?b\0c"),
        (Broken(), ""),
        (Mute(), ""),
        (KeyboardInterrupt("stop"), "stop"),
    ],
)
def test_whatever_an_error_says_is_kept(error: BaseException, message: str) -> None:
    with limpet.open("memory:") as store, Hands("sync", store) as hands:
        fail(hands, "r", error=error)
        assert hands.found("r").error == RunError(type(error).__name__, message)


def test_the_state_is_the_workers_own(hands: Hands) -> None:
    fail(hands, "r", {"list": [1]})
    with hands.start("r", on_success="keep") as run:
        run.state["list"].append(2)
        state = {"list": [3]}
        run.step(state)
        state["list"].append(4)
    head = present(hands.store.scope("r", "main", "run").load())
    assert head.state == {"list": [3]}


def test_what_was_given_for_the_whole_run_survives_its_worker(hands: Hands) -> None:
    given = {"cost": [1]}
    with (
        ends_with(Broken),
        hands.start("r", task="t", labels={"team": "x"}, metadata=given) as run,
    ):
        given["cost"].append(2)
        run.step(1, labels={"phase": "1"}, metadata={"once": True})
        raise Broken
    with hands.start("r", on_success="keep") as run:
        second = run.step(2)
        assert second.labels == {"task_name": "t", "team": "x"}
        assert {**second.metadata, "run": 0} == {"cost": [1], "run": 0}
        assert hands.found("r").task == "t"


# One worker at a time.


def test_a_run_has_one_worker(hands: Hands) -> None:
    with hands.start("r", owner="ann") as run:
        run.step(1)
        for verb in (hands.start, hands.adopt):
            with pytest.raises(Conflict, match="ann"), verb("r"):
                pass
        run.step(2)


def test_a_worker_that_lost_its_lease_changes_nothing(hands: Hands) -> None:
    with ends_with(Conflict), hands.start("r") as slow:
        slow.step("slow")
        hands.store.driver.opened.backend.release(slow._term.claim)
        with hands.start("r", on_success="keep") as quick:
            assert quick.state == "slow"
            with pytest.raises(Conflict):
                slow.step("too late")
            until(lambda: _stops(slow))
            assert not slow.aborted
            quick.step("quick")
        slow.step("much too late")
    found = hands.found("r")
    assert (found.status, found.attempt, found.steps, found.error) == ("completed", 2, 2, None)


@for_each("ending", ["keep", "delete", "failure"])
def test_a_worker_that_lost_its_lease_does_not_close_the_run(hands: Hands, ending: str) -> None:
    """Not even before the next worker has written anything."""
    on_success = "keep" if ending == "keep" else "delete"
    expected = Broken if ending == "failure" else Conflict
    with ExitStack() as next_worker:
        with ends_with(expected), hands.start(ending, on_success=on_success) as run:
            before = run.step(1)
            hands.store.driver.opened.backend.release(run._term.claim)
            scope = hands.store.scope(ending, "main", "run")
            next_worker.enter_context(scope.claim(owner="next"))
            if ending == "failure":
                raise Broken
        found = hands.found(ending)
        assert (found.status, found.info) == ("running", before)


def _stops(run: runs.Run) -> bool:
    try:
        run.check()
    except Conflict:
        return True
    return False


def test_a_plain_writer_is_not_overwritten(hands: Hands) -> None:
    scope = hands.store.scope("r", "main", "run")
    with ends_with(Conflict), hands.start("r") as run:
        run.step(1)
        scope.save("theirs", id="theirs")
        with pytest.raises(Conflict):
            run.step(2)
    head = present(scope.load())
    assert (head.id, head.state, head.status) == ("theirs", "theirs", "")


def test_nothing_is_written_when_the_run_is_over(hands: Hands) -> None:
    for on_success in ("keep", "delete"):
        with hands.start("r", on_success=on_success, again=True) as run:
            run.step(1)
        for late in (lambda run=run: run.step(2), run.check):
            with pytest.raises(Conflict, match="the run has ended"):
                late()
    assert hands.get("r") is None


# Dead workers.


def test_only_a_run_that_is_running_can_be_adopted(hands: Hands) -> None:
    with pytest.raises(NotFound), hands.adopt("r"):
        pass
    assert list(hands.store.scopes()) == []
    fail(hands, "failed")
    with hands.start("completed", on_success="keep"):
        pass
    desert(hands.store, "aborted")
    hands.abort("aborted")
    for each in ("failed", "completed", "aborted"):
        before = hands.found(each)
        with pytest.raises(Conflict, match=each), hands.adopt(each, wait_s=WAIT_S_MAX):
            pass
        assert hands.found(each) == before


# Aborting.


def test_an_abort_is_seen_by_the_worker(hands: Hands) -> None:
    with ends_with(Aborted), hands.start("r") as run:
        run.step({"n": 1})
        found = hands.abort("r")
        assert (found.status, found.steps) == ("aborted", 1)
        until(lambda: run.aborted)
        with pytest.raises(Aborted):
            run.check()
        with pytest.raises(Aborted):
            run.step({"n": 2})
        run.check()
    assert hands.found("r") == found

    with hands.start("r", on_success="keep") as run:
        assert (run.state, run.resumed, run.aborted) == ({"n": 1}, True, False)
        run.step({"n": 2})
        run.check()
    assert (hands.found("r").status, hands.found("r").attempt) == ("completed", 2)


@for_each("on_success", ["keep", "delete"])
def test_a_late_completed_does_not_overwrite_an_abort(hands: Hands, on_success: str) -> None:
    with ends_with(Aborted), hands.start(on_success, on_success=on_success) as run:
        run.step({"n": 1})
        hands.abort(on_success)
    assert hands.found(on_success).status == "aborted"
    assert hands.store.scope(on_success, "main", "run").load().state == {"n": 1}  # type: ignore[union-attr]


def test_a_late_failure_does_not_overwrite_an_abort(hands: Hands) -> None:
    with ends_with(Broken), hands.start("r") as run:
        run.step({"n": 1}, keep=True)
        hands.abort("r")
        raise Broken
    assert (hands.found("r").status, hands.found("r").error) == ("aborted", None)


def test_only_a_run_that_is_running_is_aborted(hands: Hands) -> None:
    with pytest.raises(NotFound):
        hands.abort("r")
    assert list(hands.store.scopes()) == []
    fail(hands, "failed")
    with hands.start("completed", on_success="keep"):
        pass
    desert(hands.store, "aborted", {"n": 1})
    assert hands.abort("aborted").status == "aborted"
    for each in ("failed", "completed", "aborted"):
        before = hands.found(each)
        assert hands.abort(each) == before
        assert hands.found(each) == before


def test_an_abort_that_comes_first_keeps_a_worker_from_resuming(hands: Hands) -> None:
    """It was running when the worker looked, and is aborted when it wants to go on with it."""
    desert(hands.store, "r", {"n": 1})
    backend = hands.store.driver.opened.backend
    read = backend.read_snapshots

    def read_and_be_overtaken(*args: Any) -> Any:
        found = read(*args)
        del backend.read_snapshots
        runs.abort(hands.store, "r")
        return found

    backend.read_snapshots = read_and_be_overtaken  # type: ignore[assignment,method-assign]
    with pytest.raises(Conflict), hands.start("r"):
        pass
    assert hands.found("r").status == "aborted"


# Looking.


def test_runs_are_listed_by_name(hands: Hands) -> None:
    desert(hands.store, "b/expired", task="t")
    fail(hands, "a/failed")
    with hands.start("c/completed", on_success="keep", task="t"):
        pass
    desert(hands.store, "d/aborted")
    hands.abort("d/aborted")
    hands.store.scope("another").save({})
    hands.store.scope("another", "side", "run").save({})
    with hands.start("e/running", task="t"):
        every = ["a/failed", "b/expired", "c/completed", "d/aborted", "e/running"]
        found = hands.list()
        assert sorted(each.run_id for each in found) == every
        assert all(each.status == each.run_id[2:] for each in found)
        assert found == [hands.found(each.run_id) for each in found]
        for each in every:
            assert [one.run_id for one in hands.list(status=each[2:])] == [each]
        assert sorted(each.run_id for each in hands.list(task="t")) == every[1:3] + every[4:]
        assert [each.run_id for each in hands.list(prefix="b/")] == ["b/expired"]
        assert hands.list(prefix="b/", status="running") == []


def test_what_others_wrote_at_the_address_of_a_run_is_one(hands: Hands) -> None:
    scope = hands.store.scope("r", "main", "run")
    for facts in (None, "text", {"attempt": "x", "steps": -1, "error": 1, "started_at": "today"}):
        metadata = {} if facts is None else {"run": facts}
        scope.save({"n": 1}, status="running", labels={"task_name": "t"}, metadata=metadata)
        found = hands.found("r")
        assert (found.task, found.status, found.owner) == ("t", "expired", None)
        assert (found.attempt, found.steps, found.error) == (1, 0, None)
        assert found.started_at == found.info.created_at
    scope.save({"n": 2}, status="half done")
    with hands.start("r") as run:
        assert (run.state, run.resumed) == ({"n": 2}, True)
        run.step({"n": 3})
    assert hands.found("r").status == "completed"
