"""A run that has completed stays, and is not done again unless that is asked for."""

import threading
from typing import Any

import pytest

from limpet import Conflict, runs
from limpet.runs import RunError
from tests.cases import for_each
from tests.runs.hands import Hands, ends_with
from tests.runs.hearing import heard_when_it_waits
from tests.waiting import WAIT_S_MAX


def complete(hands: Hands, run_id: str, *states: Any) -> None:
    with hands.start(run_id) as run:
        for state in states:
            run.step(state)


def test_a_completed_run_is_kept_with_its_last_state(hands: Hands) -> None:
    complete(hands, "r", {"n": 1}, {"n": 2})
    found = hands.found("r")
    assert (found.status, found.attempt, found.steps) == ("completed", 1, 2)
    scope = hands.store.scope("r", "main", "run")
    statuses = [(each.id == found.info.id, each.status) for each in scope.history()]
    assert statuses == [(True, "completed"), (False, "running")]
    assert scope.load().state == {"n": 2}  # type: ignore[union-attr]


def test_it_is_not_done_again(hands: Hands) -> None:
    complete(hands, "r", {"n": 1})
    before = hands.found("r")
    with hands.start("r", task="other", labels={"a": "b"}, on_success="delete") as run:
        assert (run.completed, run.resumed, run.aborted) == (True, True, False)
        assert (run.run_id, run.state, run.info) == ("r", {"n": 1}, before.info)
        for refused in (lambda: run.step({"n": 2}), run.check):
            with pytest.raises(Conflict, match=r"has completed.*again=True"):
                refused()
    assert hands.found("r") == before


def test_an_error_does_not_fail_a_run_that_has_completed(hands: Hands) -> None:
    complete(hands, "r", 1)
    before = hands.found("r")
    with ends_with(KeyError), hands.start("r"):
        raise KeyError
    assert hands.found("r") == before


def test_another_round_is_asked_for(hands: Hands) -> None:
    complete(hands, "r", {"n": 1})
    first = hands.found("r")
    with hands.start("r", again=True, initial={"n": 0}) as run:
        assert (run.completed, run.resumed, run.state) == (False, False, {"n": 0})
        found = hands.found("r")
        assert (found.status, found.attempt, found.steps) == ("running", 1, 0)
        assert found.started_at > first.started_at
        run.step({"n": 5})
    scope = hands.store.scope("r", "main", "run")
    assert [each.id for each in scope.history()] == [hands.found("r").info.id, first.info.id]
    assert scope.load(first.info.id).state == {"n": 1}  # type: ignore[union-attr]
    with hands.start("r", again=True, on_success="delete") as run:
        assert run.state is None
    assert hands.get("r") is None


def test_again_resumes_a_run_that_has_not_completed(hands: Hands) -> None:
    with ends_with(KeyError), hands.start("r", again=True) as run:
        run.step(1)
        raise KeyError
    assert hands.found("r").error == RunError("KeyError", "")
    with hands.start("r", again=True) as run:
        assert (run.completed, run.resumed, run.state) == (False, True, 1)


@for_each("on_success", ["keep", "delete"])
def test_who_waited_for_it_does_not_do_it_again(hands: Hands, on_success: str) -> None:
    began, leave = threading.Event(), threading.Event()

    def first() -> None:
        with runs.start(hands.store, on_success, on_success=on_success) as run:  # type: ignore[call-overload]
            run.step("done")
            began.set()
            leave.wait(WAIT_S_MAX)

    thread = threading.Thread(target=first)
    thread.start()
    assert began.wait(WAIT_S_MAX)
    with (
        heard_when_it_waits(leave.set),
        hands.start(on_success, wait_s=WAIT_S_MAX, on_success=on_success) as run,
    ):
        assert run.completed
        assert run.state == ("done" if on_success == "keep" else None)
        with pytest.raises(Conflict, match="has completed"):
            run.step("twice")
    thread.join()
    assert (hands.get(on_success) is None) == (on_success == "delete")
    # Of a run that was deleted nothing is known later: it begins.
    with hands.start(on_success) as run:
        assert run.completed == (on_success == "keep")
