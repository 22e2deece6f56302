"""A server of Limpet in a process of its own, and Node's test runner against it."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from tests.interop import node
from tests.interop.process import NodeProcess

P = TypeVar("P", bound=NodeProcess)

HERE = Path(__file__).parent
CLIENT = HERE.parent.parent / "clients" / "js"
TESTS_S_MAX = 500


class Served(NamedTuple):
    """A server that accepts requests."""

    url: str
    store: str
    process: subprocess.Popen[str]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


@contextmanager
def serve(store: str, *options: str, port: int = 0) -> Iterator[Served]:
    """Serve a store until the block ends."""
    limpet = [sys.executable, "-m", "limpet", "serve", "--create", store]
    command = [*limpet, "--port", str(port), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            assert " is served on " in said, f"the server did not start: {said}"
            yield Served(said.split()[-1], store, process)
        finally:
            process.terminate()


def run_tests(name: str, url: str) -> None:
    """Run a file of tests in Node against a server; fail with what it printed."""
    with start_script(name, url, "--test", "--test-reporter=spec") as process:
        told, _ = process.communicate(timeout=TESTS_S_MAX)
    assert process.returncode == 0, told


def start_script(name: str, url: str, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [node.find_runtime().node, *options, str(HERE / name)],
        env={**os.environ, "LIMPET_TEST_URL": url},
        stdout=subprocess.PIPE,
        text=True,
    )


class Processes(Generic[P]):
    """Starts processes of Node, which a test may kill."""

    def __init__(self, kind: Callable[[Path], P], packages: Path) -> None:
        self._kind, self._packages = kind, packages
        self._started: list[P] = []

    def start(self) -> P:
        self._started.append(self._kind(self._packages))
        return self._started[-1]

    def end(self) -> None:
        for each in self._started:
            each.end()
