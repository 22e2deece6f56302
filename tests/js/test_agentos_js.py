"""AgentOS's `ICheckpointStore` in JavaScript: its own tests, its runtime, and Python."""

import json
import subprocess
from asyncio import run
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from limpet import Store
from limpet.compat.agentos import CheckpointStore
from tests.compat.agentos.kit import make_checkpoint
from tests.interop import node
from tests.interop.process import NodeProcess
from tests.js.serving import HERE, Served, run_tests, serve
from tests.js.staging import check_types, stage
from tests.present import present

RUN_S_MAX = 300


class Theirs(NodeProcess):
    """The store in JavaScript."""

    def __init__(self, url: str) -> None:
        super().__init__(HERE / "agentos" / "driver.mjs", HERE, RuntimeError)
        self._url = url

    def call(self, method: str, *given: Any) -> Any:
        return self.ask(method, {"url": self._url}, {"given": given})


@pytest.fixture
def theirs(shared: Served) -> Iterator[Theirs]:
    theirs = Theirs(shared.url)
    yield theirs
    theirs.end()


def test_its_own_tests(served: Served) -> None:
    run_tests("agentos.test.mjs", served.url)


@pytest.mark.slow
def test_its_own_tests_on_sqlite(tmp_path: Path) -> None:
    with serve(f"sqlite:///{tmp_path}/agents.db") as served:
        run_tests("agentos.test.mjs", served.url)


def test_what_python_saved_is_read_and_forked_in_javascript(theirs: Theirs, store: Store) -> None:
    saved = make_checkpoint(state={"input": {"q": "é😀"}, "scratch": {"a": 1, "b": 2}})
    ours = CheckpointStore(store)
    run(ours.save(saved))
    assert theirs.call("latest", saved.run_id) == saved.to_json()
    assert theirs.call("list", saved.graph_id) == [
        each.to_json() for each in run(ours.list(saved.graph_id))
    ]
    run_id = theirs.call("fork", saved.id, {"scratch": {"a": 9}})
    fork = present(run(ours.latest(run_id)))
    assert fork.state == {"input": {"q": "é😀"}, "scratch": {"a": 9, "b": 2}}
    origin = {"checkpointId": saved.id, "runId": saved.run_id, "patchState": {"scratch": {"a": 9}}}
    assert fork.forked_from == origin
    info = present(store.find(fork.id))
    assert info.forked_from is not None
    assert info.forked_from.id == saved.id


def test_python_moves_and_deletes_what_javascript_saved(theirs: Theirs, store: Store) -> None:
    saved = make_checkpoint(extra={"later": {"field": 1.5}}, memory_snapshot={"reads": []})
    theirs.call("save", saved.to_json())
    ours = CheckpointStore(store)
    assert run(ours.get(saved.id)) == saved
    (listed,) = run(ours.list(saved.graph_id))
    assert [listed.to_json()] == theirs.call("list", saved.graph_id)
    assert listed.has_memory_snapshot

    moved = replace(saved, run_id=f"{saved.run_id}-2")
    theirs.call("save", moved.to_json())
    assert run(ours.latest(saved.run_id)) is None
    run(ours.save(replace(moved, node_id="b")))
    assert theirs.call("load", moved.run_id, "b")["runId"] == moved.run_id
    run(ours.delete(saved.id))
    assert theirs.call("get", saved.id) is None


# The real runtime


@pytest.fixture(scope="session")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """AgentOS and the client, side by side."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("npm_config_omit", "optional")  # 400 MB
        return stage("agentos", tmp_path_factory.mktemp("agentos"))


def start(staged: Path, *given: str) -> "subprocess.Popen[str]":
    command = [node.find_runtime().node, str(staged / "runtime.mjs"), *given]
    return subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8")


@pytest.mark.slow
def test_a_killed_run_is_resumed(staged: Path, served: Served) -> None:
    with start(staged, served.url) as process:
        assert process.stdout is not None
        run_id, *ran = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.kill()
    assert ran == ["a", "b"]
    with start(staged, served.url, run_id) as process:
        said, _ = process.communicate(timeout=RUN_S_MAX)
    *ran, artifacts = [json.loads(line) for line in said.splitlines()]
    assert ran == ["b", "c"]
    assert artifacts == {"a": "a-out", "b": "b-out", "c": "c-out"}


@pytest.mark.slow
def test_the_types_fit(staged: Path) -> None:
    check_types(staged)
