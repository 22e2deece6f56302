"""The recipes run as a reader runs them, in an environment with all of their frameworks.

To make that environment and run them all: `pytest tests/frameworks/test_recipes.py`.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import urllib3

import limpet
from tests.environments import INSTALL_S_MAX, ROOT, limpet_with, python_of
from tests.frameworks.kit import shown
from tests.servers.service import free_port
from tests.waiting import until

FOLDER = ROOT / "examples" / "recipes"
FRAMEWORKS = (
    "autogen-agentchat>=0.7.5",
    "autogen-ext>=0.7.5",
    "haystack-ai>=3.4",
    "ipykernel>=7.4",
    "llama-index-workflows>=2.26.1",
    "nbclient>=0.11",
    "smolagents>=1.26",
)
LINES_MAX = 60  # a recipe is shorter
RUN_S_MAX = 300
pytestmark = pytest.mark.timeout(2 * INSTALL_S_MAX + 4 * RUN_S_MAX)


@pytest.fixture(scope="session")
def python() -> Path:
    """The Python of the environment."""
    return python_of("recipes", (*limpet_with("cli"), *FRAMEWORKS))


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/limpet.db"


def run(python: Path, folder: Path, *arguments: str | Path, code: int = 0) -> str:
    """Run a Python in a folder, in which the store is; return what it printed."""
    ours = ("PYTEST_", "LIMPET_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    alone = {"HAYSTACK_TELEMETRY_ENABLED": "False", "HF_HUB_OFFLINE": "1", "HOME": str(folder)}
    done = subprocess.run(
        [python, *arguments],
        cwd=folder,
        env={**env, **alone},
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


# What each prints until it is killed, and what the next process prints.
KILLED = {
    "tool_loop": (
        "booking a flight\n",
        "booking a hotel\n"
        "Done: the flight is booked and the hotel is booked.\n"
        "Else: Done: the flight is booked and no hotel.\n",
    ),
    "llama_index_workflow": (
        "May I publish it? yes\n",
        "published: Limpets hold on to rocks.\ndropped: Limpets hold on to rocks.\n",
    ),
    "haystack_pipeline": (
        "reading about limpets\n",
        "Did you know that limpets hold on to rocks?\nDid you know that they move?\n",
    ),
    "smolagents_memory": ("booking a flight\n", "booking a hotel\nDone.\nDone.\n"),
    "autogen_state": ("looking at the sky\n", "A hat.\n"),
}


def run_killed(python: Path, folder: Path, name: str) -> None:
    """Run a recipe that kills itself, and run it again: the second process does only the rest."""
    before, after = KILLED[name]
    recipe = FOLDER / f"{name}.py"
    assert run(python, folder, recipe, "--crash", code=-signal.SIGKILL) == before
    assert run(python, folder, recipe) == after


def states(url: str, session_id: str) -> list[Any]:
    """Return the state of each scope of a session: first the line, then its fork."""
    with limpet.open(url) as store:
        heads = [store.scope(*info.key).load() for info in store.scopes(session_id)]
        assert [bool(head and head.forked_from) for head in heads[:1]] == [False]
        return [head.state for head in heads if head]


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.iterdir() if path.is_file()))
def test_a_recipe_is_short(name: str) -> None:
    text = (FOLDER / name).read_text("utf-8")
    if name.endswith(".ipynb"):
        text = "".join("".join(cell["source"]) + "\n" for cell in json.loads(text)["cells"])
    assert len(text.splitlines()) < LINES_MAX


def test_a_tool_loop(url: str, tmp_path: Path) -> None:
    run_killed(Path(sys.executable), tmp_path, "tool_loop")
    for state in states(url, "trip"):
        roles = [message["role"] for message in state["messages"]]
        assert roles == ["user", "assistant", "tool", "tool", "assistant"]
    assert "the hotel is booked" in shown(url, "trip")


@pytest.mark.slow
def test_llama_index(python: Path, url: str, tmp_path: Path) -> None:
    run_killed(python, tmp_path, "llama_index_workflow")
    with limpet.open(url) as store:
        asked = list(store.scope("report").history(status="InputRequiredEvent"))
        assert len(asked) == 1
        ends = [info.head.status for info in store.scopes("report") if info.head]
        assert ends == ["StopEvent", "StopEvent"]


@pytest.mark.slow
def test_haystack(python: Path, url: str, tmp_path: Path) -> None:
    run_killed(python, tmp_path, "haystack_pipeline")
    line, fork = states(url, "report")
    for state, facts in ((line, "limpets hold on to rocks"), (fork, "they move")):
        assert state["break_point"]["component_name"] == "write"
        data = state["pipeline_state"]["inputs"]["serialized_data"]
        assert data["write"]["facts"] == [{"sender": "read", "value": facts}]
    with limpet.open(url) as store:
        assert len(list(store.scope("report").history())) == 2


@pytest.mark.slow
def test_smolagents(python: Path, url: str, tmp_path: Path) -> None:
    run_killed(python, tmp_path, "smolagents_memory")
    line, fork = states(url, "trip")
    ask, go_on = "Book a flight and a hotel.", "Go on."
    said = [step.get("task") or step["observations"] for step in line["steps"]]
    assert said == [ask, "the flight is booked", go_on, "the hotel is booked", "Done."]
    said = [step.get("task") or step["observations"] for step in fork["steps"]]
    assert said == [ask, "the flight is booked", "The hotel is paid.", "Done."]


@pytest.mark.slow
def test_autogen(python: Path, url: str, tmp_path: Path) -> None:
    run_killed(python, tmp_path, "autogen_state")
    (state,) = states(url, "weather")
    types = [each["type"] for each in state["llm_context"]["messages"]]
    result = "FunctionExecutionResultMessage"
    assert types == ["UserMessage", "AssistantMessage", result, "AssistantMessage"]


@pytest.mark.slow
def test_a_recipe_that_is_not_killed_does_the_same_and_can_be_repeated(tmp_path: Path) -> None:
    recipe = FOLDER / "tool_loop.py"
    assert run(Path(sys.executable), tmp_path, recipe) == "".join(KILLED["tool_loop"])
    run(Path(sys.executable), tmp_path, recipe)


# FastAPI.


@contextmanager
def served(url: str, folder: Path) -> Iterator[str]:
    """Serve the chats with uvicorn, in a process that is killed in the end."""
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "fastapi_chat:app", "--port", str(port)]
    with (folder / "log").open("ab") as log:
        env = {**os.environ, "LIMPET_URL": url}
        server = subprocess.Popen(command, cwd=FOLDER, env=env, stdout=log, stderr=log)

    def answers() -> bool:
        assert server.poll() is None, (folder / "log").read_text("utf-8")
        try:
            return request("GET", f"http://127.0.0.1:{port}/chats/none").status == 200
        except urllib3.exceptions.HTTPError:
            return False

    try:
        until(answers)
        yield f"http://127.0.0.1:{port}/chats"
    finally:
        server.kill()
        server.wait()


def request(method: str, url: str) -> urllib3.BaseHTTPResponse:
    return urllib3.request(method, url, retries=False)


def test_fastapi(url: str, tmp_path: Path) -> None:
    """What was answered is in the chat, once; what got 409 is not."""
    statuses: dict[str, int] = {}

    def ask(text: str) -> None:
        statuses[text] = request("POST", f"{chats}/42?text={text}").status

    def collided() -> bool:
        """Ask twice at once; on a busy machine one request may end before the other begins."""
        list(pool.map(ask, [f"{len(statuses)}-{each}" for each in ("left", "right")]))
        return 409 in statuses.values()

    with served(url, tmp_path) as chats, ThreadPoolExecutor() as pool:
        ask("hello")
        until(collided)
    with served(url, tmp_path) as chats:
        chat = request("GET", f"{chats}/42").json()
        asked = [message["content"] for message in chat if message["role"] == "user"]
        assert sorted(asked) == sorted(text for text, status in statuses.items() if status == 200)
        assert chat[1] == {"role": "assistant", "content": "You said: hello"}
        fork = request("POST", f"{chats}/42/fork?turns=1").json()["chat_id"]
        assert request("GET", f"{chats}/{fork}").json() == chat[:2]
        assert request("POST", f"{chats}/42/fork?turns=99").status == 404


# Jupyter.

EXECUTE = """
import json, nbformat, sys
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], as_version=4)
assert not any(cell.get("outputs") for cell in notebook.cells)
NotebookClient(notebook, timeout=300, startup_timeout=100).execute()
shown = []
for cell in notebook.cells:
    outputs = cell.get("outputs", [])  # what is printed may come in several parts
    printed = "".join(output.get("text", "") for output in outputs)
    shown.append([printed, *(output["data"] for output in outputs if "data" in output)])
print(json.dumps([each for each in shown if any(each)]))
"""


@pytest.mark.slow
def test_jupyter(python: Path, url: str, tmp_path: Path) -> None:
    """With two kernels, one after the other."""

    def execute() -> list[Any]:
        """Return what each cell that shows something printed and displayed."""
        printed = run(python, tmp_path, "-c", EXECUTE, FOLDER / "notebook.ipynb")
        shown: list[Any] = json.loads(printed)
        return shown

    (_, begun), (asked,), (_, table), (_, change), (tried, compared), (_, back), (_, log) = (
        execute()
    )
    assert begun["text/plain"] == "{'prompt': 'Explain limpets', 'scores': {}}"
    assert asked.count("asking the") == tried.count("asking the") == 2
    assert table["text/markdown"].count("| asked") == 2
    assert "+ /scores/small" in change["text/markdown"]
    assert "~ /prompt: 'Explain limpets' ->" in compared["text/markdown"]
    assert "large" not in back["text/plain"]
    assert log["text/markdown"].count("| asked") == 3

    (_, found), (_, table), *_ = execute()  # the cell between them has nothing to ask
    assert "'small'" in found["text/plain"]
    assert table["text/markdown"].count("| asked") == 2
    assert len(states(url, "prompt-study")) == 3
