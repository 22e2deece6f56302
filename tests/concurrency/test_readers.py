"""Readers beside writers: they see whole states only, and hold nothing while they think."""

import sqlite3
from contextlib import closing
from pathlib import Path

import limpet
from tests.concurrency.crew import Crew, url_of


def test_readers_never_see_a_part(crew: Crew, tmp_path: Path) -> None:
    """Promise 2: while three processes write as fast as they can, every state is whole.

    A state carries its own checksum; and a kept head is always found in history.
    """
    url = url_of(tmp_path / "store.db")
    writers, readers = slice(3), slice(3, 6)
    with limpet.open(url) as store:
        crew.tell("read_sealed", url, None, who=readers)
        assert crew.ask("write_sealed", url, 60, who=writers) == [60] * 3
        store.scope("control").set_note("done", True)
        seen = crew.hear(who=readers)
        kept = sum(1 for _ in store.scope("s").history())
    assert kept == 3 * 45
    assert min(seen) >= 2, "the readers did not read beside the writers"


def test_an_open_listing_blocks_no_writer(crew: Crew, tmp_path: Path) -> None:
    """Between two pages nothing is held: others write, and can empty the log of changes.

    A reader that kept its moment of the store would make the checkpoint fail and the log grow.
    """
    path = tmp_path / "store.db"
    with limpet.open(url_of(path)) as store:
        scope = store.scope("s")
        scope.save({"count": 0}, id="counter")
        saved = [scope.save({"n": n}).id for n in range(600)]
        scope.set_note("a", 1)
        walks = [scope.history(), scope.ids(), store.sessions(), store.scopes(), scope.notes()]
        for walk in walks:
            assert next(walk) is not None
        history = scope.history()
        first = next(history)

        assert crew.ask("add", url_of(path), 20, who=slice(2)) == [20, 20]
        with closing(sqlite3.connect(path, timeout=0)) as conn:
            busy, _, _ = conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            assert busy == 0

        rest = [info.id for info in history]
        assert [first.id, *rest] == [*saved[::-1], "counter"]
