"""One session: its history as a graph, with one snapshot beside it."""

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

from markupsafe import Markup

from limpet.api.store import Store
from limpet.core.operations import SCOPE_PARAMS, SESSION, SNAPSHOT, Param
from limpet.core.schema import COUNT, TEXT
from limpet.errors import Corrupt, NotFound
from limpet.inspector import links
from limpet.inspector.page import page, render
from limpet.inspector.pages.snapshot import DETAIL_PARAMS, read_detail
from limpet.inspector.timelines import Timelines, timelines
from limpet.model import ScopeInfo, SnapshotInfo, SnapshotRef
from limpet.server.access import Grant
from limpet.server.answers import Response
from limpet.server.call import Call
from limpet.views.format import address_text, count_text, duration_text, short_id, size_text
from limpet.views.overview import session_title
from limpet.views.page.svg import bars, graph_svg, lane_class, sparkline
from limpet.views.timeline import SNAPSHOTS_MAX, Said, Timeline, TimelineRow

CHUNK = 100
"""How many rows are sent at once; a page begins with two of these."""

_CELLS_MAX = 17  # nine lanes: on a phone, half of the width
_SCOPES_MAX = 1_000
_SAID_ROWS_MAX = 60
_SPARK_MIN = 3  # two points say nothing
_AT = Param("at", COUNT, "the row to begin with; the first one is 0")
_VERSION = Param("version", TEXT, "the version of the graph that the other rows have")
_ROWS = Param("rows", COUNT, "how many rows")


class RowView(NamedTuple):
    """A row of the graph, as the template draws it."""

    number: int
    of: TimelineRow
    info: SnapshotInfo  # what may be shown of it
    svg: Markup
    lane: str
    comes_from: str | None
    said: Said | None


class ChunkView(NamedTuple):
    """Some rows, and the graph that they belong to."""

    at: int
    rows: Sequence[RowView]
    total: int
    version: str


class Spark(NamedTuple):
    """A small picture, and what it says in words."""

    name: str
    svg: Markup
    text: str


class SessionView(NamedTuple):
    """All that the page shows, except the snapshot."""

    session_id: str
    title: str | None
    newest: SnapshotInfo | None
    timeline: Timeline
    snapshots: str
    sparks: Sequence[Spark]
    scopes: Sequence[ScopeInfo]
    scopes_left_out: int
    chunks: Sequence[ChunkView]
    selected: int | None
    problem: str | None
    chunk_rows: int = CHUNK
    snapshots_max: int = SNAPSHOTS_MAX

    @property
    def newer(self) -> int | None:
        """Where the rows before these begin."""
        first = self.chunks[0].at
        return max(0, first - 2 * CHUNK) if first else None

    @property
    def older(self) -> int | None:
        last = self.chunks[-1]
        following = last.at + CHUNK
        return following if following < last.total else None


@page("/ui/session", *SCOPE_PARAMS, SNAPSHOT, *DETAIL_PARAMS, _AT)
async def show_session(call: Call) -> Response:
    """The history of a session, and one of its snapshots."""
    key = call.scope
    view, detail = await call.store.run(lambda store: _read(store, call))
    command = links.Command("log", ["--graph"], [key.session_id])
    return render(call, "session.html", session=view, **detail, command=command)


