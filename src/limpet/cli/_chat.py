"""Draws a chat in the terminal: messages, tool calls and their results, folded where long."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any, NamedTuple

from rich.console import Console, Group
from rich.text import Text

from limpet.model import JSON
from limpet.views import chat
from limpet.views.chat import ChatTurn
from limpet.views.format import count_text, visible

_KEY = re.compile(r'(\s*)("(?:[^"\\]|\\.)*")(?=: )')
_TAB = 4
_CELLS_MIN = 10
_ROLES = ("user", "assistant", "system", "tool")  # which are styles too
_INDENT = 2
_CALL_CHARS_MAX = 240  # longer arguments are cut, or written below the call
_ARGUMENT_CHARS_MAX = 60


class RowLimits(NamedTuple):
    """How many rows of each are drawn before the rest is folded; None is all."""

    said: int | None = 40
    prompt: int | None = 8
    thought: int | None = 6
    output: int | None = 12
    call: int | None = 4


FULL = RowLimits(None, None, None, None, None)


def lines_of(text: str, style: str = "") -> Iterator[Text]:
    for line in text.strip("\r\n").split("\n"):
        yield Text(visible(line.rstrip().expandtabs(_TAB)), style)


def code(json_text: str) -> Iterator[Text]:
    """Yield the lines of indented JSON, with coloured keys."""
    for line in json_text.split("\n"):
        found = _KEY.match(line)
        if found is None:
            yield Text(line)
        else:
            yield Text.assemble(found[1], (found[2], "accent"), line[found.end() :])


def draw_value(console: Console, value: JSON) -> None:
    """Draw a value whole: a text as it is, anything else as JSON."""
    text = isinstance(value, str)
    lines = lines_of(value) if text else code(chat.value_text(value, indent=2))
    for line in lines:
        console.print(line, soft_wrap=True)


def fold(
    console: Console, lines: Iterable[Text], margin: Text, rows_max: int | None, *, hanging: int = 0
) -> Iterator[Text]:
    """Yield lines wrapped to the console, at most `rows_max`, then how much is left out.

    Continued lines are indented by `hanging` cells. One row too many is drawn: the hint that it is
    missing would take as much room.
    """
    lines = list(lines)
    width = max(_CELLS_MIN, console.width - margin.cell_len - hanging)
    needed = None if rows_max is None else rows_max + 2
    rows: list[tuple[int, Text]] = []
    for at, line in enumerate(lines):
        room = None if needed is None else needed - len(rows)
        if room == 0:
            break
        pieces = _wrapped(console, line, width, room)
        rows += [
            (at, Text(" " * hanging) + row if n and hanging else row)
            for n, row in enumerate(pieces)
        ]
    is_cut = needed is not None and len(rows) == needed
    shown = rows[:rows_max] if is_cut else rows
    for _, row in shown:
        row = margin + row
        row.rstrip()
        yield row
    if is_cut:
        yield margin + Text(f"… {_rest(lines, shown)} (--full)", "quiet")


def _wrapped(console: Console, line: Text, width: int, room: int | None) -> list[Text]:
    if room is not None:
        line = line[: room * width]  # wrapping is slow, and a line may have megabytes
    return list(line.wrap(console, width))[:room]


def _rest(lines: list[Text], shown: list[tuple[int, Text]]) -> str:
    last = shown[-1][0] if shown else -1
    if last < len(lines) - 1:
        return count_text(len(lines) - 1 - last, "more line")
    seen = sum(len(row) for at, row in shown if at == last)
    return count_text(len(lines[last]) - seen, "more character")


def draw_turns(
    console: Console, turns: Iterable[ChatTurn], *, rows: RowLimits, before: ChatTurn | None = None
) -> None:
    """Draw turns, each with one print. `before` is the turn that was drawn last."""
    for turn in turns:
        lines = list(_turn(console, turn, rows, before))
        if lines:
            console.print(Group(*lines), no_wrap=True, overflow="ignore", crop=False)
        before = turn


def turn_json(turn: ChatTurn) -> dict[str, Any]:
    return {
        "index": turn.index,
        "role": turn.role,
        "name": turn.name,
        "parts": [_part_json(part) for part in turn.parts],
    }


def _part_json(part: chat.Part) -> dict[str, Any]:
    shape = {"type": type(part).__name__.lower(), **asdict(part)}
    result = getattr(part, "result", None)
    if result is not None:
        parts = [_part_json(each) for each in result.parts]
        shape["result"] = {"parts": parts, "is_error": result.is_error}
    return shape


def role_style(role: str) -> str:
    return role if role in _ROLES else "odd"


def message_text(turn: ChatTurn) -> Text:
    """Return a turn on one line: who says what."""
    name = f" {visible(turn.name)}" if turn.name else ""
    who = (visible(turn.role), role_style(turn.role))
    return Text.assemble(who, (name, "quiet"), f" {chat.turn_text(turn)}".rstrip())


def _turn(
    console: Console, turn: ChatTurn, rows: RowLimits, before: ChatTurn | None
) -> Iterator[Text]:
    if before is None or not _continues(before, turn):
        if before is not None:
            yield Text()
        yield _title(turn)
    for part in turn.parts:
        yield from _part(console, part, rows, is_prompt=turn.role == "system")


def _continues(before: ChatTurn, turn: ChatTurn) -> bool:
    """Thoughts and calls that are separate messages of one assistant share a title."""
    same = (before.role, before.name, before.index + 1) == (turn.role, turn.name, turn.index)
    return same and turn.role == "assistant" and not (_is_said(before) and _is_said(turn))


def _is_said(turn: ChatTurn) -> bool:
    return any(isinstance(part, chat.Text) and not part.thinking for part in turn.parts)


def _title(turn: ChatTurn) -> Text:
    title = Text.assemble((visible(turn.role), role_style(turn.role)))
    if turn.name is not None:
        title.append(f" {visible(turn.name)}", "title")
    if turn.index >= 0:
        title.append(f" {turn.index}", "quiet")
    return title


def _part(
    console: Console, part: chat.Part, rows: RowLimits, *, is_prompt: bool = False
) -> Iterator[Text]:
    margin = Text(" " * _INDENT)
    if isinstance(part, chat.Call):
        yield from _call(console, part, rows)
    elif isinstance(part, chat.Answer):
        name = visible(part.name or part.id or "")
        yield from fold(console, [Text.assemble(("◂ ", "tool"), (name, "tool"))], margin, 1)
        yield from _result(console, part.result, rows)
    elif isinstance(part, chat.Text) and part.thinking:
        yield from fold(console, lines_of(part.text, "quiet"), _bar("┊", "quiet"), rows.thought)
    else:
        yield from fold(
            console, _inner(console, part), margin, rows.prompt if is_prompt else rows.said
        )


def _call(console: Console, call: chat.Call, rows: RowLimits) -> Iterator[Text]:
    margin = Text(" " * _INDENT)
    text = chat.call_text(call)
    below: list[Text] = []
    if len(text) > _CALL_CHARS_MAX:
        if rows.output is None:
            below = list(code(chat.value_text(call.arguments, indent=2)))
            text = f"{visible(call.name)}(…)"
        else:
            text = chat.call_text(_shortened(call))
    name = visible(call.name)
    head = Text.assemble(("▸ ", "tool"), (name, "tool"), text[len(name) :])
    yield from fold(console, [head], margin, rows.call, hanging=2)
    yield from fold(console, below, Text(" " * (_INDENT + 2)), None)
    if call.result is not None:
        yield from _result(console, call.result, rows)
    else:
        yield Text.assemble(_bar("│", "quiet"), ("no result", "quiet"))


def _shortened(call: chat.Call) -> chat.Call:
    if not isinstance(call.arguments, dict):
        return call
    short = {
        name: f"{value[:_ARGUMENT_CHARS_MAX]}…"
        if isinstance(value, str) and len(value) > _ARGUMENT_CHARS_MAX
        else value
        for name, value in call.arguments.items()
    }
    return chat.Call(call.name, short, call.id)


def _result(console: Console, result: chat.Result, rows: RowLimits) -> Iterator[Text]:
    bar = _bar("│", "bad" if result.is_error else "quiet")
    lines = [line for part in result.parts for line in _inner(console, part)]
    if not lines:
        lines = [Text("empty result", "quiet")]
    if result.is_error:
        lines[0] = Text.assemble(("✗ ", "bad"), lines[0])
    yield from fold(console, lines, bar, rows.output)


def _inner(console: Console, part: chat.Inner | chat.Part) -> list[Text]:
    if isinstance(part, chat.Text):
        return list(lines_of(part.text))
    if isinstance(part, chat.Media):
        return [Text.assemble(("▣ ", "accent"), (chat.media_text(part), "accent"))]
    if not isinstance(part, chat.Value):
        return []
    line = chat.value_text(part.value)
    if len(line) <= console.width - 2 * _INDENT:
        return [Text(line)]
    return list(code(chat.value_text(part.value, indent=2)))


def _bar(char: str, style: str) -> Text:
    return Text.assemble(" " * _INDENT, (f"{char} ", style))
