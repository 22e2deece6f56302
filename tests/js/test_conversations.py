"""Conversations in JavaScript: the real frameworks, a crash, and Python on the same."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from limpet import Store
from limpet.compat.logs import FRAMEWORKS, KIND
from tests.environments import INSTALL_S_MAX, ROOT
from tests.frameworks.catalogue import python_with
from tests.interop import node
from tests.js.serving import CLIENT, Served, run_tests
from tests.js.staging import check_types, stage
from tests.present import present

pytestmark = pytest.mark.timeout(400 + INSTALL_S_MAX)  # the first test may have to install packages

NODE_MAJOR_MIN = 22  # what the frameworks ask for
RUN_S_MAX = 250


class Project:
    """The packages of a framework and the client, side by side."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def start(self, *given: str, program: str = "driver.mjs") -> "subprocess.Popen[str]":
        command = [node.find_runtime(NODE_MAJOR_MIN).node, str(self.home / program), *given]
        return subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8")

    def ask(self, *given: str) -> list[Any]:
        """Return what a program says."""
        with self.start(*given) as process:
            said, _ = process.communicate(timeout=RUN_S_MAX)
        return [json.loads(line) for line in said.splitlines()]


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Project]:
    made: dict[str, Project] = {}

    def find(name: str) -> Project:
        if name not in made:
            with pytest.MonkeyPatch.context() as patch:
                if name == "claude":
                    patch.setenv("npm_config_omit", "optional")  # the agent itself: 200 MB
                made[name] = Project(stage(name, tmp_path_factory.mktemp(name)))
        return made[name]

    return find


def in_python(framework: str, program: str, *given: str) -> Any:
    """Return what a program prints that uses a framework for Python."""
    command = [python_with(framework), "-c", program, *given]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=RUN_S_MAX)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def state_of(store: Store, session_id: str) -> Any:
    return present(store.scope(session_id, kind=KIND).load()).state


def test_what_the_adapters_share(served: Served) -> None:
    run_tests("logs.test.mjs", served.url)


def test_both_languages_know_the_same_frameworks() -> None:
    table = (CLIENT / "src" / "logs.js").read_text().split("FRAMEWORKS = {")[1].split("}")[0]
    lines = dict(line.strip(" ,").split(": ") for line in table.strip().splitlines())
    assert {name: text.strip('",') for name, text in lines.items()} == FRAMEWORKS


@pytest.mark.slow
@pytest.mark.parametrize("name", ["openai"])
def test_the_types_fit(name: str, project: Callable[[str], Project]) -> None:
    check_types(project(name).home)


# The OpenAI Agents SDK


OPENAI = """
import asyncio, json, sys
import limpet
from agents import Runner, set_tracing_disabled
from limpet.compat.openai import LimpetSession
from tests.frameworks.openai.models import agent, look_up, with_tool

async def main(url, session_id, text):
    async with limpet.open_async(url) as store:
        session = LimpetSession(session_id, store)
        await Runner.run(agent(with_tool, look_up), text, session=session)
        print(json.dumps(await session.get_items()))

set_tracing_disabled(True)
asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.slow
def test_a_session_of_openai_holds_what_the_sdks_own_does(
    project: Callable[[str], Project], served: Served
) -> None:
    *_, found, cleared = project("openai").ask(served.url, "same", "same")
    assert found == {
        "same": True,
        "count": 8,
        "last": [1, 0],
        "popped": "found: ROCK",
        "left": 7,
    }
    assert cleared == {"items": [], "popped": None, "snapshots": 1}


@pytest.mark.slow
def test_each_language_continues_a_session_of_openai(
    project: Callable[[str], Project], shared: Served, store: Store
) -> None:
    """A process is killed in the middle of a tool; Python goes on, and then JavaScript again."""
    openai = project("openai")
    assert openai.ask(shared.url, "turn", "both", "one")[-1] == "found: ONE"
    with openai.start(shared.url, "turn", "both", "hang") as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) == "look up hang"
        process.kill()
    first = state_of(store, "both")["items"]
    call = {"name": "look_up", "arguments": '{"word":"one"}', "call_id": "call-1"}
    assert first[:4] == [
        {"role": "user", "content": "one"},
        {"type": "function_call", **call, "status": "completed"},
        {"type": "function_call_output", "call_id": "call-1", "output": "ONE"}
        | {"status": "completed"},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "found: ONE", "annotations": []}],
            "status": "completed",
        },
    ]
    items = in_python("openai", OPENAI, shared.store, "both", "two")
    assert items[: len(first)] == first
    assert items[-1]["content"][0]["text"] == "found: TWO"
    assert openai.ask(shared.url, "turn", "both", "three")[-1] == "found: THREE"
    read = openai.ask(shared.url, "items", "both")[0]
    assert [each["type"] for each in read[-8:]] == 2 * [
        "message",
        "function_call",
        "function_call_result",
        "message",
    ]
    assert read[-8]["content"] == "two"
    assert read[-5]["content"][0]["text"] == "found: TWO"
    assert {*map(str, (i.metadata for i in store.scope("both", kind=KIND).history()))} == {
        "{'openai': True}"
    }
