"""`limpet log`: the history of a session, as lines or as a graph."""

import heapq
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from itertools import chain, islice
from typing import Any, NamedTuple, TypeVar

import click
from rich.console import Console
from rich.text import Text

import limpet
from limpet.cli import _exits
from limpet.cli._shared import (
    echo_json,
    existing_store,
    json_option,
    make_console,
    output,
    snapshot_json,
    url_option,
)
from limpet.cli._tables import Column, now, print_line, source_text, status_text, table
from limpet.cli.completion import complete_session
from limpet.model import ScopeInfo, ScopeKey, SnapshotInfo, SnapshotRef
from limpet.views.chat.text import read_chat, turn_text
from limpet.views.graph import Row, graph_rows
from limpet.views.refs import find_scope, find_session
from limpet.views.sizes import age_text, moment_text, short_id, size_text, visible
from limpet.views.tree import build_forest

# How the history of a session is read for a person, and drawn: as lines, or as a graph.

_PAGE_MIN = 64  # where each snapshot costs a request, a short first page is there sooner
_PAGE_MAX = 1000
_LANES_CELLS_MAX = 25
_LANES = ("accent", "fork", "good", "odd", "user", "tool", "assistant", "system")
_ROLES = frozenset(("user", "assistant", "system", "tool"))
_COLUMNS = (
    Column("graph"),
    Column("id"),
    Column("age", right=True, rank=1),
    Column("status", cells_min=9, rank=2),
    Column("size", right=True, rank=4),
    Column("growth", right=True, rank=6),
    Column("about", cells_min=12, rank=3),
    Column("message", cells_min=40),
)


class Look(NamedTuple):
    """How a person wants to see it."""

    moment: datetime
    full_ids: bool
    times: bool
    messages: bool


class Wanted(NamedTuple):
    """Which snapshots of a scope are wanted, and at most how many of its history."""

    status: str | None = None
    labels: dict[str, str] | None = None
    limit: int | None = None

    @property
    def is_all(self) -> bool:
        """Tell whether nothing is left out in between."""
        return self.status is None and self.labels is None

    def fits(self, info: SnapshotInfo) -> bool:
        """Tell whether a snapshot is one of them."""
        labels = (self.labels or {}).items()
        return self.status in (None, info.status) and labels <= info.labels.items()


class Message(NamedTuple):
    """What was said, on one line, and by whom."""

    role: str
    text: str


def listed(store: limpet.Store, each: ScopeInfo, wanted: Wanted) -> Iterator[SnapshotInfo]:
    """Yield what is shown of a scope, the newest first: a draft, and what is kept."""
    head = each.head
    if head is not None and not head.kept and wanted.fits(head):
        yield head
    yield from _history(store.scope(*each.key), wanted)


def _history(line: limpet.Scope, wanted: Wanted) -> Iterator[SnapshotInfo]:
    """Yield kept snapshots in pages that grow: no more is read ahead than was read before."""
    status, labels, left = wanted
    size = _PAGE_MIN
    last: SnapshotInfo | None = None
    while left is None or left > 0:
        asked = size if left is None else min(size, left)
        count = 0
        for info in line.history(limit=asked, after=last, status=status, labels=labels):
            count += 1
            yield info
            last = info
        if count < asked:
            return
        left = None if left is None else left - count
        size = min(2 * size, _PAGE_MAX)


def last_message(store: limpet.Store, info: SnapshotInfo) -> Message | None:
    """Return the last message in a state; None if there is none, or the state cannot be read."""
    with suppress(limpet.Corrupt):
        found = store.scope(*info.scope).load(info.id)
        chat = None if found is None else read_chat(found.state)
        if chat is not None and chat.turns:
            return Message(chat.turns[-1].role, turn_text(chat.turns[-1]))
    return None


# As lines


def draw_scopes(
    console: Console,
    store: limpet.Store,
    found: Iterable[ScopeInfo],
    wanted: Wanted,
    look: Look,
) -> None:
    """Draw the history of each scope under its name, as it is read."""
    is_first = True
    for each in found:
        line = store.scope(*each.key)
        rows = (
            _row(store, info, growth, look, _mark(info, each), _facts(info, each))
            for info, growth in _grown(line, listed(store, each, wanted), look_up=wanted.is_all)
        )
        lines = table(_COLUMNS, rows, console.width, titles=False)
        first = next(lines, None)
        if first is None and not wanted.is_all:
            continue
        if not is_first:
            console.print()
        is_first = False
        print_line(console, _title(each.key))
        _tell_damage(console, line, each)
        for text in chain([Text("nothing is kept", "quiet") if first is None else first], lines):
            print_line(console, text)
    if is_first:
        make_console(stderr=True).print(Text("nothing fits", "quiet"))


def _title(key: ScopeKey) -> Text:
    return Text.assemble(
        (visible(key.session_id), "title"),
        (" · ", "quiet"),
        (visible(key.scope_id), "title"),
        ("" if key.kind == ScopeKey("").kind else f" ({visible(key.kind)})", "quiet"),
    )


def _tell_damage(console: Console, line: limpet.Scope, each: ScopeInfo) -> None:
    """Say that a head is there and cannot be read; a listing only leaves it out."""
    if each.head is None:
        try:
            line.info()
        except limpet.Corrupt:
            name = visible(each.key.scope_id)
            text = f"the head of {name} cannot be read: `limpet check` tells more"
            print_line(console, Text(text, "bad"))


def _mark(info: SnapshotInfo, each: ScopeInfo) -> Text:
    if each.head is None or info.id != each.head.id:
        return Text("●", "accent")
    return Text("◆" if info.kept else "◇", "good")


