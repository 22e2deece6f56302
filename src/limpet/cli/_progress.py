"""How far a long verb is: a bar with rate and time left, for a person who waits; else nothing."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

import limpet
from limpet.cli._terminal import make_console
from limpet.opening import scheme_of
from limpet.portable import Progress
from limpet.views.sizes import size_text

_COUNTED_FAST = frozenset({"memory", "sqlite", "postgresql"})


@contextmanager
def progress(
    verb: str, total: int | None, *, seen: bool = True
) -> Iterator[Callable[[Progress], None]]:
    """Draw on the terminal beside what is printed; without one, or unless `seen`, say nothing."""
    console = make_console(stderr=True)
    if not (seen and console.is_terminal and sys.stderr.isatty()):
        yield lambda told: None
        return
    bar = Bar(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[told]}", style="quiet"),
        TimeRemainingColumn(compact=True),
        console=console,
        transient=True,
    )
    with bar:
        task = bar.add_task(verb, total=total, told="")

        def report(told: Progress) -> None:
            speed = bar.tasks[0].speed
            rate = f" · {speed:,.0f}/s" if speed else ""
            text = f"{told.snapshots:,} snapshots · {size_text(told.bytes)}{rate}"
            bar.update(task, completed=told.snapshots, told=text)

        yield report


def snapshots_in(store: limpet.Store, url: str, session_id: str | None) -> int | None:
    """Return how many there are, None where counting would take as long as the work itself."""
    if scheme_of(url) not in _COUNTED_FAST:
        return None
    return store.driver.run(lambda backend: backend.read_stats(session_id, limit=0)).snapshots
