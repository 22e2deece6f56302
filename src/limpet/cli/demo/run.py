"""Running the agent of the demonstration in a process of its own, and killing it."""

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
class Run:
    """What one process of the agent reported before it ended."""

    process: int = 0
    first_step: int = 0
    saved: dict[int, str] = field(default_factory=dict)
    returncode: int | None = None

    @property
    def last_saved(self) -> int:
        """The last step that was acknowledged, 0 if there is none."""
        return max(self.saved, default=0)


@dataclass(frozen=True)
class Order:
    """Where an agent works, how long it thinks about a step, and who watches it."""

    url: str
    scope_id: str
    step_s: float
    watch: Callable[[Run, Event], None]


def run_and_kill(order: Order) -> Run:
    """Run the agent and kill it with SIGKILL in mid-run, at a random moment."""
    enough = ACKNOWLEDGED_MIN + int(CLOCK.jitter() * (ACKNOWLEDGED_MAX - ACKNOWLEDGED_MIN + 1))
    run = Run()
    with _agent(order, run) as agent:
        for _ in _events(agent, run, order):
            if run.last_saved >= enough:
                break
        CLOCK.sleep(CLOCK.jitter() * order.step_s * 1.5)
        agent.kill()
        # It may have saved once more in the meantime; what it reported counts.
        for _ in _events(agent, run, order):
            pass
        run.returncode = agent.wait()
    return run


def run_to_the_end(order: Order) -> Run:
    """Run the agent undisturbed."""
    run = Run()
    with _agent(order, run) as agent:
        for _ in _events(agent, run, order):
            pass
        run.returncode = agent.wait()
    return run


@contextmanager
def _agent(order: Order, run: Run) -> Iterator[subprocess.Popen[str]]:
    """Start the agent, whose output is the pipe that it reports through; leave none behind."""
    # -P: what stands in the current folder must not be taken for the package.
    command = [sys.executable, "-P", "-m", "limpet.cli.demo.agent"]
    command += [order.url, order.scope_id, str(order.step_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as agent:  # noqa: S603
        run.process = agent.pid
        try:
            yield agent
        finally:
            agent.kill()  # does nothing to one that has ended


def _events(agent: subprocess.Popen[str], run: Run, order: Order) -> Iterator[None]:
    """Take down what the agent reports, one event at a time, until the pipe ends."""
    for line in agent.stdout or ():
        if not line.endswith("\n"):
            return  # the kill came in the middle of a line, so it acknowledges nothing
        event: Event = json.loads(line)
        if event["event"] == "begin":
            run.first_step = event["step"]
        else:
            run.saved[event["step"]] = event["id"]
        order.watch(run, event)
        yield
