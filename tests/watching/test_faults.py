"""Watching while reads fail, heads are damaged, watchers join, and readers are slow."""

import sqlite3
import threading
from pathlib import Path

import pytest

import limpet
from limpet.api.watching import Dispatcher, Subscription
from limpet.errors import Corrupt
from limpet.protocol import Topic
from tests.waiting import until
from tests.watching.tools import Watching


@pytest.mark.parametrize("session_id", ["s", None])
def test_a_head_that_is_damaged_while_a_session_is_watched(
    tmp_path: Path, session_id: str | None
) -> None:
    with limpet.open(f"sqlite:///{tmp_path}/a.db") as store:
        store.scope("s", "good").save({"n": 1})
        store.scope("s", "bad").save({"n": 1})
        seen = Watching(store, lambda store: store.watch(session_id=session_id))
        until(lambda: len(seen.seen) == 2)
        with sqlite3.connect(tmp_path / "a.db") as db:
            key = "SELECT pk FROM scopes WHERE scope_id = 'bad'"
            db.execute(f"UPDATE snapshots SET status = 'other' WHERE scope_pk = ({key})")
        db.close()
        store.scope("s", "good").save({"n": 2})
        with pytest.raises(Corrupt):
            seen.wait_for_end()
        # A new watch is a listing first, and skips it.
        found = store.watch(session_id=session_id, timeout_s=0.2)
        assert [info.scope.scope_id for info in found] == ["good"]


def test_a_session_that_had_no_head_when_it_was_first_looked_at_ends() -> None:
    """So does a watch over HTTP that connects again after the last head has gone."""
    with limpet.open("memory:") as store:
        store.scope("s").set_note("name", 1)
        polled = threading.Event()
        subscription = Subscription(Topic(session_id="s"), polled.set)
        store.driver.opened.service(Dispatcher).add(subscription)
        assert polled.wait(10)
        store.delete_session("s")
        until(lambda: subscription.take() == ([], True))
