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


def run_agent(job: AgentJob, *, kill: bool) -> AgentRun:
    """Run the agent to its end, or kill it with SIGKILL at a random moment."""
    enough = ACKNOWLEDGED_MIN + int(CLOCK.jitter() * (ACKNOWLEDGED_MAX - ACKNOWLEDGED_MIN + 1))
    run = AgentRun()
    with _agent(job, run) as agent:
        for _ in _events(agent, run, job):
            if kill and run.last_saved >= enough:
                CLOCK.sleep(CLOCK.jitter() * job.step_s * 1.5)
                agent.kill()  # what it still reported before that is read
                kill = False
        run.returncode = agent.wait()
    return run


@contextmanager
def _agent(job: AgentJob, run: AgentRun) -> Iterator[subprocess.Popen[str]]:
    # -P: a file in the current folder must not be taken for the package.
    command = [sys.executable, "-P", "-m", "limpet.cli.demo.agent"]
    command += [job.url, job.scope_id, str(job.step_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as agent:  # noqa: S603
        run.process = agent.pid
        try:
            yield agent
        finally:
            agent.kill()


def _events(agent: subprocess.Popen[str], run: AgentRun, job: AgentJob) -> Iterator[None]:
    """Record what the agent reports, until the pipe ends."""
    for line in agent.stdout or ():
        if not line.endswith("\n"):
            return  # killed within a line, which acknowledges nothing
        event: Event = json.loads(line)
        if event["event"] == "begin":
            run.first_step = event["step"]
        else:
            run.saved[event["step"]] = event["id"]
        job.watch(run, event)
        yield
