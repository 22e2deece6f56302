"""With keys nothing of what is kept can be found in the tables, and every verb works as before."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet import SnapshotInfo, Store
from tests.encryption.keys import ONE, postgres_values, sqlite_values
from tests.servers.postgres import Postgres, Schemas

CANARY = "c4n4ry"
FACTS: dict[str, Any] = {
    "status": CANARY,
    "labels": {CANARY: CANARY},
    "metadata": {CANARY: CANARY},
}


def fill(store: Store) -> None:
    """Put the canary wherever something can be put."""
    chat, small = store.scope("user/1", "chat"), store.scope("user/1", "small")
    chat.save({CANARY: [CANARY], "messages": []}, id="first", **FACTS)
    for number in range(80):
        chat.append("messages", [f"{CANARY} {number**9} " * 20])
    for number in range(20):
        small.save({"said": f"{CANARY} {number}"}, id=f"small-{number}", status=CANARY)
    small.save({"said": CANARY}, id="draft", keep=False)
    chat.set_note("short", {CANARY: CANARY})
    chat.set_note("long", {CANARY: [CANARY * 9] * 99})
    small.set_note("on", CANARY, on="small-3")
    chat.fork("first", scope_id="fork", metadata={CANARY: CANARY})
    chat.fork("first", scope_id="patched", patch={CANARY: CANARY * 500})
    chat.fork("first", to="user/2", scope_id="copy")
    copy = store.scope("user/2", "copy")
    copy.save({CANARY: CANARY}, id="after", labels={CANARY: "other"}, metadata={CANARY: CANARY})
    copy.save({CANARY: 2}, id="after", overwrite=True, labels={CANARY: CANARY}, status=CANARY)
    small.delete_snapshot("small-7")
    store.compact()


def answers(store: Store) -> list[Any]:
    """Return what a store with the canary answers."""
    scopes = [store.scope(*key) for key in (("user/1", "chat"), ("user/1", "small"))]
    scopes += [store.scope(*key) for key in (("user/1", "fork"), ("user/1", "patched"))]
    scopes += [store.scope("user/2", "copy")]
    found: list[Any] = []
    for scope in scopes:
        head, ids = scope.load(), list(scope.ids())
        found += [head and head.state]
        found += [[each.state for each in scope.load_many(ids)], [_note(n) for n in scope.notes()]]
        found += [[_note(note) for note in scope.notes(on="small-3")], _shown(scope.leaves())]
    for asked in ({}, {"status": CANARY}, {"labels": {CANARY: CANARY}}, {"status": ""}):
        sources: list[Callable[..., Iterable[SnapshotInfo]]] = [store.history, scopes[0].history]
        found += [_shown(history(**asked)) for history in sources]
        found += [_shown(store.history(**asked, prefix="user/2"))]
    found += [[(each.key, each.head and each.head.status) for each in store.scopes()]]
    found += [[finding.code for finding in store.check()]]
    return found


def _shown(infos: Iterable[SnapshotInfo]) -> list[Any]:
    return [(i.scope, i.status, i.labels, i.metadata, bool(i.parent_id), i.size) for i in infos]


def _note(note: limpet.Note) -> Any:
    return note.name, note.snapshot_id, note.value


def test_sqlite_shows_nothing(tmp_path: Path) -> None:
    plain, encrypted = tmp_path / "plain.db", tmp_path / "encrypted.db"
    fast: dict[str, Any] = {"synchronous": "off"}
    with (
        limpet.open(str(plain), **fast) as one,
        limpet.open(str(encrypted), keys=ONE, **fast) as two,
    ):
        fill(one)
        fill(two)
        expected = answers(one)
        assert answers(two) == expected
        assert any(CANARY.encode() in each for each in sqlite_values(plain))
        assert not [each for each in sqlite_values(encrypted) if CANARY.encode() in each]
    with limpet.open(str(encrypted), keys=ONE) as two:
        assert answers(two) == expected


@pytest.mark.slow
def test_postgres_shows_nothing(postgres: Postgres, schemas: Schemas) -> None:
    plain, encrypted = schemas.url("plain"), schemas.url("encrypted")
    with limpet.open(plain) as one, limpet.open(encrypted, keys=ONE) as two:
        fill(one)
        fill(two)
        assert answers(one) == answers(two)
    with limpet.open(encrypted, keys=ONE) as two, limpet.open(plain) as one:
        assert answers(one) == answers(two)
    with postgres.connect() as conn:
        values = list(postgres_values(conn, schemas.name("encrypted")))
    assert not [each for each in values if CANARY.encode() in each]
