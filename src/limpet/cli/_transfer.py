"""What export, import and copy share: a progress bar, the report of skipped data, atomic files."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from typing import IO

from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.text import Text

import limpet
from limpet.cli import _exits
from limpet.cli._shared import SKIPPED_SHOWN
from limpet.cli._terminal import make_console
from limpet.opening import draw, file_of, scheme_of
from limpet.portable import Progress
from limpet.views.format import address_text, count_text, size_text, visible

_UNLISTED = {"head_missing", "link_skipped"}  # not damage of what listings show
_COUNTED_FAST = frozenset({"memory", "sqlite", "postgresql"})


@contextmanager
def progress(
    verb: str, total: int | None, *, shown: bool = True
) -> Iterator[Callable[[Progress], None]]:
    """Draw a progress bar on stderr if that is a terminal; `total` None means unknown."""
    console = make_console(stderr=True)
    if not (shown and console.is_terminal and sys.stderr.isatty()):
        yield lambda done: None
        return
    bar = Bar(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[done]}", style="quiet"),
        TimeRemainingColumn(compact=True),
        console=console,
        transient=True,
    )
    with bar:
        task = bar.add_task(verb, total=total, done="")

        def report(done: Progress) -> None:
            speed = bar.tasks[0].speed
            rate = f" · {speed:,.0f}/s" if speed else ""
            text = f"{done.snapshots:,} snapshots · {size_text(done.bytes)}{rate}"
            bar.update(task, completed=done.snapshots, done=text)

        yield report


def snapshots_in(store: limpet.Store, url: str, session_id: str | None) -> int | None:
    """Return the number of snapshots, None where counting would take as long as the work."""
    if scheme_of(url) not in _COUNTED_FAST:
        return None
    return store.driver.run(lambda backend: backend.read_stats(session_id, limit=0)).snapshots


def draw_skipped(skipped: Sequence[limpet.Finding]) -> None:
    """Report what was skipped: all of a few, else how many and the first."""
    console = make_console(stderr=True)
    if len(skipped) > SKIPPED_SHOWN:
        noun = "snapshot" if all(each.id for each in skipped) else "item"
        total = f"{count_text(len(skipped), noun)} skipped; the first {SKIPPED_SHOWN}:"
        console.print(Text(total, "odd"), soft_wrap=True)
    for each in skipped[:SKIPPED_SHOWN]:
        where = "" if each.scope is None else address_text(each.scope, each.id)
        text = Text.assemble(("skipped  ", "odd"), visible(f"{where} {each.message}".strip()))
        console.print(text, soft_wrap=True)


def code_of_skipped(skipped: Sequence[limpet.Finding]) -> int:
    """Return the exit code of a transfer that left something out."""
    if not skipped:
        return _exits.FINE
    return _exits.FOUND if {each.code for each in skipped} <= _UNLISTED else _exits.CORRUPT


def check_output(path: str, url: str) -> None:
    """Refuse to write to a file of the store that is read, by whatever name."""
    store, target = file_of(url), os.path.realpath(path)
    if store is None:
        return
    store = os.path.realpath(store)
    names = [f"{store}{ending}" for ending in ("", "-wal", "-shm", "-journal")]
    inside = os.path.isdir(store) and os.path.commonpath([store, target]) == store
    if inside or target in names or _is_one_of(target, names, store):
        raise limpet.InvalidInput(f"the output is a file of the store itself. path=`{path}`")


def _is_one_of(target: str, names: Sequence[str], folder: str) -> bool:
    """Return whether a file is one of these or in a folder, also if it has a second name there."""
    try:
        found = os.stat(target)
    except OSError:
        return False
    if found.st_nlink < 2:
        return False
    inner = (os.path.join(above, name) for above, _, files in os.walk(folder) for name in files)
    for path in chain(names, inner):
        with suppress(OSError):
            if os.path.samestat(os.stat(path, follow_symlinks=False), found):
                return True
    return False


@contextmanager
def atomic_file(path: str) -> Iterator[IO[bytes]]:
    """Open a file that is replaced as a whole at the end, or stays as it was.

    A link is followed. A pipe or a device is written to directly. Only the owner can read the
    file, as those of stores, also where others could read the one before.
    """
    target = os.path.realpath(path)
    try:
        is_special = os.path.exists(target) and not os.path.isfile(target)
        with open(target, "wb") if is_special else _staged(target) as file:
            yield file
    except BrokenPipeError:
        raise
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise limpet.Unavailable(f"cannot write the file: {reason}. path=`{path}`") from error


@contextmanager
def _staged(path: str) -> Iterator[IO[bytes]]:
    staged = f"{path}.{draw().nonce}.part"
    try:
        with open(staged, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(staged, path)
    finally:
        with suppress(OSError):
            os.unlink(staged)
