"""Someone who can write to the tables, but has no key: what is refused, and what is not seen.

Whatever is changed, its checksum is made right again. Then either everything is answered as
before, or what is asked for raises Corrupt, or it is left out and `check` reports it. The last test
has what is not seen.
"""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

import limpet
from limpet import Corrupt, Store
from limpet.backends.sql import columns
from limpet.backends.sql.columns import COLUMNS as NAMES
from limpet.backends.sql.columns import note_sum
from limpet.core.encryption import PLAIN
from limpet.core.notes import NoteRow
from limpet.storage import ScopeRecord
from tests.effort import times
from tests.encryption.keys import ONE

KEYS = {"shared": "name", "notes": "pk", "labels": "seq"} | {
    **dict.fromkeys(("scopes", "segments"), "pk"),
    **dict.fromkeys(("snapshots", "tails"), "seq"),
}
COLUMNS = {
    "scopes": NAMES["scope"].split()[:-1],
    "snapshots": [*NAMES["row"].replace("checksum ", "").split(), "apart"],
    "tails": NAMES["tail"].split()[:-1],
    "segments": ["scope_pk", *NAMES["segment"].split()[:-1]],
    "shared": ["name", "session_id", "body"],
    "notes": ["scope_pk", *NAMES["note"].split()[:-1]],
    "labels": ["name", "value", "seq"],
}
SCOPES = ("chat", "other", "rolled", "fork")


def fill(store: Store, prefix: str = "s") -> None:
    for session in (f"{prefix}1", f"{prefix}2"):
        for name in ("chat", "other"):
            scope = store.scope(session, name)
            facts: dict[str, Any] = {"labels": {"task": "tax"}, "metadata": {"of": name}}
            scope.save({"messages": [], "of": name}, id="first", status="begun", **facts)
            scope.append("messages", [f"{session} {name} " * 300])
            scope.append("messages", [f"{session} {name}"])
            scope.save({"messages": [1], "of": [name]}, id="last", status="done", **facts)
            scope.set_note("title", f"{session} {name}")
            scope.set_note("note", f"{session} {name}", on="first")
        rolled = store.scope(session, "rolled")
        rolled.save({"n": 1}, id="small")
        rolled.save(
            {"text": Random(session).randbytes(300_000).hex()}
        )  # moved to a segment at once
        rolled.save({"text": Random(session).randbytes(3_000).hex()}, id="source")
        rolled.fork("source", scope_id="fork")


def seen(store: Store) -> dict[str, Any]:
    """Return all that a store answers, with None in place of what it refuses."""
    found: dict[str, Any] = {}

    def ask(what: str, verb: Any) -> None:
        try:
            found[what] = verb()
        except Corrupt:
            found[what] = None

    for session in ("s1", "s2"):
        for name in SCOPES:
            scope, at = store.scope(session, name), f"{session}/{name}"
            ask(f"{at} head", scope.load)
            with suppress(Corrupt):
                for each in scope.ids():
                    ask(f"{at} {each} load", lambda scope=scope, each=each: scope.load(each))
            for note, on in (("title", None), ("note", "first")):
                ask(f"{at} {note}", lambda scope=scope, n=note, on=on: scope.note(n, on=on))
            with suppress(Corrupt):
                found |= {f"{at} {info.id} listed": info for info in scope.history()}
                found |= {f"{at} {each.id} leaf": True for each in scope.leaves()}
    for asked in ({"status": "begun"}, {"labels": {"task": "tax"}}):
        for info in store.history(**asked):
            found[f"{info.scope} {info.id} {asked}"] = info
    return found


def is_unseen(path: Path, before: dict[str, Any]) -> bool:
    """Return whether a change went unnoticed: an answer differs, or is missing unreported."""
    with limpet.open(str(path), keys=ONE) as store:
        now = seen(store)
        other = [what for what in now if now[what] not in (None, before.get(what))]
        gone = [what for what, answer in before.items() if answer and now.get(what) != answer]
        if any(not what.endswith(" leaf") for what in other):
            return True
        # Without its only child a snapshot is a leaf.
        return bool(gone or other) and not list(store.check())


