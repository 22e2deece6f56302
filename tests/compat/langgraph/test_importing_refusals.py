"""What the tables of another saver name is not imported; what cannot come over is told."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import ormsgpack
import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from limpet import Store
from limpet.compat.langgraph import LimpetSaver
from tests.compat.langgraph.kit import Places, checkpoint, config, got, id_of
from tests.compat.langgraph.origins import Origin, everything, fill, on, sqlite_origin, with_deltas

pytestmark = pytest.mark.filterwarnings("ignore")  # deltas are a beta of LangGraph's

SERDE = JsonPlusSerializer()


def ext(code: int, *parts: Any) -> ormsgpack.Ext:
    return ormsgpack.Ext(code, ormsgpack.packb(parts))


@dataclass
class Address:
    street: str


class Colour(Enum):
    RED = 1


@pytest.fixture
def origin(tmp_path: Path) -> Iterator[Origin]:
    with sqlite_origin(tmp_path / "langgraph.db") as origin:
        yield origin


@pytest.fixture
def target(places: Places) -> Iterator[Store]:
    with places.open("memory") as store:
        yield store


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a module that must not be imported."""
    (tmp_path / "exploding.py").write_text("raise SystemExit('it was imported')")
    monkeypatch.syspath_prepend(tmp_path)
    yield "exploding"
    assert "exploding" not in sys.modules


def put(origin: Origin, number: int, parent: int | None = None, **values: Any) -> None:
    origin.saver.put(config(number=parent), checkpoint(number, **values), {"step": number}, {})


def replace(origin: Origin, number: int, form: str, body: bytes) -> None:
    """Let a checkpoint be other bytes."""
    query = "UPDATE checkpoints SET type = ?, checkpoint = ? WHERE checkpoint_id = ?"
    origin.saver.conn.execute(query, (form, body, id_of(number)))
    origin.saver.conn.commit()


def packed(value: Any) -> bytes:
    """Return a checkpoint with a value that may hold extensions."""
    whole = {**checkpoint(2), "channel_values": {"x": value}}
    return ormsgpack.packb(whole)


def messages_of(done: Any) -> list[str]:
    return [each.message for each in done.skipped]


def hidden_in(module: str) -> list[Any]:
    call = ext(0, module, "run", 1)
    inside = {"content": "hi", "additional_kwargs": {"x": [call]}}
    return [
        call,
        ext(1, module, "run", [1]),
        ext(2, module, "run", {"a": 1}),
        ext(3, module, "run", 1, "method"),
        ext(3, "datetime", "datetime", 1, "now"),
        ext(4, module, "run", {}),
        ext(5, module, "run", {}, "method"),
        [{"deep": [call]}],
        ormsgpack.Ext(7, ormsgpack.packb([call])),
        ext(5, "langchain_core.messages.human", "HumanMessage", inside, "model_validate_json"),
        ext(0, "builtins", "eval", "1"),
        ext(0, "langgraph.types", "interrupt", "1"),
        ext(99, 1),
    ]


def test_nothing_that_is_named_is_imported(mine: str, origin: Origin, target: Store) -> None:
    values = hidden_in(mine)
    last = len(values) + 1
    for number, value in enumerate([*values, 0], 1):
        put(origin, number, number - 1 or None, a=number)
        if number < last:
            replace(origin, number, "msgpack", packed(value))
            query = "INSERT INTO writes VALUES ('t', '', ?, ?, '', 0, 'x', 'msgpack', ?)"
            task = f"task-{number:02}"
            origin.saver.conn.execute(query, (id_of(last), task, ormsgpack.packb(value)))
    origin.saver.conn.commit()
    done = origin.import_into(target)
    assert done.count == 1
    writes, checkpoints = done.skipped[: len(values)], done.skipped[len(values) :]
    assert {(each.code, each.id) for each in writes} == {("writes_skipped", id_of(last))}
    assert [(each.code, each.id) for each in checkpoints] == [
        ("snapshot_skipped", id_of(number)) for number in range(1, last)
    ]
    assert [
        each for each in messages_of(done) if not ("not allowed" in each or "not supported" in each)
    ] == []
    found = got(LimpetSaver(target))
    assert (found.checkpoint["id"], found.pending_writes) == (id_of(last), [])


def test_classes_of_ones_own_come_if_they_are_allowed(origin: Origin, target: Store) -> None:
    put(origin, 1, where=Address("Main St"), all=[{"x": Address("Elm St")}, Colour.RED])
    origin.saver.put_writes(config(number=1), [("where", Address("Oak St"))], "task")
    done = origin.import_into(target)
    assert done.count == 0
    name = f"{__name__}:Address"
    fact = f"a stored value is of a class that is not allowed: list it in `allow`. class=`{name}`"
    assert messages_of(done) == [f"{fact}. task_id=`task`", fact]
    assert done.skipped[0].scope == ("t", "main", "thread")
    for allow in (
        [Address, Colour],
        [(__name__, "Address"), (__name__, "Colour")],
        Address | Colour,
    ):
        assert origin.import_into(target, allow=allow).skipped == ()
    theirs = everything(origin.saver, "t")
    assert everything(LimpetSaver(target, allow=[Address, Colour]), "t") == theirs


