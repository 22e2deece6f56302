"""`limpet log`: the history of a session, as lines or as a graph."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, TypeVar

import click

import limpet
from limpet.cli import _exits
from limpet.cli._history import Look, Wanted, draw_graph, draw_scopes, last_message, listed
from limpet.cli._shared import (
    echo_json,
    existing_store,
    json_option,
    output,
    snapshot_json,
    url_option,
)
from limpet.cli._tables import now
from limpet.cli.completion import complete_session
from limpet.refs import find_scope, find_session

F = TypeVar("F", bound=Callable[..., Any])

_GRAPH_SNAPSHOTS = 1000  # a graph is held as a whole, and nobody reads more of one


def _selecting(command: F) -> F:
    """Add the options that say which snapshots are shown."""
    for option in (
        click.option(
            "-n",
            "--limit",
            type=click.IntRange(min=0),
            metavar="N",
            help="The newest N of each scope; 0 is all. "
            f"Of a graph the newest N of all, else {_GRAPH_SNAPSHOTS:,}.",
        ),
        click.option(
            "--label",
            "labels",
            metavar="NAME=VALUE",
            multiple=True,
            help="Only snapshots with this label; with several, with all of them.",
        ),
        click.option("--status", metavar="STATUS", help="Only snapshots with this status."),
        click.option("--kind", metavar="KIND", help="Only scopes of this kind."),
    ):
        command = option(command)
    return command


def _looking(command: F) -> F:
    """Add the options that say how they are shown."""
    for name, help in (
        ("--full-ids", "Do not shorten ids."),
        ("--times", "Show when it was, in UTC, and not how long ago."),
        ("-m/--messages", "Show the last message, which reads states."),
        ("--graph", "Draw which snapshot follows which, across the scopes."),
    ):
        command = click.option(*name.split("/"), is_flag=True, help=help)(command)
    return command


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.argument("scope", required=False)
@_looking
@_selecting
@url_option
@json_option
def log(
    session: str,
    scope: str | None,
    kind: str | None,
    status: str | None,
    labels: tuple[str, ...],
    limit: int | None,
    url: str,
    as_json: bool,
    **looks: bool,
) -> int:
    """Show the history of a SESSION, or of one SCOPE of it.

    The newest first. A line is a snapshot: its id, its age, its status, how big its state is and by
    how much it grew, and its labels. ◆ is the head of a scope, and ◇ a head that is a draft,
    which stands in no history. Names may be shortened as long as they are clear.

    \b
    --json: a line for each snapshot:
            {"session_id": text, "scope_id": text, "kind": text, "id": text,
             "parent_id": text or null,
             "forked_from": {"session_id", "scope_id", "kind", "id"} or null,
             "status": text, "labels": {name: value, ...}, "metadata": {...},
             "created_at": time, "updated_at": time, "kept": true or false, "size": n,
             "revision": text, "is_head": true or false}
            and with --messages "message": text or null.

    \b
    Examples:
      limpet log trip-to-lisbon --graph
      limpet log trip-to-lisbon main -n 20 --messages
      limpet log alice/chat-42 --label step=07 --status failed
    """
    graph, look = looks.pop("graph"), Look(now(), **looks)
    wanted = Wanted(status, _parsed(labels), limit or None)
    if graph and not wanted.is_all:
        raise click.UsageError("a graph shows whole lines: leave out --status and --label")
    with existing_store(url) as store:
        found = _scopes(store, session, scope, kind)
        if as_json:
            _write_json(store, found, wanted, look.messages)
            return _exits.FINE
        with output() as console:
            if graph:
                most = _GRAPH_SNAPSHOTS if limit is None else limit
                draw_graph(console, store, list(found), most or None, look)
            else:
                draw_scopes(console, store, found, wanted, look)
    return _exits.FINE


def _parsed(labels: Iterable[str]) -> dict[str, str] | None:
    pairs = [label.partition("=") for label in labels]
    for name, mark, _ in pairs:
        if not name or not mark:
            raise click.BadParameter("write NAME=VALUE", param_hint="--label")
    return {name: value for name, _, value in pairs} or None


def _scopes(
    store: limpet.Store, session: str, scope: str | None, kind: str | None
) -> Iterator[limpet.ScopeInfo]:
    session_id = find_session(store, session)
    found = store.scopes(session_id, kind=kind)
    if scope is not None:
        # The same name in several kinds is no reason to ask which: all of them are shown.
        found = (each for each in found if each.key.scope_id == scope)
    first = next(found, None)
    if first is None and scope is not None:
        return iter([find_scope(store, session_id, scope, kind)])  # by the beginning of its name
    if first is None:
        raise limpet.NotFound(f"there is no such scope. session_id=`{session_id}` kind=`{kind}`")
    return chain([first], found)


def _write_json(
    store: limpet.Store, found: Iterable[limpet.ScopeInfo], wanted: Wanted, messages: bool
) -> None:
    for each in found:
        head_id = None if each.head is None else each.head.id
        for info in listed(store, each, wanted):
            shape = {**snapshot_json(info), "is_head": info.id == head_id}
            if messages:
                message = last_message(store, info)
                shape["message"] = None if message is None else message.text
            echo_json(shape, indent=None)
