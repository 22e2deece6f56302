"""`limpet tail`: the end of a chat, and what other processes add to it."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import limpet
from tests.cli.conftest import EXECUTABLE, Command, mind_ctrl_c
from tests.waiting import WAIT_S_MAX, until


class Running:
    """The executable while it runs, and the lines that it has written so far."""

    def __init__(self, *arguments: str, url: str) -> None:
        self.process = subprocess.Popen(
            [EXECUTABLE, *arguments, "--url", url],
            preexec_fn=mind_ctrl_c,
            env={**os.environ, "PYTHONWARNINGS": "error", "COLUMNS": "100"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(iter(self.process.stdout.readline, ""))  # each as it comes

    def wait_for(self, fact: Callable[[str], bool]) -> str:
        return until(lambda: next(filter(fact, list(self.lines)), ""))

    def end(self) -> tuple[int, str]:
        code = self.process.wait(WAIT_S_MAX)
        self._thread.join(WAIT_S_MAX)
        assert self.process.stderr is not None
        return code, self.process.stderr.read()


@contextmanager
def running(*arguments: str, url: str) -> Iterator[Running]:
    run = Running(*arguments, url=url)
    try:
        yield run
    finally:
        run.process.kill()
        run.end()
        for stream in (run.process.stdout, run.process.stderr):
            if stream is not None:
                stream.close()


def said(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": text}


def test_the_end(command: Command, any_url: str) -> None:
    with limpet.open(any_url) as store:
        store.scope("files").save({"files": {}}, id="f-1")
        store.scope("files").save({"files": {"a": 1}}, id="f-2", status="failed")
        store.scope("trip", "planner").save({"messages": [said("one"), said("two"), said("three")]})
    last = command("tail", "trip", "-n", "2", "--url", any_url)
    assert (last.returncode, last.stderr) == (0, "")
    talk, _, status = last.stdout.rpartition("\n\n")
    assert talk == "user 1\n  two\n\nuser 2\n  three"
    assert status.startswith("· \N{EN DASH}  ")
    snapshots = command("tail", "files", "-n", "5", "--url", any_url).stdout.splitlines()
    assert [line.split()[1:4] for line in snapshots] == [
        ["files", "\N{EN DASH}", "f-1"],
        ["files", "failed", "f-2"],
    ]
    every = command("tail", "--json", "--url", any_url).stdout.splitlines()
    heads = [json.loads(line) for line in every]
    assert [head["session_id"] for head in heads] == ["files", "trip"]
    assert [head["turns"] for head in heads] == [
        [],
        [
            {
                "index": 2,
                "role": "user",
                "name": None,
                "parts": [{"type": "text", "text": "three", "thinking": False}],
            }
        ],
    ]


def test_following_a_chat_until_ctrl_c(any_url: str) -> None:
    """Only what is new is drawn: turns, results that come later, and that all was replaced."""
    asked = {
        "role": "model",
        "content": [{"toolRequest": {"name": "add", "ref": "1", "input": {}}}],
    }
    answer = {"toolResponse": {"name": "add", "ref": "1", "output": "five"}}
    with limpet.open(any_url) as store:
        chat = store.scope("trip")
        chat.save({"messages": [said("hello")]})
        with running("tail", "trip", "-f", url=any_url) as run:
            run.wait_for("  hello\n".__eq__)
            chat.append("messages", [said("more"), asked])
            run.wait_for("  │ no result\n".__eq__)
            chat.append("messages", [{"role": "tool", "content": [answer]}], status="running")
            run.wait_for("  │ five\n".__eq__)
            run.wait_for(lambda line: line.startswith("· running"))
            chat.save({"messages": [said("in short"), said("more")]})
            run.wait_for("  in short\n".__eq__)
            run.process.send_signal(signal.SIGINT)
            code, errors = run.end()
    assert code == 130
    assert "Traceback" not in errors
    drawn = [line.strip() for line in run.lines]
    assert [drawn.count(word) for word in ("hello", "more", "in short")] == [1, 1, 1]
    assert drawn.index("~ the messages were replaced") < drawn.index("in short")
    assert run.lines[-1].endswith("\n")


@pytest.mark.slow
def test_following_until_it_is_deleted(any_url: str) -> None:
    with limpet.open(any_url) as store:
        chat = store.scope("trip")
        chat.save({"messages": []}, id="s-1")
        with running("tail", "trip", "-f", "--json", url=any_url) as run:
            run.wait_for(lambda line: json.loads(line)["id"] == "s-1")
            chat.append("messages", [said("one")])
            run.wait_for(lambda line: '"one"' in line)
            chat.append("messages", [said("two")])
            last = json.loads(run.wait_for(lambda line: '"two"' in line))
            assert [turn["index"] for turn in last["turns"]] == [1]
            store.delete_session("trip")
            assert run.end() == (0, "")


def test_following_every_session(any_url: str) -> None:
    with limpet.open(any_url) as store:
        store.scope("old").save({"messages": [said("before")]})
        with running("tail", "-f", "-n", "1", url=any_url) as run:
            run.wait_for(lambda line: "before" in line)
            store.scope("alice/chat", "planner").save({"messages": [said("hi")]}, status="running")
            line = run.wait_for(lambda line: "alice" in line)
            assert line.split()[1:3] == ["alice/chat:planner", "running"]
            assert line.split()[-2:] == ["user", "hi"]
            store.scope("bob").save({"n": 1})
            run.wait_for(lambda line: "bob" in line)
            assert len(run.lines) == 3
            run.process.send_signal(signal.SIGINT)
            assert run.end()[0] == 130
