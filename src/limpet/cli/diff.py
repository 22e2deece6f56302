"""`limpet diff`: what changed from one snapshot to another."""

import click
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

import limpet
from limpet.cli import _exits
from limpet.cli._chat import role_style
from limpet.cli._shared import (
    address_options,
    complete_session,
    echo_json,
    existing_store,
    load_snapshot,
    store_options,
)
from limpet.cli._terminal import now, output
from limpet.core.diff import diff as compare
from limpet.core.wire import info_json
from limpet.views.diff import (
    KINDS,
    MARKS,
    Group,
    Messages,
    brief,
    dotted,
    groups,
    only_value,
    text_lines,
    value_lines,
)
from limpet.views.format import (
    address_text,
    age_text,
    clipped,
    count_text,
    short_id,
    status_or_dash,
    visible,
)
from limpet.views.refs import find_base, find_snapshot

_STYLES = {"+": "more", "-": "less", "~": "odd", ">": "accent", "…": "quiet"}
_CHANGES_MAX = 20  # shown of one top-level key
_LINES_MAX = 12  # of one change
_PATH_CELLS_MAX = 40
_TEXT_CELLS_MIN = 20
_BAR_CHARS_MAX = 40


@click.command()
@click.argument("a", metavar="A", shell_complete=complete_session)
@click.argument("b", metavar="[B]", required=False, shell_complete=complete_session)
@address_options
@click.option("--full", is_flag=True, help="Show all changes, and long values whole.")
@click.option("--stat", is_flag=True, help="Only count the changes of each top-level key.")
@click.option("--patch", is_flag=True, help="Only print the JSON Patch from A to B.")
@store_options
def diff(
    a: str,
    b: str | None,
    full: bool,
    stat: bool,
    patch: bool,
    url: str,
    as_json: bool,
    **address: str | None,
) -> int:
    """Show what changed from snapshot A to snapshot B.

    Each is an id, a unique beginning of one, `@` for the head, `@~3` for three before it, or
    SESSION:SCOPE@~1; they may be in different scopes and sessions. With one argument, A is compared
    with its parent, or with the snapshot that it was forked from; a snapshot that has neither is
    compared with an empty state.

    The exit code is 0 if there is no difference, 1 if there is one.

    \b
    --json: {"a": a snapshot or null, "b": a snapshot,
             "changes": [{"path": JSON Pointer,
                          "kind": "added", "removed", "changed" or "moved",
                          "before": value, "after": value}, ...],
             "patch": [operations of RFC 6902]}
            if moved, before and after are pointers; with --stat instead of both:
             "stat": [{"key": text or null, "added": n, "changed": n,
                       "removed": n, "moved": n}, ...]

    \b
    Examples:
      limpet diff @ -s chat-42
      limpet diff chat-42@~5 chat-42@
      limpet diff chat-42:main@ chat-42:main~k3x9@ --stat
    """
    if stat and patch:
        raise click.UsageError("--stat and --patch cannot be combined")
    old, new, before, after = _read(url, a, b, address)
    found = compare(before, after)
    by_key = groups(found, is_object=isinstance(before, dict) and isinstance(after, dict))
    if patch:
        echo_json(found.to_json_patch())
    elif as_json:
        echo_json(_diff_json(old, new, found, by_key if stat else None))
    else:
        with output() as console:
            _draw_heads(console, old, new)
            if stat:
                _draw_stat(console, by_key)
            else:
                ChangePrinter(console, before, after, full=full).draw(by_key)
            _draw_sum(console, found)
    return _exits.FOUND if found else _exits.FINE


def _read(
    url: str, a: str, b: str | None, address: dict[str, str | None]
) -> tuple[limpet.SnapshotInfo | None, limpet.SnapshotInfo, limpet.JSON, limpet.JSON]:
    """Return the two snapshots, then their states."""
    with existing_store(url, read_only=True) as store:
        first = find_snapshot(store, a, **address)
        if b is None:
            old, new = find_base(store, first), first
        else:
            old, new = first, find_snapshot(store, b, **address)
        after = load_snapshot(store, new).state
        if old is not None:
            return old, new, load_snapshot(store, old).state, after
        return None, new, type(after)() if isinstance(after, dict | list) else None, after


def _diff_json(
    old: limpet.SnapshotInfo | None,
    new: limpet.SnapshotInfo,
    found: limpet.Diff,
    by_key: list[Group] | None,
) -> dict[str, object]:
    heads = {"a": None if old is None else info_json(old), "b": info_json(new)}
    if by_key is not None:
        none = dict.fromkeys(KINDS, 0)
        return {**heads, "stat": [{"key": each.key, **none, **each.counts} for each in by_key]}
    changes = [
        {"path": each.path, "kind": each.kind, "before": each.before, "after": each.after}
        for each in found.changes
    ]
    return {**heads, "changes": changes, "patch": found.to_json_patch()}


def _draw_heads(
    console: Console, old: limpet.SnapshotInfo | None, new: limpet.SnapshotInfo
) -> None:
    for mark, info in (("-", old), ("+", new)):
        line = Text.assemble((f"{mark * 3} ", _STYLES[mark]))
        if info is None:
            line.append("nothing", "quiet")
        else:
            line.append(visible(address_text(info.scope, "")), "title")
            line.append(visible(short_id(info.id)), "accent")
            line.append(
                f"  {age_text(info.created_at, now())}  {status_or_dash(info.status)}", "quiet"
            )
        console.print(line, soft_wrap=True)
    console.print()


