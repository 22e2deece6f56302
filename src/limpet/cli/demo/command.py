"""`limpet demo`: an agent is killed while it runs, and nothing is lost."""

import tempfile
from functools import partial
from pathlib import Path
from urllib.parse import quote

import click

import limpet
from limpet.cli import _exits
from limpet.cli._shared import echo_json, json_option
from limpet.cli._terminal import make_console
from limpet.cli.demo.agent import FORK_STEP, SESSION
from limpet.cli.demo.proof import Story, facts
from limpet.cli.demo.run import AgentJob, AgentRun, run_agent
from limpet.cli.demo.scenes import Stage
from limpet.core.diff import diff
from limpet.model import SnapshotRef
from limpet.views.tree import build_forest


@click.command()
@click.option(
    "--pace",
    metavar="SECONDS",
    type=click.FloatRange(0.01, 10),
    default=0.4,
    show_default=True,
    help="How long the agent waits before each step.",
)
@json_option
def demo(pace: float, as_json: bool) -> int:
    """Watch an agent being killed and resumed.

    A scripted agent, in a process of its own, saves after every step to a SQLite file in
    a temporary folder. It is killed with SIGKILL at a random moment; another process resumes it;
    a fork takes another path; the two are compared. The exit code is 0 only if every check passes.

    \b
    --json: {"holds": true or false,
             "facts": [{"fact": text, "holds": true or false}, ...]}

    \b
    Examples:
      limpet demo
      limpet demo --pace 0.05 --json
    """
    console = make_console()
    console.quiet = as_json
    stage = Stage(console, pause_s=pace * 2)
    with tempfile.TemporaryDirectory(prefix="limpet-demo-") as folder:
        story = _play(stage, Path(folder) / "agents.db", pace)
        stage.scene("Checks")
        found = list(facts(story))
        holds = stage.show_verdict(found)
    if as_json:
        shapes = [{"fact": fact, "holds": is_true} for fact, is_true in found]
        echo_json({"holds": holds, "facts": shapes})
    return _exits.FINE if holds else _exits.FOUND


def _play(stage: Stage, database: Path, pace: float) -> Story:
    url = f"sqlite:///{quote(str(database))}"
    story = Story()

    def run(scope_id: str, lunch: str, *, kill: bool = False) -> AgentRun:
        with stage.thinking():
            job = AgentJob(url, scope_id, pace, partial(stage.watch, lunch))
            return run_agent(job, kill=kill)

    stage.open()
    stage.scene("An agent works and saves after every step")
    story.killed = run("main", "garden", kill=True)
    stage.show_kill(story.killed)
    with limpet.open(url) as store:
        line = store.scope(SESSION)
        stage.scene("The last saved state")
        story.found = line.load()
        stage.show_head(story)
        stage.scene("A new process resumes at the next step")
        story.resumed = run("main", "garden")
        stage.scene(f"A fork from step {FORK_STEP} takes another path")
        story.before_fork = _load_history(line)
        source = story.before_fork[FORK_STEP - 1]
        side = line.fork(source.id, patch={"lunch": "river"})
        stage.show_fork(source, side.scope_id)
        story.forked = run(side.scope_id, "river")
        stage.scene("The difference between both ends")
        story.main, story.side = _load_history(line), _load_history(side)
        story.diff = diff(story.main[-1].state, story.side[-1].state)
        stage.show_diff(story)
        stage.scene("The tree of the session")
        heads = [SnapshotRef(line.key, story.main[-1].id), SnapshotRef(side.key, story.side[-1].id)]
        story.forest = build_forest([*story.main, *story.side], heads)
        stage.show_tree(store)
        stage.scene("Sizes on disk")
        freed = store.compact()
        story.stats = store.stats()
        stage.show_sizes(story.stats, database.stat().st_size, freed)
        story.findings = list(store.check())
    return story


def _load_history(scope: limpet.Scope) -> list[limpet.Snapshot]:
    newest_first = [info.id for info in scope.history()]
    return list(scope.load_many(reversed(newest_first)))
