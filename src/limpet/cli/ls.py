"""`limpet ls`: the sessions of a store, or the scopes of one of them."""

from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import islice
from typing import cast, get_args

import click
from rich.text import Text

import limpet
from limpet.cli._shared import Count, complete_session, echo_json, with_store
from limpet.cli._terminal import (
    Cells,
    Column,
    output,
    print_line,
    print_table,
    source_text,
    status_text,
)
from limpet.core.wire import info_json, ref_json, time_json
from limpet.model import ScopeKey
from limpet.views import overview
from limpet.views.format import bar, ratio, short_id, size_text, visible
from limpet.views.overview import About, Counts, ScopeOverview, SessionOverview
from limpet.views.refs import find_session

_LIMIT = 50
_BAR_CELLS = 6
_SHARE_MIN = 0.005  # below it would be shown as 0%
_TIMES_MIN = 9.995  # from here on it is shown as a multiple: a small state in a large document


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
    help=f"Show at most N; 0 is all. Default: {_LIMIT}, with --json all.",
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
    most = ((0 if as_json else _LIMIT) if limit is None else limit) or None
    if session is not None:
        name = find_session(store, session)
        scopes = islice(overview.scopes(store, name, counts=long), most)
        cells = _STORED_SCOPES if long else _SCOPES
        _list(scopes, cells, name, most, lambda: sum(1 for _ in store.scopes(name)), as_json)
        return
    order = cast(overview.Sort, sort or "age")
    found = overview.sessions(store, prefix=prefix or "", sort=order, limit=most, counts=long)
    if as_json or found.total():
        cells = _STORED_SESSIONS if long else _SESSIONS
        _list(found.read(), cells, None, most, lambda: found.total() or 0, as_json)
    else:
        click.echo("no session has this prefix" if prefix else "the store is empty", err=True)


def _list(
    items: Iterator[SessionOverview] | Iterator[ScopeOverview],
    cells: Cells,
    title: str | None,
    most: int | None,
    total: Callable[[], int],
    as_json: bool,
) -> None:
    if as_json:
        for each in items:
            echo_json(_overview_json(each), indent=None)
        return
    with output(wide=True) as console:
        if title is not None:
            print_line(console, Text(visible(title), "title"))
        print_table(console, cells, items)
        if most is not None and (left := total() - most) > 0:
            print_line(console, Text(f"… {left:,} more (-n 0 shows all)", "quiet"))


# What is shown. Ids are typed, so they are never cut. Columns without a value in any row are left
# out.


def _message(about: About) -> Text:
    from limpet.cli._chat import message_text

    if about.last is None:
        return Text(f"{{{', '.join(about.keys)}}}" if about.keys else "", "quiet")
    if about.last.role == "assistant":  # the usual one, and room is short
        return Text(about.said or "")
    return message_text(about.last)


def _status(each: SessionOverview | ScopeOverview) -> Text:
    if each.damaged:
        return status_text("damaged")
    return Text("-", "quiet") if each.head is None else status_text(each.about.status)


def _saved(each: SessionOverview | ScopeOverview) -> Text | datetime:
    return Text("-", "quiet") if each.head is None else each.head.created_at


def _count(count: int | None, *, usual: int | None = None) -> Text:
    return Text("?" if count is None else f"{count:,}", "quiet" if count == usual else "")


def _size(size: int | None, style: str = "size") -> Text:
    return Text("?" if size is None else size_text(size), style)


def _head(head: limpet.SnapshotInfo | None) -> Text:
    if head is None:
        return Text()
    return Text.assemble(("◆ " if head.kept else "◇ ", "good"), visible(short_id(head.id)))


def _counts(each: SessionOverview | ScopeOverview) -> Counts:
    return each.counts or Counts()


def _share(each: SessionOverview) -> float | None:
    """Return the stored bytes for each byte of the states as JSON."""
    stored, logical = _counts(each).stored_bytes, _counts(each).logical_bytes
    return None if stored is None or logical is None else ratio(stored, logical)


def _share_text(share: float | None) -> str:
    if share is None:
        return ""
    if 0 < share < _SHARE_MIN:
        return "<1%"
    return f"{share:.0%}" if share < _TIMES_MIN else f"{share:,.0f}x"


def _source(each: ScopeOverview) -> str:
    return "" if each.forked_from is None else source_text(each.forked_from, each.key)


_ABOUT: Cells = {
    Column("title", cells_min=12, rank=1): lambda each: Text(each.about.title or ""),
    Column("last message", cells_min=16, rank=4): lambda each: _message(each.about),
    Column("status", cells_min=9, rank=3): _status,
    Column("age", right=True, rank=2): _saved,
}
_SIZE = Column("size", right=True, rank=5)
_SESSION: Cells = {Column("session"): lambda each: Text(visible(each.session_id), "title")}
_SESSIONS: Cells = {**_SESSION, **_ABOUT, _SIZE: lambda each: _size(each.head_bytes)}
_SCOPES: Cells = {
    Column("scope"): lambda each: Text(visible(each.key.scope_id), "title"),
    **_ABOUT,
    _SIZE: lambda each: Text("-", "quiet") if each.head is None else _size(each.head.size),
    Column("kind", rank=6): lambda each: Text(
        "" if each.key.kind == ScopeKey("").kind else visible(each.key.kind), "quiet"
    ),
}
_STORED_SESSIONS: Cells = {
    **_SESSION,
    Column("age", right=True): _saved,
    Column("status", cells_min=9, rank=1): _status,
    Column("scopes", right=True, rank=5): lambda each: _count(each.scopes, usual=1),
    Column("snapshots", right=True, rank=3): lambda each: _count(_counts(each).snapshots),
    Column("branches", right=True, rank=4): lambda each: _count(_counts(each).branches, usual=1),
    Column("stored", right=True, rank=2): lambda each: _size(_counts(each).stored_bytes),
    Column("logical", right=True, rank=6): lambda each: _size(_counts(each).logical_bytes, "quiet"),
    Column("", right=True, rank=7): lambda each: Text(_share_text(_share(each)), "quiet"),
    Column("", rank=8): lambda each: Text(bar(_share(each) or 0, _BAR_CELLS), "accent"),
}
_STORED_SCOPES: Cells = {
    Column("scope"): lambda each: Text(
        visible(each.key.scope_id), "fork" if each.forked_from else "title"
    ),
    Column("kind", rank=6): lambda each: Text(visible(each.key.kind), "quiet"),
    Column("age", right=True): _saved,
    Column("status", cells_min=9, rank=1): _status,
    Column("snapshots", right=True, rank=4): lambda each: _count(_counts(each).snapshots),
    Column("branches", right=True, rank=7): lambda each: _count(_counts(each).branches, usual=1),
    Column("logical", right=True, rank=3): lambda each: _size(_counts(each).logical_bytes),
    Column("head", rank=2): lambda each: _head(each.head),
    Column("forked from", cells_min=11, rank=5): lambda each: Text(_source(each), "fork"),
}


def _overview_json(each: SessionOverview | ScopeOverview) -> dict[str, object]:
    return _session_json(each) if isinstance(each, SessionOverview) else _scope_json(each)


def _session_json(each: SessionOverview) -> dict[str, object]:
    head = each.head
    return {
        "session_id": each.session_id,
        **_about_json(each.about),
        "status": None if head is None else each.about.status,
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
