"""Conversations in JavaScript: the real frameworks, a crash, and Python on the same."""

import json
import os
import signal
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
from tests.js.staging import check_examples, check_types, stage
from tests.present import present
from tests.waiting import until

pytestmark = pytest.mark.timeout(400 + INSTALL_S_MAX)  # the first test may have to install packages

NODE_MAJOR_MIN = 22  # what the frameworks ask for
RUN_S_MAX = 500


class Project:
    """The packages of a framework and the client, side by side."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def start(self, *given: str, program: str = "driver.mjs") -> "subprocess.Popen[str]":
        command = [node.find_runtime(NODE_MAJOR_MIN).node, str(self.home / program), *given]
        # With what they start they are a group, which a test kills.
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, encoding="utf-8", start_new_session=True
        )

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
                if name == "claude":  # without the agent itself, 200 MB, and what only types need
                    patch.setenv("npm_config_omit", "optional")
                    patch.setenv("npm_config_legacy_peer_deps", "true")
                made[name] = Project(stage(name, tmp_path_factory.mktemp(name)))
        return made[name]

    return find


def in_python(framework: str, program: str, *given: str) -> Any:
    """Return what a program prints that uses a framework for Python."""
    command = [str(python_with(framework)), "-c", program, *given]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=RUN_S_MAX)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def state_of(store: Store, session_id: str) -> Any:
    return present(store.scope(session_id, kind=KIND).load()).state


@pytest.mark.parametrize("name", ["logs", "vercel"])
def test_without_packages(name: str, served: Served) -> None:
    run_tests(f"{name}.test.mjs", served.url)


def test_both_languages_know_the_same_frameworks() -> None:
    table = (CLIENT / "src" / "logs.js").read_text().split("FRAMEWORKS = {")[1].split("}")[0]
    lines = dict(line.strip(" ,").split(": ") for line in table.strip().splitlines())
    assert {name: text.strip('",') for name, text in lines.items()} == FRAMEWORKS


@pytest.mark.slow
@pytest.mark.parametrize("name", ["openai", "claude", "vercel"])
def test_the_types_fit(name: str, project: Callable[[str], Project]) -> None:
    check_types(project(name).home)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["openai", "claude", "vercel"])
def test_the_examples_of_the_guide(
    name: str, project: Callable[[str], Project], served: Served
) -> None:
    page = CLIENT.parent.parent / "docs" / "guides" / f"javascript_{name}.md"
    runtime = node.find_runtime(NODE_MAJOR_MIN)
    assert check_examples(page, project(name).home, served.url, runtime) == 1


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


# The Claude Agent SDK


CLAUDE = """
import asyncio, json, sys
import limpet
from claude_agent_sdk import list_sessions_from_store
from limpet.compat.claude import LimpetClaudeStore

async def main(url, project_key, session_id, entry):
    async with limpet.open_async(url) as store:
        sessions = LimpetClaudeStore(store)
        key = {"project_key": project_key, "session_id": session_id}
        await sessions.append(key, [json.loads(entry)])
        summaries = await sessions.list_session_summaries(project_key)
        print(json.dumps([await sessions.load(key), summaries]))

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.slow
def test_a_store_for_claude_answers_as_the_sdks_own(
    project: Callable[[str], Project], served: Served
) -> None:
    assert project("claude").ask(served.url, "contract", "-contract") == [[]]


@pytest.mark.slow
def test_the_functions_of_the_claude_sdk(project: Callable[[str], Project], served: Served) -> None:
    session_id = "11111111-1111-4111-8111-111111111111"
    assert project("claude").ask(served.url, "functions", "-functions", session_id) == [
        {
            "messages": ["hello", "hi", "how?", "so"],
            "fork": ["hello", "hi"],
            "titles": ["By train", "hello"],
            "origin": True,
            "left": ["By train"],
        }
    ]


