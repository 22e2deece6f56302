"""ADK's own web server on our service, in a process that is killed and started again."""

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from google.adk.cli.service_registry import get_service_registry

import limpet
from limpet.compat.adk import LimpetSessionService, register
from tests.frameworks.kit import shown

ADK = Path(sys.executable).with_name("adk")
START_S_MAX = 120

AGENT = """
from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmResponse
from google.genai import types

class Echo(BaseLlm):
    async def generate_content_async(self, llm_request, stream=False):
        said = f"{llm_request.contents[-1].parts[0].text} ({len(llm_request.contents)})"
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=said)]))

root_agent = LlmAgent(name="echo", model=Echo(model="echo"), output_key="user:last")
"""
BY_PYTHON = "services.py", "from limpet.compat.adk import register\nregister()\n"
SERVICES = "services:\n  - {scheme: limpet+sqlite, type: session, class: %s}\n"
BY_YAML = "services.yaml", SERVICES % "limpet.compat.adk.open_session_service"


def test_uris_are_registered() -> None:
    register()
    register()
    registry = get_service_registry()
    service = registry.create_session_service("limpet+memory:", agents_dir=".")
    assert isinstance(service, LimpetSessionService)
    with pytest.raises(limpet.InvalidInput):
        registry.create_session_service("limpet+sqlite:///x.db?mode=none")


@contextmanager
def server(verb: str, agents: Path, url: str) -> Iterator[str]:
    """Run `adk web` or `adk api_server` until the block ends, then kill it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--port", str(port), "--session_service_uri", f"limpet+{url}"]
    log = agents.parent / "server.log"
    with log.open("a") as written:
        process = subprocess.Popen(
            [ADK, verb, *options, agents], cwd=agents.parent, stdout=written, stderr=written
        )
    try:
        base = f"http://127.0.0.1:{port}"
        ends = time.monotonic() + START_S_MAX
        while True:
            try:
                call(f"{base}/list-apps")
                break
            except OSError:
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < ends, log.read_text()
                time.sleep(0.1)
        yield base
    finally:
        process.kill()  # SIGKILL: it cannot clean up
        process.wait()


def call(url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)


def said(session: Any) -> list[str]:
    return [each["content"]["parts"][0]["text"] for each in session["events"]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verb", "registered"), [("api_server", BY_PYTHON), ("web", BY_YAML)], ids=["python", "yaml"]
)
def test_the_server_is_killed(verb: str, registered: tuple[str, str], tmp_path: Path) -> None:
    agents, url = tmp_path / "agents", f"sqlite:///{tmp_path}/agents.db"
    (agents / "parrot").mkdir(parents=True)
    (agents / "parrot" / "agent.py").write_text(AGENT)
    (agents / "parrot" / "__init__.py").write_text("from . import agent\n")
    (agents / registered[0]).write_text(registered[1])
    place = "apps/parrot/users/alice/sessions"

    def ask(base: str, text: str) -> Any:
        message = {"role": "user", "parts": [{"text": text}]}
        names = {"appName": "parrot", "userId": "alice", "sessionId": "s"}
        return call(f"{base}/run", {**names, "newMessage": message})

    with server(verb, agents, url) as base:
        made = call(f"{base}/{place}/s", {"mood": "calm"})
        assert made["state"] == {"mood": "calm"}
        ask(base, "hello")

    with server(verb, agents, url) as base:
        found = call(f"{base}/{place}/s")
        assert said(found) == ["hello", "hello (1)"]
        assert found["state"] == {"mood": "calm", "user:last": "hello (1)"}
        ask(base, "again")
        assert said(call(f"{base}/{place}/s")) == ["hello", "hello (1)", "again", "again (3)"]
        assert [each["id"] for each in call(f"{base}/{place}")] == ["s"]
        with pytest.raises(urllib.error.HTTPError) as refused:
            call(f"{base}/{place}/s", {})
        assert refused.value.code == 409

    assert "again (3)" in shown(url, "parrot/alice/s")
