"""Promise 10 on SQLite: damage to one row stays there, whichever column it hits."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

import limpet
from limpet import Corrupt, Scope, ScopeKey, Store
from limpet.core.limits import PAGE_ITEMS_MAX
from tests.cases import for_each

IDS = ["id-0", "id-1", "id-2", "id-3"]
HEAD = IDS[-1]
LABELS = {"kind": "x"}


def path_in(folder: Path) -> Path:
    return folder / "store.db"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return path_in(tmp_path)


@contextmanager
def opened(folder: Path) -> Iterator[Store]:
    """A store of two sessions. No damage to `s` may show in `other`."""
    with limpet.open(f"sqlite:///{path_in(folder)}", synchronous="off") as store:
        for session in ("s", "other"):
            for id in IDS:
                scope = store.scope(session)
                scope.save(state_of(id), id=id, labels=LABELS, metadata={"m": id}, status="good")
                scope.set_note("on it", id, on=id)
            store.scope(session).set_note("a", 1)
            store.scope(session).set_note("b", 2)
        yield store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with opened(tmp_path) as store:
        yield store


def state_of(id: str) -> dict[str, Any]:
    """Nothing in common with the others, so that each is stored whole."""
    return {"id": id, "text": Random(id).randbytes(300).hex()}


def damage(path: Path, statement: str, id: str = HEAD) -> None:
    """Change one row behind the store's back; `:seq` and `:pk` are those of a snapshot in `s`."""
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        pk, seq = conn.execute(
            "SELECT n.scope_pk, n.seq FROM snapshots AS n JOIN scopes AS s ON s.pk = n.scope_pk"
            " WHERE s.session_id = 's' AND n.id = ?",
            (id,),
        ).fetchone()
        assert conn.execute(statement, {"pk": pk, "seq": seq}).rowcount >= 1


def flipped(column: str) -> str:
    """Return an expression for a value of bytes of which the middle one has become another."""
    start = f"substr({column}, 1, length({column}) / 2)"
    rest = f"substr({column}, length({column}) / 2 + 2)"
    middle = f"substr({column}, length({column}) / 2 + 1, 1)"
    return f"CAST({start} || CASE {middle} WHEN x'31' THEN x'32' ELSE x'31' END || {rest} AS BLOB)"


BAD_TEXT = "CAST(x'ff80' AS TEXT)"
ROWS = {
    "metadata": f"UPDATE snapshots SET metadata = {flipped('metadata')} WHERE seq = :seq",
    "labels": f"UPDATE snapshots SET labels = {flipped('labels')} WHERE seq = :seq",
    "status no text": f"UPDATE snapshots SET status = {BAD_TEXT} WHERE seq = :seq",
    "status with NUL": "UPDATE snapshots SET status = 'good' || char(0) WHERE seq = :seq",
    "nonce no text": f"UPDATE snapshots SET nonce = {BAD_TEXT} WHERE seq = :seq",
    "parent no text": f"UPDATE snapshots SET parent_id = {BAD_TEXT} WHERE seq = :seq",
    "forked_from": "UPDATE snapshots SET forked_from = x'ff' WHERE seq = :seq",
    "created_at huge": f"UPDATE snapshots SET created_at = {2**63 - 1} WHERE seq = :seq",
    "size": "UPDATE snapshots SET size = -1 WHERE seq = :seq",
    "checksum": "UPDATE snapshots SET checksum = checksum + 1 WHERE seq = :seq",
}
STATES = {
    "body": f"UPDATE tails SET body = {flipped('body')} WHERE seq = :seq",
    "encoding": "UPDATE tails SET encoding = 1 - encoding WHERE seq = :seq",
    "encoding unknown": "UPDATE tails SET encoding = 77 WHERE seq = :seq",
    "base": "UPDATE tails SET base = 1 WHERE seq = :seq",
    "body of another": """
        UPDATE tails SET (encoding, body, checksum) =
               (SELECT encoding, body, checksum FROM tails AS o WHERE o.seq < tails.seq
                 ORDER BY o.seq DESC LIMIT 1)
         WHERE seq = :seq""",
    "body gone": "DELETE FROM tails WHERE seq = :seq",
}


