"""`limpet ls`: the sessions of a store, or the scopes of one of them."""

from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import cast, get_args

import click
from rich.console import Console
from rich.text import Text

import limpet
from limpet.cli import _exits
from limpet.cli._shared import (
    complete_session,
    echo_json,
    existing_store,
    ref_json,
    snapshot_json,
    store_options,
    time_json,
)
from limpet.cli._tables import Column, now, print_line, print_table, source_text, status_text
from limpet.cli._terminal import output
from limpet.views import overview
from limpet.views.format import age_text, bar, ratio, short_id, size_text, visible
from limpet.views.overview import ScopeOverview, SessionOverview
from limpet.views.refs import find_session

_SHOWN = 50
_BAR_CELLS = 6
_SHARE_MIN = 0.005  # below it would be shown as 0%
_TIMES_MIN = 9.995  # from here on it is shown as a multiple: a small state in a large document
_SESSION_COLUMNS = (
    Column("session", cells_min=20),
    Column("age", right=True),
    Column("snapshots", right=True, rank=3),
    Column("branches", right=True, rank=4),
    Column("status", cells_min=9, rank=1),
    Column("stored", right=True, rank=2),
    Column("logical", right=True, rank=5),
    Column("", right=True, rank=6),
    Column("", rank=7),
)
_SCOPE_COLUMNS = (
    Column("kind", cells_min=5, rank=6),
    Column("scope", cells_min=14),
    Column("age", right=True),
    Column("snapshots", right=True, rank=4),
    Column("branches", right=True, rank=7),
    Column("status", cells_min=9, rank=1),
    Column("size", right=True, rank=3),
    Column("head", cells_min=15, rank=2),
    Column("forked from", cells_min=11, rank=5),
)


@click.command()
@click.argument("session", required=False, shell_complete=complete_session)
@click.option(
    "--sort",
    type=click.Choice(get_args(overview.Sort)),
    help="The order of the sessions. Default: age, newest first.",
)
@click.option("--prefix", metavar="TEXT", help="Only sessions whose id begins with TEXT.")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"Show at most N; 0 is all. Default: {_SHOWN}, with --json all.",
)
@store_options
def ls(
    session: str | None,
    sort: str | None,
    prefix: str | None,
    limit: int | None,
    url: str,
    as_json: bool,
) -> int:
    """List the sessions, or the scopes of one SESSION.

    Newest first. Age and status are those of the newest head. Branches are snapshots without
    a child. Logical is the size of all states as JSON, stored the space that they take up. SESSION
    may be shortened if it stays unique. A head is marked ◆, or ◇ if it is a draft.

    \b
    --json: a line for each session:
            {"session_id": text, "kinds": [text, ...], "scopes": n, "damaged": n,
             "status": text or null, "created_at": time or null,
             "snapshots": n or null, "branches": n or null,
             "logical_bytes": n or null, "stored_bytes": n or null}
            or for each scope:
            {"session_id": text, "scope_id": text, "kind": text,
             "damaged": true or false,
             "head": a snapshot as in `log --json`, or null,
             "snapshots": n or null, "branches": n or null,
             "logical_bytes": n or null,
             "forked_from": {"session_id", "scope_id", "kind", "id"} or null}

    \b
    Examples:
      limpet ls
      limpet ls --prefix alice/ --sort size -n 10
      limpet ls trip-to-lisbon
    """
    if session is not None and (sort is not None or prefix is not None):
        raise click.UsageError("--sort and --prefix are for the list of sessions")
    most = (0 if as_json else _SHOWN) if limit is None else limit
    with existing_store(url, read_only=True) as store:
        if session is not None:
            _list_scopes(store, find_session(store, session), most or None, as_json)
        else:
            order = cast(overview.Sort, sort or "age")
            found = overview.sessions(store, prefix=prefix or "", sort=order, limit=most or None)
            _list_sessions(found, prefix, as_json)
    return _exits.FINE


