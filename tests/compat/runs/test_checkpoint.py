"""The checkpoint itself: its fields, its times, its JSON."""

import pickle
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from enum import IntEnum
from typing import Any

import pytest

from limpet import InvalidInput
from limpet.compat.runs import Checkpoint
from limpet.compat.runs.records import instant_of
from tests.cases import for_each

NOT_TIMES = [
    "yesterday",
    "2026-03-01",
    "2026-03-01T20:54:15",  # where?
    "2026-03-01 20:54:15Z",
    "2026-03-01t20:54:15z",
    "2026-03-01T20:54:15,5Z",
    "2026-03-01T20:54:15.Z",
    "2026-03-01T20:54:15.1234567890Z",
    "2026-03-01T24:00:00Z",
    "2026-03-01T20:60:00Z",
    "2026-03-01T20:54:60Z",
    "2026-02-29T20:54:15Z",
    "2026-13-01T20:54:15Z",
    "2026-03-01T20:54:15+24:00",
    "2026-03-01T20:54:15+0100",
    "٢٠٢٦-03-01T20:54:15Z",
    "2026-03-01T20:54:15Z\n",
]


def test_fields_have_the_defaults_of_go() -> None:
    assert Checkpoint("r").to_json() == {
        "run_id": "r",
        "task_name": "",
        "iteration": 0,
        "messages": None,
        "system_prompt": "",
        "input_tokens": 0,
        "output_tokens": 0,
        "created_at": "",
    }


@for_each(
    ("name", "value"),
    [
        ("run_id", 1),
        ("run_id", None),
        ("task_name", b"x"),
        ("iteration", True),
        ("iteration", 1.0),
        ("iteration", 2**63),
        ("input_tokens", -(2**63) - 1),
        ("output_tokens", "1"),
        ("messages", {}),
        ("messages", "text"),
        ("system_prompt", None),
        ("created_at", 1),
        ("created_at", datetime(2026, 3, 1)),
        ("created_at", datetime(2026, 3, 1, tzinfo=timezone(timedelta(seconds=90)))),
        ("extra", []),
        ("extra", {1: 2}),
        ("extra", {"iteration": 2}),
        ("extra", {"Run_ID": "x"}),  # Go would take it for the field
        ("extra", {"me\u017f\u017fages": []}),  # by the long s as well
        *(("created_at", text) for text in NOT_TIMES),
    ],
)
def test_a_wrong_value_is_refused(name: str, value: object) -> None:
    with pytest.raises(InvalidInput, match=name):
        Checkpoint(**{"run_id": "r", name: value})  # type: ignore[arg-type]


@for_each(
    "text",
    [
        "0001-01-01T00:00:00Z",
        "0000-02-29T00:00:00Z",
        "9999-12-31T23:59:59.999999999+23:59",
        "2026-03-01T20:54:15.120-05:00",
        "2026-03-01T20:54:15+00:00",
    ],
)
def test_a_time_is_kept_as_it_is_written(text: str) -> None:
    assert Checkpoint("r", created_at=text).created_at == text


@for_each(
    ("moment", "text"),
    [
        (datetime(2026, 3, 1, 2, 3, 4, tzinfo=UTC), "2026-03-01T02:03:04Z"),
        (datetime(2026, 3, 1, 2, 3, 4, 120_000, tzinfo=UTC), "2026-03-01T02:03:04.12Z"),
        (
            datetime(2026, 3, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=-5))),
            "2026-03-01T02:03:04.000005-05:00",
        ),
        (
            datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=30))),
            "0001-01-01T00:00:00+05:30",
        ),
    ],
)
def test_a_datetime_becomes_the_text_that_go_writes(moment: datetime, text: str) -> None:
    assert Checkpoint("r", created_at=moment).created_at == text


def test_moments_compare_across_years_and_offsets() -> None:
    in_order = [
        "0000-01-01T00:00:00+23:59",
        "0000-12-31T23:59:59Z",
        "0001-01-01T00:00:00Z",
        "0001-01-01T00:00:00.000000001Z",
        "2026-03-01T20:54:15.1-05:00",
        "2026-03-02T01:54:15.100000001Z",
    ]
    instants = [instant_of(text) for text in in_order]
    assert instants == sorted(set(instants))
    assert instant_of("2026-03-01T20:54:15-05:00") == instant_of("2026-03-02T01:54:15.000Z")
    assert instants[2] - instants[1] == 10**9


def test_json_is_read_as_go_reads_it() -> None:
    """Whatever the case of a name; null is nothing."""
    found = Checkpoint.from_json({"RUN_ID": "r", "Iteration": 3, "task_name": None, "new": None})
    assert found == Checkpoint("r", iteration=3, extra={"new": None})
    with pytest.raises(InvalidInput):
        Checkpoint.from_json([])  # type: ignore[arg-type]


def test_a_checkpoint_cannot_be_changed_or_hashed() -> None:
    found: Any = Checkpoint("r", messages=[1])
    with pytest.raises(AttributeError):
        found.iteration = 2
    with pytest.raises(TypeError):
        hash(found)
    assert replace(found, iteration=2) == Checkpoint("r", iteration=2, messages=[1])
    assert pickle.loads(pickle.dumps(found)) == found


def test_what_is_nearly_an_integer_or_a_list_becomes_one() -> None:
    class Number(IntEnum):
        THREE = 3

    words: Any = ("a", "b")
    extra: Mapping[str, Any] = {"x": 1}
    found = Checkpoint("r", iteration=Number.THREE, messages=words, extra=extra)
    assert (type(found.iteration), found.messages) == (int, ["a", "b"])
    assert found.extra is not extra
