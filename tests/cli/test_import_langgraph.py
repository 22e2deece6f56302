"""`holdfast import` from the tables of LangGraph's own savers."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph

import holdfast
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
        "written": None,
        "skipped": [],
    }
    assert command(*words).stdout.startswith("✓ 6 snapshots in ")
    with holdfast.open(any_url) as store:
        assert list(store.sessions()) == ["alice/1", "bob/1"]
    with closing(sqlite3.connect(tmp_path / "old.db")) as conn:
        conn.execute("UPDATE checkpoints SET type = 'pickle' WHERE thread_id = 'bob/1'")
        conn.commit()
    done = command(*words)
    assert done.returncode == 1
    assert done.stderr.count("left out  bob/1:main@") == 3


def test_what_is_not_there(command: Command, tmp_path: Path) -> None:
    done = command("import", "langgraph-sqlite", "none.db")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    (tmp_path / "langgraph").mkdir()
    (tmp_path / "langgraph" / "__init__.py").write_text("raise ImportError")
    (tmp_path / "old.db").touch()
    done = command("import", "langgraph-sqlite", "old.db", PYTHONPATH=str(tmp_path))
    expected = "holdfast: LangGraph needs an extra: pip install 'holdfast[langgraph]'\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", expected)
    url = "postgresql://me:geheim@127.0.0.1:1/agents"
    done = command("import", "langgraph-postgres", url)
    assert (done.returncode, done.stderr.count("\n")) == (4, 1)
    assert "geheim" not in done.stdout + done.stderr
    assert command("import", "genkit", ".", "--prefix", "a").returncode == 2


@pytest.mark.slow
def test_from_a_database(command: Command, postgres: Postgres, any_url: str) -> None:
    with postgres.database() as url:
        with PostgresSaver.from_conn_string(url) as saver:
            saver.setup()
            fill(saver)
        done = command("import", "langgraph-postgres", url, "--url", any_url)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("✓ 6 snapshots in ")
