"""`limpet log`: the history of a session, as lines or as a graph."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from itertools import chain
from typing import NamedTuple

import click
from rich.console import Console
from rich.text import Text

import limpet
from limpet.cli._chat import message_text
from limpet.cli._shared import Count, complete_session, echo_json, with_store
from limpet.cli._terminal import (
    Column,
    now,
    output,
    print_line,
    say,
    source_text,
    status_text,
    table,
)
from limpet.core.wire import info_json
from limpet.model import ScopeInfo, ScopeKey, SnapshotInfo, SnapshotRef
from limpet.views.chat import turn_text
from limpet.views.format import age_text, moment_text, short_id, shown_labels, size_text, visible
from limpet.views.overview import last_turn, with_head
from limpet.views.refs import find_scope, find_session
from limpet.views.tree import GraphRow, graph_rows, newest_of, session_forest

_DEFAULT_KIND = ScopeKey("").kind
_GRAPH_SNAPSHOTS = 1000  # a graph is held in memory as a whole
_LANES_CELLS_MAX = 25
_LANES = ("accent", "fork", "good", "odd", "user", "tool", "assistant", "system")
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


class Style(NamedTuple):
    now: datetime
    full_ids: bool = False
    times: bool = False
    messages: bool = False


class _Filter(NamedTuple):
    status: str | None = None
    labels: dict[str, str] | None = None
    limit: int | None = None

    @property
    def is_all(self) -> bool:
        return self.status is None and self.labels is None

    def matches(self, info: SnapshotInfo) -> bool:
        labels = (self.labels or {}).items()
        return self.status in (None, info.status) and labels <= info.labels.items()


def _labels(_: object, option: object, given: Iterable[str]) -> dict[str, str] | None:
    pairs = [label.partition("=") for label in given]
    if not all(name and equals for name, equals, _ in pairs):
        raise click.BadParameter("write NAME=VALUE")
    return {name: value for name, _, value in pairs} or None


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.argument("scope", required=False)
@click.option("--graph", is_flag=True, help="Draw a graph of parents and forks.")
@click.option("-m", "--messages", is_flag=True, help="Show the last message. Slower: reads states.")
@click.option("--times", is_flag=True, help="Show times in UTC instead of ages.")
@click.option("--full-ids", is_flag=True, help="Do not shorten ids.")
@click.option("--kind", metavar="KIND", help="Only scopes of this kind.")
@click.option("--status", metavar="STATUS", help="Only snapshots with this status.")
@click.option(
    "--label",
    "labels",
    metavar="NAME=VALUE",
    multiple=True,
    callback=_labels,
    help="Only snapshots with this label. If repeated, with all of them.",
)
@click.option(
    "-n",
    "--limit",
    type=Count(0),
    metavar="N",
    help="The newest N of each scope; 0 is all."
    f" With --graph: the newest N in total, by default {_GRAPH_SNAPSHOTS:,}.",
)
@with_store()
def log(
    store: limpet.Store,
    session: str,
    scope: str | None,
    kind: str | None,
    status: str | None,
    labels: dict[str, str] | None,
    limit: int | None,
    graph: bool,
    as_json: bool,
    **style_options: bool,
) -> None:
    """Show the history of a SESSION, or of one SCOPE of it.

    Newest first, one line for each snapshot: its id, age and status, the size of its state and how
    much that grew, and its labels. ◆ is the head of a scope; ◇ is a head that is a draft, which is
    not in the history. Names may be shortened if they stay unique.

    \b
    --json: a line for each snapshot:
            {"session_id": text, "scope_id": text, "kind": text, "id": text,
             "parent_id": text or null,
             "forked_from": {"session_id", "scope_id", "kind", "id"} or null,
             "status": text, "labels": {name: value, ...}, "metadata": {...},
             "created_at": time, "updated_at": time, "kept": true or false,
             "size": n, "revision": text, "is_head": true or false}
            and with --messages "message": text or null.

    \b
    Examples:
      limpet log trip-to-lisbon --graph
      limpet log trip-to-lisbon main -n 20 --messages
      limpet log alice/chat-42 --label step=07 --status failed
    """
    style = Style(now(), **style_options)
    wanted = _Filter(status, labels, limit or None)
    if graph and not wanted.is_all:
        raise click.UsageError("--graph cannot be combined with --status or --label")
    found = _scopes(store, session, scope, kind)
    if as_json:
        _write_json(store, found, wanted, style.messages)
        return
    with output(wide=True) as console:
        if graph:
            most = _GRAPH_SNAPSHOTS if limit is None else limit
            draw_graph(console, store, list(found), most or None, style)
        else:
            _draw_lines(console, store, found, wanted, style)


def _scopes(
    store: limpet.Store, session: str, scope: str | None, kind: str | None
) -> Iterator[ScopeInfo]:
    session_id = find_session(store, session)
    found = store.scopes(session_id, kind=kind)
    if scope is not None:
        # Scopes of the same name but of several kinds are all shown.
        found = (each for each in found if each.key.scope_id == scope)
    first = next(found, None)
    if first is None and scope is not None:
        return iter([find_scope(store, session_id, scope, kind)])  # by the beginning of its name
    if first is None:
        raise limpet.NotFound(f"there is no such scope. session_id=`{session_id}` kind=`{kind}`")
    return chain([first], found)


def _listed(store: limpet.Store, each: ScopeInfo, wanted: _Filter) -> Iterator[SnapshotInfo]:
    head = each.head
    if head is not None and not head.kept and wanted.matches(head):
        yield head
    yield from store.scope(*each.key).history(**wanted._asdict())


def _write_json(
    store: limpet.Store, found: Iterable[ScopeInfo], wanted: _Filter, messages: bool
) -> None:
    for each in found:
        head_id = None if each.head is None else each.head.id
        for info in _listed(store, each, wanted):
            shape = {**info_json(info), "is_head": info.id == head_id}
            if messages:
                turn = last_turn(store, info)
                shape["message"] = None if turn is None else turn_text(turn)
            echo_json(shape, indent=None)


def _draw_lines(
    console: Console,
    store: limpet.Store,
    found: Iterable[ScopeInfo],
    wanted: _Filter,
    style: Style,
) -> None:
    is_first = True
    for each in found:
        scope = store.scope(*each.key)
        infos = _with_growth(scope, _listed(store, each, wanted), look_up=wanted.is_all)
        rows = (
            _row(store, info, growth, style, _mark(info, each), _facts(info, each))
            for info, growth in infos
        )
        lines = table(_COLUMNS, rows, console.width, titles=False)
        first = next(lines, None)
        if first is None and not wanted.is_all:
            continue
        if not is_first:
            console.print()
        is_first = False
        print_line(console, _title(each.key))
        _draw_damage(console, store, each)
        for text in chain([Text("no history", "quiet") if first is None else first], lines):
            print_line(console, text)
    if is_first:
        say(("no snapshot matches", "quiet"), stderr=True)


def _title(key: ScopeKey) -> Text:
    return Text.assemble(
        (visible(key.session_id), "title"),
        (" · ", "quiet"),
        (visible(key.scope_id), "title"),
        ("" if key.kind == _DEFAULT_KIND else f" ({visible(key.kind)})", "quiet"),
    )


def _draw_damage(console: Console, store: limpet.Store, each: ScopeInfo) -> None:
    """Report a damaged head, which the listing of scopes leaves out."""
    _, is_damaged = with_head(store, each)
    if is_damaged:
        name = visible(each.key.scope_id)
        print_line(console, Text(f"the head of {name} is damaged: run `limpet check`", "bad"))


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


def _with_growth(
    scope: limpet.Scope, infos: Iterable[SnapshotInfo], *, look_up: bool
) -> Iterator[tuple[SnapshotInfo, int | None]]:
    """Yield each snapshot with its growth in bytes since its parent, None if that is unknown.

    The parent mostly comes next. Otherwise it costs a read, which only `look_up` allows.
    """
    last: SnapshotInfo | None = None
    for info in chain[SnapshotInfo | None](infos, [None]):
        if last is not None:
            parent = info if info is not None and info.id == last.parent_id else None
            if parent is None and look_up and last.parent_id is not None:
                with suppress(limpet.Corrupt):
                    parent = scope.info(last.parent_id)
            yield last, None if parent is None else last.size - parent.size
        last = info


def draw_graph(
    console: Console, store: limpet.Store, found: list[ScopeInfo], limit: int | None, style: Style
) -> None:
    infos, is_cut = newest_of((store.scope(*each.key).history() for each in found), limit)
    print_line(console, Text(visible(found[0].key.session_id), "title"))
    for each in found:
        _draw_damage(console, store, each)
    rows = _graph(store, found, infos, style)
    for line in table(_COLUMNS, rows, console.width, titles=False):
        print_line(console, line)
    if is_cut:
        print_line(console, Text("… and older ones (-n 0 shows all)", "quiet"))


def _graph(
    store: limpet.Store, found: list[ScopeInfo], infos: list[SnapshotInfo], style: Style
) -> Iterator[list[Text]]:
    forest = session_forest(infos, found)
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
        yield _row(store, info, growth, style, _lanes(row), facts)
        if is_root and left:
            yield [Text()] * len(_COLUMNS)  # or the next row would look like its parent


def _lanes(row: GraphRow) -> Text:
    line = Text()
    cells = row.lanes
    if len(cells) > _LANES_CELLS_MAX:  # the snapshot itself is near the right end
        cells = cells[1 - _LANES_CELLS_MAX :]
        line.append("…", "quiet")
    for char, lane in cells:
        line.append(char, None if lane is None else _lane_style(lane))
    return line


def _lane_style(lane: int) -> str:
    return _LANES[lane % len(_LANES)]


def _graph_facts(row: GraphRow, *, is_named: bool, is_root: bool) -> list[Text]:
    """Return the scope at its head and where it appears first, and links to rows not shown."""
    info, facts = row.node.info, []
    if row.node.is_head or not is_named:
        kind, name = info.scope.kind, info.scope.scope_id
        name = name if kind == _DEFAULT_KIND else f"{kind} {name}"
        facts.append(Text(visible(name), _lane_style(row.lane)))
        facts[-1].stylize("title")
    if row.node.is_head and not info.kept:
        facts.append(Text("a draft", "good"))
    if is_root and info.forked_from is not None:
        facts.append(Text(f"from {source_text(info.forked_from, info.scope)}", "fork"))
    if is_root and info.parent_id is not None:
        facts.append(Text(f"after {visible(short_id(info.parent_id))}", "quiet"))
    return facts


def _row(
    store: limpet.Store,
    info: SnapshotInfo,
    growth: int | None,
    style: Style,
    mark: Text,
    facts: list[Text],
) -> list[Text]:
    then = info.created_at
    labels = (visible(f"{name}={value}") for name, value in shown_labels(info).items())
    about = [*facts, *(Text(label, "quiet") for label in labels)]
    return [
        mark,
        Text(visible(info.id if style.full_ids else short_id(info.id))),
        Text(moment_text(then) if style.times else age_text(then, style.now), "quiet"),
        status_text(info.status),
        Text(size_text(info.size), "size"),
        Text(f"{'+' * (growth > 0)}{size_text(growth)}" if growth else "", "quiet"),
        Text("  ").join(about),
        _message(store, info) if style.messages else Text(),
    ]


def _message(store: limpet.Store, info: SnapshotInfo) -> Text:
    turn = last_turn(store, info)
    return Text("-", "quiet") if turn is None else message_text(turn)
