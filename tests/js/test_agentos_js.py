"""AgentOS's `ICheckpointStore` in JavaScript: its own tests, its runtime, and Python over the same store."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from limpet import Store
from limpet.compat.agentos import CheckpointStore
from tests.compat.agentos.kit import make_checkpoint
from tests.interop import node
from tests.js.serving import HERE, Served, run_tests, serve
from tests.js.staging import check_types, stage

pytestmark = pytest.mark.timeout(400)  # the first test may have to install AgentOS

RUN_S_MAX = 60


def ask(url: str, method: str, *given: Any) -> Any:
    """Call a method of the store in JavaScript."""
    program = str(HERE / "agentos" / "ask.mjs")
    command = [node.find_runtime().node, program, url, method, json.dumps(given)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S_MAX)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_its_own_tests(served: Served) -> None:
    run_tests("agentos.test.mjs", served.url)


@pytest.mark.slow
def test_its_own_tests_on_sqlite(tmp_path: Path) -> None:
    with serve(f"sqlite:///{tmp_path}/agents.db") as served:
        run_tests("agentos.test.mjs", served.url)


async def test_what_python_saved_is_read_and_forked_in_javascript(
    shared: Served, store: Store
) -> None:
    saved = make_checkpoint(state={"input": {"q": "é😀"}, "scratch": {"a": 1, "b": 2}})
    ours = CheckpointStore(store)
    await ours.save(saved)
    assert ask(shared.url, "latest", saved.run_id) == saved.to_json()
    assert ask(shared.url, "list", saved.graph_id) == [
        each.to_json() for each in await ours.list(saved.graph_id)
    ]
    run_id = ask(shared.url, "fork", saved.id, {"scratch": {"a": 9}})
    fork = await ours.latest(run_id)
    assert fork is not None
    assert fork.state == {"input": {"q": "é😀"}, "scratch": {"a": 9, "b": 2}}
    origin = {"checkpointId": saved.id, "runId": saved.run_id, "patchState": {"scratch": {"a": 9}}}
    assert fork.forked_from == origin
    info = store.find(fork.id)
    assert info is not None
    assert info.forked_from is not None
    assert info.forked_from.id == saved.id


async def test_what_javascript_saved_is_read_moved_and_deleted_in_python(
    shared: Served, store: Store
) -> None:
    saved = make_checkpoint(extra={"later": {"field": 1.5}}, memory_snapshot={"reads": []})
    ask(shared.url, "save", saved.to_json())
    ours = CheckpointStore(store)
    assert await ours.get(saved.id) == saved
    (listed,) = await ours.list(saved.graph_id)
    assert [listed.to_json()] == ask(shared.url, "list", saved.graph_id)
    assert listed.has_memory_snapshot

    moved = replace(saved, run_id=f"{saved.run_id}-2")
    ask(shared.url, "save", moved.to_json())
    assert await ours.latest(saved.run_id) is None
    await ours.save(replace(moved, node_id="b"))
    assert ask(shared.url, "load", moved.run_id, "b")["runId"] == moved.run_id
    await ours.delete(saved.id)
    assert ask(shared.url, "get", saved.id) is None


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
