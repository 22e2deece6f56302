"""Runs the agent of the demo in a process of its own, and kills it."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from limpet.opening import CLOCK

ACKNOWLEDGED_MIN = 3  # the kill comes after this many steps at the earliest...
ACKNOWLEDGED_MAX = 7  # ...and early enough that the agent cannot have finished

Event = dict[str, Any]


@dataclass
class AgentRun:
    """What one agent process reported."""

    process: int = 0
    first_step: int = 0
    saved: dict[int, str] = field(default_factory=dict)
    returncode: int | None = None

    @property
    def last_saved(self) -> int:
        return max(self.saved, default=0)


@dataclass(frozen=True)
class AgentJob:
    url: str
    scope_id: str
    step_s: float
    watch: Callable[[AgentRun, Event], None]


def run_and_kill(order: AgentJob) -> AgentRun:
    """Run the agent and kill it with SIGKILL at a random moment."""
    enough = ACKNOWLEDGED_MIN + int(CLOCK.jitter() * (ACKNOWLEDGED_MAX - ACKNOWLEDGED_MIN + 1))
    run = AgentRun()
    with _agent(order, run) as agent:
        for _ in _events(agent, run, order):
            if run.last_saved >= enough:
                break
        CLOCK.sleep(CLOCK.jitter() * order.step_s * 1.5)
        agent.kill()
        # It may have saved once more meanwhile: read what it still reported.
        for _ in _events(agent, run, order):
            pass
        run.returncode = agent.wait()
    return run


def run_to_the_end(order: AgentJob) -> AgentRun:
    run = AgentRun()
    with _agent(order, run) as agent:
        for _ in _events(agent, run, order):
            pass
        run.returncode = agent.wait()
    return run


@contextmanager
def _agent(order: AgentJob, run: AgentRun) -> Iterator[subprocess.Popen[str]]:
    # -P: a file in the current folder must not be taken for the package.
    command = [sys.executable, "-P", "-m", "limpet.cli.demo.agent"]
    command += [order.url, order.scope_id, str(order.step_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as agent:  # noqa: S603
        run.process = agent.pid
        try:
            yield agent
        finally:
            agent.kill()


def _events(agent: subprocess.Popen[str], run: AgentRun, order: AgentJob) -> Iterator[None]:
    """Record what the agent reports, until the pipe ends."""
    for line in agent.stdout or ():
        if not line.endswith("\n"):
            return  # killed within a line, which acknowledges nothing
        event: Event = json.loads(line)
        if event["event"] == "begin":
            run.first_step = event["step"]
        else:
            run.saved[event["step"]] = event["id"]
        order.watch(run, event)
        yield