def _draw_sum(console: Console, found: limpet.Diff) -> None:
    if not found:
        console.print(Text("no difference", "good"))
        return
    counts = Group(None, list(found.changes)).counts
    console.print()
    console.print(Text(", ".join(f"{n:,} {kind}" for kind, n in counts.items()), "quiet"))


def _draw_stat(console: Console, by_key: list[Group]) -> None:
    names = [clipped(_name(each), _PATH_CELLS_MAX) for each in by_key]
    cells = max(map(cell_len, names), default=0)
    most = max((len(each.changes) for each in by_key), default=0)
    scale = min(1.0, _BAR_CHARS_MAX / max(1, most))
    for name, each in zip(names, by_key, strict=True):
        line = Text(f" {name}{' ' * (cells - cell_len(name))}  {len(each.changes):>6,}  ")
        for kind, count in each.counts.items():
            line.append(MARKS[kind] * max(1, round(count * scale)), _STYLES[MARKS[kind]])
        console.print(line, soft_wrap=True)


def _name(group: Group) -> str:
    return "(the state)" if group.key is None else visible(group.key) or '""'


class ChangePrinter:
    """Draws changes below their top-level keys; without `full` long ones are folded."""

    def __init__(
        self, console: Console, before: limpet.JSON, after: limpet.JSON, *, full: bool
    ) -> None:
        self._console = console
        self._full = full
        self._messages = {"removed": Messages(before), "added": Messages(after)}

    def draw(self, by_key: list[Group]) -> None:
        apart = False  # whether the previous group has a title
        for at, group in enumerate(by_key):
            own = group.is_one_value
            if at and (apart or not own):
                self._console.print()
            if not own:
                self._console.print(Text(_name(group), "title"))
            apart = not own
            shown = group.changes if self._full else group.changes[:_CHANGES_MAX]
            for change in shown:
                path = _name(group) if own else group.below(change) or _name(group)
                self._change(change, path, "" if own else "  ")
            if left := len(group.changes) - len(shown):
                more = count_text(left, "more change")
                self._print(Text(f"  … {more}; --full shows all", "quiet"))

    def _change(self, change: limpet.Change, path: str, indent: str) -> None:
        mark = MARKS[change.kind]
        path = path if self._full else clipped(path, _PATH_CELLS_MAX)
        line = Text.assemble(indent, (f"{mark} ", _STYLES[mark]), f"{path}  ")
        inner = f"{indent}    "
        if change.kind == "moved":
            same = change.before == change.after
            line.append("in another order" if same else f"from {dotted(change.before)}", "quiet")
            self._print(line)
        elif change.kind == "changed":
            self._changed(change, line, inner)
        else:
            self._value(change, line, inner)

    def _value(self, change: limpet.Change, line: Text, inner: str) -> None:
        mark, value = MARKS[change.kind], only_value(change)
        message = self._messages[change.kind].said(change.path, value)
        if message is not None and not self._full:
            line.append(f"{message.speaker}  ", role_style(message.role))
            self._print(line.append(self._fitting(line, message.text)))
        elif self._full or (isinstance(value, str) and "\n" in value):
            self._print(line)
            self._block(mark, value, inner)
        else:
            self._print(line.append(self._fitting(line, brief(value))))

    def _changed(self, change: limpet.Change, line: Text, inner: str) -> None:
        before, after = change.before, change.after
        texts = isinstance(before, str) and isinstance(after, str)
        short = f"{brief(before)} → {brief(after)}"
        multiline = texts and "\n" in before + after
        if not multiline and line.cell_len + cell_len(short) <= self._console.width:
            old, new = brief(before) or '""', brief(after) or '""'
            self._print(line.append(old, "less").append(" → ", "quiet").append(new, "more"))
            return
        self._print(line)
        if texts:
            self._lines(before, after, inner)
            return
        for mark, value in (("-", before), ("+", after)):
            if self._full:
                self._block(mark, value, inner)
            else:
                own = Text.assemble(inner, (f"{mark} ", _STYLES[mark]))
                self._print(own.append(self._fitting(own, brief(value)), _STYLES[mark]))

    def _lines(self, before: str, after: str, inner: str) -> None:
        lines, left = text_lines(before, after, **self._limits(inner))
        for mark, spans in lines:
            line = Text.assemble(inner, (f"{mark} ", _STYLES.get(mark, "")))
            for text, changed in spans:
                line.append(text, _STYLES[mark] if changed else "quiet")
            self._print(line)
        self._left_out(left, inner)

    def _block(self, mark: str, value: limpet.JSON, inner: str) -> None:
        lines, left = value_lines(value, **self._limits(inner))
        for text in lines:
            self._print(Text.assemble(inner, (f"{mark} {text}", _STYLES[mark])))
        self._left_out(left, inner)

    def _limits(self, inner: str) -> dict[str, int]:
        room = self._console.width - len(inner) - 2
        return {} if self._full else {"lines_max": _LINES_MAX, "chars_max": room}

    def _left_out(self, count: int, inner: str) -> None:
        if count:
            more = count_text(count, "more line")
            self._print(Text(f"{inner}… {more}; --full shows all", "quiet"))

    def _fitting(self, line: Text, text: str) -> str:
        room = max(_TEXT_CELLS_MIN, self._console.width - line.cell_len)
        return text if self._full else clipped(text, room)

    def _print(self, line: Text) -> None:
        line.rstrip()
        self._console.print(line, soft_wrap=True)