@page("/ui/rows", SESSION, _AT, _VERSION)
async def show_rows(call: Call) -> Response:
    """More rows of the graph: a part of the page of a session."""
    session_id = call.scope.session_id

    def read(store: Store) -> ChunkView:
        kept = timelines(store)
        timeline = kept.read(store, session_id, call.params.get("version"))
        return _chunk(kept, timeline, call.params.get("at", 0) // CHUNK * CHUNK, call.grant)

    return render(
        call, "_rows.html", chunk=await call.store.run(read), selected=None, view_asked=None
    )


@page("/ui/said", SESSION, _AT, _VERSION, _ROWS)
async def show_said(call: Call) -> Response:
    """The last messages of some rows, or of the first of them: it reads their states."""
    session_id = call.scope.session_id
    at = call.params.get("at", 0)
    rows = min(call.params.get("rows", 1), _SAID_ROWS_MAX)

    def read(store: Store) -> tuple[str, list[Said | None]]:
        kept = timelines(store)
        timeline = kept.read(store, session_id, call.params.get("version"))
        infos = [row.info for row in timeline.rows[at : at + rows]]
        return timeline.version, kept.read_said(store, infos)

    version, said = await call.store.run(read)
    return render(call, "_said.html", version=version, at=at, said=said)


def _read(store: Store, call: Call) -> tuple[SessionView, dict[str, Any]]:
    key, given, grant = call.scope, call.params, call.grant
    kept = timelines(store)
    timeline = kept.read(store, key.session_id)
    newest = timeline.newest_head
    names_one = {"scope_id", "kind", "id"} & given.keys()
    info, problem = _selected(store, call) if names_one else (newest, None)
    detail = {} if info is None else read_detail(store, info, given, grant)
    selected = None if info is None else timeline.position(SnapshotRef(info.scope, info.id))
    at = given.get("at", selected or 0)
    start = min(at, len(timeline.rows)) // CHUNK * CHUNK
    chunks = [_chunk(kept, timeline, each, grant) for each in (start, start + CHUNK)]
    view = SessionView(
        key.session_id,
        session_title(store, key.session_id, timeline.scopes),
        newest,
        timeline,
        f"{len(timeline.rows):,}" + ("+" if timeline.is_cut else ""),
        _sparks(timeline),
        timeline.scopes[:_SCOPES_MAX],
        len(timeline.scopes[_SCOPES_MAX:]),
        [chunks[0], *(each for each in chunks[1:] if each.rows)],
        selected,
        problem,
    )
    return view, {"info": None, **detail, "view_asked": given.get("view")}


def _selected(store: Store, call: Call) -> tuple[SnapshotInfo | None, str | None]:
    """Return the snapshot that the address names, or why it cannot be shown."""
    key = call.scope
    try:
        info = store.scope(*key).info(call.id)
    except Corrupt as error:
        return None, call.grant.told(error)
    if info is None:
        name = address_text(key, call.id)
        raise NotFound(f"there is no such snapshot. snapshot=`{name}` kind=`{key.kind}`")
    return info, None


def _chunk(kept: Timelines, timeline: Timeline, at: int, grant: Grant) -> ChunkView:
    rows = timeline.rows[at : at + CHUNK]
    cells = min(timeline.width, _CELLS_MAX)
    views = [_row(kept, number, row, grant, cells) for number, row in enumerate(rows, at)]
    return ChunkView(at, views, len(timeline.rows), timeline.version)


def _row(kept: Timelines, number: int, row: TimelineRow, grant: Grant, cells: int) -> RowView:
    info = grant.visible(row.info)
    is_root = row.parent is None
    origin = info.forked_from
    comes_from = None
    if origin is not None:
        within = origin.scope.session_id == info.session_id
        scope = origin.scope.scope_id if within else address_text(origin.scope)
        comes_from = f"forked from {scope}@{short_id(origin.id)}"
    elif is_root and info.parent_id is not None:
        comes_from = f"follows {short_id(info.parent_id)}, which is not here"
    follows = comes_from is not None
    drawn = graph_svg(row.graph, is_root=is_root, follows=follows, cells_shown=cells)
    return RowView(
        number,
        row,
        info,
        Markup(drawn),  # noqa: S704  (it contains nothing of the store)
        lane_class(row.graph.lane),
        comes_from,
        kept.known_said(info),
    )


def _sparks(timeline: Timeline) -> list[Spark]:
    """Return how the state grew, and how long each step took, on the way to the main head."""
    head = timeline.main_head
    at = None if head is None else timeline.position(SnapshotRef(head.scope, head.id))
    line = [] if at is None else timeline.line(at)
    if len(line) < _SPARK_MIN:
        return []
    sizes = [info.size for info in line]
    waits = [
        max(0.0, (after.created_at - before.created_at).total_seconds())
        for before, after in pairwise(line)
    ]
    grown = f"{size_text(sizes[0])} to {size_text(sizes[-1])}"
    if max(sizes) > sizes[-1]:
        grown += f", at most {size_text(max(sizes))}"
    paused = f"median {duration_text(median(waits))}, longest {duration_text(max(waits))}"
    steps = count_text(len(line), "snapshot")
    size_name, wait_name = "Size of the state", "Time between saves"
    # Waits are seconds or days: on a straight scale only the longest would be seen.
    pictures = (
        sparkline(sizes, f"{size_name}, {steps}: {grown}"),
        bars([math.log1p(wait) for wait in waits], f"{wait_name}, {steps}: {paused}"),
    )
    size_svg, wait_svg = map(Markup, pictures)
    return [Spark(size_name, size_svg, grown), Spark(wait_name, wait_svg, paused)]
