"""Graphs with values of every kind: saved and resumed, also where the process was killed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from limpet.compat.langgraph import LimpetSaver
from tests.cases import for_each
from tests.compat.langgraph import kinds
from tests.compat.langgraph.kit import Places

ROOT = Path(__file__).resolve().parents[3]
START = "import sys; from tests.compat.langgraph.kinds import main; main(*sys.argv[1:])"

pytestmark = pytest.mark.filterwarnings("ignore:create_react_agent has been moved")


@for_each("kind", kinds.KINDS)
def test_a_graph_ends_as_with_the_saver_of_langgraph(places: Places, kind: str) -> None:
    wanted = kinds.expected(kind)
    with places.open("memory") as store:
        graph = kinds.graph_of(kind, LimpetSaver(store, allow=kinds.ALLOW), lambda kind: None)
        assert kinds.same(graph.invoke(kinds.begin(kind), kinds.config(kind)), wanted)
        other = kinds.graph_of(kind, LimpetSaver(store, allow=kinds.ALLOW), lambda kind: None)
        state = other.get_state(kinds.config(kind)).values
        assert kinds.same(state, wanted if kind == "task" else {**state, **wanted})


def run(url: str, word: str, **env: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", START, url, word],
        cwd=ROOT,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("word", "env"), [("", {}), ("strict ", {"LANGGRAPH_STRICT_MSGPACK": "true"})]
)
def test_all_kinds_after_a_kill(places: Places, word: str, env: Any) -> None:
    """In strict mode LangGraph passes the classes of the schema, and no list is needed."""
    url = places.url("sqlite")
    died = run(url, f"{word}die", **env)
    assert died.returncode == -9, died.stderr
    again = run(url, f"{word}go on", **env)
    assert again.returncode == 0, again.stderr
    wanted = kinds.COLLECTED if word else kinds.KINDS
    assert json.loads(again.stdout) == dict.fromkeys(wanted, "")