@pytest.mark.slow
def test_each_language_continues_a_session_of_claude(
    project: Callable[[str], Project], shared: Served, store: Store
) -> None:
    """The summary too, which has other names in Python."""
    claude = project("claude")
    claude.ask(shared.url, "add", "-both", "s", "1", "hello")
    entry = {"type": "custom-title", "customTitle": "A trip", "uuid": "u-2"}
    entries, (summary,) = in_python("claude", CLAUDE, shared.store, "-both", "s", json.dumps(entry))
    assert [each["uuid"][-1] for each in entries] == ["1", "2"]
    assert (summary["data"]["first_prompt"], summary["data"]["custom_title"]) == ("hello", "A trip")
    claude.ask(shared.url, "add", "-both", "s", "3", "how?")
    uuids, (summary,) = claude.ask(shared.url, "show", "-both", "s")
    assert [each[-1] for each in uuids] == ["1", "2", "3"]
    assert (summary["data"]["firstPrompt"], summary["data"]["customTitle"]) == ("hello", "A trip")


@pytest.mark.slow
def test_entries_of_a_killed_process(
    project: Callable[[str], Project], shared: Served, store: Store
) -> None:
    claude = project("claude")
    with claude.start(shared.url, "storm", "-killed", "s") as process:
        assert process.stdout is not None
        told = [json.loads(process.stdout.readline()) for _ in range(5)]
        process.kill()
    left = len(state_of(store, "claude/-killed/s")["entries"])
    assert left >= told[-1]
    for at in (left, left + 1):  # it is resumed: the last batch is sent again
        claude.ask(shared.url, "add", "-killed", "s", str(at), f"{at}")
    uuids, (summary,) = claude.ask(shared.url, "show", "-killed", "s")
    assert [int(each[-12:]) for each in uuids] == [*range(1, left + 2)]
    assert summary["data"]["firstPrompt"] == "1"


@pytest.mark.slow
def test_an_agent_of_claude_that_is_killed_goes_on(
    project: Callable[[str], Project], shared: Served, store: Store, tmp_path: Path
) -> None:
    """The real agent, which the SDK for Python brings along, and a fake model."""
    claude = project("claude")
    (agent,) = python_with("claude").parent.parent.glob("lib/*/site-packages/*/_bundled/claude")

    def given(prompt: str, *resume: str) -> tuple[str, ...]:
        return (shared.url, "agent", str(agent), str(tmp_path / prompt), prompt, *resume)

    ((session_id, said),) = claude.ask(*given("hello"))
    assert said == "I have read 1"
    (name,) = [each for each in store.sessions() if each.endswith(session_id)]
    with claude.start(*given("hang", session_id)) as process:
        until(lambda: "hang" in prompts(store, name))
        os.killpg(process.pid, signal.SIGKILL)
    ((resumed, said),) = claude.ask(*given("again", session_id))
    assert (resumed, said[:11]) == (session_id, "I have read")
    assert prompts(store, name) == ["hello", "hang", "again"]


def prompts(store: Store, session_id: str) -> list[str]:
    entries = state_of(store, session_id)["entries"]
    return [text_in(each["message"]) for each in entries if each["type"] == "user"]


def text_in(message: Any) -> str:
    content = message["content"]
    return content if isinstance(content, str) else content[0].get("text", "")


# The Vercel AI SDK


@pytest.mark.slow
def test_a_chat_of_vercel_goes_on_after_a_kill(
    project: Callable[[str], Project], shared: Served
) -> None:
    """What was streamed until then can be resumed, and the question was saved."""
    vercel = project("vercel")
    vercel.ask(shared.url, "turn", "killed", "hello")
    with vercel.start(shared.url, "turn", "killed", "hang") as process:
        assert process.stdout is not None
        process.stdout.readline()
        streamed = until(lambda: text_of(vercel.ask(shared.url, "resume", "killed")))
        process.kill()
    assert streamed == "3: hang"
    assert vercel.ask(shared.url, "texts", "killed") == [["hello", "1: hello", "hang"]]
    vercel.ask(shared.url, "turn", "killed", "again")
    (texts,) = vercel.ask(shared.url, "texts", "killed")
    assert texts == ["hello", "1: hello", "hang", "again", "4: again"]
    assert vercel.ask(shared.url, "resume", "killed") == [None]


def text_of(chunks: list[Any]) -> str:
    """Return the text of server-sent events of the SDK."""
    lines = "".join(each or "" for each in chunks).split("\n\n")
    events = [json.loads(each.removeprefix("data: ")) for each in lines if each[6:7] == "{"]
    return "".join(each.get("delta", "") for each in events)
