"""Rows that no saver wrote: they are told, and the rest comes over."""

import itertools
import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import ormsgpack
import psycopg
import pytest
from psycopg.types.json import Jsonb

from limpet import Corrupt, InvalidInput, Store, Unavailable, Unsupported
from limpet.compat.langgraph import LimpetSaver, import_sqlite
from limpet.compat.langgraph.migrate.postgres import _translated as translated
from tests.cases import for_each
from tests.compat.langgraph.kit import Places, checkpoint, config, id_of
from tests.compat.langgraph.origins import make_origin

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
    fact = "the row is not a checkpoint"
    assert [each.message for each in done.skipped] == [fact] * len(odd)


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
