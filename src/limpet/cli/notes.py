"""`limpet notes`: list, show, write and delete notes, and memories of LangGraph's store."""

from collections.abc import Iterator
from itertools import chain

import click
from rich.text import Text

import limpet
from limpet.cli import _exits
from limpet.cli._chat import draw_value
from limpet.cli._shared import (
    complete_session,
    confirm,
    echo_json,
    existing_store,
    parse_json,
    store_options,
    yes_option,
)
from limpet.cli._terminal import Cells, Column, output, print_line, print_table, say
from limpet.core.wire import time_json
from limpet.views.format import address_text, json_start, short_id, visible
from limpet.views.notes import ITEMS, VECTORS, note_value, notes_of
from limpet.views.refs import find_scope, find_session

_VALUE_CHARS_MAX = 500
_Found = tuple[limpet.ScopeKey, limpet.Note]
_NOTES: Cells = {
    Column("scope", cells_min=8, rank=3): lambda found: Text(
        "" if found[0].scope_id == "main" else visible(found[0].scope_id), "quiet"
    ),
    Column("note", cells_min=12): lambda found: Text(visible(found[1].name), "title"),
    Column("on", rank=2): lambda found: Text(visible(short_id(found[1].snapshot_id or ""))),
    Column("age", right=True, rank=1): lambda found: found[1].updated_at,
    Column("value", cells_min=20): lambda found: Text(
        json_start(note_value(*found), _VALUE_CHARS_MAX, indent=None)
    ),
}


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.argument("name", required=False)
@click.option("--set", "value", metavar="JSON", help="Write the note NAME.")
@click.option("--rm", is_flag=True, help="Delete the note NAME.")
@click.option("--on", metavar="ID", help="Of the snapshot with this id, written in full.")
@click.option("--scope", metavar="SCOPE", help="The id of the scope.")
@click.option("--kind", metavar="KIND", help="The kind of the scope, if several match.")
@yes_option
@store_options
def notes(
    session: str,
    name: str | None,
    value: str | None,
    rm: bool,
    on: str | None,
    yes: bool,
    url: str,
    as_json: bool,
    **where: str | None,
) -> int:
    """Show the notes of a SESSION; write or delete one.

    With NAME alone, shows its value whole. Notes are small documents next to a scope, or next to a
    snapshot of it. A namespace of LangGraph's store is a session, and its memories are notes, which
    can be shown and deleted.

    The exit code is 1 if there is no such session, scope or note.

    \b
    --json: a line for each note:
            {"session_id": text, "scope_id": text, "kind": text, "name": text,
             "on": id of a snapshot or null, "value": JSON,
             "revision": text, "updated_at": time}

    \b
    Examples:
      limpet notes chat-42
      limpet notes chat-42 title --set '"A trip to Lisbon"'
      limpet notes users/alice favourite-food
    """
    is_change = rm or value is not None
    if (rm and value is not None) or (is_change and name is None):
        raise click.UsageError("give NAME with --set or --rm, and one of the two")
    with existing_store(url, read_only=not is_change) as store:
        if name is not None and is_change:
            scope = store.scope(*find_scope(store, session, **where).key)
            _change(scope, name, value, on, yes=yes)
            return _exits.FINE
        found = _found(store, session, name, on, **where)
        first = next(found, None)
        if first is None and name is not None:
            raise _missing(name)
        if first is None:
            click.echo("there are no notes", err=True)
            return _exits.FINE
        notes = chain([first], found)
        if as_json:
            for key, note in notes:
                facts = {"name": note.name, "on": note.snapshot_id, "value": note_value(key, note)}
                written = {"revision": note.revision, "updated_at": time_json(note.updated_at)}
                echo_json({**key._asdict(), **facts, **written}, indent=None)
        elif name is None:
            with output(wide=True) as console:
                print_table(console, _NOTES, notes)
        else:
            _show(notes)
    return _exits.FINE


def _found(
    store: limpet.Store,
    session: str,
    name: str | None,
    on: str | None,
    scope: str | None,
    kind: str | None,
) -> Iterator[_Found]:
    session_id = find_session(store, session)
    every = store.scopes(session_id, kind=kind) if scope is None else ()
    # It says what is missing.
    for key in [each.key for each in every] or [find_scope(store, session_id, scope, kind).key]:
        for note in notes_of(store.scope(*key), name, on):
            yield key, note


def _change(
    scope: limpet.Scope, name: str, value: str | None, on: str | None, *, yes: bool
) -> None:
    called = visible(f"{name} of {address_text(scope.key, on or '')}")
    if value is None:
        if scope.note(name, on=on) is None:
            raise _missing(name)
        confirm(f"Delete the note {called}?", yes=yes)
        if scope.kind == ITEMS and on is None:
            scope.delete_note(name, on=VECTORS)
        scope.delete_note(name, on=on)
    elif scope.kind == ITEMS:
        raise limpet.InvalidInput(f"LimpetStore.put writes this memory. name=`{name}`")
    else:
        try:
            scope.set_note(name, parse_json(value.encode()), on=on)
        except ValueError:  # the value may be a secret, so it is not shown
            hint = "quote a text as JSON: --set '\"text\"'"
            raise click.BadParameter(f"not JSON; {hint}", param_hint="--set") from None
    say("deleted " if value is None else "written ", (called, "title"))


def _show(notes: Iterator[_Found]) -> None:
    first, second = next(notes), next(notes, None)
    with output() as console:
        for key, note in chain([first], [second] if second else [], notes):
            if second is not None:
                address = address_text(key, note.snapshot_id or "")
                print_line(console, Text(visible(address), "title"))
            draw_value(console, note_value(key, note))


def _missing(name: str) -> limpet.NotFound:
    return limpet.NotFound(
        f"there is no such note: `limpet notes SESSION` lists them. name=`{name}`"
    )