def everything(store: Store, session: str) -> list[Any]:
    """Return all that can be listed of a session, and the states that can be loaded."""
    scope = store.scope(session)
    states: list[Any] = []
    for id in IDS:
        try:
            states.append(scope.load(id))
        except Corrupt:
            states.append("corrupt")
    return [list(scope.history()), list(scope.ids()), states, *scope.notes(), *scope.notes(on=IDS)]


def ids_of(scope: Scope, **which: Any) -> list[str]:
    return [info.id for info in scope.history(**which)]


def refused(*calls: Callable[[], object]) -> None:
    for call in calls:
        with pytest.raises(Corrupt):
            call()


def dump(path: Path) -> list[Any]:
    """Return every row of every table."""
    tables = ("scopes", "snapshots", "tails", "segments", "labels", "notes")
    with closing(sqlite3.connect(path)) as conn:
        conn.text_factory = bytes
        return [conn.execute(f"SELECT * FROM {table}").fetchall() for table in tables]


@for_each("name", {**ROWS, **STATES}, path=path_in, store=opened)
def test_damage_to_the_head(store: Store, path: Path, name: str) -> None:
    """It is contained, never overwritten silently, and can be deleted by its id."""
    scope, good = store.scope("s"), IDS[:-1]
    before, other = everything(store, "s"), everything(store, "other")
    damage(path, {**ROWS, **STATES}[name])
    refused(lambda: scope.load(HEAD), lambda: list(scope.load_many(IDS)), scope.load)
    assert [found.id for found in scope.load_many(good)] == good
    if name in ROWS:
        refused(lambda: scope.info(HEAD))
        assert list(scope.history()) == [info for info in before[0] if info.id != HEAD]
        assert ids_of(scope, labels=LABELS) == ids_of(scope, status="good") == good[::-1]
    else:  # its facts are whole, and no list reads states
        assert list(scope.history()) == before[0]
    assert [info.key for info in store.scopes()] == [ScopeKey("other"), ScopeKey("s")]
    assert list(store.sessions()) == ["other", "s"]
    assert store.find(good[0], prefix="s") is not None

    # What would build on it or replace it changes nothing; in another process, as the one that
    # saved it last does not read it again.
    damaged = dump(path)
    with limpet.open(f"sqlite:///{path}") as another:
        check_refused(another.scope("s"), name)
    assert dump(path) == damaged

    assert scope.delete_snapshot(HEAD) == 1
    head = scope.load()
    assert head is not None
    assert head.state == state_of(good[-1])
    assert ids_of(scope) == good[::-1]
    assert list(scope.notes(on=HEAD)) == []
    assert scope.save({"new": 1}, id=HEAD).parent_id == good[-1]
    assert everything(store, "other") == other


def check_refused(scope: Scope, name: str) -> None:
    refused(lambda: scope.append("items", [1]), lambda: scope.update(HEAD, lambda found: found))
    if name in ROWS:
        for options in ({}, {"keep": False}, {"head": False}, {"expect": None}):
            refused(partial(scope.save, {"new": 1}, **options))
        for overwrite in (False, True):
            refused(partial(scope.save, {"new": 1}, id=HEAD, overwrite=overwrite))
        refused(lambda: scope.delete(expect="0.0.x"))


def test_a_snapshot_in_the_wrong_scope(store: Store, path: Path) -> None:
    """It belongs neither to that scope nor to its own."""
    scope, new = store.scope("s"), store.scope("new")
    new.save({"a": 1}, id="a")
    other = "(SELECT pk FROM scopes WHERE session_id = 'new')"
    damage(path, f"UPDATE snapshots SET scope_pk = {other} WHERE seq = :seq")
    assert ids_of(new) == ["a"]
    assert scope.load(HEAD) is None
    refused(lambda: new.load(HEAD), scope.load)
    with limpet.open(f"sqlite:///{path}") as another:
        refused(lambda: another.scope("s").save({"new": 1}))
    assert new.delete_snapshot(HEAD) == 1
    assert scope.delete() == len(IDS) - 1
    assert scope.save({"new": 1}).parent_id is None