def test_what_cannot_be_made_again_is_not_made_into_something_else(
    origin: Origin, target: Store
) -> None:
    values = [
        ext(2, __name__, "Address", {"road": "a field that it had once"}),
        [ext(0, __name__, "Colour", 3)],
        ext(0, "decimal", "Decimal", "no number"),
        ormsgpack.Ext(6, b"no array"),
    ]
    for number, value in enumerate(values, 1):
        put(origin, number)
        replace(origin, number, "msgpack", packed(value))
    done = origin.import_into(target, allow=[Address, Colour])
    assert done.count == 0
    assert ["does not fit its class" in each for each in messages_of(done)] == [True] * 4


def test_what_makes_no_sense_does_not_stop_the_rest(origin: Origin, target: Store) -> None:
    for number in range(1, 9):
        put(origin, number, number - 1 or None, a=number)
    replace(origin, 1, "msgpack", b"\xc1")
    replace(origin, 2, "msgpack", ormsgpack.packb(["no checkpoint"]))
    replace(origin, 3, "pickle", b"")
    replace(origin, 4, "msgpack", SERDE.dumps_typed({"channel_values": {1: 2}})[1])
    conn = origin.saver.conn
    conn.execute("UPDATE checkpoints SET metadata = '{' WHERE checkpoint_id = ?", (id_of(5),))
    conn.execute("UPDATE checkpoints SET metadata = '[]' WHERE checkpoint_id = ?", (id_of(6),))
    names = "UPDATE checkpoints SET thread_id = CAST(? AS TEXT) WHERE checkpoint_id = ?"
    conn.execute(names, (b"\xff", id_of(7)))
    put(origin, 9)
    conn.execute(names, (b"", id_of(9)))
    conn.commit()
    done = origin.import_into(target)
    assert done.count == 1
    assert [each.id for each in done.skipped] == [id_of(number) for number in (9, *range(1, 8))]
    assert [each.scope is None for each in done.skipped] == [True, *[False] * 6, True]
    assert "thread_id=`\\udcff`" in messages_of(done)[-1]


def test_checkpoints_from_before_msgpack(mine: str, origin: Origin, target: Store) -> None:
    def lc(version: int, *id: str, type: str = "constructor", **more: Any) -> Any:
        return {"lc": version, "type": type, "id": [*id], **more}

    message = lc(1, "langchain", "schema", "messages", "HumanMessage", kwargs={"content": "hi"})
    allowed = [message, lc(2, "builtins", "set", args=[[1]]), {"lc": 1, "else": 2}]
    refused = [
        lc(1, "OPENAI_API_KEY", type="secret"),
        lc(1, "langchain", "prompts", "prompt", "PromptTemplate", kwargs={}),
        lc(1, mine, "HumanMessage", kwargs={}),
        lc(2, mine, "run", args=[]),
        lc(2, "datetime", "datetime", args=["2026-01-01"], method="fromisoformat"),
        lc(1, "x", type="not_implemented"),
        {"lc": 1, "type": "constructor", "id": 3},
    ]
    for number, value in enumerate([allowed, *refused], 1):
        put(origin, number)
        whole = {**checkpoint(number), "channel_values": {"x": [value]}}
        replace(origin, number, "json", json.dumps(whole).encode())
    done = origin.import_into(target)
    assert [each.id for each in done.skipped] == [id_of(n) for n in range(2, len(refused) + 2)]
    (found,) = LimpetSaver(target).list(config())
    assert found.checkpoint["channel_values"]["x"] == [
        [HumanMessage("hi"), {1}, {"lc": 1, "else": 2}]
    ]


def test_deltas_are_not_read_without_what_they_rest_on(origin: Origin, target: Store) -> None:
    """A checkpoint whose ancestor is refused is refused, up to the next that holds its values."""
    fill(origin.saver)
    listed = list(origin.saver.list(on("bob/deltas")))[::-1]
    ids = [each.checkpoint["id"] for each in listed]
    conn = origin.saver.conn
    conn.execute("UPDATE checkpoints SET type = 'x' WHERE checkpoint_id = ?", (ids[4],))
    conn.commit()
    seeded = next(
        at
        for at, each in enumerate(listed)
        if at > 4 and isinstance(each.checkpoint["channel_values"].get("log"), _DeltaSnapshot)
    )
    done = origin.import_into(target, prefix="bob/deltas")
    assert [each.id for each in done.skipped] == ids[4:seeded]
    assert 5 < seeded < len(ids)
    graph = with_deltas(LimpetSaver(target))
    assert len(graph.get_state(on("bob/deltas")).values["log"]) == 12
