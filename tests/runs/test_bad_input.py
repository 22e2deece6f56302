"""What is not acceptable is refused at the call, and changes nothing."""

from typing import Any

import pytest

import limpet
from limpet import InvalidInput, runs
from tests.cases import for_each
from tests.runs.hands import Hands


@for_each(
    "options",
    [
        {"run_id": ""},
        {"run_id": 1},
        {"task": ""},
        {"task": "x" * 257},
        {"owner": ""},
        {"ttl_s": 0},
        {"ttl_s": "1"},
        {"wait_s": -1},
        {"on_success": "forget"},
        {"on_success": []},
        {"initial": b""},
        {"initial": {"a": float("nan")}},
        {"again": 1},
        {"labels": {"task_name": "x"}},
        {"labels": {"a": 1}},
        {"labels": []},
        {"labels": {str(n): "" for n in range(64)}, "task": "t"},
        {"metadata": {"run": 1}},
        {"metadata": {"a": b""}},
        {"metadata": {"a": "x" * 40_000}},
        {"metadata": []},
    ],
)
def test_bad_input_is_refused_at_the_call(options: dict[str, Any]) -> None:
    options = {"run_id": "r", **options}
    with limpet.open("memory:") as store:
        for each in (store, store.aio):
            with pytest.raises(InvalidInput):
                runs.start(each, **options)
            if not options.keys() & {"task", "labels", "metadata", "initial", "again"}:
                with pytest.raises(InvalidInput):
                    runs.adopt(each, **options)
        assert list(store.scopes()) == []


@for_each(
    "verb, arguments",
    [
        (runs.abort, ("",)),
        (runs.get, ("a\0b",)),
        (runs.list, {"status": "done"}),
        (runs.list, {"status": 1}),
        (runs.list, {"task": ""}),
        (runs.list, {"prefix": None}),
    ],
)
def test_bad_questions_are_refused_at_the_call(verb: Any, arguments: Any) -> None:
    given, named = (arguments, {}) if isinstance(arguments, tuple) else ((), arguments)
    with limpet.open("memory:") as store:
        for each in (store, store.aio, None, "memory:"):
            with pytest.raises(InvalidInput):
                verb(each, *given, **named)


BAD_STEPS: list[dict[str, Any]] = [
    {"state": b""},
    {"state": float("nan")},
    {"keep": 1},
    {"labels": {"task_name": "x"}},
    {"labels": {"a": None}},
    {"metadata": {"run": {}}},
    {"metadata": {"a": b""}},
    {"metadata": 1},
]


def test_a_bad_step_changes_nothing(hands: Hands) -> None:
    with hands.start("r") as run:
        before = run.step({"n": 1})
        for bad in BAD_STEPS:
            with pytest.raises(InvalidInput):
                run.step(**{"state": {}, **bad})
            assert hands.found("r").info == before
        run.step({"n": 2})