class Attacker:
    """Changes rows of a copy of a store, and makes their checksums right."""

    def __init__(self, original: Path, path: Path) -> None:
        self.path = path
        shutil.copy(original, path)

    def write(self, table: str, key: Any, values: dict[str, Any]) -> None:
        with closing(sqlite3.connect(self.path)) as conn:
            conn.row_factory = sqlite3.Row
            where = f"WHERE {KEYS[table]} = ?"
            owner = "(SELECT scope_pk FROM snapshots AS n WHERE n.seq = t.seq)"
            more = f", {owner} AS pk" if table == "tails" else ""
            select = f"SELECT t.*{more} FROM {table} AS t {where}"
            if values:
                setting = ", ".join(f"{name} = ?" for name in values)
                conn.execute(f"UPDATE {table} SET {setting} {where}", (*values.values(), key))
            key = values.get(KEYS[table], key)
            if table != "labels":
                checksum = _sum(table, conn.execute(select, (key,)).fetchone())
                conn.execute(f"UPDATE {table} SET checksum = ? {where}", (checksum, key))
            conn.commit()


def _sum(table: str, row: Any) -> int:
    """Return the checksum of a row, which needs no key."""
    values = [row[name] for name in COLUMNS[table]]
    if table == "scopes":
        pk, session_id, scope_id, kind, *rest = values
        record = ScopeRecord(limpet.ScopeKey(session_id, scope_id, kind), pk, *rest)
        return int(columns.scope_values(record, PLAIN)[-1])
    if table == "notes":
        return note_sum(NoteRow._make(values[1:]), values[0])
    if table == "tails":
        return columns._tail_sum(row["pk"], *values)
    if table == "segments":
        return columns._segment_sum(*values)
    if table == "shared":
        return columns._shared_sum(*values)
    return columns._row_sum(values[:13], values[13])


def rows_of(path: Path, table: str) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(path)) as conn:
        conn.row_factory = sqlite3.Row
        return [dict(row) for row in conn.execute(f"SELECT * FROM {table} ORDER BY 1")]


def other_values(column: str, value: Any) -> Iterator[Any]:
    if isinstance(value, int):
        yield from (1 - value,) if column in ("kept", "apart") else (value + 1, value - 1)
    elif isinstance(value, str):
        yield f"{value[:-1]}x"
    elif isinstance(value, bytes):
        yield from (value[:-1] + bytes([value[-1] ^ 1]), b'["s1","chat","agent","x"]', b"{}")
    elif column == "parent_id":
        yield "last"
    elif column == "forked_from":
        yield b'["s1","chat","agent","x"]'
    else:
        yield 1


def stored(tmp_path: Path, name: str = "original") -> Path:
    path = tmp_path / f"{name}.db"
    with limpet.open(str(path), keys=ONE, synchronous="off") as store:
        fill(store)
    return path


def test_the_attacker_knows_the_checksums(tmp_path: Path) -> None:
    original = stored(tmp_path)
    for table in COLUMNS:
        attacker = Attacker(original, tmp_path / "copy.db")
        for row in rows_of(original, table):
            attacker.write(table, row[KEYS[table]], {})
        assert rows_of(attacker.path, table) == rows_of(original, table)


@pytest.mark.slow
def test_no_column_can_be_changed(tmp_path: Path) -> None:
    original = stored(tmp_path)
    with limpet.open(str(original), keys=ONE) as store:
        before = seen(store)
    found = set()
    for table, names in COLUMNS.items():
        rows = rows_of(original, table)[:4:3]
        for column in names:
            for row in rows:
                for value in other_values(column, row[column]):
                    attacker = Attacker(original, tmp_path / "copy.db")
                    try:
                        attacker.write(table, row[KEYS[table]], {column: value})
                    except (sqlite3.IntegrityError, TypeError, ValueError):
                        continue  # the tables do not take it
                    if is_unseen(attacker.path, before):
                        found.add(f"{table}.{column}")
    assert not found


