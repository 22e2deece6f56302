"""The rows of scopes and sessions have checksums: no damaged column decides an answer."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import limpet
from limpet import Corrupt


def test_a_head_that_became_an_older_snapshot(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    with limpet.open(url) as store:
        for number in range(3):
            store.scope("s").save({"n": number})
    with closing(sqlite3.connect(tmp_path / "store.db")) as conn, conn:
        conn.execute("UPDATE scopes SET head_seq = head_seq - 1")
    with limpet.open(url) as store:
        with pytest.raises(Corrupt):
            store.scope("s").load()
        assert [each.code for each in store.check()] == ["scope_damaged"]
