"""`limpet tail`: the last messages of a chat, and new ones as they are saved."""

from collections.abc import Iterator
from heapq import nlargest

import click
from rich.console import Console
from rich.text import Text

import limpet
from limpet.cli._chat import FULL, RowLimits, draw_turns, role_style, turn_json
from limpet.cli._shared import Count, complete_session, echo_json, echo_skipped, with_store
from limpet.cli._terminal import make_console, status_text
from limpet.core.wire import info_json
from limpet.model import ScopeKey, Snapshot, SnapshotInfo
from limpet.views.chat import ChatTurn, News, chat_news, read_chat, turn_text
from limpet.views.format import address_text, short_id, size_text, visible
from limpet.views.refs import find_scope

_MESSAGES_SHOWN = 10
_COLUMNS_WIDE = 80  # times and ids need this much room


@click.command()
@click.argument("session", required=False, shell_complete=complete_session)
@click.argument("scope", required=False)
@click.option(
    "-n",
    "count",
    type=Count(0),
    metavar="N",
    default=_MESSAGES_SHOWN,
    help="How many at first.",
)
@click.option("-f", "--follow", is_flag=True, help="Show new messages, until Ctrl-C.")
@click.option("--full", is_flag=True, help="Show long texts and values whole.")
@click.option("--kind", metavar="KIND", help="The kind of the scope, if several match.")
@with_store()
def tail(
    store: limpet.Store,
    session: str | None,
    scope: str | None,
    count: int,
    follow: bool,
    full: bool,
    kind: str | None,
    as_json: bool,
) -> None:
    """Show the last messages of a chat, and follow it with -f.

    Shows the head of SESSION, or of its SCOPE. If the state has no messages: the last snapshots,
    a line for each. Without SESSION: the scopes of all sessions that changed last, a line for each
    with the last message.

    With -f it also shows what any process saves from now on, until Ctrl-C (exit code 130) or until
    the scope is deleted (0). Changes that arrive at the same time are shown together. If messages
    were replaced, for example by a summary, it says so and shows the new ones.

    \b
    --json: a line for each snapshot: as in `log --json`, and
            "replaced": true or false, "turns": the new messages
            (without SESSION the last one), each
            {"index": n, "role": text, "name": text or null, "parts":
             [{"type": "text", "text": text, "thinking": true or false} or
              {"type": "media", "kind", "name", "mime", "size", "url"} or
              {"type": "call", "name", "arguments", "id",
               "result": RESULT or null} or
              {"type": "answer", "name", "id", "result": RESULT} or
              {"type": "value", "value": any JSON}, ...]}
            where RESULT is {"parts": [...], "is_error": true or false}

    \b
    Examples:
      limpet tail chat-42 -n 3
      limpet tail chat-42 planner -f
      limpet tail -f --json | jq .session_id
    """
    out = _JsonOutput() if as_json else _LineOutput(make_console(), FULL if full else RowLimits())
    if session is None:
        _every_session(store, out, count, follow=follow)
    else:
        key = find_scope(store, session, scope, kind).key
        _one_scope(store.scope(*key), out, count, follow=follow)


class _JsonOutput:
    def messages(self, snapshot: Snapshot, news: News) -> None:
        turns = [turn_json(turn) for turn in news.turns]
        shape = {**info_json(snapshot), "replaced": news.is_replaced, "turns": turns}
        echo_json(shape, indent=None)

    def line(self, info: SnapshotInfo, last: ChatTurn | None = None) -> None:
        turns = [] if last is None else [turn_json(last)]
        echo_json({**info_json(info), "replaced": False, "turns": turns}, indent=None)

    def end(self) -> None:
        pass


