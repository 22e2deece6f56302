"""A session as one self-contained HTML page: no script, no font, no other file.

Content of the store is escaped text; a Content-Security-Policy in the page enforces it.
"""

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Final

from limpet.model import JSON, ScopeInfo, ScopeKey, SnapshotInfo, SnapshotRef
from limpet.views.chat import value_text
from limpet.views.document import (
    STATE_SIZE,
    ScopePage,
    content_of,
    labels_text,
    note_name,
    scope_facts,
    scope_name,
    session_facts,
)
from limpet.views.format import address_text, count_text, moment_text, size_text, status_or_dash
from limpet.views.page.chat import ChatWriter, Images, escaped, folded_code, no_image
from limpet.views.page.svg import CELL_PX, graph_svg
from limpet.views.tree import GraphRow, build_forest, graph_rows, join_lone

STYLE: Final = (files("limpet.views.page") / "page.css").read_text(encoding="utf-8")
"""The CSS of a page, which is embedded in it; the inspector has it too."""

_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'"
)


def session_page(
    session_id: str,
    scopes: Iterable[ScopePage],
    *,
    contents: Sequence[ScopeInfo] = (),
    title: str | None = None,
    images: bool = False,
) -> Iterator[str]:
    """Yield the parts of a page with all scopes of a session.

    `contents` are the same scopes, for a table of contents. `scopes` is read lazily. With `images`,
    PNG, JPEG, GIF and WebP images in messages below 256 KiB are embedded; others are named.
    """
    name = escaped(session_id)
    heading = name if title is None else escaped(title)
    policy = _POLICY + ("; img-src data:" if images else "")
    yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    yield f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">\n'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    yield '<meta name="color-scheme" content="light dark">\n'
    yield '<meta name="referrer" content="no-referrer">\n'
    yield '<meta name="generator" content="Limpet">\n'
    yield f"<title>{heading}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
    kicker = "Session" if title is None else f"Session <code>{name}</code>"
    yield f'<header class="top"><p class="kicker">{kicker}</p><h1>{heading}</h1>'
    yield f"{_facts(session_facts(contents)) if contents else ''}</header>\n"
    anchors = {info.key: f"scope-{number}" for number, info in enumerate(contents, start=1)}
    if len(contents) > 1:
        yield from _contents(contents, anchors)
    yield "<main>\n"
    history = _History(anchors)
    for number, page in enumerate(scopes, start=1):
        anchor = anchors.setdefault(page.key, f"scope-{number}")
        yield from _scope(page, anchor, images=images)
        history.add(page)
    yield from history.html()
    yield "</main>\n</body>\n</html>\n"


def _contents(contents: Sequence[ScopeInfo], anchors: dict[ScopeKey, str]) -> Iterator[str]:
    yield '<nav aria-label="Scopes"><ul>\n'
    for info in contents:
        name = f'<a href="#{anchors[info.key]}">{escaped(scope_name(info.key))}</a>'
        head = info.head
        if head is None:
            facts = '<span class="quiet">no head</span>'
        else:
            moment = f"<time>{moment_text(head.created_at)}</time>"
            facts = f"{status_html(head.status)} {moment}"
        yield f"<li>{name} {facts}</li>\n"
    yield f'<li><a href="#{_HISTORY}">History</a> <span class="quiet">of all scopes</span></li>\n'
    yield "</ul></nav>\n"


def _scope(page: ScopePage, anchor: str, *, images: bool) -> Iterator[str]:
    yield f'<section class="scope" id="{anchor}">\n<h2>{escaped(page.key.scope_id)}</h2>'
    yield _facts(scope_facts(page))
    if page.head is not None:
        yield from _state(page.head.state, images=images)
    else:
        yield '<p class="quiet">no head</p>\n'
    if page.notes:
        yield "<h3>Notes</h3>\n"
        for note in page.notes:
            yield from _value(note_name(note), note.value)
    yield "</section>\n"


def _state(state: JSON, *, images: bool) -> Iterator[str]:
    content = content_of(state)
    if content.chat is not None:
        writer = ChatWriter(Images(state).find if images else no_image)
        turns = content.chat.turns
        yield f"<h3>Conversation <small>{count_text(len(turns), 'turn')}</small></h3>\n"
        yield '<div class="chat">\n'
        for turn in turns:
            yield from writer.turn(turn)
        yield "</div>\n"
    if content.others:
        yield "<h3>State</h3>\n"
        for name, value in content.others:
            yield from _value(name, value)


def _value(name: str, value: JSON) -> Iterator[str]:
    yield f'<div class="value"><h4><code>{escaped(name)}</code></h4>'
    yield f"{folded_code(value_text(value, indent=2))}</div>\n"


