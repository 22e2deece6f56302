"""Draws the demo."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.rule import Rule
from rich.status import Status
from rich.text import Text

import limpet
from limpet.cli.demo.agent import FORK_STEP, PLANS
from limpet.cli.demo.proof import Fact, Story
from limpet.cli.demo.run import AgentRun, Event
from limpet.opening import CLOCK
from limpet.views.diff import DiffRow, diff_rows
from limpet.views.format import bar, clipped, count_text, short_id, size_text
from limpet.views.tree import Node, RailCell, rails

_INDENT = "   "
_ROLE_STYLES = {"user": "accent", "agent": "title"}  # all others are tools
_MARKS = {"+": "good", "-": "bad", "~": "odd", ">": "accent"}
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

    def show_diff(self, diff: limpet.Diff, names: tuple[str, str]) -> None:
        self.say((f"from the end of {names[0]} to the end of {names[1]}", "quiet"))
        rows = list(diff_rows(diff))
        path_chars = max((len(row.path) for row in rows), default=0)
        for row in rows:
            self._show_change(row, path_chars)

    def _show_change(self, row: DiffRow, path_chars: int) -> None:
        room = self._console.width - len(_INDENT) - path_chars - 4
        before, after = row.before, row.after
        mark, path = (f"{row.mark} ", _MARKS[row.mark]), f"{row.path:<{path_chars}}  "
        if before is None or after is None:
            self.say(mark, path, clipped(before or after or "", room))
        elif len(before) + len(after) + 3 <= room:
            self.say(mark, path, (before, "quiet"), " → ", after)
        else:
            self.say(mark, path, (clipped(before, room), "quiet"))
            self.say(" " * (path_chars + 2), "→ ", clipped(after, room))

    def show_tree(self, story: Story) -> None:
        for row in rails(story.forest):
            last = next(cell.node for cell in reversed(row) if cell.node is not None)
            self.say(
                *(_styled(cell, story) for cell in row),
                (f"  {last.info.scope.scope_id}", "fork" if _forked(last) else "title"),
                ("  ◆ head" if last.is_head else "", "good"),
                (f"  step {last.info.labels['step']}, {last.info.status}", "quiet"),
            )
        self.say(
            ("●", "accent"), ("  a snapshot    ", "quiet"), ("✗", "bad"), ("  the kill", "quiet")
        )

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


def _forked(node: Node) -> bool:
    return "~" in node.info.scope.scope_id


def _styled(cell: RailCell, story: Story) -> tuple[str, str]:
    """Return a character and its style: a colour for each process, `✗` for the kill."""
    if cell.node is None:
        return cell.char, ""
    if _forked(cell.node):
        return cell.char, "fork"
    info = cell.node.info
    if cell.char == "─" and story.found is not None and info.parent_id == story.found.id:
        return "✗", "bad"
    return cell.char, "accent" if info.metadata["process"] == story.killed.process else "good"
