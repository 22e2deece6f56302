"""`limpet ls`: the sessions of a store, or the scopes of one of them."""

from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import cast, get_args

import click
from rich.console import Console
from rich.text import Text

import limpet
from limpet.cli._shared import Count, complete_session, echo_json, with_store
from limpet.cli._terminal import (
    Column,
    now,
    output,
    print_line,
    print_table,
    source_text,
    status_text,
)
from limpet.core.wire import info_json, ref_json, time_json
from limpet.model import ScopeKey
from limpet.views import overview
from limpet.views.format import age_text, bar, ratio, short_id, size_text, visible
from limpet.views.overview import About, Counts, ScopeOverview, SessionOverview
from limpet.views.refs import find_session

_SHOWN = 50
_BAR_CELLS = 6
_SHARE_MIN = 0.005  # below it would be shown as 0%
_TIMES_MIN = 9.995  # from here on it is shown as a multiple: a small state in a large document
# Ids are typed, so they are never cut. Columns without a value in any row are left out.
_ABOUT_COLUMNS = (
    Column("title", cells_min=12, rank=1),
    Column("last message", cells_min=16, rank=4),
    Column("status", cells_min=9, rank=3),
    Column("age", right=True, rank=2),
    Column("size", right=True, rank=5),
)
_SESSION_COLUMNS = (Column("session"), *_ABOUT_COLUMNS)
_SCOPE_COLUMNS = (Column("scope"), *_ABOUT_COLUMNS, Column("kind", rank=6))
_SESSION_STORAGE_COLUMNS = (
    Column("session"),
    Column("age", right=True),
    Column("status", cells_min=9, rank=1),
    Column("scopes", right=True, rank=5),
    Column("snapshots", right=True, rank=3),
    Column("branches", right=True, rank=4),
    Column("stored", right=True, rank=2),
    Column("logical", right=True, rank=6),
    Column("", right=True, rank=7),
    Column("", rank=8),
)
_SCOPE_STORAGE_COLUMNS = (
    Column("scope"),
    Column("kind", rank=6),
    Column("age", right=True),
    Column("status", cells_min=9, rank=1),
    Column("snapshots", right=True, rank=4),
    Column("branches", right=True, rank=7),
    Column("logical", right=True, rank=3),
    Column("head", rank=2),
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
    type=Count(0),
    metavar="N",
    help=f"Show at most N; 0 is all. Default: {_SHOWN}, with --json all.",
)
@click.option(
    "-l",
    "--long",
    is_flag=True,
    help="Show what is stored instead: snapshots, branches, bytes. Slower: reads histories.",
)
@with_store()
def ls(
    store: limpet.Store,
    session: str | None,
    sort: str | None,
    prefix: str | None,
    limit: int | None,
    long: bool,
    as_json: bool,
) -> None:
    """List the sessions, or the scopes of one SESSION.

    The title is the note `title` of the scope, else the first message of the user. The last
    message, the status (a dash if none was given) and the age are those of the newest head. Size is
    that of the current states as JSON. Sessions are sorted by age, scopes by name. SESSION may be
    shortened if it stays unique.

    With -l: branches are snapshots without a child, logical is the size of all states as JSON, and
    stored the space that they take up. A head is marked ◆, or ◇ if it is a draft.

    \b
    --json: a line for each session:
            {"session_id": text, "title": text or null, "message": text or null,
             "status": text or null, "created_at": time or null, "size": n,
             "kinds": [text, ...], "scopes": n, "damaged": n}
            or for each scope:
            {"session_id": text, "scope_id": text, "kind": text,
             "title": text or null, "message": text or null,
             "damaged": true or false,
             "head": a snapshot as in `log --json`, or null}
            and with -l:
            {"snapshots": n or null, "branches": n or null,
             "logical_bytes": n or null}, of a session "stored_bytes": n or null, of a scope
             "forked_from": {"session_id", "scope_id", "kind", "id"} or null

    \b
    Examples:
      limpet ls
      limpet ls --prefix alice/ --sort size -n 10
      limpet ls trip-to-lisbon
    """
    if session is not None and (sort is not None or prefix is not None):
        raise click.UsageError("--sort and --prefix are for the list of sessions")
    most = (0 if as_json else _SHOWN) if limit is None else limit
    if session is not None:
        name = find_session(store, session)
        _list_scopes(store, name, most or None, long=long, as_json=as_json)
    else:
        order = cast(overview.Sort, sort or "age")
        found = overview.sessions(
            store, prefix=prefix or "", sort=order, limit=most or None, counts=long
        )
        _list_sessions(found, prefix, long=long, as_json=as_json)


