"""What listings leave out is told to who asks: nothing is lost in silence."""

import sqlite3
from contextlib import closing
from pathlib import Path

import limpet


def test_rows_that_fail_their_check_are_told(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    with limpet.open(url) as store:
        scope = store.scope("s")
        for number in range(5):
            scope.save(number, id=f"id-{number}")
            scope.set_note("note", number, on=f"id-{number}")
        scope.set_note("of the scope", 1)
    with closing(sqlite3.connect(tmp_path / "x.db")) as conn, conn:
        conn.execute("UPDATE snapshots SET status = 'other' WHERE id IN ('id-1', 'id-4')")
        conn.execute("UPDATE notes SET value = x'7b' WHERE on_id = 'id-2' OR name LIKE 'of%'")
    with limpet.open(url) as store:
        key = store.scope("s").key
        found = store.driver.run(lambda backend: backend.list_damage(key))
    assert [(each.code, each.scope, each.id) for each in found] == [
        ("snapshot_damaged", key, "id-4"),
        ("snapshot_damaged", key, "id-1"),
        ("note_damaged", key, None),
        ("note_damaged", key, "id-2"),
    ]