class _LineOutput:
    def __init__(self, console: Console, rows: RowLimits) -> None:
        self._console = console
        self._rows = rows
        self._last: ChatTurn | None = None
        self._status: str | None = None

    def messages(self, snapshot: Snapshot, news: News) -> None:
        if news.is_replaced:
            self._say(Text("~ the messages were replaced", "odd"))
        draw_turns(self._console, news.turns, rows=self._rows, before=self._last)
        self._last = news.turns[-1] if news.turns else self._last
        if self._status != snapshot.status:
            self._status = snapshot.status
            self._say(Text.assemble(("· ", "quiet"), status_text(snapshot.status), _id(snapshot)))

    def line(self, info: SnapshotInfo, last: ChatTurn | None = None) -> None:
        key = info.scope
        name = key.session_id if key.scope_id == "main" else address_text(key)
        line = Text.assemble((visible(name), "title"), "  ", status_text(info.status))
        if self._console.width >= _COLUMNS_WIDE:
            time = Text(f"{info.updated_at:%H:%M:%S}  ", "quiet")
            line = Text.assemble(time, line, _id(info))
        line.append("  ")
        if last is None:
            line.append(size_text(info.size), "size")
        else:
            line.append(visible(last.name or last.role), role_style(last.role))
            line.append(f"  {turn_text(last)}")
        self._console.print(line, no_wrap=True, overflow="ellipsis")

    def end(self) -> None:
        self._say(Text("· deleted", "quiet"))

    def _say(self, line: Text) -> None:
        self._console.print(Text("\n") + line if self._last else line)


def _id(info: SnapshotInfo) -> tuple[str, str]:
    return f"  {visible(short_id(info.id))}", "quiet"


def _one_scope(
    scope: limpet.Scope, out: _JsonOutput | _LineOutput, count: int, *, follow: bool
) -> None:
    head = scope.load()
    turns: tuple[ChatTurn, ...] = ()
    if head is not None:
        turns = _turns(head)
        if turns:
            out.messages(head, News(turns[max(0, len(turns) - count) :]))
        else:
            _last_snapshots(scope, head, out, count)
    if not follow:
        return
    seen = None if head is None else head.revision
    for info in scope.watch():
        if info.revision == seen:
            continue
        snapshot = scope.load(info.id)
        if snapshot is None:
            continue  # a draft that was replaced, or deleted: a later change follows
        seen, before = snapshot.revision, turns
        turns = _turns(snapshot)
        if turns or before:
            out.messages(snapshot, chat_news(before, turns))
        else:
            out.line(snapshot)
    out.end()


def _last_snapshots(
    scope: limpet.Scope, head: Snapshot, out: _JsonOutput | _LineOutput, count: int
) -> None:
    last = list(scope.history(limit=count)) if count else []
    if not head.kept:
        last = [head, *last][:count]
    for info in reversed(last):
        out.line(info)


def _every_session(
    store: limpet.Store, out: _JsonOutput | _LineOutput, count: int, *, follow: bool
) -> None:
    seen: dict[ScopeKey, str] = {}

    def heads() -> Iterator[SnapshotInfo]:
        for scope in store.scopes():
            if scope.head is not None:
                if follow:
                    seen[scope.key] = scope.head.revision
                yield scope.head

    for info in reversed(nlargest(count, heads(), key=lambda info: info.updated_at)):
        _head_line(store, info, out)
    if follow:
        for info in store.watch():
            if seen.get(info.scope) != info.revision:
                seen[info.scope] = info.revision
                _head_line(store, info, out)


def _head_line(store: limpet.Store, info: SnapshotInfo, out: _JsonOutput | _LineOutput) -> None:
    try:
        snapshot = store.scope(*info.scope).load(info.id)
    except limpet.Corrupt as damage:
        echo_skipped(f"{address_text(info.scope, info.id)}: {damage}")
        return
    if snapshot is not None:  # else a newer one follows
        turns = _turns(snapshot)
        out.line(snapshot, turns[-1] if turns else None)


def _turns(snapshot: Snapshot) -> tuple[ChatTurn, ...]:
    chat = read_chat(snapshot.state)
    return () if chat is None else chat.turns
