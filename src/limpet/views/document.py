"""What the Markdown and HTML documents of a session share."""

from collections.abc import Sequence
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

STATE_SIZE = "state, as JSON"
"""The name of a size: not what it takes up in the store."""


@dataclass(frozen=True, slots=True)
class ScopePage:
    """One scope of a document: its head, its history (newest first), and all its notes."""

    key: ScopeKey
    head: Snapshot | None
    history: Sequence[SnapshotInfo] = ()
    notes: Sequence[Note] = ()


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