def _list_sessions(
    found: overview.Sessions, prefix: str | None, *, long: bool, as_json: bool
) -> None:
    if as_json:
        for each in found.shown:
            echo_json(_session_json(each), indent=None)
        return
    if not found.total:
        click.echo("no session has this prefix" if prefix else "the store is empty", err=True)
        return
    count = 0
    row = _session_storage_row if long else _session_row

    def rows(moment: datetime) -> Iterator[list[Text]]:
        nonlocal count
        for each in found.shown:
            count += 1
            yield row(each, moment)

    with output(wide=True) as console:
        columns = _SESSION_STORAGE_COLUMNS if long else _SESSION_COLUMNS
        print_table(console, columns, rows(now()))
        _draw_more(console, (found.total or 0) - count)


def _list_scopes(
    store: limpet.Store, session: str, limit: int | None, *, long: bool, as_json: bool
) -> None:
    found = overview.scopes(store, session, counts=long)
    if as_json:
        for each in islice(found, limit):
            echo_json(_scope_json(each), indent=None)
        return
    moment = now()
    row = _scope_storage_row if long else _scope_row
    with output(wide=True) as console:
        print_line(console, Text(visible(session), "title"))
        columns = _SCOPE_STORAGE_COLUMNS if long else _SCOPE_COLUMNS
        print_table(console, columns, (row(each, moment) for each in islice(found, limit)))
        if limit is not None:
            total = sum(1 for _ in store.scopes(session))
            _draw_more(console, total - limit)


def _draw_more(console: Console, left: int) -> None:
    if left > 0:
        print_line(console, Text(f"… {left:,} more (-n 0 shows all)", "quiet"))


def _session_row(each: SessionOverview, moment: datetime) -> list[Text]:
    return [
        Text(visible(each.session_id), "title"),
        *_about_cells(each.about, each.head, bool(each.damaged), moment),
        _size(each.head_bytes, "size"),
    ]


def _scope_row(each: ScopeOverview, moment: datetime) -> list[Text]:
    kind = each.key.kind
    return [
        Text(visible(each.key.scope_id), "title"),
        *_about_cells(each.about, each.head, each.damaged, moment),
        Text("-", "quiet") if each.head is None else _size(each.head.size, "size"),
        Text("" if kind == ScopeKey("").kind else visible(kind), "quiet"),
    ]


def _about_cells(
    about: About, head: limpet.SnapshotInfo | None, damaged: bool, moment: datetime
) -> list[Text]:
    from limpet.cli._chat import message_text

    if about.last is None:
        message = Text(f"{{{', '.join(about.keys)}}}" if about.keys else "", "quiet")
    elif about.last.role == "assistant":  # the usual one, and room is short
        message = Text(about.said or "")
    else:
        message = message_text(about.last)
    return [Text(about.title or ""), message, _status(head, damaged), _age(head, moment)]


def _session_storage_row(each: SessionOverview, moment: datetime) -> list[Text]:
    counts = each.counts or Counts()
    share = None
    if counts.stored_bytes is not None and counts.logical_bytes is not None:
        share = ratio(counts.stored_bytes, counts.logical_bytes)
    return [
        Text(visible(each.session_id), "title"),
        _age(each.head, moment),
        _status(each.head, bool(each.damaged)),
        _count(each.scopes, usual=1),
        _count(counts.snapshots),
        _count(counts.branches, usual=1),
        _size(counts.stored_bytes, "size"),
        _size(counts.logical_bytes, "quiet"),
        Text("" if share is None else _share_text(share), "quiet"),
        Text("" if share is None else bar(share, _BAR_CELLS), "accent"),
    ]


def _scope_storage_row(each: ScopeOverview, moment: datetime) -> list[Text]:
    source, counts = each.forked_from, each.counts or Counts()
    return [
        Text(visible(each.key.scope_id), "title" if source is None else "fork"),
        Text(visible(each.key.kind), "quiet"),
        _age(each.head, moment),
        _status(each.head, each.damaged),
        _count(counts.snapshots),
        _count(counts.branches, usual=1),
        _size(counts.logical_bytes, "size"),
        _head(each.head),
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
    head = each.head
    return {
        "session_id": each.session_id,
        **_about_json(each.about),
        "status": None if head is None else head.status,
        "created_at": None if head is None else time_json(head.created_at),
        "size": each.head_bytes,
        "kinds": list(each.kinds),
        "scopes": each.scopes,
        "damaged": each.damaged,
        **({} if each.counts is None else each.counts._asdict()),
    }


def _scope_json(each: ScopeOverview) -> dict[str, object]:
    shape = {
        **each.key._asdict(),
        **_about_json(each.about),
        "damaged": each.damaged,
        "head": None if each.head is None else info_json(each.head),
    }
    if each.counts is not None:
        snapshots, branches, logical_bytes, _ = each.counts
        shape |= {"snapshots": snapshots, "branches": branches, "logical_bytes": logical_bytes}
        shape["forked_from"] = ref_json(each.forked_from)
    return shape


def _about_json(about: About) -> dict[str, str | None]:
    return {"title": about.title, "message": about.said}
