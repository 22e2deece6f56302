"""An agent is killed in mid-run, and a new process goes on where it stopped.

Run it with `make demo`, or with `python examples/resume.py`. The agent is scripted and needs no
network. It runs in a process of its own and saves its state after every step to a SQLite file in a
temporary folder. This process kills it with SIGKILL at a random moment, starts another one that
resumes, and then checks every step of the story. The exit code is 0 only if all of it holds.
"""

import argparse
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import holdfast

SESSION = "trip-to-lisbon"
TASK = "Plan two days in Lisbon for a family of four."
PLAN = (
    ("user", "We arrive on Friday at ten and leave on Sunday at noon."),
    ("agent", "I begin with the weather, since the rest depends on it."),
    ("weather", "Friday: sunny, 24 degrees. Saturday: rain until two, then clear."),
    ("agent", "The castle goes to Friday; the museum to Saturday morning."),
    ("maps", "From the flat to the castle: tram 28, five stops, 17 minutes."),
    ("tickets", "Four seats for the castle on Friday at eleven are held until six."),
    ("agent", "I looked for lunch near the castle; two places take children."),
    ("user", "The one with the garden, please."),
    ("restaurant", "A table for four in the garden, Friday at one. Confirmed."),
    ("tickets", "The museum opens at ten on Saturday. Four seats are booked."),
    ("agent", "After the rain there is time for the river."),
    ("boats", "A boat leaves on Saturday at three; the trip takes two hours."),
    ("user", "Yes, but not longer than two hours."),
    ("boats", "Four places are booked on the boat."),
    ("maps", "From the flat to the airport on Sunday: 25 minutes by metro."),
    ("agent", "Here is the whole plan, hour by hour. Have a good trip!"),
)
STEPS = len(PLAN)
STEP_S = 0.25  # how long the agent thinks about a step
ACKNOWLEDGED_MIN = 3  # the kill comes after this many steps at the earliest...
ACKNOWLEDGED_MAX = 8  # ...and early enough that the agent cannot have finished


# --- the agent: everything that runs in the child process ---


def state_after(steps: int) -> dict[str, Any]:
    """Return the agent's whole state after so many steps; the script leaves nothing to chance."""
    messages = [{"role": role, "content": content} for role, content in PLAN[:steps]]
    return {"task": TASK, "step": steps, "messages": messages}


def run_agent(url: str) -> None:
    """Go on from the last saved step, or from the beginning, and save after every step."""
    with holdfast.open(url) as store:
        line = store.scope(SESSION)
        head = line.load()
        state = state_after(0) if head is None else head.state
        revision = None if head is None else head.revision
        report(event="begin", step=state["step"] + 1)
        while state["step"] < STEPS:
            time.sleep(STEP_S)
            role, content = PLAN[state["step"]]
            state["messages"].append({"role": role, "content": content})
            state["step"] += 1
            # `expect` makes a second agent on the same line lose with Conflict, not interleave.
            info = line.save(
                state,
                status="running" if state["step"] < STEPS else "completed",
                labels={"step": f"{state['step']:02}"},
                metadata={"process": os.getpid()},
                expect=revision,
            )
            revision = info.revision
            # Only now is the step acknowledged: it is on the disk.
            report(event="saved", step=state["step"], id=info.id)


def report(**event: Any) -> None:
    """Tell the parent process something: one line of JSON through the pipe."""
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


# --- the story: everything that runs in the parent process ---


@dataclass
class Run:
    """What one process of the agent reported before it ended."""

    first_step: int = 0
    saved: dict[int, str] = field(default_factory=dict)
    returncode: int | None = None

    @property
    def last_saved(self) -> int:
        """The last step that was acknowledged, 0 if there is none."""
        return max(self.saved, default=0)


def main() -> int:
    """Tell the story in a temporary folder and return the exit code."""
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
        database = Path(folder) / "agents.db"
        url = f"sqlite:///{database}"

        title("1. An agent works, and saves after every step")
        killed = run_and_kill(url)
        say(f"   killed with SIGKILL after step {killed.last_saved} was acknowledged", "red")

        title("2. What the file holds now")
        found = show_head(url, killed)

        title("3. A new process resumes")
        resumed = run_to_the_end(url)

        title("4. The history")
        snapshots = read_history(url)
        show_history(snapshots, database)

        title("5. Does everything hold?")
        return verdict(checks(killed, found, resumed, snapshots))


def run_and_kill(url: str) -> Run:
    """Run the agent and kill it in mid-step, at a random moment."""
    chance = secrets.SystemRandom()
    enough = chance.randint(ACKNOWLEDGED_MIN, ACKNOWLEDGED_MAX)
    run = Run()
    with start_agent(url) as agent:
        for _ in events(agent, run):
            if run.last_saved >= enough:
                break
        time.sleep(chance.uniform(0, STEP_S * 1.5))
        agent.kill()
        # It may have saved once more in the meantime; what it reported counts.
        for _ in events(agent, run):
            pass
        run.returncode = agent.wait()
    return run


def run_to_the_end(url: str) -> Run:
    """Run the agent undisturbed."""
    run = Run()
    with start_agent(url) as agent:
        for _ in events(agent, run):
            pass
        run.returncode = agent.wait()
    return run


def start_agent(url: str) -> subprocess.Popen[str]:
    """Start the agent in a new process, whose output is the pipe that it reports through."""
    command = [sys.executable, __file__, "--agent", url]
    agent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603
    say(f"   process {agent.pid}", "dim")
    return agent


