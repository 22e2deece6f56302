"""The checks at the end of the demo."""

import signal
from collections.abc import Iterator
from dataclasses import dataclass, field

import limpet
from limpet.cli.demo.agent import FORK_STEP, PLANS, state_after
from limpet.cli.demo.run import ACKNOWLEDGED_MIN, AgentRun
from limpet.views.tree import Node, walk

Fact = tuple[str, bool]


@dataclass
class Story:
    """What the processes reported, and what the store held afterwards."""

    killed: AgentRun = field(default_factory=AgentRun)
    found: limpet.Snapshot | None = None
    resumed: AgentRun = field(default_factory=AgentRun)
    before_fork: list[limpet.Snapshot] = field(default_factory=list)
    forked: AgentRun = field(default_factory=AgentRun)
    main: list[limpet.Snapshot] = field(default_factory=list)
    side: list[limpet.Snapshot] = field(default_factory=list)
    diff: limpet.Diff = field(default_factory=lambda: limpet.Diff(()))
    forest: list[Node] = field(default_factory=list)
    stats: limpet.Stats | None = None
    findings: list[limpet.Finding] = field(default_factory=list)


def facts(story: Story) -> Iterator[Fact]:
    yield from _killed(story)
    yield from _resumed(story)
    yield from _forked(story)
    yield from _kept(story)


def _killed(story: Story) -> Iterator[Fact]:
    last, found = story.killed.last_saved, story.found
    step = 0 if found is None else found.state["step"]
    yield (
        f"the process was killed by SIGKILL after {last} acknowledged steps",
        story.killed.returncode == -signal.SIGKILL
        and last >= ACKNOWLEDGED_MIN
        and step < len(PLANS["garden"]),
    )
    # A save that was under way is stored whole or not at all.
    whole = found is not None and found.state == state_after(step)
    yield f"step {step} was stored completely", whole and step in (last, last + 1)


def _resumed(story: Story) -> Iterator[Fact]:
    step = 0 if story.found is None else story.found.state["step"]
    steps = len(PLANS["garden"])
    resumed, main = story.resumed, story.main
    ids = {snapshot.state["step"]: snapshot.id for snapshot in main}
    yield f"the new process continued with step {step + 1}", resumed.first_step == step + 1
    yield (
        "the new process finished the work",
        resumed.returncode == 0 and resumed.last_saved == steps and resumed.saved != {},
    )
    yield (
        "every acknowledged step is in the history under its id",
        len(ids) > 0 and (story.killed.saved | resumed.saved).items() <= ids.items(),
    )
    yield (
        "no step is missing, and none was repeated",
        [snapshot.state["step"] for snapshot in main] == list(range(1, steps + 1)),
    )
    yield (
        "every state reads back exactly as it was saved",
        main != [] and all(each.state == state_after(at) for at, each in enumerate(main, start=1)),
    )


def _forked(story: Story) -> Iterator[Fact]:
    main, side = story.main, story.side
    steps = len(PLANS["river"])
    first = side[0] if side else None
    source = next((each for each in main if each.state["step"] == FORK_STEP), None)
    yield (
        f"the fork begins at step {FORK_STEP}, records its source, and has the patch",
        first is not None
        and source is not None
        and first.forked_from == (source.scope, source.id)
        and first.state == state_after(FORK_STEP) | {"lunch": "river"},
    )
    yield (
        "the fork took another path to its own end",
        story.forked.returncode == 0
        and [each.state for each in side]
        == [state_after(at, "river") for at in range(FORK_STEP, steps + 1)],
    )
    yield "the original scope did not change", main == story.before_fork != []
    paths = {(change.kind, change.path) for change in story.diff.changes}
    yield (
        "the diff shows the patch and what followed from it",
        {("changed", "/lunch"), ("changed", "/messages/7/content")} <= paths
        and not any(path.startswith("/messages/0") for _, path in paths),
    )


def _kept(story: Story) -> Iterator[Fact]:
    snapshots = [*story.main, *story.side]
    nodes = list(walk(story.forest))
    yield (
        "the tree has one root, two heads and every snapshot once",
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
    yield "limpet check finds no errors", story.findings == []
