"""`limpet demo`: an agent is killed while it runs, and nothing is lost."""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.parse import quote

import click

import limpet
from limpet.cli import _exits
from limpet.cli._shared import echo_json, json_option
from limpet.cli._terminal import make_console
from limpet.cli.demo.agent import FORK_STEP, SESSION
from limpet.cli.demo.proof import Fact, Story, facts
from limpet.cli.demo.run import AgentJob, AgentRun, run_and_kill, run_to_the_end
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
    --json: {"holds": true or false, "facts": [{"fact": text, "holds": true or false}, ...]}

    \b
    Examples:
      limpet demo
      limpet demo --pace 0.05 --json
    """
    console = make_console()
    console.quiet = as_json
    with tempfile.TemporaryDirectory(prefix="limpet-demo-") as folder:
        play = _Play(Stage(console, pause_s=pace * 2), Path(folder) / "agents.db", pace)
        holds = play.run()
        if as_json:
            facts = [{"fact": fact, "holds": is_true} for fact, is_true in play.facts]
            echo_json({"holds": holds, "facts": facts})
    return _exits.FINE if holds else _exits.FOUND


class _Play:
    def __init__(self, stage: Stage, database: Path, pace: float) -> None:
        self._stage = stage
        self._database = database
        self._url = f"sqlite:///{quote(str(database))}"
        self._pace = pace
        self._story = Story()
        self.facts: list[Fact] = []

    def run(self) -> bool:
        self._stage.open()
        self._stage.scene("An agent works and saves after every step")
        self._story.killed = self._watched(run_and_kill, "main", "garden")
        self._stage.show_kill(self._story.killed)
        with limpet.open(self._url) as store:
            self._load(store)
            self._stage.scene("A new process resumes at the next step")
            self._story.resumed = self._watched(run_to_the_end, "main", "garden")
            side = self._fork(store)
            self._compare(store, side)
            self._measure(store)
        self._stage.scene("Checks")
        self.facts = list(facts(self._story))
        return self._stage.show_verdict(self.facts)

    def _watched(self, run: Callable[[AgentJob], AgentRun], scope_id: str, lunch: str) -> AgentRun:
        watch = partial(self._stage.watch, lunch)
        with self._stage.thinking():
            return run(AgentJob(self._url, scope_id, self._pace, watch))

    def _load(self, store: limpet.Store) -> None:
        self._stage.scene("The last saved state")
        self._story.found = store.scope(SESSION).load()
        self._stage.show_head(self._story)

    def _fork(self, store: limpet.Store) -> limpet.Scope:
        self._stage.scene(f"A fork from step {FORK_STEP} takes another path")
        line = store.scope(SESSION)
        self._story.before_fork = _load_history(line)
        source = next(line.history(labels={"step": f"{FORK_STEP:02}"}), None)
        if source is None:
            raise limpet.NotFound(f"the step to fork from is missing. step=`{FORK_STEP}`")
        side = line.fork(source.id, patch={"lunch": "river"})
        self._stage.show_fork(source, side.scope_id)
        self._story.forked = self._watched(run_to_the_end, side.scope_id, "river")
        return side

    def _compare(self, store: limpet.Store, side: limpet.Scope) -> None:
        story = self._story
        story.main, story.side = _load_history(store.scope(SESSION)), _load_history(side)
        self._stage.scene("The difference between both ends")
        story.diff = diff(story.main[-1].state, story.side[-1].state)
        self._stage.show_diff(story.diff, ("main", side.scope_id))
        self._stage.scene("The tree of the session")
        heads = [scope.head for scope in store.scopes(SESSION) if scope.head is not None]
        story.forest = build_forest(
            [*story.main, *story.side], [SnapshotRef(head.scope, head.id) for head in heads]
        )
        self._stage.show_tree(story)

    def _measure(self, store: limpet.Store) -> None:
        self._stage.scene("Sizes on disk")
        freed = store.compact()
        self._story.stats = store.stats()
        file_bytes = self._database.stat().st_size
        self._stage.show_sizes(self._story.stats, file_bytes, freed)
        self._story.findings = list(store.check())


def _load_history(scope: limpet.Scope) -> list[limpet.Snapshot]:
    newest_first = [info.id for info in scope.history()]
    return list(scope.load_many(reversed(newest_first)))
