"""Watching while reads fail, heads are damaged, watchers join, and readers are slow."""

import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet.api.watching import Dispatcher, Subscription
from limpet.errors import Corrupt, Unavailable
from limpet.model import ScopeKey
from limpet.protocol import Topic
from tests.waiting import until
from tests.watching.tools import Watching


@pytest.mark.parametrize("engine", ["memory", "directory"])
def test_a_change_whose_read_fails_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    with limpet.open("memory:" if engine == "memory" else str(tmp_path / "a")) as store:
        store.scope("s").save({"n": 1})
        watching = store.scope("s").watch(timeout_s=60)
        next(watching)
        failed = fail_once(monkeypatch, store)
        changed = store.scope("s").save({"n": 2})
        assert next(watching) == changed
        assert failed.is_set()


def fail_once(monkeypatch: pytest.MonkeyPatch, store: limpet.Store) -> threading.Event:
    """Let the next `read_info` fail; return an event that is set once it has."""
    backend, failed = store.driver.opened.backend, threading.Event()
    real = backend.read_info

    def read_info(scope: ScopeKey, snapshot_id: str | None) -> Any:
        if not failed.is_set():
            failed.set()
            raise Unavailable("the storage did not answer")
        return real(scope, snapshot_id)

    monkeypatch.setattr(backend, "read_info", read_info)
    return failed


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
        found = store.watch(session_id=session_id, timeout_s=1)
        assert [info.scope.scope_id for info in found] == ["good"]


def test_a_session_that_had_no_head_when_it_was_first_looked_at_ends() -> None:
    """So does a watch over HTTP that connects again after the last head has gone."""
    with limpet.open("memory:") as store:
        store.scope("s").set_note("name", 1)
        polled = threading.Event()
        subscription = Subscription(Topic(session_id="s"), polled.set)
        store.driver.opened.service(Dispatcher).add(subscription)
        assert polled.wait(300)
        store.delete_session("s")
        until(lambda: subscription.take() == ([], True))
