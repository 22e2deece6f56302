"""Somebody else's package in a Node process, as tests speak to it: a line for each request."""

import json
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.interop.node import find_runtime


class NodeProcess:
    """One Node process. It answers requests in the order in which they are asked.

    `error` makes an exception of what the driver says that was thrown.
    """

    def __init__(self, driver: Path, packages: Path, error: Callable[..., Exception]) -> None:
        self._error = error
        self._process = subprocess.Popen(
            [find_runtime().node, "--no-warnings", str(driver), str(packages)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )
        assert self.hear() == "ready"

    def ask(self, verb: str, spec: Mapping[str, Any], parameters: Mapping[str, Any]) -> Any:
        self.send(verb, spec, parameters)
        return self.hear()

    def send(self, verb: str, spec: Mapping[str, Any], parameters: Mapping[str, Any]) -> None:
        """Ask something, and leave it to the caller to `hear` the answer."""
        assert self._process.stdin is not None
        request = {"do": verb, "on": spec, "with": parameters}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()

    def hear(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.endswith("\n"), f"node ended early: {self._process.poll()}"
        answer = json.loads(line)
        if "error" in answer:
            raise self._error(**answer["error"])
        return answer["value"]

    def kill(self) -> None:
        """End it by SIGKILL, whatever it is doing."""
        self._process.kill()
        self.end()

    def end(self) -> None:
        """Close its input, which ends it, and wait."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):  # it may be gone already
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
