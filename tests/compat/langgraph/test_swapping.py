"""A program that uses LangGraph's own savers and stores runs when their class is replaced."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.store.sqlite import AsyncSqliteStore, SqliteStore

from limpet import InvalidInput
from limpet.compat.langgraph import LimpetSaver, LimpetStore
from tests.cases import for_each
from tests.compat.langgraph.graphs import approving
from tests.compat.langgraph.kit import config, put
from tests.compat.langgraph.origins import everything, hello, on, sqlite_origin


@dataclass
class Order:
    item: str


@for_each(("saver", "store"), [(SqliteSaver, SqliteStore), (LimpetSaver, LimpetStore)])
def test_in_a_sync_program(saver: Any, store: Any, tmp_path: Path) -> None:
    for turn in range(2):
        with (
            saver.from_conn_string(f"{tmp_path}/threads.db") as checkpointer,
            store.from_conn_string(f"{tmp_path}/items.db", ttl={"default_ttl": 5}) as items,
        ):
            checkpointer.setup()
            items.setup()
            assert (
                bool(checkpointer.get_tuple(config())) == bool(items.search(("a",))) == bool(turn)
            )
            approving(checkpointer).invoke(hello(), on("t"))
            items.put(("a",), "k", {"n": 1})
    with pytest.raises(Exception, match="closed"):
        checkpointer.get_tuple(config())
    with pytest.raises(Exception, match="closed"):
        items.get(("a",), "k")


@for_each(("saver", "store"), [(AsyncSqliteSaver, AsyncSqliteStore), (LimpetSaver, LimpetStore)])
async def test_in_an_async_program(saver: Any, store: Any, tmp_path: Path) -> None:
    for turn in range(2):
        async with (
            saver.from_conn_string(f"{tmp_path}/threads.db") as checkpointer,
            store.from_conn_string(f"{tmp_path}/items.db") as items,
        ):
            await checkpointer.setup()
            await items.setup()
            assert bool(await checkpointer.aget_tuple(config())) == bool(turn)
            assert bool(await items.asearch(("a",))) == bool(turn)
            await approving(checkpointer).ainvoke(hello(), on("t"))
            await items.aput(("a",), "k", {"n": 1})
    with pytest.raises(Exception, match=r"closed|no active connection"):
        await checkpointer.aget_tuple(config())


def test_options_are_those_of_open_and_of_the_class(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    with LimpetSaver.from_conn_string(url, allow=Order, state_bytes_max=600) as saver:
        put(saver, 1, order=Order("tea"))
        with pytest.raises(InvalidInput, match="too large"):
            put(saver, 2, text="x" * 600)
    with pytest.raises(InvalidInput, match="concurrent"):
        LimpetSaver.from_conn_string(url, concurrent="some")
    with pytest.raises(InvalidInput, match="option"):
        LimpetStore.from_conn_string(url, indices=1)
    with SqliteSaver.from_conn_string(f"{tmp_path}/theirs.db") as theirs:
        theirs.setup()
    opening = LimpetSaver.from_conn_string(f"{tmp_path}/theirs.db")
    with pytest.raises(InvalidInput, match="another program"), opening:
        pass


def test_an_empty_thread_id_is_one_like_any_other(memory: LimpetSaver, tmp_path: Path) -> None:
    """And no other thread has its session."""
    ids = ["", "!", "!!", "!a", "a"]
    with sqlite_origin(tmp_path / "langgraph.db") as origin:
        for thread_id in ids:
            approving(origin.saver).invoke(hello(), on(thread_id))
        store = memory._sync
        assert origin.import_into(store).skipped == ()
        for thread_id in ids:
            assert everything(memory, thread_id) == everything(origin.saver, thread_id)
    assert [*memory.threads()] == ids
    assert [*memory.threads(prefix="!")] == ids[1:4]
    assert [*memory.threads(after="")] == ids[1:]
    assert [*store.sessions()] == ["!", "!!", "!!!", "!a", "a"]
    approving(memory).invoke(hello(), on(""))
    assert memory.sizes("").snapshots > memory.sizes("!").snapshots > 0
    memory.copy_thread("", "b")
    assert len(everything(memory, "b")[0]) == len(everything(memory, "")[0])
    memory.prune([""])
    assert len(everything(memory, "")[0]) == 1
    assert memory.expire(timedelta(0), prefix="!") == ids[1:4]
    memory.delete_thread("a")
    assert memory.expire(timedelta(0)) == ["", "b"]
    memory.put_writes(config("", number=1), [("a", 1)], "task")
    memory.delete_thread("")
    assert [*store.scopes()] == []