def _facts(info: SnapshotInfo, each: ScopeInfo) -> list[Text]:
    facts = []
    if each.head is not None and info.id == each.head.id:
        facts.append(Text("head" if info.kept else "head, a draft", "good"))
    if info.forked_from is not None:
        facts.append(Text(f"from {source_text(info.forked_from, info.scope)}", "fork"))
    return facts


def _grown(
    line: limpet.Scope, infos: Iterable[SnapshotInfo], *, look_up: bool
) -> Iterator[tuple[SnapshotInfo, int | None]]:
    """Yield each with the bytes that it grew by since its parent.

    That mostly comes next. Where much is left out it does not: looking it up would be a read for
    each, so then the growth is None.
    """
    last: SnapshotInfo | None = None
    for info in chain[SnapshotInfo | None](infos, [None]):
        if last is not None:
            parent = info if info is not None and info.id == last.parent_id else None
            if parent is None and look_up and last.parent_id is not None:
                with suppress(limpet.Corrupt):
                    parent = line.info(last.parent_id)
            yield last, None if parent is None else last.size - parent.size
        last = info


# As a graph


def draw_graph(
    console: Console,
    store: limpet.Store,
    found: list[ScopeInfo],
    limit: int | None,
    look: Look,
) -> None:
    """Draw the newest snapshots of some scopes of a session, and which of them follows which."""
    histories = [_history(store.scope(*each.key), Wanted()) for each in found]
    newest = heapq.merge(*histories, key=lambda info: info.created_at, reverse=True)
    infos = list(islice(newest, limit))
    is_cut = next(newest, None) is not None
    print_line(console, Text(visible(found[0].key.session_id), "title"))
    for each in found:
        _tell_damage(console, store.scope(*each.key), each)
    rows = _graph(store, found, infos, look)
    for line in table(_COLUMNS, rows, console.width, titles=False):
        print_line(console, line)
    if is_cut:
        print_line(console, Text("… and older ones (-n 0 shows all)", "quiet"))


def _graph(
    store: limpet.Store, found: list[ScopeInfo], infos: list[SnapshotInfo], look: Look
) -> Iterator[list[Text]]:
    shown = [each.head for each in found if each.head is not None]
    heads = {SnapshotRef(head.scope, head.id) for head in shown}
    forest = build_forest([*infos[::-1], *(head for head in shown if not head.kept)], heads)
    roots = {id(root) for root in forest}
    sizes = {SnapshotRef(info.scope, info.id): info.size for info in infos}
    named: set[ScopeKey] = set()
    rows = graph_rows(forest)
    for left, row in zip(range(len(rows) - 1, -1, -1), rows, strict=True):
        info, is_root = row.node.info, id(row.node) in roots
        before = info.forked_from
        if info.parent_id is not None:
            before = SnapshotRef(info.scope, info.parent_id)
        growth = info.size - sizes[before] if before in sizes else None
        facts = _graph_facts(row, is_named=info.scope in named, is_root=is_root)
        named.add(info.scope)
        yield _row(store, info, growth, look, _lanes(row), facts)
        if is_root and left:
            yield [Text()] * len(_COLUMNS)  # else what is below would look like its parent


def _lanes(row: Row) -> Text:
    line = Text()
    cells = row.lanes
    if len(cells) > _LANES_CELLS_MAX:  # the snapshot itself stands near the right end
        cells = cells[1 - _LANES_CELLS_MAX :]
        line.append("…", "quiet")
    for char, lane in cells:
        line.append(char, None if lane is None else _lane_style(lane))
    return line


def _lane_style(lane: int) -> str:
    return _LANES[lane % len(_LANES)]


def _graph_facts(row: Row, *, is_named: bool, is_root: bool) -> list[Text]:
    """Return the name of a scope at its head and where it is met first, and what has no line."""
    info, facts = row.node.info, []
    if row.node.is_head or not is_named:
        kind = info.scope.kind
        name = info.scope.scope_id if kind == ScopeKey("").kind else f"{kind} {info.scope.scope_id}"
        facts.append(Text(visible(name), _lane_style(row.lane)))
        facts[-1].stylize("title")
    if row.node.is_head and not info.kept:
        facts.append(Text("a draft", "good"))
    if is_root and info.forked_from is not None:
        facts.append(Text(f"from {source_text(info.forked_from, info.scope)}", "fork"))
    if is_root and info.parent_id is not None:
        facts.append(Text(f"after {visible(short_id(info.parent_id))}", "quiet"))
    return facts


# Both


def _row(
    store: limpet.Store,
    info: SnapshotInfo,
    growth: int | None,
    look: Look,
    mark: Text,
    facts: list[Text],
) -> list[Text]:
    then = info.created_at
    labels = (visible(f"{name}={value}") for name, value in info.labels.items())
    about = [*facts, *(Text(label, "quiet") for label in labels)]
    return [
        mark,
        Text(visible(info.id if look.full_ids else short_id(info.id))),
        Text(moment_text(then) if look.times else age_text(then, look.moment), "quiet"),
        status_text(info.status),
        Text(size_text(info.size), "size"),
        Text(f"{'+' * (growth > 0)}{size_text(growth)}" if growth else "", "quiet"),
        Text("  ").join(about),
        _said(store, info) if look.messages else Text(),
    ]


def _said(store: limpet.Store, info: SnapshotInfo) -> Text:
    message = last_message(store, info)
    if message is None:
        return Text("-", "quiet")
    role, text = visible(message.role), visible(message.text)
    return Text.assemble((role, role if role in _ROLES else "title"), f" {text}")


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
