"""Rows that no saver wrote are told, what they name is not imported, and the rest comes over."""

import itertools
import json
import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import ormsgpack
import psycopg
import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from psycopg.types.json import Jsonb

from limpet import Corrupt, InvalidInput, Store, Unavailable, Unsupported
from limpet.compat.langgraph import LimpetSaver, import_postgres, import_sqlite
from limpet.compat.langgraph.migrate.postgres import _translated as translated
from tests.cases import for_each
from tests.compat.langgraph.kit import Places, checkpoint, config, got, id_of
from tests.compat.langgraph.origins import (
    Origin,
    everything,
    fill,
    make_origin,
    on,
    sqlite_origin,
    with_deltas,
)

pytestmark = pytest.mark.filterwarnings("ignore")  # deltas are a beta of LangGraph's

COLUMNS = {
    "checkpoints": "thread_id checkpoint_ns checkpoint_id parent_checkpoint_id type checkpoint "
    "metadata",
    "writes": "thread_id checkpoint_ns checkpoint_id task_id idx channel type value task_path",
}
OLD = {**checkpoint(2), "v": 3}  # what it sends is looked for with its parent
ODD = [None, 5, 1.5, "", "x", b"", b"\xff", "a\0b"]


def packed(value: Any) -> bytes:
    return ormsgpack.packb(value, option=ormsgpack.OPT_NON_STR_KEYS)


def row(**changed: Any) -> list[Any]:
    whole = ["t", "", id_of(2), id_of(1), "msgpack", packed(OLD), "{}"]
    names = COLUMNS["checkpoints"].split()
    return [changed.get(name, each) for name, each in zip(names, whole, strict=True)]


def write(**changed: Any) -> list[Any]:
    whole = ["t", "", id_of(2), "task", 0, "a", "msgpack", packed(1), ""]
    names = COLUMNS["writes"].split()
    return [changed.get(name, each) for name, each in zip(names, whole, strict=True)]


def imported(store: Store, path: Path, checkpoints: list[Any], writes: list[Any]) -> Any:
    """Import rows in columns that take any type, and the thread `u` behind them."""
    path.unlink(missing_ok=True)
    good = row(thread_id="u", checkpoint=packed(checkpoint(2, a=2)))
    with closing(sqlite3.connect(path)) as conn:
        conn.execute("PRAGMA synchronous = OFF")
        for name, rows in (("checkpoints", [*checkpoints, good]), ("writes", writes)):
            columns = COLUMNS[name].split()
            conn.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
            marks = ", ".join("?" * len(columns))
            conn.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)
        conn.commit()
    done = import_sqlite(store, path)
    found = LimpetSaver(store).get_tuple(config("u"))
    assert found is not None
    assert found.checkpoint["channel_values"] == {"a": 2}
    return done


def test_columns_of_any_type_end_nothing(places: Places, tmp_path: Path) -> None:
    """Every column in turn holds something odd, alone and beside what is sound."""
    path = tmp_path / "a.db"
    with places.open("memory") as store:
        for name, odd in itertools.product(COLUMNS["checkpoints"].split(), ODD):
            imported(store, path, [row(**{name: odd})], [])
        for name, odd in itertools.product(COLUMNS["writes"].split(), ODD):
            for writes in ([write(**{name: odd})], [write(), write(**{name: odd})]):
                imported(store, path, [row()], writes)


@for_each(
    "changed, fact",
    [
        ({"checkpoint_ns": 5}, "checkpoint_ns must be a str. type=`int`"),
        ({"checkpoint_ns": None}, "checkpoint_ns must be a str. type=`NoneType`"),
        ({"checkpoint_id": b"x"}, "checkpoint id must be text. type=`bytes`"),
        ({"parent_checkpoint_id": 5}, "checkpoint_id must be text. type=`int`"),
        (
            {
                "checkpoint": packed({**OLD, "channel_versions": {1: 1, "a": 1}}),
                "metadata": json.dumps({"counters_since_delta_snapshot": {"a": 1}}),
            },
            "the row is not a checkpoint",
        ),
        ({"checkpoint": b"\xc1"}, "a stored value is malformed. format=`msgpack`"),
        ({"checkpoint": packed(["no checkpoint"])}, "the row is not a checkpoint"),
        ({"checkpoint": packed({"channel_values": {1: 2}})}, "the row is not a checkpoint"),
        ({"type": "pickle"}, "a stored value has a format that is not supported. format=`pickle`"),
        ({"metadata": "{"}, "a stored value cannot be decoded. error=`JSONDecodeError`"),
        ({"metadata": "[]"}, "the metadata is not that of a checkpoint"),
    ],
)
def test_what_a_row_of_a_checkpoint_must_hold(
    places: Places, tmp_path: Path, changed: Any, fact: str
) -> None:
    with places.open("memory") as store:
        done = imported(store, tmp_path / "a.db", [row(**changed)], [])
    assert done.count == 1
    assert [each.code for each in done.skipped] == ["snapshot_skipped"]
    assert done.skipped[0].message.startswith(fact)


