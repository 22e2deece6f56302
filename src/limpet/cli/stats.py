"""`limpet stats`: counts, sizes, and what is largest."""

from collections.abc import Iterator
from dataclasses import asdict

import click
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

import limpet
from limpet.cli._shared import complete_session, echo_json, with_store
from limpet.cli._terminal import make_console
from limpet.views.format import bar, clipped, count_text, ratio, size_text, visible
from limpet.views.refs import find_session

_BAR_CELLS = 24
_NAME_CHARS_MAX = 40


@click.command()
@click.argument("session", required=False, shell_complete=complete_session)
@with_store()
def stats(store: limpet.Store, session: str | None, as_json: bool) -> None:
    """Show counts and sizes, and what is largest.

    For the whole store with its largest sessions, by stored bytes; or for one SESSION with the
    largest keys of its heads, as scope:key, by the size of their JSON.

    \b
    --json: {"session": text or null, "sessions": n, "scopes": n, "snapshots": n,
             "logical_bytes": n, "stored_bytes": n,
             "ratio": stored / logical, or null,
             "largest": [{"name": text, "bytes": n}, ...]}

    \b
    Examples:
      limpet stats
      limpet stats alice/chat-1
    """
    session = None if session is None else find_session(store, session)
    found = store.stats(session)
    if as_json:
        echo_json(_stats_json(session, found))
    else:
        _draw(make_console(), session, found)


def _stats_json(session: str | None, found: limpet.Stats) -> dict[str, object]:
    share = ratio(found.stored_bytes, found.logical_bytes)
    return {
        "session": session,
        **asdict(found),
        "ratio": None if share is None else round(share, 4),
        "largest": [{"name": name, "bytes": size} for name, size in found.largest],
    }


def _draw(console: Console, session: str | None, found: limpet.Stats) -> None:
    counts = [count_text(found.scopes, "scope"), count_text(found.snapshots, "snapshot")]
    if session is None:
        counts.insert(0, count_text(found.sessions, "session"))
    else:
        console.print(Text(visible(session), "title"))
    console.print(Text(" · ".join(counts)))
    share = ratio(found.stored_bytes, found.logical_bytes)
    console.print(
        Text.assemble(
            (size_text(found.logical_bytes), "size"),
            " as JSON, ",
            (size_text(found.stored_bytes), "size"),
            " stored",
            "" if share is None else f" ({share:.0%})",
        )
    )
    if found.largest:
        title = "largest sessions, stored" if session is None else "largest keys, as JSON"
        console.print()
        console.print(Text(title, "quiet"))
        for line in _bars(found.largest):
            console.print(line, no_wrap=True, overflow="ellipsis")


def _bars(largest: tuple[tuple[str, int], ...]) -> Iterator[Text]:
    names = [clipped(visible(name), _NAME_CHARS_MAX) for name, _ in largest]
    cells = max(map(cell_len, names))
    most = max(1, *(size for _, size in largest))
    for name, (_, size) in zip(names, largest, strict=True):
        yield Text.assemble(
            set_cell_size(name, cells),
            (f"  {size_text(size):>9}  ", "size"),
            (bar(size / most, _BAR_CELLS), "accent"),
        )