def _list_sessions(found: overview.Sessions, prefix: str | None, as_json: bool) -> None:
    if as_json:
        for each in found.shown:
            echo_json(_session_json(each), indent=None)
        return
    if not found.total:
        click.echo("no session has this prefix" if prefix else "the store is empty", err=True)
        return
    count = 0

    def rows(moment: datetime) -> Iterator[list[Text]]:
        nonlocal count
        for each in found.shown:
            count += 1
            yield _session_row(each, moment)

    with output() as console:
        print_table(console, _SESSION_COLUMNS, rows(now()))
        _draw_more(console, found.total - count)


def _list_scopes(store: limpet.Store, session: str, limit: int | None, as_json: bool) -> None:
    found = overview.scopes(store, session)
    if as_json:
        for each in islice(found, limit):
            echo_json(_scope_json(each), indent=None)
        return
    moment = now()
    with output() as console:
        print_line(console, Text(visible(session), "title"))
        rows = (_scope_row(each, moment) for each in islice(found, limit))
        print_table(console, _SCOPE_COLUMNS, rows)
        if limit is not None:
            total = sum(1 for _ in store.scopes(session))
            _draw_more(console, total - limit)


def _draw_more(console: Console, left: int) -> None:
    if left > 0:
        print_line(console, Text(f"… {left:,} more (-n 0 shows all)", "quiet"))


def _session_row(each: SessionOverview, moment: datetime) -> list[Text]:
    share = None
    if each.stored_bytes is not None and each.logical_bytes is not None:
        share = ratio(each.stored_bytes, each.logical_bytes)
    return [
        Text(visible(each.session_id), "title"),
        _age(each.head, moment),
        _count(each.snapshots),
        _count(each.branches, usual=1),
        _status(each.head, bool(each.damaged)),
        _size(each.stored_bytes, "size"),
        _size(each.logical_bytes, "quiet"),
        Text("" if share is None else _share_text(share), "quiet"),
        Text("" if share is None else bar(share, _BAR_CELLS), "accent"),
    ]


def _scope_row(each: ScopeOverview, moment: datetime) -> list[Text]:
    head, source = each.head, each.forked_from
    return [
        Text(visible(each.key.kind), "quiet"),
        Text(visible(each.key.scope_id), "title" if source is None else "fork"),
        _age(head, moment),
        _count(each.snapshots),
        _count(each.branches, usual=1),
        _status(head, each.damaged),
        _size(each.logical_bytes, "size"),
        _head(head),
        Text("" if source is None else source_text(source, each.key), "fork"),
    ]


def _head(head: limpet.SnapshotInfo | None) -> Text:
    if head is None:
        return Text()
    return Text.assemble(("◆ " if head.kept else "◇ ", "good"), visible(short_id(head.id)))


def _share_text(share: float) -> str:
    if 0 < share < _SHARE_MIN:
        return "<1%"
    return f"{share:.0%}" if share < _TIMES_MIN else f"{share:,.0f}x"


def _age(head: limpet.SnapshotInfo | None, moment: datetime) -> Text:
    return Text("-" if head is None else age_text(head.created_at, moment), "quiet")


def _count(count: int | None, *, usual: int | None = None) -> Text:
    return Text("?" if count is None else f"{count:,}", "quiet" if count == usual else "")


def _status(head: limpet.SnapshotInfo | None, damaged: bool) -> Text:
    if damaged:
        return status_text("damaged")
    return Text("-", "quiet") if head is None else status_text(head.status)


def _size(size: int | None, style: str) -> Text:
    return Text("?" if size is None else size_text(size), style)


def _session_json(each: SessionOverview) -> dict[str, object]:
    return {
        "session_id": each.session_id,
        "kinds": list(each.kinds),
        "scopes": each.scopes,
        "damaged": each.damaged,
        "status": each.status,
        "created_at": None if each.created_at is None else time_json(each.created_at),
        "snapshots": each.snapshots,
        "branches": each.branches,
        "logical_bytes": each.logical_bytes,
        "stored_bytes": each.stored_bytes,
    }


def _scope_json(each: ScopeOverview) -> dict[str, object]:
    return {
        **each.key._asdict(),
        "damaged": each.damaged,
        "head": None if each.head is None else snapshot_json(each.head),
        "snapshots": each.snapshots,
        "branches": each.branches,
        "logical_bytes": each.logical_bytes,
        "forked_from": ref_json(each.forked_from),
    }
