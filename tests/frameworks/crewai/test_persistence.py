"""The interface of CrewAI's `FlowPersistence`, on every engine and on CrewAI's own store."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from crewai.flow.async_feedback.types import PendingFeedbackContext
from crewai.flow.persistence import FlowPersistence, SQLiteFlowPersistence
from pydantic import BaseModel, ConfigDict

import limpet
from limpet.compat.crewai import LimpetFlowPersistence
from tests.effort import slowly
from tests.frameworks.kit import ENGINES, FAST, Places

MOMENT = datetime(2026, 11, 18, 3, 4, 5, tzinfo=UTC)
ODD_IDS = ("alice/chat 42", "..", "%2F", "é\U0001f41a", "a" * 512)


@pytest.fixture(params=slowly([*ENGINES, "crewai"], but={*FAST, "crewai"}))
def persistence(
    request: pytest.FixtureRequest, places: Places, tmp_path: Path
) -> Iterator[FlowPersistence]:
    if request.param == "crewai":
        yield SQLiteFlowPersistence(str(tmp_path / "flows.db"))
        return
    with limpet.open(places.url(request.param)) as store:
        yield LimpetFlowPersistence(store)


def asking(flow_uuid: str, method: str = "review", output: Any = "a draft") -> Any:
    return PendingFeedbackContext(
        flow_id=flow_uuid,
        flow_class="tests.Review",
        method_name=method,
        method_output=output,
        message="publish?",
        emit=["yes", "no"],
        requested_at=MOMENT,
    )


def test_the_last_saved_state_of_a_flow_is_loaded(persistence: FlowPersistence) -> None:
    persistence.init_db()
    assert persistence.load_state("f") is None
    persistence.save_state("f", "begin", {"id": "f", "n": 1})
    persistence.save_state("f", "go_on", {"id": "f", "n": 2, "text": "\0 é \U0001f41a"})
    persistence.save_state("ff", "begin", {"id": "ff"})
    assert persistence.load_state("f") == {"id": "f", "n": 2, "text": "\0 é \U0001f41a"}


def test_any_id_is_a_flow_of_its_own(persistence: FlowPersistence) -> None:
    for id in ODD_IDS:
        persistence.save_state(id, "begin", {"id": id})
    assert [persistence.load_state(id) for id in ODD_IDS] == [{"id": id} for id in ODD_IDS]


class Color(Enum):
    RED = "red"


@dataclass
class Order:
    number: int


class Note(BaseModel):
    text: str
    at: datetime


class Opaque:
    def __str__(self) -> str:
        return "opaque"


class Shelf(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)

    id: str = "f"
    notes: list[Note] = []
    tags: set[str] = {"new"}
    ratio: float = float("nan")
    thing: Any = None


ODD_VALUES = [  # what is saved, and what Limpet gives back
    (MOMENT, "2026-11-18T03:04:05+00:00"),
    (date(2026, 11, 18), "2026-11-18"),
    (UUID(int=7), "00000000-0000-0000-0000-000000000007"),
    ({3, 1, 2}, [1, 2, 3]),
    ((1, 2), [1, 2]),
    (Decimal("1.50"), "1.50"),
    (b"\xff", "/w=="),
    (Color.RED, "red"),
    (Order(7), {"number": 7}),
    (Note(text="t", at=MOMENT), {"text": "t", "at": "2026-11-18T03:04:05Z"}),
    (Path("/tmp/x"), "/tmp/x"),
    (Opaque(), "opaque"),
    (float("-inf"), "-Infinity"),
    ("\ud800", "\\ud800"),
    ({1: "a", None: "b", False: "c", 1.5: "d"}, {"1": "a", "null": "b", "false": "c", "1.5": "d"}),
    ({UUID(int=7): 1}, {"00000000-0000-0000-0000-000000000007": 1}),
]


@pytest.mark.parametrize(("value", "stored"), ODD_VALUES, ids=repr)
def test_no_value_breaks_a_flow(memory: limpet.Store, value: Any, stored: Any) -> None:
    """crewAI#7358: a date in the state ended the flow. Here it is stored as JSON."""
    persistence = LimpetFlowPersistence(memory)
    persistence.save_state("f", "begin", {"id": "f", "odd": [value]})
    assert persistence.load_state("f") == {"id": "f", "odd": [stored]}