@for_each(
    "where",
    ["999999", "-1", "head - 1", "(SELECT max(seq) FROM snapshots WHERE scope_pk != :pk)"],
    path=path_in,
    store=opened,
)
def test_a_head_that_points_nowhere(store: Store, path: Path, where: str) -> None:
    """Or to a snapshot of another scope, or an older one: the row fails its checksum."""
    damage(path, f"UPDATE scopes SET head = {where} WHERE pk = :pk AND :seq")
    before, scope = dump(path), store.scope("s")
    refused(scope.load, scope.info, lambda: ids_of(scope), lambda: scope.load(HEAD))
    refused(lambda: scope.save({"new": 1}), lambda: scope.append("items", [1]))
    assert dump(path) == before
    assert list(store.scopes("s")) == []
    assert scope.delete() == len(IDS)
    assert scope.save({"new": 1}).parent_id is None


@for_each(
    "column",
    ["value = CAST('7' AS BLOB)", "value = x''", "updated_at = 0", "checksum = checksum + 1"],
    path=path_in,
    store=opened,
)
def test_a_damaged_note(store: Store, path: Path, column: str) -> None:
    other = everything(store, "other")
    damage(path, f"UPDATE notes SET {column} WHERE scope_pk = :pk AND name = 'a' AND :seq")
    before, scope = dump(path), store.scope("s")
    assert [note.name for note in scope.notes()] == ["b"]
    with pytest.raises(Corrupt) as caught:
        scope.note("a")
    # The error keeps the frames of the call alive, but no statement may outlive its transaction:
    # an open statement would keep the log from being emptied.
    with closing(sqlite3.connect(path)) as conn:
        assert conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() == (0, 0, 0)
    assert caught.value.__traceback__ is not None
    refused(lambda: scope.set_note("a", 5), lambda: scope.set_note("a", lambda _: 5))
    assert dump(path) == before
    assert scope.load() is not None
    assert everything(store, "other") == other
    assert scope.delete_note("a") == 1
    assert scope.set_note("a", 5) is not None


def test_the_body_of_a_head_is_verified_also_if_its_state_is_known(path: Path) -> None:
    """The process that saved it does not read what is below it; every other one does."""
    url = f"sqlite:///{path}"
    state = {"text": Random(1).randbytes(4_000).hex()}
    with limpet.open(url) as store, limpet.open(url) as other:
        for number in range(3):
            store.scope("s").save({**state, "n": number}, id=f"id-{number}")
        damage(path, f"UPDATE tails SET body = {flipped('body')} WHERE seq = :seq", "id-0")
        head = store.scope("s").load()
        assert head is not None
        assert head.state == {**state, "n": 2}
        with pytest.raises(Corrupt):
            other.scope("s").load()
        with pytest.raises(Corrupt):
            store.scope("s").load("id-2")
        damage(path, f"UPDATE tails SET body = {flipped('body')} WHERE seq = :seq", "id-2")
        with pytest.raises(Corrupt):
            store.scope("s").load()


@pytest.mark.slow
def test_a_name_that_is_no_text_ends_no_listing(store: Store, path: Path) -> None:
    """What comes on later pages is still listed when it is the last name of a page that is bad."""
    many = [f"n-{number:03}" for number in range(PAGE_ITEMS_MAX + 10)]
    for name in many:
        store.scope(name).save({})
        store.scope("s").save({}, id=name)
    bad = many.pop(PAGE_ITEMS_MAX - 1)
    for table, column in (("scopes", "session_id"), ("snapshots", "id")):
        where = f"{column} = '{bad}' AND :seq AND :pk"
        text = f"CAST('{bad}' || x'ff' AS TEXT)"
        damage(path, f"UPDATE {table} SET {column} = {text} WHERE {where}")
    assert list(store.sessions(prefix="n-")) == list(store.scope("s").ids(after="n")) == many