@pytest.mark.parametrize("how", ["summed", "plain"])
@pytest.mark.parametrize(("column", "value"), [("head", None), ("fence", "x"), ("floor", "")])
def test_no_column_of_a_scope_can_be_changed(
    tmp_path: Path, how: str, column: str, value: Any
) -> None:
    """The checksum is made right; the row may also be made one that is not encrypted."""
    original = stored(tmp_path)
    with limpet.open(str(original), keys=ONE) as store:
        before = seen(store)
    attacker = Attacker(original, tmp_path / "copy.db")
    (row,) = (
        row
        for row in rows_of(original, "scopes")
        if (row["session_id"], row["scope_id"]) == ("s1", "chat")
    )
    changes = {column: value} | ({"offsets": None} if how == "plain" else {})
    attacker.write("scopes", row["pk"], changes)
    assert not is_unseen(attacker.path, before)
    with limpet.open(str(attacker.path), keys=ONE) as store:
        with pytest.raises(Corrupt):
            store.scope("s1", "chat").load()
        with pytest.raises(Corrupt):
            store.scope("s1", "chat").save({})
        assert "keys_wrong" in {finding.code for finding in store.check()}


def content(table: str, row: dict[str, Any]) -> dict[str, Any]:
    """Return a row without its key and its place, to be put into the place of another."""
    own = {"seq", "pk", "checksum", "scope_pk"} | ({"id"} if table == "snapshots" else set())
    own |= {"on_id", "name"} if table == "notes" else set()
    own |= {"first_seq", "last_seq"} if table == "segments" else set()
    own |= {"name", "session_id"} if table == "shared" else set()
    return {name: value for name, value in row.items() if name not in own}


def test_no_row_can_take_the_place_of_another(tmp_path: Path) -> None:
    """Of the same scope, of another one, of another session; all of it, or what is encrypted."""
    original = stored(tmp_path)
    with limpet.open(str(original), keys=ONE) as store:
        before = seen(store)
    encrypted = {"snapshots": ["metadata"], "notes": ["value"]}
    encrypted |= {table: ["body"] for table in ("tails", "segments", "shared")}
    for table, names in encrypted.items():
        rows = rows_of(original, table)
        pairs = [(rows[0], each) for each in rows[1:]] + [(each, rows[0]) for each in rows[1:]]
        for into, other in pairs[: times(1, full=len(pairs))]:
            whole = content(table, other)
            for values in (whole, {name: whole[name] for name in names}):
                attacker = Attacker(original, tmp_path / "copy.db")
                attacker.write(table, into[KEYS[table]], values)
                assert not is_unseen(attacker.path, before), (table, into, other)


def test_no_state_of_another_store_is_taken_for_one_of_another_name(tmp_path: Path) -> None:
    """The numbers of the scope and of the row are the same in both: the names alone differ."""
    original, other = stored(tmp_path), tmp_path / "other.db"
    with limpet.open(str(other), keys=ONE, synchronous="off") as store:
        fill(store, "t")
    with limpet.open(str(original), keys=ONE) as store:
        before = seen(store)
    attacker = Attacker(original, tmp_path / "summed.db")
    for into, row in zip(rows_of(original, "tails"), rows_of(other, "tails"), strict=True):
        attacker.write("tails", into[KEYS["tails"]], content("tails", row))
    assert not is_unseen(attacker.path, before)


def test_what_was_true_once_is_believed(tmp_path: Path) -> None:
    """Not seen: rows that were changed in place, all put back as they were before."""
    original = stored(tmp_path)
    now = tmp_path / "now.db"
    shutil.copy(original, now)
    with limpet.open(str(now), keys=ONE) as store:
        chat = store.scope("s1", "chat")
        before = chat.load()
        chat.set_note("title", "new")
        chat.save({"messages": [2]}, id="last", overwrite=True)
    attacker = Attacker(now, tmp_path / "copy.db")
    for table in ("snapshots", "tails", "notes"):
        old = {row[KEYS[table]]: row for row in rows_of(original, table)}
        for row in rows_of(now, table):
            attacker.write(table, row[KEYS[table]], old[row[KEYS[table]]])
    with limpet.open(str(attacker.path), keys=ONE) as store:
        chat = store.scope("s1", "chat")
        head, note = chat.load(), chat.note("title")
    assert before
    assert head
    assert note
    assert (head.state, head.status) == (before.state, before.status)
    assert note.value == "s1 chat"
