"""`limpet import` from the files and tables of other tools."""

import importlib
import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph

import limpet
from limpet.cli.transfer import class_named
from limpet.compat.langgraph import LimpetSaver
from tests.cases import for_each
from tests.cli.conftest import Command
from tests.servers.postgres import Postgres


def fill(saver: Any) -> None:
    graph = StateGraph(MessagesState)
    graph.add_node("talk", lambda state: {"messages": [AIMessage("hello")]})
    graph.add_edge(START, "talk")
    talk = graph.compile(checkpointer=saver)
    for thread_id in ("alice/1", "bob/1"):
        config: Any = {"configurable": {"thread_id": thread_id}}
        talk.invoke({"messages": [HumanMessage("hi")]}, config)


def test_from_a_file(command: Command, any_url: str, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "old.db", check_same_thread=False)) as conn:
        fill(SqliteSaver(conn))
    words = ("import", "langgraph-sqlite", "old.db", "--url", any_url)
    done = command(*words, "--prefix", "alice/", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {
        "format": "langgraph-sqlite",
        "snapshots": 3,
        "written": 3,
        "skipped": [],
    }
    for new in ("3 written", "nothing new"):
        done = command(*words)
        assert (done.returncode, done.stdout.count("✓ 6 snapshots in ")) == (0, 1)
        assert done.stdout.endswith(f", {new}\n")
    with limpet.open(any_url) as store:
        assert list(store.sessions()) == ["alice/1", "bob/1"]
    with closing(sqlite3.connect(tmp_path / "old.db")) as conn:
        conn.execute("UPDATE checkpoints SET type = 'pickle' WHERE thread_id = 'bob/1'")
        conn.commit()
    done = command(*words)
    assert done.returncode == 1
    assert done.stderr.count("skipped  bob/1:main@") == 3


def test_what_is_not_there(command: Command, process: Command, tmp_path: Path) -> None:
    done = command("import", "langgraph-sqlite", "none.db")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    (tmp_path / "langgraph").mkdir()
    (tmp_path / "langgraph" / "__init__.py").write_text("raise ImportError")
    (tmp_path / "old.db").touch()
    done = process("import", "langgraph-sqlite", "old.db", PYTHONPATH=str(tmp_path))
    expected = "limpet: LangGraph is not installed: pip install 'limpet[langgraph]'\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", expected)
    url = "postgresql://me:geheim@127.0.0.1:1/agents"
    done = command("import", "langgraph-postgres", url)
    assert (done.returncode, done.stderr.count("\n")) == (4, 1)
    assert "geheim" not in done.stdout + done.stderr
    assert command("import", "genkit", ".", "--prefix", "a").returncode == 2


MODULE = """
from dataclasses import dataclass
from enum import Enum

@dataclass
class Order:
    item: str

class Shop:
    class Colour(Enum):
        RED = 1

number = 5
"""