def _facts(facts: Sequence[tuple[str, str]]) -> str:
    rows = "".join(
        f"<div><dt>{escaped(name)}</dt>"
        f"<dd>{status_html(value) if name == 'status' else escaped(value)}</dd></div>"
        for name, value in facts
    )
    return f'<dl class="facts">{rows}</dl>\n'


# The history

_HISTORY = "history"  # the anchor of the table
_SNAPSHOTS_MAX = 1_000
_GOOD = ("completed", "done", "succeeded")
_BAD = ("failed", "error", "aborted", "cancelled", "expired")


class _History:
    def __init__(self, anchors: Mapping[ScopeKey, str]) -> None:
        self._anchors = anchors  # of the scopes in the page
        self._newest: list[SnapshotInfo] = []
        self._heads: set[SnapshotRef] = set()
        self._left_out = 0

    def add(self, page: ScopePage) -> None:
        if page.head is not None:
            self._heads.add(SnapshotRef(page.key, page.head.id))
            self._newest += [] if page.head.kept else [page.head]
        self._newest += page.history
        # Stable: a scope stays in the order in which it was saved.
        self._newest.sort(key=lambda info: info.created_at, reverse=True)
        self._left_out += len(self._newest[_SNAPSHOTS_MAX:])
        del self._newest[_SNAPSHOTS_MAX:]

    def html(self) -> Iterator[str]:
        if not self._newest:
            return
        forest = join_lone(build_forest(reversed(self._newest), self._heads))
        roots = {id(node) for node in forest}
        rows = graph_rows(forest)
        width = CELL_PX * (1 + max(row.width for row in rows))
        count = count_text(len(rows), "snapshot")
        more = f", and {self._left_out:,} older ones that are not shown" * bool(self._left_out)
        yield f'<section class="scope" id="{_HISTORY}"><h2>History</h2>'
        yield f'<p class="about">{count}{more}. A line leads down from a snapshot to the one'
        yield " that it follows or was forked from"
        if rows[0].lone:
            yield ", a dotted one to the one saved before it, if it names no parent"
        yield "; a ring is the head of a scope. Sizes are those"
        yield " of the whole state at that time, written as JSON. The store keeps only once what"
        yield " states have in common, so all of them together take up less.</p>\n"
        yield f'<table class="history"><colgroup><col width="{width}"></colgroup><thead><tr>'
        scope = "scope" if len(self._anchors) > 1 else ""
        yield f"<th></th><th>saved (UTC)</th><th>snapshot</th><th>{scope}</th><th>status</th>"
        yield f"<th>{STATE_SIZE}</th></tr></thead><tbody>\n"
        for row in rows:
            yield self._row(row, is_root=id(row.node) in roots)
        yield "</tbody></table>\n</section>\n"

    def _row(self, row: GraphRow, *, is_root: bool) -> str:
        info = row.node.info
        before = _before(info)
        drawing = graph_svg(row, is_root=is_root, follows=before is not None)
        kind = ' class="head"' if row.node.is_head else ""
        labels = labels_text(info)
        labels = f'<div class="labels">{escaped(labels)}</div>' if labels else ""
        return (
            f"<tr{kind}>"
            f'<td class="lines">{drawing}</td>'
            f'<td><time datetime="{info.created_at.isoformat()}">'
            f"{moment_text(info.created_at)}</time></td>"
            f'<td><code class="id">{escaped(info.id)}</code>{labels}</td>'
            f"<td>{self._place(info, before if is_root else None)}</td>"
            f"<td>{status_html(info.status)}</td>"
            f'<td class="size">{size_text(info.size)}</td></tr>\n'
        )

    def _place(self, info: SnapshotInfo, before: SnapshotRef | None) -> str:
        """Return the scope of a snapshot, and what it comes from if no line leads there."""
        shown = ""
        if len(self._anchors) > 1:
            name = escaped(scope_name(info.scope))
            shown = f'<a href="#{self._anchors[info.scope]}">{name}</a>'
        if before is not None:
            what = "follows" if info.forked_from is None else "forked from"
            shown += f'<div class="labels">{what} {escaped(address_text(*before))}</div>'
        return shown


def _before(info: SnapshotInfo) -> SnapshotRef | None:
    if info.forked_from is None and info.parent_id is not None:
        return SnapshotRef(info.scope, info.parent_id)
    return info.forked_from


def status_html(status: str) -> str:
    shown = escaped(status_or_dash(status))
    if shown == status_or_dash(""):
        return f'<span class="quiet">{shown}</span>'
    tone = "good" if status in _GOOD else "bad" if status in _BAD else "open"
    return f'<span class="status {tone}">{shown}</span>'