def events(agent: subprocess.Popen[str], run: Run) -> Iterator[None]:
    """Take down and show what the agent reports, one event at a time, until the pipe ends."""
    assert agent.stdout is not None  # noqa: S101
    for line in agent.stdout:
        if not line.endswith("\n"):
            return  # the kill came in the middle of a line, so it acknowledges nothing
        event = json.loads(line)
        if event["event"] == "begin":
            run.first_step = event["step"]
            say(f"   begins at step {event['step']}", "dim")
        else:
            run.saved[event["step"]] = event["id"]
            show_step(event["step"])
        yield


def show_head(url: str, killed: Run) -> holdfast.Snapshot | None:
    """Show the state that the dead process left, and return it."""
    with holdfast.open(url) as store:
        head = store.scope(SESSION).load()
    if head is None:
        say("   nothing", "red")
        return None
    say(f"   step {head.state['step']}, {len(head.state['messages'])} messages, {head.size} bytes")
    if head.state["step"] > killed.last_saved:
        say("   the kill came between saving it and saying so; it is there, and whole")
    say(f"   status {head.status}, saved {head.created_at:%H:%M:%S.%f} UTC", "dim")
    return head


def read_history(url: str) -> list[holdfast.Snapshot]:
    """Return every kept snapshot with its state, the oldest first."""
    with holdfast.open(url) as store:
        line = store.scope(SESSION)
        newest_first = [info.id for info in line.history()]
        return list(line.load_many(reversed(newest_first)))


def show_history(snapshots: list[holdfast.Snapshot], database: Path) -> None:
    """Show one line for each snapshot, and what all of them take on the disk."""
    say("   step  id             parent         bytes  process  status", "dim")
    for snapshot in snapshots:
        parent = "-" if snapshot.parent_id is None else short(snapshot.parent_id)
        say(
            f"     {snapshot.labels['step']}  {short(snapshot.id)}  {parent:<13}"
            f"  {snapshot.size:>5}  {snapshot.metadata['process']:>7}  {snapshot.status}"
        )
    states = sum(snapshot.size for snapshot in snapshots)
    stored = sum(path.stat().st_size for path in database.parent.iterdir())
    say(f"   {len(snapshots)} states, {states:,} bytes as JSON", "dim")
    say(f"   {stored:,} bytes on the disk, with the tables and indexes of an empty store", "dim")


def checks(
    killed: Run,
    found: holdfast.Snapshot | None,
    resumed: Run,
    snapshots: list[holdfast.Snapshot],
) -> Iterator[tuple[str, bool]]:
    """Yield what must be true by now, and whether it is."""
    last = killed.last_saved
    step = 0 if found is None else found.state["step"]
    ids = {snapshot.state["step"]: snapshot.id for snapshot in snapshots}
    yield "the first process died of SIGKILL", killed.returncode == -signal.SIGKILL
    yield f"it had acknowledged at least {ACKNOWLEDGED_MIN} steps", last >= ACKNOWLEDGED_MIN
    yield "the kill came before it was done", step < STEPS
    # A save that was under way is there or not; a half of it is impossible.
    yield (
        f"step {last} was there, or the one under way, whole",
        (found is not None and step in (last, last + 1) and found.state == state_after(step)),
    )
    yield f"the new process went on with step {step + 1}", resumed.first_step == step + 1
    yield "and finished", resumed.returncode == 0 and resumed.last_saved == STEPS
    yield (
        "every acknowledged step is in history, under its id",
        (killed.saved.items() <= ids.items() and resumed.saved.items() <= ids.items()),
    )
    yield (
        "no step is missing, and none was done twice",
        ([snapshot.state["step"] for snapshot in snapshots] == list(range(1, STEPS + 1))),
    )
    yield (
        "every state reads back exactly as the agent made it",
        all(snapshot.state == state_after(at) for at, snapshot in enumerate(snapshots, start=1)),
    )
    yield (
        "each snapshot follows from the one before",
        (
            [snapshot.parent_id for snapshot in snapshots]
            == [None, *(snapshot.id for snapshot in snapshots[:-1])]
        ),
    )


def verdict(found: Iterator[tuple[str, bool]]) -> int:
    """Show each check, and return the exit code."""
    failed = 0
    for fact, holds in found:
        say(f"   {'ok    ' if holds else 'FAILED'}  {fact}", "green" if holds else "red")
        failed += not holds
    if failed:
        say(f"\n{failed} of the checks failed.\n", "red")
        return 1
    say("\nEverything holds. Nothing acknowledged was lost, nothing was done twice.\n", "green")
    return 0


# --- the terminal ---

STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32"}
COLOUR = sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def say(text: str, style: str = "") -> None:
    """Print a line, in a style where the terminal has any."""
    if style and COLOUR:
        text = f"\x1b[{STYLES[style]}m{text}\x1b[0m"
    print(text, flush=True)  # noqa: T201


def title(text: str) -> None:
    """Print the heading of a part of the story."""
    say(f"\n{text}", "bold")


def show_step(step: int) -> None:
    """Print one saved step."""
    role, content = PLAN[step - 1]
    say(f"   step {step:>2}  saved  {role:<10}  {content}")


def short(id: str) -> str:
    """Return the ends of an id, which tell ids minted in one second apart."""
    return f"{id[:8]}~{id[-4:]}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="An agent is killed in mid-run and resumes.")
    parser.add_argument("--agent", metavar="URL", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.agent:
        run_agent(asked.agent)
    else:
        sys.exit(main())
