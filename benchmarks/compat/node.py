"""The Strands SDK for TypeScript in a Node process that measures itself."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.compat.counting import Cost
from tests.interop import node

PROGRAM = Path(__file__).with_name("steps.mjs")
PROJECT = Path(node.__file__).parent / "strands"


class Sdk:
    """A process that runs commands one after the other.

    `versions` are those of Node and of the SDK.
    """

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.written = 0
        self.versions = json.loads(self._line())

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def ask(self, verb: str, **given: Any) -> tuple[Cost, Any]:
        """Return what a call took, and what it found."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": verb, **given}) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._line())
        self.written += answer["written"]
        return Cost(answer["wall"], answer["cpu"]), answer.get("found")


@contextmanager
def running() -> Iterator[Sdk]:
    """Start the SDK, installed into the user's cache if it is not there, and end it."""
    runtime = node.find_runtime()
    packages = node.install("strands", PROJECT)
    command = [runtime.node, "--no-warnings", str(PROGRAM), str(packages)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
    ) as process:
        yield Sdk(process)
        assert process.stdin is not None
        process.stdin.close()
