"""Made-up sessions to try the inspector with, and an agent that is at work: `limpet ui --demo`."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import quote

from limpet.inspector.demo.sessions import fill

__all__ = ["Demo", "demo_store", "fill", "running_agent"]

_STOP_S_MAX = 10.0


class Demo(NamedTuple):
    """A store with the demo. `left_out` says which sessions are missing, and why."""

    url: str
    left_out: list[str]


@contextmanager
def demo_store() -> Iterator[Demo]:
    """Make a store with the demo in a temporary folder, which is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="limpet-demo-") as folder:
        url = f"sqlite:///{quote(folder)}/demo.db"
        left_out = fill(f"{url}?synchronous=off")
        with running_agent(url):
            yield Demo(url, left_out)


@contextmanager
def running_agent(url: str, *, pace_s: float = 1.3) -> Iterator[subprocess.Popen[bytes]]:
    """Run an agent in a process of its own that keeps saving into a store, until the block ends.

    It also ends when this process is killed. Its session is `agent.RUN`.
    """
    # -P: a file in the current folder must not be taken for the package.
    command = [sys.executable, "-P", "-m", "limpet.inspector.demo.agent", url, str(pace_s)]
    # A new session: Ctrl+C in the terminal is for this process alone, which then ends the agent.
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as agent:  # noqa: S603
        try:
            yield agent
        finally:
            if agent.stdin is not None:
                agent.stdin.close()
            try:
                agent.wait(_STOP_S_MAX)
            except subprocess.TimeoutExpired:
                agent.kill()
