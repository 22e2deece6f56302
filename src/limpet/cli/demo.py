"""`limpet demo`: an agent is killed while it runs, and nothing is lost."""

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
from rich.console import Console
from rich.rule import Rule
from rich.status import Status
from rich.text import Text

import limpet
from limpet.cli import _exits
from limpet.cli._agent import FORK_STEP, PLANS, SESSION, state_after
from limpet.cli._shared import echo_json, json_option
from limpet.cli._terminal import make_console, now
from limpet.cli.diff import ChangePrinter
from limpet.cli.log import Style, draw_graph
from limpet.core.diff import diff
from limpet.model import SnapshotRef
from limpet.opening import CLOCK
from limpet.views.diff import groups
from limpet.views.format import bar, count_text, short_id, size_text
from limpet.views.tree import build_forest, walk

_SAVED_MIN = 3  # the kill comes after this many steps at the earliest...
_SAVED_MAX = 7  # ...and early enough that the agent cannot have finished
_INDENT = "   "
_ROLE_STYLES = {"user": "accent", "agent": "title"}  # all others are tools
_BAR_CELLS = 24


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
    with tempfile.TemporaryDirectory(prefix="limpet-demo-") as folder:
        play = _Play(console, Path(folder) / "agents.db", pace)
        play.run()
    facts = [{"fact": fact, "holds": holds} for fact, holds in play.facts.items()]
    has_failed = not all(play.facts.values())
    if as_json:
        echo_json({"holds": not has_failed, "facts": facts})
    return _exits.FOUND if has_failed else _exits.FINE


@dataclass
class _Run:
    process: int = 0
    first_step: int = 0
    saved: dict[int, str] = field(default_factory=dict)
    code: int | None = None

    @property
    def last(self) -> int:
        return max(self.saved, default=0)