def fill_with_own(path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Save a value whose class is in a module beside the file; return it."""
    (path / "own_shop.py").write_text(MODULE)
    monkeypatch.syspath_prepend(path)
    shop: Any = importlib.import_module("own_shop")
    monkeypatch.delitem(sys.modules, "own_shop")
    value = shop.Order("tea")
    with closing(sqlite3.connect(path / "old.db", check_same_thread=False)) as conn:
        config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        made: Any = {**empty_checkpoint(), "channel_values": {"own": value}}
        at = SqliteSaver(conn).put(config, made, {}, {})
        SqliteSaver(conn).put_writes(at, [("own", value)], "task")
    return value


def test_classes_of_ones_own(
    command: Command,
    process: Command,
    any_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    value = fill_with_own(tmp_path, monkeypatch)
    words = ("import", "langgraph-sqlite", "old.db", "--url", any_url)
    done = command(*words)
    assert done.returncode == 1
    fact = "a stored value is of a class that is not allowed: list it in `allow`."
    fact = f"{fact} class=`own_shop:Order`"
    assert done.stderr.count(fact) == 2
    done = process(*words, "--allow", "own_shop:Order", "--allow", "own_shop:Shop.Colour")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("✓ 1 snapshot in ")
    with limpet.open(any_url) as store:
        found = list(LimpetSaver(store, allow=[type(value)]).list(None))
    assert [each.checkpoint["channel_values"] for each in found] == [{"own": value}]
    assert found[0].pending_writes == [("task", "own", value)]


@for_each(
    ("name", "fact"),
    [
        ("Order", "--allow takes module:Class. found=`Order`"),
        ("./own_shop:Order", "--allow takes module:Class. found=`./own_shop:Order`"),
        ("own_shop:Nothing", "the module has no such class. class=`own_shop:Nothing`"),
        ("own_shop:Order.a.b", "the module has no such class. class=`own_shop:Order.a.b`"),
        ("own_shop:number", "the module has no such class. class=`own_shop:number`"),
        ("none.at_all:A", "cannot be imported. class=`none.at_all:A` error=`ModuleNotFoundError`"),
        ("own_broken:A", "cannot be imported. class=`own_broken:A` error=`SystemExit`"),
    ],
)
def test_bad_names_of_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, fact: str
) -> None:
    (tmp_path / "own_shop.py").write_text(MODULE)
    (tmp_path / "own_broken.py").write_text("raise SystemExit(0)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(limpet.InvalidInput) as told:
        class_named(name)
    assert fact in str(told.value)
    for each in ("own_shop", "own_broken"):
        sys.modules.pop(each, None)


def test_a_bad_name_is_told_before_anything_is_done(command: Command, tmp_path: Path) -> None:
    (tmp_path / "old.db").touch()
    words = ("import", "langgraph-sqlite", "old.db", "--url", "sqlite:///a.db")
    done = command(*words, "--allow", "none.at_all:A")
    fact = "the module cannot be imported. class=`none.at_all:A` error=`ModuleNotFoundError`"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"limpet: {fact}\n")
    assert not (tmp_path / "a.db").exists()


@pytest.mark.slow
def test_from_a_database(command: Command, postgres: Postgres, any_url: str) -> None:
    with postgres.database() as url:
        with PostgresSaver.from_conn_string(url) as saver:
            saver.setup()
            fill(saver)
        done = command("import", "langgraph-postgres", url, "--url", any_url)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("✓ 6 snapshots in ")


OPENAI = Path(__file__).parent.parent / "compat" / "openai_sqlite" / "plain.sql"


def test_from_the_openai_sdk(command: Command, any_url: str, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "old.db")) as conn:
        conn.executescript(OPENAI.read_text(encoding="utf-8"))
    words = ("import", "openai-sqlite", "old.db", "--url", any_url)
    done = command(*words, "--prefix", "bob/", "--json")
    assert (done.returncode, json.loads(done.stdout)["snapshots"]) == (0, 1)
    for new in ("2 written", "nothing new"):
        done = command(*words)
        assert done.stdout.startswith("✓ 3 snapshots in ")
        assert done.stdout.endswith(f", {new}\n")
    shown = command("show", "alice/1", "--url", any_url).stdout
    assert [word in shown for word in ("shell", "look_up", "found: ROCK")] == [True] * 3
    with closing(sqlite3.connect(tmp_path / "old.db")) as conn:
        conn.execute("UPDATE agent_messages SET message_data = '{' WHERE id = 12")
        conn.commit()
    done = command(*words)
    assert done.returncode == 1
    assert "skipped  bob/1:main the item is not JSON. row=`12`" in done.stderr
    done = command("import", "openai-sqlite", "none.db", "--url", "sqlite:///new.db")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert not (tmp_path / "new.db").exists()
    (tmp_path / "empty.db").touch()
    done = command(*words[:2], "empty.db", "--table", "mine", "--url", any_url)
    assert (done.returncode, "table=`mine`" in done.stderr) == (1, True)
    assert command("import", "strands", ".", "--table", "mine").returncode == 2
