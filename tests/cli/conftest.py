"""The command in this process, and as a person has it: the installed executable."""

import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import limpet
from limpet.cli._app import run

Command = Callable[..., "subprocess.CompletedProcess[str]"]
EXECUTABLE = Path(sys.executable).with_name("limpet")


def mind_ctrl_c() -> None:
    """Let a process that is started mind Ctrl-C: a shell in the background has it ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def command(tmp_path: Path) -> Command:
    """Return a function that runs a verb in this process, piped, in an empty folder.

    Starting a process takes twenty times as long. `process` is for what belongs to one: signals,
    the programs that a verb starts, how Python sets up its streams.
    """

    def inside(*arguments: str, **env: str) -> "subprocess.CompletedProcess[str]":
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
        with pytest.MonkeyPatch.context() as patch, open(os.devnull) as nothing:
            patch.chdir(tmp_path)
            patch.setattr(sys, "path", [*sys.path])
            for name in ("LIMPET_URL", "NO_COLOR"):
                patch.delenv(name, raising=False)
            for name, value in {"COLUMNS": "80", **env}.items():
                patch.setenv(name, value)
            patch.setattr(sys, "stdin", nothing)
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            try:
                code = run(arguments)
            except SystemExit as end:  # click, when a shell asks for completions
                code = int(end.code or 0)
        for stream in (out, err):
            stream.seek(0)
        return subprocess.CompletedProcess(arguments, code, out.read(), err.read())

    return inside


@pytest.fixture
def process(tmp_path: Path) -> Command:
    """Return a function that runs `limpet` with arguments, piped, in an empty folder."""
    inherited = {k: v for k, v in os.environ.items() if k not in ("LIMPET_URL", "NO_COLOR")}

    def outside(*arguments: str, **env: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [EXECUTABLE, *arguments],
            cwd=tmp_path,
            env={**inherited, "PYTHONWARNINGS": "error", "COLUMNS": "80", **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return outside


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return the URL of a store with two sessions, in a file `agents.db`."""
    url = f"sqlite:///{tmp_path / 'agents.db'}"
    with limpet.open(url) as store:
        chat = store.scope("alice/chat-1", "planner")
        chat.save({"messages": ["hello" * 100], "mood": "calm"})
        chat.save({"messages": ["hello" * 200], "mood": "bold"})
        store.scope("bob/chat-2").save({"files": {}})
    return url


# On a folder the fast tests run each verb once: tests/cli/test_journey.py.
@pytest.fixture(params=["sqlite", pytest.param("folder", marks=pytest.mark.slow)])
def any_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an empty store: a file of SQLite, then a folder of documents."""
    if request.param == "folder":
        return (tmp_path / "agents").as_uri()
    return f"sqlite:///{tmp_path / 'agents.db'}"
