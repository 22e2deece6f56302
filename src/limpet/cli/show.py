"""`limpet show`: one snapshot, with its messages as a chat."""

import json
from collections.abc import Iterable, Iterator
from itertools import islice

import click
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

import limpet
from limpet.cli._chat import FULL, RowLimits, code, draw_turns, draw_value, fold
from limpet.cli._shared import (
    address_options,
    complete_session,
    echo_json,
    load_snapshot,
    with_store,
)
from limpet.cli._terminal import now, output, status_text
from limpet.core.wire import info_json
from limpet.model import JSON, Snapshot
from limpet.views.chat import other_values, read_chat, value_text, without_internals
from limpet.views.diff import parts
from limpet.views.format import (
    address_text,
    age_text,
    clipped,
    moment_text,
    shown_labels,
    size_text,
    visible,
)
from limpet.views.notes import note_value, notes_with
from limpet.views.overview import status_of
from limpet.views.refs import find_snapshot

_STATE_ROWS_MAX = 60
_KEY_CELLS = 9
_NAME_CELLS_MAX = 24
_VALUE_CELLS_MIN = 10
_METADATA_CELLS_MIN = 20
_NOTES_MAX = 50


@click.command()
@click.argument("ref", default="@", shell_complete=complete_session)
@address_options
@click.option("--full", is_flag=True, help="Show long texts and values whole.")
@click.option("--raw", is_flag=True, help="Print the state as JSON.")
@click.option("--path", metavar="PATH", help="Only this value: messages.3, or /messages/3.")
@with_store()
def show(
    store: limpet.Store,
    ref: str,
    session: str | None,
    scope: str | None,
    kind: str | None,
    full: bool,
    raw: bool,
    path: str | None,
    as_json: bool,
) -> None:
    """Show one snapshot, with its messages as a chat.

    REF is an id or a unique beginning of one, @ for the head (the default), @~3 for three before
    it, SESSION or SESSION:SCOPE@. The messages of Strands, Genkit, Gemini, Anthropic, OpenAI and
    LangGraph are recognised, and plain ones; every tool call is shown with its result. Long texts
    are folded; images and other files are only named. The number after a role is the position of
    the message in the list. Its notes are at the end; what LangGraph keeps for itself
    is only in --raw.

    The exit code is 1 if there is no such snapshot, or no value at the path.

    \b
    --json: a snapshot as in `log --json`, and "state": its state,
            or the value at the path

    \b
    Examples:
      limpet show chat-42
      limpet show chat-42:planner@~3 --full
      limpet show 019ab3 --path messages.-1.content
    """
    info = find_snapshot(store, ref, session=session, scope=scope, kind=kind)
    snapshot = load_snapshot(store, info)
    value = snapshot.state if path is None else value_at(snapshot.state, path)
    if as_json:
        echo_json({**info_json(snapshot), "state": value})
        return
    with output() as console:
        if raw:
            console.out(json.dumps(value, indent=2), highlight=False)
        elif path is not None:
            draw_value(console, value)
        else:
            _draw(console, snapshot.with_(status=status_of(store, snapshot)), full=full)
            notes = islice(notes_with(store.scope(*info.scope), info.id), _NOTES_MAX)
            values = ((note.name, note_value(info.scope, note)) for note in notes)
            _draw_values(console, "notes", values, full=full)


def value_at(state: JSON, path: str) -> JSON:
    """Return the value at a path: `messages.3.content`, `messages.-1` or `/messages/3/content`.

    Keys may contain dots. `.` and the empty path are the whole state. NotFound if it has no value.
    """
    at = state
    waiting = path.split(".") if path.strip(".") else []
    if path.startswith("/"):
        waiting = parts(path)
    while waiting:
        if isinstance(at, dict):
            names = (".".join(waiting[:count]) for count in range(1, len(waiting) + 1))
            found = next((count for count, name in enumerate(names, 1) if name in at), 0)
            key: str | int = ".".join(waiting[:found])
        else:
            key = _index(at, waiting[0])
            found = int(isinstance(key, int))
        if not found:
            raise limpet.NotFound(f"the state has no value at this path. path=`{path}`")
        at, waiting = at[key], waiting[found:]
    return at


def _index(at: JSON, text: str) -> int | str:
    is_number = text.removeprefix("-").isdecimal() and len(text) < 10
    if isinstance(at, list) and is_number and -len(at) <= int(text) < len(at):
        return int(text)
    return text


def _draw(console: Console, snapshot: Snapshot, *, full: bool) -> None:
    for line in _header(snapshot, console.width):
        console.print(line, no_wrap=True, overflow="ellipsis")
    console.print()
    state = without_internals(snapshot.state)
    chat = read_chat(state)
    if chat is None:
        lines = code(value_text(state, indent=2))
        for row in fold(console, lines, Text(), None if full else _STATE_ROWS_MAX):
            console.print(row, no_wrap=True, overflow="ignore", crop=False)
        return
    draw_turns(console, chat.turns, rows=FULL if full else RowLimits())
    _draw_values(console, "other values", other_values(state, chat), full=full)


def _header(snapshot: Snapshot, width: int) -> Iterator[Text]:
    yield Text.assemble(("snapshot ", "quiet"), (visible(snapshot.id), "title"))
    key = snapshot.scope
    yield _fact("session", visible(key.session_id))
    yield _fact("scope", Text.assemble(visible(key.scope_id), (f" ({key.kind})", "quiet")))
    age = age_text(snapshot.created_at, now())
    ago = "just now" if age == "now" else f"{age} ago"
    yield _fact("saved", f"{moment_text(snapshot.created_at)} UTC, {ago}")
    yield _fact("status", status_text(snapshot.status))
    if snapshot.parent_id is not None:
        yield _fact("parent", visible(snapshot.parent_id))
    if snapshot.forked_from is not None:
        yield _fact("forked", Text(visible(address_text(*snapshot.forked_from)), "fork"))
    labels = shown_labels(snapshot)
    if labels:
        pairs = (f"{visible(name)}={visible(each)}" for name, each in labels.items())
        yield _fact("labels", "  ".join(pairs))
    if snapshot.metadata:
        room = max(_METADATA_CELLS_MIN, width - _KEY_CELLS)
        yield _fact("metadata", clipped(value_text(snapshot.metadata), room))
    draft = "" if snapshot.kept else "  a draft: lost when the head moves"
    yield _fact("size", Text.assemble((size_text(snapshot.size), "size"), (draft, "quiet")))


def _fact(name: str, value: str | Text) -> Text:
    return Text.assemble((f"{name:<{_KEY_CELLS}}", "quiet"), value)


def _draw_values(
    console: Console, title: str, values: Iterable[tuple[str, JSON]], *, full: bool
) -> None:
    named = [(visible(name), value) for name, value in values]
    if not named:
        return
    cells = min(_NAME_CELLS_MAX, max(cell_len(name) for name, _ in named))
    console.print()
    console.print(Text(title, "quiet"))
    for name, value in named:
        if full:
            console.print(Text(name, "accent"))
            for row in fold(console, code(value_text(value, indent=2)), Text("  "), None):
                console.print(row, no_wrap=True, overflow="ignore", crop=False)
            continue
        text = value_text(value)
        size = size_text(len(text.encode()))
        is_long = cell_len(text) > console.width - cells - 2
        room = console.width - cells - 4 - len(size)
        line = Text.assemble((set_cell_size(name, cells), "accent"), "  ")
        line.append(clipped(text, max(_VALUE_CELLS_MIN, room)) if is_long else text)
        line.append(f"  {size}" if is_long else "", "size")
        console.print(line, no_wrap=True, overflow="ellipsis")
