"""What must be true at the end of the demonstration, and whether it is."""

import signal
from collections.abc import Iterator
from dataclasses import dataclass, field

import limpet
from limpet.cli.demo.agent import FORK_STEP, PLANS, state_after
from limpet.cli.demo.run import ACKNOWLEDGED_MIN, Run
from limpet.views.tree import Node, walk

Fact = tuple[str, bool]


@dataclass
class Story:
    """What happened, as the processes reported it, and what the file held afterwards."""

    killed: Run = field(default_factory=Run)
    found: limpet.Snapshot | None = None
    resumed: Run = field(default_factory=Run)
    before_fork: list[limpet.Snapshot] = field(default_factory=list)
    forked: Run = field(default_factory=Run)
    line: list[limpet.Snapshot] = field(default_factory=list)
    side: list[limpet.Snapshot] = field(default_factory=list)
    diff: limpet.Diff = field(default_factory=lambda: limpet.Diff(()))
    forest: list[Node] = field(default_factory=list)
    stats: limpet.Stats | None = None
    findings: list[limpet.Finding] = field(default_factory=list)


def facts(story: Story) -> Iterator[Fact]:
    """Yield each thing that must be true, and whether it is."""
    yield from _killed(story)
    yield from _resumed(story)
    yield from _forked(story)
    yield from _kept(story)


def _killed(story: Story) -> Iterator[Fact]:
    last, found = story.killed.last_saved, story.found
    step = 0 if found is None else found.state["step"]
    yield (
        f"a real SIGKILL, in mid-run, after {last} acknowledged steps",
        story.killed.returncode == -signal.SIGKILL
        and last >= ACKNOWLEDGED_MIN
        and step < len(PLANS["garden"]),
    )
    # A save that was under way is there or not; a half of it is impossible.
    whole = found is not None and found.state == state_after(step)
    yield f"step {step} was there, whole", whole and step in (last, last + 1)


def _resumed(story: Story) -> Iterator[Fact]:
    step = 0 if story.found is None else story.found.state["step"]
    steps = len(PLANS["garden"])
    resumed, line = story.resumed, story.line
    ids = {snapshot.state["step"]: snapshot.id for snapshot in line}
    yield f"the new process went on with step {step + 1}", resumed.first_step == step + 1
    yield (
        "and brought the work to its end",
        resumed.returncode == 0 and resumed.last_saved == steps and resumed.saved != {},
    )
    yield (
        "every acknowledged step is in the history, under its id",
        len(ids) > 0 and (story.killed.saved | resumed.saved).items() <= ids.items(),
    )
    yield (
        "no step is missing, and none was done twice",
        [snapshot.state["step"] for snapshot in line] == list(range(1, steps + 1)),
    )
    yield (
        "every state reads back exactly as the agent made it",
        line != [] and all(each.state == state_after(at) for at, each in enumerate(line, start=1)),
    )


def _forked(story: Story) -> Iterator[Fact]:
    line, side = story.line, story.side
    steps = len(PLANS["river"])
    first = side[0] if side else None
    source = next((each for each in line if each.state["step"] == FORK_STEP), None)
    yield (
        f"the fork begins at step {FORK_STEP}, knows where it came from, and has the patch",
        first is not None
        and source is not None
        and first.forked_from == (source.scope, source.id)
        and first.state == state_after(FORK_STEP) | {"lunch": "river"},
    )
    yield (
        "the fork took another turn, to its own end",
        story.forked.returncode == 0
        and [each.state for each in side]
        == [state_after(at, "river") for at in range(FORK_STEP, steps + 1)],
    )
    yield "the first line did not notice", line == story.before_fork != []
    paths = {(change.kind, change.path) for change in story.diff.changes}
    yield (
        "the diff names what differs: the patch, and what followed from it",
        {("changed", "/lunch"), ("changed", "/messages/7/content")} <= paths
        and not any(path.startswith("/messages/0") for _, path in paths),
    )


def _kept(story: Story) -> Iterator[Fact]:
    snapshots = [*story.line, *story.side]
    nodes = list(walk(story.forest))
    yield (
        "the tree has one root, two heads, and every snapshot once",
        len(story.forest) == 1
        and sum(node.is_head for node in nodes) == 2
        and sorted(node.info.id for node in nodes) == sorted(each.id for each in snapshots),
    )
    stats = story.stats
    yield (
        "the sizes add up, and compacting lost nothing",
        stats is not None
        and (stats.sessions, stats.scopes, stats.snapshots) == (1, 2, len(snapshots))
        and stats.logical_bytes == sum(each.size for each in snapshots),
    )
    yield "limpet check finds nothing wrong", story.findings == []
