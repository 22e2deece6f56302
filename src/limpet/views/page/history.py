"""The history of a session as a table, with a graph of its branches and forks."""

from collections.abc import Iterator, Mapping

from limpet.model import ScopeKey, SnapshotInfo, SnapshotRef
from limpet.views.document import STATE_SIZE, ScopePage, labels_text, scope_name
from limpet.views.format import address_text, count_text, moment_text, size_text, status_or_dash
from limpet.views.page.chat import escaped
from limpet.views.page.graph import CELL_PX, graph_svg
from limpet.views.tree import GraphRow, build_forest, graph_rows, join_lone

HISTORY = "history"
"""The anchor of the table."""

_SNAPSHOTS_MAX = 1_000
_GOOD = ("completed", "done", "succeeded")
_BAD = ("failed", "error", "aborted", "cancelled", "expired")


class History:
    """The newest snapshots of all scopes as a table, with a graph of their branches and forks."""

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
        yield f'<section class="scope" id="{HISTORY}"><h2>History</h2>'
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