class _Play:
    """Plays the scenes, with a pause between them, and notes what must hold."""

    def __init__(self, console: Console, database: Path, pace_s: float) -> None:
        self.facts: dict[str, bool] = {}
        self._console = console
        self._database = database
        self._url = f"sqlite:///{quote(str(database))}"
        self._pace_s = pace_s
        self._status: Status | None = None
        self._scenes = 0

    def run(self) -> None:
        self._console.print()
        self._say(("limpet", "bold cyan"), (f" {limpet.__version__}", "quiet"))
        self._say("An agent plans a trip. Its process is killed at a random moment.")
        self._say("A new process resumes where it stopped.")
        self._scene("An agent works and saves after every step")
        killed = self._agent("main", "garden", kill=True)
        self._say(("✗ killed with SIGKILL", "bad"), f" after step {killed.last} was acknowledged")
        with limpet.open(self._url) as store:
            line = store.scope(SESSION)
            self._resume(line, killed)
            side, before = self._fork(line)
            main, ours = _history(line), _history(side)
            self._compare(before, main, ours)
            self._measure(store, [*main, *ours], [SnapshotRef(line.key, main[-1].id)])
        self._scene("Checks")
        self._verdict()

    def _resume(self, line: limpet.Scope, killed: _Run) -> None:
        self._scene("The last saved state")
        found, steps = line.load(), len(PLANS["garden"])
        step = 0 if found is None else found.state["step"]
        self._show_head(found, killed.last)
        # A save that was under way is stored whole or not at all.
        whole = found is not None and found.state == state_after(step)
        self.facts |= {
            f"the process was killed by SIGKILL after {killed.last} acknowledged steps": (
                killed.code == -signal.SIGKILL and killed.last >= _SAVED_MIN and step < steps
            ),
            f"step {step} was stored completely": whole and step in (killed.last, killed.last + 1),
        }
        self._scene("A new process resumes at the next step")
        resumed, main = self._agent("main", "garden"), _history(line)
        ids = {snapshot.state["step"]: snapshot.id for snapshot in main}
        states = [snapshot.state for snapshot in main]
        self.facts |= {
            f"the new process continued with step {step + 1}": resumed.first_step == step + 1,
            "the new process finished the work": resumed.code == 0 and resumed.last == steps,
            "every acknowledged step is in the history under its id": (
                (killed.saved | resumed.saved).items() <= ids.items()
            ),
            "no step is missing, and none was repeated": (
                [state["step"] for state in states] == list(range(1, steps + 1))
            ),
            "every state reads back exactly as it was saved": (
                states == [state_after(at) for at in range(1, steps + 1)]
            ),
        }

    def _fork(self, line: limpet.Scope) -> tuple[limpet.Scope, list[limpet.Snapshot]]:
        self._scene(f"A fork from step {FORK_STEP} takes another path")
        before = _history(line)
        source = before[FORK_STEP - 1]
        side = line.fork(source.id, patch={"lunch": "river"})
        self._say(
            ("╰─ ", "fork"),
            (side.scope_id, "fork"),
            f" from step {FORK_STEP} of {source.scope.scope_id}, with ",
            ("lunch = river", "title"),
        )
        forked, ours = self._agent(side.scope_id, "river"), _history(side)
        steps = range(FORK_STEP, len(PLANS["river"]) + 1)
        self.facts |= {
            f"the fork begins at step {FORK_STEP}, records its source, and has the patch": (
                ours[0].forked_from == (source.scope, source.id)
                and ours[0].state == state_after(FORK_STEP) | {"lunch": "river"}
            ),
            "the fork took another path to its own end": (
                forked.code == 0
                and [each.state for each in ours] == [state_after(at, "river") for at in steps]
            ),
        }
        return side, before

    def _compare(
        self,
        before: list[limpet.Snapshot],
        main: list[limpet.Snapshot],
        side: list[limpet.Snapshot],
    ) -> None:
        self.facts["the original scope did not change"] = main == before
        self._scene("The difference between both ends")
        self._say(("from the end of main to the end of the fork", "quiet"))
        mine, theirs = main[-1].state, side[-1].state
        found = diff(mine, theirs)
        printer = ChangePrinter(self._console, mine, theirs, full=False)
        printer.draw(groups(found, is_object=True))
        paths = {(change.kind, change.path) for change in found.changes}
        self.facts["the diff shows the patch and what followed from it"] = {
            ("changed", "/lunch"),
            ("changed", "/messages/7/content"),
        } <= paths and not any(path.startswith("/messages/0") for _, path in paths)

    def _measure(
        self, store: limpet.Store, snapshots: list[limpet.Snapshot], heads: list[SnapshotRef]
    ) -> None:
        self._scene("The tree of the session")
        heads = [*heads, SnapshotRef(snapshots[-1].scope, snapshots[-1].id)]
        forest = build_forest(snapshots, heads)
        nodes = list(walk(forest))
        draw_graph(self._console, store, list(store.scopes(SESSION)), None, Style(now()))
        self.facts["the tree has one root, two heads and every snapshot once"] = (
            len(forest) == 1
            and sum(node.is_head for node in nodes) == 2
            and sorted(node.info.id for node in nodes) == sorted(each.id for each in snapshots)
        )
        self._scene("Sizes on disk")
        freed, stats = store.compact(), store.stats()
        self._show_sizes(stats, freed)
        self.facts["the sizes add up, and compacting lost nothing"] = (
            stats.sessions,
            stats.scopes,
            stats.snapshots,
        ) == (1, 2, len(snapshots)) and stats.logical_bytes == sum(each.size for each in snapshots)
        self.facts["limpet check finds no errors"] = list(store.check()) == []

    # What is drawn

    def _say(self, *parts: str | tuple[str, str]) -> None:
        line = Text.assemble(_INDENT, *parts)
        self._console.print(line, no_wrap=True, overflow="ellipsis")

    def _scene(self, title: str) -> None:
        if self._scenes:
            CLOCK.sleep(self._pace_s * 2)
        self._scenes += 1
        self._console.print()
        heading = Text.assemble((f"{self._scenes}  ", "accent"), (title, "title"))
        self._console.print(Rule(heading, align="left", style="quiet"))

    def _show_head(self, head: limpet.Snapshot | None, acknowledged: int) -> None:
        if head is None:
            self._say(("nothing", "bad"))
            return
        state = head.state
        self._say(
            ("head  ", "quiet"),
            (f"step {state['step']}", "title"),
            f", {count_text(len(state['messages']), 'message')}, ",
            f"{count_text(len(state['bookings']), 'booking')}, {size_text(head.size)}",
        )
        self._say(("      ", ""), (f"{short_id(head.id)} · status {head.status}", "quiet"))
        if state["step"] > acknowledged:
            self._say("the kill came after the save and before the report: the step is stored")

    def _show_sizes(self, stats: limpet.Stats, freed: int) -> None:
        sizes = {
            f"{stats.snapshots} states, as JSON": stats.logical_bytes,
            "the same, as stored": stats.stored_bytes,
        }
        most = max(1, *sizes.values())
        for name, size in sizes.items():
            blocks = bar(size / most, _BAR_CELLS)
            self._say(f"{name:<24}", (f"{size_text(size):>9}  ", "size"), (blocks, "accent"))
        self._say(
            f"{'the file, compacted':<24}",
            (f"{size_text(self._database.stat().st_size):>9}  ", "size"),
            (f"with indexes; {size_text(freed)} of log freed", "quiet"),
        )

    def _verdict(self) -> None:
        for fact, holds in self.facts.items():
            self._say(("✓ " if holds else "✗ FAILED: ", "good" if holds else "bad"), fact)
        failed = sum(not holds for holds in self.facts.values())
        self._console.print()
        if failed:
            self._say((f"{count_text(failed, 'check')} failed.", "bad"))
        else:
            self._say(("All checks passed.", "good"), " No acknowledged step was lost or repeated,")
            self._say("and every step can be restored.")
        self._console.print()

    # The agent, in a process of its own

    def _agent(self, scope_id: str, lunch: str, *, kill: bool = False) -> _Run:
        """Run the agent to its end, or kill it with SIGKILL at a random moment."""
        enough = _SAVED_MIN + int(CLOCK.jitter() * (_SAVED_MAX - _SAVED_MIN + 1))
        run = _Run()
        # -P: a file in the current folder must not be taken for the package.
        command = [sys.executable, "-P", "-m", "limpet.cli._agent"]
        command += [self._url, scope_id, str(self._pace_s)]
        with (
            self._spinner(),
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as agent,  # noqa: S603
        ):
            run.process = agent.pid
            try:
                for line in agent.stdout or ():
                    if not line.endswith("\n"):
                        break  # killed within a line, which acknowledges nothing
                    self._read_event(json.loads(line), run, lunch)
                    if kill and run.last >= enough:
                        CLOCK.sleep(CLOCK.jitter() * self._pace_s * 1.5)
                        agent.kill()  # what it still reported before that is read
                        kill = False
                run.code = agent.wait()
            finally:
                agent.kill()
        return run

    @contextmanager
    def _spinner(self) -> Iterator[None]:
        if not self._console.is_terminal or self._console.is_dumb_terminal:
            yield
            return
        with self._console.status(Text("starting a process", "quiet")) as self._status:
            yield
        self._status = None

    def _read_event(self, event: dict[str, Any], run: _Run, lunch: str) -> None:
        step, plan = event["step"], PLANS[lunch]
        if event["event"] == "begin":
            run.first_step = step
            self._say((f"process {run.process} begins at step {step}", "quiet"))
        else:
            run.saved[step] = event["id"]
            taken = plan[step - 1]
            self._say(
                (f"{step:>2}  ", "quiet"),
                (f"{taken.who:<8} ", _ROLE_STYLES.get(taken.who, "odd")),
                f"{taken.content:<56}",
                (f"{event['took_ms']:>5.1f} ms", "quiet"),
            )
        following = step + (event["event"] == "saved")
        if self._status is not None and following <= len(plan):
            self._status.update(Text(f"step {following}", "quiet"))


def _history(scope: limpet.Scope) -> list[limpet.Snapshot]:
    newest_first = [info.id for info in scope.history()]
    return list(scope.load_many(reversed(newest_first)))
