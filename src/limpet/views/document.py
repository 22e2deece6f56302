"""What the Markdown and HTML documents of a session share."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from limpet.model import JSON, Note, ScopeInfo, ScopeKey, Snapshot, SnapshotInfo
from limpet.views.chat import Chat, other_values, read_chat
from limpet.views.format import (
    count_text,
    moment_text,
    shown_labels,
    size_text,
    status_or_dash,
    visible,
)

HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(?=\S)(.*?)[ \t#]*")
"""A heading in a message; its group is the text."""

CODE_SPAN = r"(?<!`)(`+)(?!`)(.{1,300}?)(?<!`)\1(?!`)"
"""Inline code, with its backticks and its text. Bounded, so that no line is slow."""

STATE_SIZE = "state, as JSON"
"""The name of a size: not what it takes up in the store."""

_FENCE = re.compile(r"[ \t]*(`{3,}(?=[^`]*$)|~{3,})[ \t]*(.*)")
_SPACES = (
    "\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
)
# Joiners and selectors belong to letters and emoji, direction marks to a line.
_INVISIBLE_KEPT = f"\n\t{_SPACES}\u200c\u200d\u200e\u200f\ufe0e\ufe0f"


@dataclass(frozen=True, slots=True)
class ScopePage:
    """One scope of a document: its head, its history (newest first), and all its notes."""

    key: ScopeKey
    head: Snapshot | None
    history: Sequence[SnapshotInfo] = ()
    notes: Sequence[Note] = ()


class Block(NamedTuple):
    """A part of a message: lines of prose, or of code in a language."""

    text: str
    is_code: bool = False
    language: str = ""


def readable(text: str) -> str:
    """Return text with escaped control characters, except what belongs to prose."""
    return visible(text.replace("\r\n", "\n"), kept=_INVISIBLE_KEPT)


def json_start(value: JSON, chars_max: int, *, indent: int | None = 2) -> str:
    """Return a value as JSON, of which at most `chars_max` characters are made: it may be large."""
    text, length = [], 0
    for chunk in json.JSONEncoder(ensure_ascii=False, indent=indent).iterencode(value):
        text.append(chunk[: chars_max - length])
        length += len(text[-1])
        if length >= chars_max:
            break
    return "\n".join(map(visible, "".join(text).split("\n")))


def blocks(text: str) -> Iterator[Block]:
    """Split a message into prose and fenced code, without the fences."""
    lines: list[str] = []
    fence, language, indent = "", "", 0
    for line in readable(text).split("\n"):
        found = _FENCE.fullmatch(line)
        if not fence and found is not None:
            yield from _block(lines)
            fence, language, lines = found[1], found[2].strip(), []
            indent = len(line) - len(line.lstrip())
        elif fence and found is not None and found[1].startswith(fence) and not found[2]:
            yield Block("\n".join(lines), is_code=True, language=language)
            fence, lines = "", []
        elif fence:
            margin = line[:indent]
            lines.append(line[indent:] if not margin.strip() else line)
        else:
            lines.append(line)
    if fence:
        yield Block("\n".join(lines), is_code=True, language=language)
    else:
        yield from _block(lines)


def _block(lines: list[str]) -> Iterator[Block]:
    text = "\n".join(lines).strip("\n")
    if text.strip():
        yield Block(text)


class Content(NamedTuple):
    """A state: its chat, if it has one, and the other values by name (`.` is the whole state)."""

    chat: Chat | None
    others: Sequence[tuple[str, JSON]]


def content_of(state: JSON) -> Content:
    chat = read_chat(state)
    if chat is not None:
        return Content(chat, [(visible(name), value) for name, value in other_values(state, chat)])
    if isinstance(state, dict) and state:
        return Content(None, [(visible(name), value) for name, value in state.items()])
    return Content(None, [(".", state)])


def scope_name(key: ScopeKey) -> str:
    """Return the id of a scope, with its kind if that is not the default."""
    name = visible(key.scope_id)
    return name if key.kind == "agent" else f"{name} ({visible(key.kind)})"


def session_name(session_id: str, title: str | None) -> str:
    """Return the title of a session, or else its id."""
    return visible(title or session_id)


def session_facts(contents: Sequence[ScopeInfo]) -> list[tuple[str, str]]:
    heads = [info.head for info in contents if info.head is not None]
    facts = [("scopes", f"{len(contents):,}")]
    if heads:
        last = max(heads, key=lambda head: head.updated_at)
        facts += [
            ("last change", f"{moment_text(last.updated_at)} UTC"),
            ("current states, as JSON", size_text(sum(head.size for head in heads))),
        ]
    return facts


def scope_facts(page: ScopePage) -> list[tuple[str, str]]:
    facts = [("kind", visible(page.key.kind))]
    head = page.head
    if head is None:
        return [*facts, ("history", count_text(len(page.history), "snapshot"))]
    kept = "" if head.kept else " (a draft)"
    facts += [
        ("head", visible(head.id) + kept),
        ("status", status_or_dash(head.status)),
        ("saved", f"{moment_text(head.created_at)} UTC"),
        (STATE_SIZE, size_text(head.size)),
        ("history", count_text(len(page.history), "snapshot")),
    ]
    if head.updated_at != head.created_at:
        facts.append(("changed", f"{moment_text(head.updated_at)} UTC"))
    labels = labels_text(head)
    if labels:
        facts.append(("labels", labels))
    return facts


def labels_text(info: SnapshotInfo) -> str:
    """Return labels on one line: `run_id=7, node_id=plan`."""
    return visible(", ".join(f"{name}={value}" for name, value in shown_labels(info).items()))


def note_name(note: Note) -> str:
    return visible(note.name if note.snapshot_id is None else f"{note.name} on {note.snapshot_id}")
