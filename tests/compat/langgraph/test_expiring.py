"""Threads that nobody saved to for long: they go whole, and nothing else does."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from limpet import InvalidInput
from limpet.compat.langgraph import LimpetSaver
from tests.cases import for_each
from tests.compat.langgraph.kit import checkpoint, config, id_of, opened
from tests.waiting import until


def save(
    saver: LimpetSaver, thread_id: str, namespace: str = "", number: int = 1, a: int = 0
) -> None:
    saver.put(config(thread_id, namespace), checkpoint(number, a=a), {}, {})


def moment() -> datetime:
    """Return a moment that is after all that was saved, and before all that will be."""
    now = datetime.now(UTC)
    until(lambda: datetime.now(UTC) > now + timedelta(milliseconds=2))
    return now + timedelta(milliseconds=1)


def since(at: datetime) -> timedelta:
    return datetime.now(UTC) - at


def fill(saver: LimpetSaver) -> datetime:
    """Save threads of which three are old afterwards; return since when the others are not."""
    for thread_id in ("a/bare", "a/old", "b/old", "sub", "top", "writes"):
        if thread_id != "a/bare":
            save(saver, thread_id)
            save(saver, thread_id, "sub|x:1")
        saver.put_writes(config(thread_id, number=2), [("a", 1)], "task")
    at = moment()
    save(saver, "sub", "sub|x:1", 2)
    save(saver, "top", number=2)
    saver.put_writes(config("writes", "sub|x:1", number=1), [("a", 1)], "another")
    return at


def test_a_thread_without_new_saves_expires_whole(saver: LimpetSaver) -> None:
    at = fill(saver)
    saver._sync.scope("a/old", "other").save({})
    assert saver.expire(timedelta(hours=1)) == []
    assert len(list(saver.threads())) == 6
    assert saver.expire(since(at), prefix="a/") == ["a/bare", "a/old"]
    assert saver.expire(since(at), limit=0) == []
    assert saver.expire(since(at), limit=1) == ["b/old"]
    assert saver.expire(since(at)) == []
    assert list(saver.threads()) == ["sub", "top", "writes"]
    assert len(list(saver.list(None))) == 8
    # What is not LangGraph's stays.
    assert [each.key.scope_id for each in saver._sync.scopes("a/old")] == ["other"]
    assert list(saver._sync.scopes("b/old")) == []
    # Such a thread can begin anew.
    save(saver, "b/old")
    assert [each.checkpoint["id"] for each in saver.list(config("b/old"))] == [id_of(1)]


def test_one_that_was_saved_again_is_not_old(saver: LimpetSaver) -> None:
    """Whatever its own time is, and also where it is not the latest."""
    for number in (1, 3):
        save(saver, "t", number=number)
    at = moment()
    save(saver, "t", number=1, a=1)
    save(saver, "u")
    assert saver.expire(since(at)) == []
    at = moment()
    save(saver, "t", number=2)
    assert saver.expire(since(at)) == ["u"]
    at = moment()
    saver.copy_thread("t", "copy")
    assert saver.expire(since(at)) == ["t"]


@pytest.mark.parametrize("namespace", ["", "sub|x:1"])
def test_a_thread_that_is_saved_to_meanwhile_stays(
    saver: LimpetSaver, monkeypatch: pytest.MonkeyPatch, namespace: str
) -> None:
    """Also after it was looked at: the checkpoint comes right before its scope would go."""
    for thread_id in ("s", "t", "u"):
        save(saver, thread_id)
        save(saver, thread_id, "sub|x:1")
    backend = saver._sync.driver.opened.backend
    delete: Callable[..., int] = backend.delete_scope
    scope_id = f":{namespace}" if namespace else "main"

    def interfering(scope: Any, **options: Any) -> int:
        if (scope.session_id, scope.scope_id) == ("t", scope_id):
            save(LimpetSaver(saver._sync), "t", namespace, 2)
        return delete(scope, **options)

    monkeypatch.setattr(backend, "delete_scope", interfering)
    assert saver.expire(timedelta(0)) == ["s", "u"]
    found = [each.checkpoint["id"] for each in saver.list(config("t", namespace))]
    assert found == [id_of(2), id_of(1)]
    other = list(saver.list(config("t", "" if namespace else "sub|x:1")))
    assert len(other) == (0 if namespace else 1)


def test_one_with_a_new_note_or_a_lease_is_not_old(saver: LimpetSaver) -> None:
    store = saver._sync
    for thread_id in ("held", "noted", "old", "released"):
        save(saver, thread_id)
    at = moment()
    store.scope("noted", kind="thread").set_note("title", "mine")
    store.scope("bare", kind="thread").set_note("title", "mine")
    with store.scope("released", kind="thread").claim(owner="me"):
        pass
    with store.scope("held", kind="thread").claim(owner="me") as held:
        assert saver.expire(since(at)) == ["old", "released"]
        held.save({"a": 1})
    assert list(saver.threads()) == ["bare", "held", "noted"]


@for_each("older_than", [None, 30, timedelta(-1), datetime.now(UTC)])
def test_an_age_is_needed(memory: LimpetSaver, older_than: Any) -> None:
    save(memory, "t")
    with pytest.raises(InvalidInput, match="older_than must be a timedelta"):
        memory.expire(older_than)
    with pytest.raises(InvalidInput, match="limit"):
        memory.expire(timedelta(0), limit=-1)
    assert memory.expire(timedelta.max) == []


def test_a_damaged_thread_is_left_to_check(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    with opened(url) as (store,):
        for thread_id in ("s", "t", "u"):
            save(LimpetSaver(store), thread_id)
    with closing(sqlite3.connect(tmp_path / "a.db")) as conn:
        conn.execute(
            "UPDATE snapshots SET checksum = checksum + 1 WHERE scope_pk ="
            " (SELECT pk FROM scopes WHERE session_id = 't')"
        )
        conn.commit()
    with opened(url) as (store,):
        assert LimpetSaver(store).expire(timedelta(0)) == ["s", "u"]
        assert list(LimpetSaver(store).threads()) == ["t"]
        assert [each.severity for each in store.check()] == ["error"]
