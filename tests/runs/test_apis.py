"""The two APIs of a run are twins, and neither leaves anything behind."""

import inspect
import threading
from typing import Any

from limpet import runs
from limpet.runs import AsyncRun, Run
from tests.cases import for_each
from tests.runs.hands import Hands, Place, ends_with
from tests.waiting import until


def test_the_apis_have_the_same_names() -> None:
    both: list[Any] = [Run, AsyncRun]
    names = [{name for name in dir(each) if not name.startswith("_")} for each in both]
    assert names[0] == names[1]
    assert inspect.signature(both[0].step) == inspect.signature(both[1].step)
    assert inspect.iscoroutinefunction(both[1].step)
    assert "Async twin of `Run.step`" in both[1].step.__doc__


def test_only_the_public_names_are_shown() -> None:
    assert dir(runs) == sorted(runs.__all__)


VERBS: list[Any] = [getattr(runs, name) for name in runs.__all__ if name.islower()]


@for_each("verb", [*VERBS, runs.Run.step])
def test_every_verb_explains_its_arguments_and_has_an_example(verb: Any) -> None:
    text = inspect.getdoc(verb) or ""
    assert "::\n\n    " in text
    for name in inspect.signature(verb).parameters:
        assert name == "self" or f"\n    {name}: " in text


def test_nothing_is_left_behind(place: Place, api: str) -> None:
    before = threading.active_count()
    with place.open() as store, Hands(api, store) as hands:  # type: ignore[arg-type]
        for number in range(3):
            with hands.start(f"good-{number}") as run:
                run.step(number)
            with ends_with(KeyError), hands.start(f"bad-{number}") as run:
                run.step(number)
                raise KeyError
            with ends_with(runs.Aborted), hands.start(f"aborted-{number}") as run:
                hands.abort(run.run_id)
        assert len(hands.list()) == 9
        assert [*store.check()] == []
    until(lambda: threading.active_count() <= before)  # those of the pool end by themselves