def test_models_are_loaded_as_what_they_were(memory: limpet.Store) -> None:
    persistence = LimpetFlowPersistence(memory)
    shelf = Shelf(notes=[Note(text="t", at=MOMENT)], tags={"a", "b"}, ratio=float("nan"))
    persistence.save_state("f", "begin", shelf)
    loaded = Shelf.model_validate(persistence.load_state("f"))
    assert (loaded.notes, loaded.tags, loaded.ratio != loaded.ratio) == (
        shelf.notes,
        {"a", "b"},
        True,
    )
    persistence.save_state("f", "begin", Shelf(thing=Opaque()))
    assert (persistence.load_state("f") or {})["thing"] == "opaque"


def test_what_cannot_be_stored_is_refused(memory: limpet.Store) -> None:
    persistence = LimpetFlowPersistence(memory)
    cycle: dict[str, Any] = {"id": "f"}
    cycle["self"] = cycle
    states: list[Any] = [cycle, [], None, "text"]
    for state in states:
        with pytest.raises(limpet.InvalidInput):
            persistence.save_state("f", "begin", state)
    names: list[Any] = ["", "\0", None]
    for id in names:
        with pytest.raises(limpet.InvalidInput):
            persistence.save_state(id, "begin", {})
    no_store: Any = "sqlite:///x.db"
    with pytest.raises(limpet.InvalidInput):
        LimpetFlowPersistence(no_store)
    assert memory.stats().snapshots == 0


def test_feedback_is_pending_until_it_is_cleared(persistence: FlowPersistence) -> None:
    assert persistence.load_pending_feedback("f") is None
    persistence.clear_pending_feedback("f")
    persistence.save_pending_feedback("f", asking("f"), {"id": "f", "n": 1})
    assert persistence.load_state("f") == {"id": "f", "n": 1}
    # A crash in a resumed flow, after this save and before the next call, loses no question.
    persistence.save_state("f", "review", {"id": "f", "n": 2})
    assert persistence.load_pending_feedback("f") == ({"id": "f", "n": 1}, asking("f"))
    persistence.save_pending_feedback("f", asking("f", "again"), {"id": "f", "n": 3})
    assert persistence.load_pending_feedback("f") == ({"id": "f", "n": 3}, asking("f", "again"))
    assert persistence.load_pending_feedback("g") is None
    persistence.clear_pending_feedback("f")
    assert persistence.load_pending_feedback("f") is None
    assert persistence.load_state("f") == {"id": "f", "n": 3}


def test_every_step_is_kept_and_can_be_forked(store: limpet.Store) -> None:
    persistence = LimpetFlowPersistence(store.aio)
    for n in range(3):
        persistence.save_state("f", f"step_{n}", {"id": "f", "n": n})
    last, middle, first = store.scope("f", kind="flow").history()
    assert [info.labels["method"] for info in (first, middle, last)] == [
        "step_0",
        "step_1",
        "step_2",
    ]
    assert [info.parent_id for info in (first, middle, last)] == [None, first.id, middle.id]
    assert [each.path for each in store.scope("f", kind="flow").diff(first, last).changes] == ["/n"]

    forked = persistence.fork("f", middle)
    assert persistence.load_state(forked) == {"id": forked, "n": 1}
    persistence.save_state(forked, "step_2", {"id": forked, "n": 20})
    assert persistence.load_state("f") == {"id": "f", "n": 2}
    (_, root) = store.scope(forked, kind="flow").history()
    assert root.forked_from == limpet.SnapshotRef(middle.scope, middle.id)
    with pytest.raises(limpet.NotFound):
        persistence.fork("f", "none")


def test_a_fork_that_limpet_made_is_a_flow_of_its_own(memory: limpet.Store) -> None:
    """CrewAI goes on under the id in the state, which would be that of the source."""
    persistence = LimpetFlowPersistence(memory)
    persistence.save_pending_feedback("f", asking("f"), {"id": "f", "n": 1})
    scope = memory.scope("f", kind="flow")
    scope.fork(next(scope.history()), to="forked")
    assert persistence.load_state("forked") == {"id": "forked", "n": 1}
    assert persistence.load_pending_feedback("forked") == (
        {"id": "forked", "n": 1},
        asking("forked"),
    )
    assert persistence.load_state("f") == {"id": "f", "n": 1}


def test_no_save_of_many_writers_is_lost(url: str) -> None:
    with limpet.open(url) as one, limpet.open(url) as other:

        def save(number: int) -> None:
            persistence = LimpetFlowPersistence((one, other)[number % 2])
            for n in range(10):
                persistence.save_state("f", f"{number}-{n}", {"id": "f"})

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(save, range(4)))
        methods = [info.labels["method"] for info in one.scope("f", kind="flow").history()][::-1]
    mine_in_order = sorted(methods, key=lambda method: method[0])
    assert mine_in_order == [f"{number}-{n}" for number in range(4) for n in range(10)]