@for_each("idx", [None, "x", b"\xff", 1.5])
def test_the_place_of_a_write_must_be_a_number(places: Places, tmp_path: Path, idx: Any) -> None:
    with places.open("memory") as store:
        done = imported(store, tmp_path / "a.db", [row()], [write(), write(idx=idx)])
        found = LimpetSaver(store).get_tuple(config())
    assert [each.code for each in done.skipped] == ["writes_skipped"]
    assert done.skipped[0].message == "the index of a write is not an integer. task_id=`task`"
    assert found is not None
    assert found.pending_writes == []


@for_each("indexes", [(0, 5), (0, 70), (-9, 0)])
def test_the_indexes_of_writes_may_have_gaps(
    places: Places, tmp_path: Path, indexes: tuple[int, int]
) -> None:
    with places.open("memory") as store:
        writes = [write(idx=idx, channel=f"c{idx}") for idx in reversed(indexes)]
        done = imported(store, tmp_path / "a.db", [row()], writes)
        found = got(LimpetSaver(store))
    assert done.skipped == ()
    assert [channel for _, channel, _ in found.pending_writes or []] == [f"c{i}" for i in indexes]


@pytest.mark.slow
def test_versions_that_are_no_object(
    request: pytest.FixtureRequest, places: Places, tmp_path: Path
) -> None:
    odd: list[Any] = [[], 5, "x", None]
    with make_origin("postgres", request, tmp_path) as origin, places.open("memory") as store:
        for number in range(1, len(odd) + 2):
            origin.saver.put(config(), checkpoint(number, a=number), {}, {})
        for number, versions in enumerate(odd, 1):
            body = Jsonb({**checkpoint(number), "channel_versions": versions})
            query = "UPDATE checkpoints SET checkpoint = %s WHERE checkpoint_id = %s"
            origin.saver.conn.execute(query, (body, id_of(number)))
        done = origin.import_into(store)
    assert done.count == 1
    assert [each.message for each in done.skipped] == ["the row is not a checkpoint"] * len(odd)


@for_each("change", ["ALTER TABLE writes DROP COLUMN value", "metadata", "cut"])
def test_tables_that_cannot_be_read_say_why(tmp_path: Path, places: Places, change: str) -> None:
    path = tmp_path / "langgraph.db"
    with places.open("memory") as store:
        imported(store, path, [row(metadata="{}" + " " * 100_000)], [write()])
        with closing(sqlite3.connect(path)) as conn:
            if change == "metadata":
                conn.execute("ALTER TABLE checkpoints RENAME COLUMN metadata TO facts")
            elif change != "cut":
                conn.execute(change)
            conn.commit()
        if change == "cut":
            os.truncate(path, path.stat().st_size // 2)
        with pytest.raises(Corrupt if change == "cut" else Unsupported):
            import_sqlite(store, path)


@for_each(
    "state, ours",
    [
        ("42703", Unsupported),
        ("42883", Unsupported),
        ("0A000", Unsupported),
        ("XX001", Corrupt),
        ("22021", InvalidInput),
        ("42501", Unavailable),
        ("57P01", Unavailable),
    ],
)
def test_an_error_of_the_server_is_told_by_its_code(state: str, ours: type[Exception]) -> None:
    with pytest.raises(ours, match=state), translated():
        raise psycopg.errors.lookup(state)("secret")


# What is named is not imported


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


def holding(value: Any) -> bytes:
    """Return a checkpoint with a value that may hold extensions."""
    return packed({**checkpoint(2), "channel_values": {"x": value}})


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
            replace(origin, number, "msgpack", holding(value))
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
        replace(origin, number, "msgpack", holding(value))
    done = origin.import_into(target, allow=[Address, Colour])
    assert done.count == 0
    assert ["does not fit its class" in each for each in messages_of(done)] == [True] * 4


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


@for_each("given, words", [({"prefix": 5}, "prefix"), ({"allow": ["Address"]}, "allow takes")])
def test_options_are_checked_before_the_source(target: Store, given: Any, words: str) -> None:
    wrong: Any = 5
    for bring in (import_sqlite, import_postgres):
        with pytest.raises(InvalidInput, match=words):
            bring(target, wrong, **given)
