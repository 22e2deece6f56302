"""What happens when the keys are missing, are others, or were not used before."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet import Corrupt, InvalidInput, Store
from limpet.testing.kit import dump as records
from tests.encryption.keys import ONE, TABLES, THREE, TWO
from tests.encryption.test_sql_rekey import url

__all__ = ["url"]


def fill(store: Store, session: str = "user/1") -> None:
    chat = store.scope(session, "chat")
    chat.save({"messages": []}, id="first", status="begun", labels={"task": "tax"})
    for number in range(40):
        chat.append("messages", [f"hello {number**9} " * 9])
    chat.save({"messages": "all"}, id="last", labels={"task": "tax"}, metadata={"a": 1})
    small = store.scope(session, "small")
    for number in range(12):
        small.save({"n": number}, id=str(number), labels={"n": str(number)})
    small.save({"n": "draft"}, keep=False)
    chat.fork("first", scope_id="fork")
    chat.set_note("title", "A trip")


def dump(path: Path) -> dict[str, list[Any]]:
    with closing(sqlite3.connect(path)) as conn:
        return {
            each: sorted(conn.execute(f"SELECT * FROM {each}").fetchall(), key=repr)
            for each in TABLES
        }


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "limpet.db"
    with limpet.open(str(path), keys=ONE, synchronous="off") as store:
        fill(store)
    return path


@pytest.fixture
def path(filled: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(filled, tmp_path))


# To delete a whole scope or session needs no key.
WRITES: list[Callable[[Store], Any]] = [
    lambda store: store.scope("user/1", "chat").save({"new": 1}),
    lambda store: store.scope("user/1", "chat").save({"new": 1}, head=False),
    lambda store: store.scope("user/1", "chat").append("messages", ["new"]),
    lambda store: store.scope("user/1", "chat").save({"new": 1}, id="last", overwrite=True),
    lambda store: store.scope("user/1", "chat").delete_snapshot("first"),
    lambda store: store.scope("user/1", "chat").prune(keep_last=1),
    lambda store: store.scope("user/1", "chat").set_note("new", 1),
    lambda store: store.scope("user/1", "chat").claim(owner="me").__enter__(),
    lambda store: store.scope("user/1", "chat").fork("first"),
    lambda store: store.scope("user/1", "chat").fork("first", to="user/2"),
    lambda store: store.scope("user/1", "chat").set_note("title", lambda title: f"{title}!"),
]
READS: list[Callable[[Store], Any]] = [
    lambda store: store.scope("user/1", "chat").load(),
    lambda store: store.scope("user/1", "chat").load("first"),
    lambda store: store.scope("user/1", "chat").info(),
    lambda store: store.scope("user/1", "chat").note("title"),
    lambda store: list(store.scope("user/1", "chat").history()),
    lambda store: list(store.scope("user/1", "chat").notes()),
]


@pytest.mark.parametrize(
    "keys",
    [None, TWO, pytest.param(f"{ONE} other/", marks=pytest.mark.slow)],
    ids=["none", "other", "prefix"],
)
def test_with_other_keys_nothing_is_read_and_nothing_is_changed(
    path: Path, keys: str | None
) -> None:
    options: dict[str, Any] = {} if keys is None else {"keys": keys}
    before = dump(path)
    with limpet.open(str(path), **options) as store:
        for verb in READS + WRITES:
            with pytest.raises(Corrupt, match="key"):
                verb(store)
        assert not list(store.history())
        assert not list(store.history(labels={"task": "tax"}))
        assert {each.head for each in store.scopes()} == {None}
        assert list(store.sessions()) == ["user/1"]
        store.compact()
        found = [*store.check(), *store.repair(), *store.check()]
        assert {each.code for each in found} == (set() if keys is None else {"keys_wrong"})
    assert dump(path) == before
    with limpet.open(str(path), keys=ONE) as store:
        assert not list(store.check())
        assert len(list(store.history(labels={"task": "tax"}))) == 3


def test_damage_is_found_without_keys(path: Path) -> None:
    rows = {"tails.body": "max", "snapshots.metadata": "min", "notes.value": "min"}
    for name, which in rows.items():
        table, _, column = name.partition(".")
        with closing(sqlite3.connect(path)) as conn, conn:
            conn.execute(
                f"UPDATE {table} SET {column} = substr({column}, 1, 9)"
                f" WHERE rowid = (SELECT {which}(rowid) FROM {table})"
            )
    with limpet.open(str(path)) as store:
        found = {each.code for each in store.check()}
    assert found == {"state_damaged", "snapshot_damaged", "note_damaged"}


def test_what_is_not_encrypted_is_refused_until_it_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "limpet.db"
    with limpet.open(str(path)) as store:
        fill(store)
    before = dump(path)
    with limpet.open(str(path), keys=ONE) as store:
        for verb in READS + WRITES:
            with pytest.raises(Corrupt, match="not encrypted"):
                verb(store)
        assert {each.code for each in [*store.check(), *store.repair()]} == {"keys_wrong"}
        store.scope("user/2").save({"new": 1})  # another session is none of its business
        store.delete_session("user/2")
    after = dump(path)
    assert after == before
    with limpet.open(str(path), keys=ONE, allow_plaintext=True) as store:
        chat = store.scope("user/1", "chat")
        chat.save({"new": 1}, labels={"task": "tax"})
        assert len(list(store.history(labels={"task": "tax"}))) == 4
        assert len(list(store.scope("user/1", "small").history(labels={"n": "3"}))) == 1
        assert not list(store.check())


def test_a_deleted_key_forgets_one_tenant_and_leaves_the_others(url: str) -> None:
    with limpet.open(url, keys=f"{ONE}\n{TWO} alice/\n{THREE} bob/") as store:
        for session in ("alice/1", "alice/2", "bob/1", "other"):
            fill(store, session)
        everything = len(list(store.history()))
        assert len(list(store.history(labels={"task": "tax"}))) == 4 * 3
        assert len(list(store.history(labels={"task": "tax"}, prefix="alice/"))) == 2 * 3
        assert len(list(store.history(status="begun"))) == 4 * 42
    with limpet.open(url, keys=f"{ONE}\n{THREE} bob/") as store:
        assert len(list(store.history())) == everything / 2
        assert len(list(store.history(labels={"task": "tax"}))) == 2 * 3
        assert store.scope("bob/1", "chat").load()
        store.scope("bob/1", "chat").save({"more": 1})
        with pytest.raises(Corrupt):
            store.scope("alice/1", "chat").load()
        assert {each.scope.session_id for each in store.check() if each.scope} == {
            "alice/1",
            "alice/2",
        }
        assert store.delete_session("alice/1")
        assert store.delete_session("alice/2")
        assert not list(store.check())
    with limpet.open(url, keys=f"{THREE} bob/") as store:
        with pytest.raises(InvalidInput, match="no key for this session"):
            store.scope("new").save({})
        with pytest.raises(InvalidInput, match="no key for this session"):
            store.scope("new").set_note("title", 1)


def test_what_repair_believes_is_signed_by_rekey(path: Path) -> None:
    with limpet.open(str(path), keys=ONE) as store:
        before = records(store)
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.execute("UPDATE scopes SET head = 1, checksum = 9 WHERE scope_id = 'chat'")
    with limpet.open(str(path), keys=ONE) as store:
        assert [each.code for each in store.repair() if each.repaired] == ["scope_damaged"]
        with pytest.raises(Corrupt, match="limpet rekey"):
            store.scope("user/1", "chat").load()
    with limpet.open(str(path), keys=ONE, allow_plaintext=True) as store:
        assert store.rekey() == 1
    with limpet.open(str(path), keys=ONE) as store:
        assert records(store) == before
        assert not list(store.check())


@pytest.mark.parametrize("column", ["head", "last", "checksum"])
def test_a_flipped_bit_of_a_scope_is_repaired_without_keys(path: Path, column: str) -> None:
    before = dump(path)
    with closing(sqlite3.connect(path)) as conn, conn:
        flipped = f"({column} | 1024) - ({column} & 1024)"
        conn.execute(f"UPDATE scopes SET {column} = {flipped} WHERE scope_id = 'chat'")
    with limpet.open(str(path)) as store:
        assert [each.code for each in store.repair() if each.repaired] == ["scope_damaged"]
    assert dump(path) == before


def test_keys_that_cannot_be_read_again_stay_as_they_are(tmp_path: Path) -> None:
    path, keys_file = tmp_path / "limpet.db", tmp_path / "keys"
    with limpet.open(str(path), keys=f"{ONE}\n{TWO} alice/") as store:
        store.scope("alice/1").save({})
        store.scope("bob/1").save({})
    for text in (None, "", "#"):  # as while another process writes it
        keys_file.write_text(ONE)
        with limpet.open(str(path), keys_file=str(keys_file)) as store:
            keys_file.unlink() if text is None else keys_file.write_text(text)
            assert [each.scope.session_id for each in store.history()] == ["bob/1"]
            with pytest.raises(Corrupt, match="is not given"):
                store.scope("alice/1").load()


def test_a_fork_in_another_tenant_needs_the_key_of_that_alone(tmp_path: Path) -> None:
    """Also if the state is so large that forks in one session share it."""
    path, text = str(tmp_path / "store.db"), "a large state " * 1_000
    with limpet.open(path, keys=f"{ONE} a/\n{TWO} b/") as store:
        source = store.scope("a/1")
        saved = source.save({"text": text}).id
        source.fork(saved, scope_id="fork")
        source.fork(saved, to="b/1")
    with limpet.open(path, keys=f"{TWO} b/") as store:
        found = store.scope("b/1").load()
        assert found is not None
        assert found.state == {"text": text}
