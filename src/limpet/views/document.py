"""What a session is as a document for people, before it is Markdown or HTML."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from limpet.model import JSON, Note, ScopeInfo, ScopeKey, Snapshot, SnapshotInfo, SnapshotRef
from limpet.views.chat.text import Chat, beside, read_chat
from limpet.views.sizes import count_text, moment_text, size_text, visible

HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(?=\S)(.*?)[ \t#]*")
"""A line of a message that is a heading; its group is the text."""

CODE_SPAN = r"(?<!`)(`+)(?!`)(.{1,300}?)(?<!`)\1(?!`)"
"""Code in a line of a message, with its marks and its text. Bounded, so that no line is slow."""

_FENCE = re.compile(r"[ \t]*(`{3,}(?=[^`]*$)|~{3,})[ \t]*(.*)")
# Joiners are part of letters and emoji, and marks of direction part of a line.
_INVISIBLE_KEPT = "\n\t\u200c\u200d\u200e\u200f"
_SPACE = "Zs"


@dataclass(frozen=True, slots=True)
class ScopePage:
    """What a document tells of one scope.

    `head` is what it shows now, None for nothing; `history` its kept snapshots, the newest first;
    `notes` those beside it and beside its snapshots.
    """

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    key: ScopeKey
    head: Snapshot | None
    history: Sequence[SnapshotInfo] = ()
    notes: Sequence[Note] = ()


class Block(NamedTuple):
    """A piece of a message: lines of prose, or of code in the language that is named."""

    text: str
    is_code: bool = False
    language: str = ""


def readable(text: str) -> str:
    """Return text whose line ends, tabs and spaces are kept, and nothing else that is not seen.

    The rest, as sequences that turn a line round or end a document, are shown as Python would write
    them. So the text holds nothing that no file can hold.
    """
    text = text.replace("\r\n", "\n")
    if text.isprintable():
        return text
    return "".join(each if _is_kept(each) else ascii(each)[1:-1] for each in text)


def _is_kept(char: str) -> bool:
    return char.isprintable() or char in _INVISIBLE_KEPT or unicodedata.category(char) == _SPACE


def blocks(text: str) -> Iterator[Block]:
    """Split a message into prose and fenced code, of which the fences are left out."""
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
    """What a state holds: its chat, if there is one, and the rest by name (`.` is all of it)."""

    chat: Chat | None
    others: Sequence[tuple[str, JSON]]


def content_of(state: JSON) -> Content:
    """Return what a state holds."""
    chat = read_chat(state)
    if chat is not None:
        return Content(chat, [(visible(name), value) for name, value in beside(state, chat)])
    if isinstance(state, dict) and state:
        return Content(None, [(visible(name), value) for name, value in state.items()])
    return Content(None, [(".", state)])


def scope_name(key: ScopeKey) -> str:
    """Return what people call a scope: its id, and its kind where that is not the usual one."""
    name = visible(key.scope_id)
    return name if key.kind == "agent" else f"{name} ({visible(key.kind)})"


def session_facts(contents: Sequence[ScopeInfo]) -> list[tuple[str, str]]:
    """Return what is worth knowing of a session, by name."""
    heads = [info.head for info in contents if info.head is not None]
    facts = [("scopes", f"{len(contents):,}")]
    if heads:
        last = max(heads, key=lambda head: head.updated_at)
        facts += [
            ("last change", f"{moment_text(last.updated_at)} UTC"),
            ("heads", size_text(sum(head.size for head in heads))),
        ]
    return facts


def scope_facts(page: ScopePage) -> list[tuple[str, str]]:
    """Return what is worth knowing of a scope, by name. Each is on one line."""
    facts = [("kind", visible(page.key.kind))]
    head = page.head
    if head is None:
        return [*facts, ("history", count_text(len(page.history), "snapshot"))]
    kept = "" if head.kept else " (a draft)"
    facts += [
        ("head", visible(head.id) + kept),
        ("status", visible(head.status)),
        ("saved", f"{moment_text(head.created_at)} UTC"),
        ("size", size_text(head.size)),
        ("history", count_text(len(page.history), "snapshot")),
    ]
    if head.updated_at != head.created_at:
        facts.append(("changed", f"{moment_text(head.updated_at)} UTC"))
    if head.labels:
        facts.append(("labels", labels_text(head)))
    return facts


def labels_text(info: SnapshotInfo) -> str:
    """Return labels on one line: `run_id=7, node_id=plan`."""
    return visible(", ".join(f"{name}={value}" for name, value in info.labels.items()))


def origin_text(origin: SnapshotRef) -> str:
    """Return where a fork came from, as it can be asked for: `SESSION:SCOPE@ID`."""
    return visible(f"{origin.scope.session_id}:{origin.scope.scope_id}@{origin.id}")


def note_name(note: Note) -> str:
    """Return what people call a note: its name, and the snapshot that it stands beside."""
    return visible(note.name if note.snapshot_id is None else f"{note.name} on {note.snapshot_id}")
