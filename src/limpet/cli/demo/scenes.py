"""Draws the demo."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.rule import Rule
from rich.status import Status
from rich.text import Text

import limpet
from limpet.cli._tables import now
from limpet.cli.demo.agent import FORK_STEP, PLANS, SESSION
from limpet.cli.demo.proof import Fact, Story
from limpet.cli.demo.run import AgentRun, Event
from limpet.cli.diff import ChangePrinter
from limpet.cli.log import Style, draw_graph
from limpet.opening import CLOCK
from limpet.views.diff import groups
from limpet.views.format import bar, count_text, short_id, size_text

_INDENT = "   "
_ROLE_STYLES = {"user": "accent", "agent": "title"}  # all others are tools
_BAR_CELLS = 24


class Stage:
    """Draws the scenes, with a pause between them."""

    def __init__(self, console: Console, pause_s: float) -> None:
        self._console = console
        self._pause_s = pause_s
        self._status: Status | None = None
        self._scenes = 0

    def say(self, *parts: str | tuple[str, str]) -> None:
        line = Text.assemble(_INDENT, *parts)
        self._console.print(line, no_wrap=True, overflow="ellipsis")

    def open(self) -> None:
        self._console.print()
        self.say(("limpet", "bold cyan"), (f" {limpet.__version__}", "quiet"))
        self.say("An agent plans a trip. Its process is killed at a random moment.")
        self.say("A new process resumes where it stopped.")

    def scene(self, title: str) -> None:
        if self._scenes:
            CLOCK.sleep(self._pause_s)
        self._scenes += 1
        self._console.print()
        heading = Text.assemble((f"{self._scenes}  ", "accent"), (title, "title"))
        self._console.print(Rule(heading, align="left", style="quiet"))

    @contextmanager
    def thinking(self) -> Iterator[None]:
        """Show a spinner if there is a terminal."""
        if not self._console.is_terminal or self._console.is_dumb_terminal:
            yield
            return
        with self._console.status(Text("starting a process", "quiet")) as self._status:
            yield
        self._status = None

    def watch(self, lunch: str, run: AgentRun, event: Event) -> None:
        plan = PLANS[lunch]
        if event["event"] == "begin":
            self.say((f"process {run.process} begins at step {event['step']}", "quiet"))
        else:
            step = plan[event["step"] - 1]
            self.say(
                (f"{event['step']:>2}  ", "quiet"),
                (f"{step.who:<8} ", _ROLE_STYLES.get(step.who, "odd")),
                f"{step.content:<56}",
                (f"{event['took_ms']:>5.1f} ms", "quiet"),
            )
        following = event["step"] + (event["event"] == "saved")
        if self._status is not None and following <= len(plan):
            self._status.update(Text(f"step {following}", "quiet"))

    def show_kill(self, run: AgentRun) -> None:
        self.say(("✗ killed with SIGKILL", "bad"), f" after step {run.last_saved} was acknowledged")

    def show_head(self, story: Story) -> None:
        head = story.found
        if head is None:
            self.say(("nothing", "bad"))
            return
        state = head.state
        self.say(
            ("head  ", "quiet"),
            (f"step {state['step']}", "title"),
            f", {count_text(len(state['messages']), 'message')}, ",
            f"{count_text(len(state['bookings']), 'booking')}, {size_text(head.size)}",
        )
        self.say(("      ", ""), (f"{short_id(head.id)} · status {head.status}", "quiet"))
        if state["step"] > story.killed.last_saved:
            self.say("the kill came after the save and before the report: the step is stored")

    def show_fork(self, source: limpet.SnapshotInfo, scope_id: str) -> None:
        self.say(
            ("╰─ ", "fork"),
            (scope_id, "fork"),
            f" from step {FORK_STEP} of {source.scope.scope_id}, with ",
            ("lunch = river", "title"),
        )

    def show_diff(self, story: Story) -> None:
        main, side = story.main[-1].state, story.side[-1].state
        self.say(("from the end of main to the end of the fork", "quiet"))
        ChangePrinter(self._console, main, side, full=False).draw(
            groups(story.diff, is_object=True)
        )

    def show_tree(self, store: limpet.Store) -> None:
        draw_graph(self._console, store, list(store.scopes(SESSION)), None, Style(now()))

    def show_sizes(self, stats: limpet.Stats, file_bytes: int, freed: int) -> None:
        sizes = {
            f"{stats.snapshots} states, as JSON": stats.logical_bytes,
            "the same, as stored": stats.stored_bytes,
        }
        most = max(1, *sizes.values())
        for name, size in sizes.items():
            blocks = bar(size / most, _BAR_CELLS)
            self.say(f"{name:<24}", (f"{size_text(size):>9}  ", "size"), (blocks, "accent"))
        self.say(
            f"{'the file, compacted':<24}",
            (f"{size_text(file_bytes):>9}  ", "size"),
            (f"with indexes; {size_text(freed)} of log freed", "quiet"),
        )

    def show_verdict(self, facts: Iterable[Fact]) -> bool:
        failed = 0
        for fact, holds in facts:
            self.say(("✓ " if holds else "✗ FAILED: ", "good" if holds else "bad"), fact)
            failed += not holds
        self._console.print()
        if failed:
            self.say((f"{count_text(failed, 'check')} failed.", "bad"))
        else:
            self.say(("All checks passed.", "good"), " No acknowledged step was lost or repeated,")
            self.say("and every step can be restored.")
        self._console.print()
        return not failed
