"""One session: its history as a graph, and one of its snapshots next to it."""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import Any

from markupsafe import Markup

from limpet.api.opened import Opened
from limpet.api.store import Store
from limpet.backends.support.recent import Recent
from limpet.core.operations import SCOPE_PARAMS, SESSION, SNAPSHOT, Param
from limpet.core.schema import COUNT, TEXT
from limpet.errors import Corrupt, NotFound
from limpet.inspector import links
from limpet.inspector.page import page, render
from limpet.inspector.pages.snapshot import DETAIL_PARAMS, read_detail, shown_notes
from limpet.model import SnapshotInfo, SnapshotRef
from limpet.runs.model import KIND
from limpet.server.access import Grant
from limpet.server.call import Call, Response
from limpet.views.format import address_text, count_text, duration_text, short_id, size_text
from limpet.views.overview import About, about_session
from limpet.views.page.svg import bars, graph_svg, lane_class, sparkline
from limpet.views.runs import Panel, read_run
from limpet.views.timeline import (
    SNAPSHOTS_MAX,
    LastMessage,
    Timeline,
    TimelineRow,
    read_last_messages,
    read_timeline,
)
from limpet.views.usage import usage_text

CHUNK = 100
"""How many rows are sent at once; a page begins with two of these."""

_CELLS_MAX = 17  # nine lanes: on a phone, half of the width
_SCOPES_MAX = 1_000
_MESSAGE_ROWS_MAX = 60
_SPARK_MIN = 3  # two points say nothing
_AT = Param("at", COUNT, "the row to begin with; the first one is 0")
_VERSION = Param("version", TEXT, "the version of the graph that the other rows have")
_ROWS = Param("rows", COUNT, "how many rows")
_ROWS_MAX = 3 * SNAPSHOTS_MAX  # of timelines that are kept
_ROWS_MIN = 100  # that each counts for
_MESSAGES_MAX = 20_000  # messages that are kept


class Timelines:
    """A service of an opened store. A version of a timeline never changes, so it may be kept."""

    def __init__(self, opened: Opened) -> None:
        self._kept: Recent[tuple[str, str], Timeline] = Recent(
            _ROWS_MAX, lambda timeline: _ROWS_MIN + len(timeline.rows) + len(timeline.scopes)
        )
        self._last_messages: Recent[tuple[SnapshotRef, str], tuple[LastMessage | None]] = Recent(
            _MESSAGES_MAX
        )

    def close(self) -> None:
        self._kept.clear()
        self._last_messages.clear()

    def read(self, store: Store, session_id: str, version: str | None = None) -> Timeline:
        """Return this version of a session's timeline if it is still kept, else a new one."""
        kept = None if version is None else self._kept.get((session_id, version))
        if kept is not None and next(store.scopes(session_id), None) is None:
            kept = None  # the session was deleted
        found = kept or read_timeline(store, session_id)
        if found is None:
            raise NotFound(f"there is no such session. session_id=`{session_id}`")
        self._kept.put((session_id, found.version), found)
        return found

    def known_last_message(self, info: SnapshotInfo) -> LastMessage | None:
        """Return the last message in a state, if it was read before."""
        found = self._last_messages.get(_key(info))
        return None if found is None else found[0]

    def read_last_messages(
        self, store: Store, infos: Sequence[SnapshotInfo]
    ) -> list[LastMessage | None]:
        """Return the last message of each state, or of as many of the first as is not slow."""
        known = [self._last_messages.get(_key(info)) for info in infos]
        unread = [info for info, each in zip(infos, known, strict=True) if each is None]
        fresh = iter(read_last_messages(store, unread))
        found = []
        for info, each in zip(infos, known, strict=True):
            if each is None:
                try:
                    each = (next(fresh),)
                except StopIteration:
                    break
                self._last_messages.put(_key(info), each)
            found.append(each[0])
        return found


def _key(info: SnapshotInfo) -> tuple[SnapshotRef, str]:
    return SnapshotRef(info.scope, info.id), info.revision


@page("/ui/session", *SCOPE_PARAMS, SNAPSHOT, *DETAIL_PARAMS, _AT)
async def show_session(call: Call) -> Response:
    """The history of a session, and one of its snapshots."""
    values = await call.store.run(lambda store: _read(store, call))
    command = links.Command("log", ["--graph"], [call.scope.session_id])
    return render(call, "session.html", **values, command=command)


@page("/ui/rows", SESSION, _AT, _VERSION)
async def show_rows(call: Call) -> Response:
    """More rows of the graph: a part of the page of a session."""
    at = call.params.get("at", 0) // CHUNK * CHUNK
    chunk = await call.store.run(lambda store: _chunk(*_kept(store, call), at, call.grant))
    return render(call, "_rows.html", chunk=chunk, selected=None, view_asked=None)


@page("/ui/said", SESSION, _AT, _VERSION, _ROWS)
async def show_said(call: Call) -> Response:
    """The last messages of some rows, or of the first of them: it reads their states."""
    at = call.params.get("at", 0)
    rows = min(call.params.get("rows", 1), _MESSAGE_ROWS_MAX)

    def read(store: Store) -> tuple[str, list[LastMessage | None]]:
        kept, timeline = _kept(store, call)
        infos = [row.info for row in timeline.rows[at : at + rows]]
        return timeline.version, kept.read_last_messages(store, infos)

    version, said = await call.store.run(read)
    return render(call, "_said.html", version=version, at=at, said=said)


def _kept(store: Store, call: Call) -> tuple[Timelines, Timeline]:
    kept = store.driver.opened.service(Timelines)
    return kept, kept.read(store, call.scope.session_id, call.params.get("version"))


def _read(store: Store, call: Call) -> dict[str, Any]:
    given, grant, session_id = call.params, call.grant, call.scope.session_id
    kept, timeline = _kept(store, call)
    newest = timeline.newest_head
    bare = dict.fromkeys(each.key for each in timeline.scopes if each.head is None)
    for key in timeline.damaged:
        bare.pop(key, None)  # the others have only notes
    info, problem = newest, None
    if "id" not in given and {"scope_id", "kind"} & given.keys() and call.scope in bare:
        info, bare = None, {call.scope: None}
    elif {"scope_id", "kind", "id"} & given.keys():
        info, problem = _selected(store, call)
    notes = ((key, note) for key in bare for note in store.scope(*key).notes())
    detail = {"info": None} if info is None else read_detail(store, info, given, grant)
    selected = None if info is None else timeline.position(SnapshotRef(info.scope, info.id))
    total = len(timeline.rows)
    start = min(given.get("at", selected or 0), total) // CHUNK * CHUNK
    following = start + CHUNK if start + CHUNK >= total else start + 2 * CHUNK
    about = about_session(store, session_id, timeline.scopes)
    session: dict[str, Any] = {
        "session_id": session_id,
        "title": about.title,
        "about": about,
        "newest": newest,
        "timeline": timeline,
        "snapshots": f"{total:,}" + ("+" if timeline.is_cut else ""),
        "snapshots_max": SNAPSHOTS_MAX,
        "sparks": _sparks(timeline, about),
        "scopes": timeline.scopes[:_SCOPES_MAX],
        "scopes_left_out": len(timeline.scopes[_SCOPES_MAX:]),
        "chunks": [_chunk(kept, timeline, at, grant) for at in range(start, following, CHUNK)],
        "chunk_rows": CHUNK,
        "newer": max(0, start - 2 * CHUNK) if start else None,
        "older": following if following < total else None,
        "selected": selected,
        "problem": problem,
        "run": _run(store, session_id, timeline),
        "notes": [] if info or problem else shown_notes(notes),
    }
    for row in (row for chunk in session["chunks"] for row in chunk["rows"]):
        if newest is not None and (row["info"].scope, row["info"].id) == (newest.scope, newest.id):
            row["info"] = replace(row["info"], status=about.status)
    return {"session": session, **detail, "view_asked": given.get("view")}


def _run(store: Store, session_id: str, timeline: Timeline) -> Panel | None:
    has_run = any(each.key.kind == KIND for each in timeline.scopes)
    with suppress(Corrupt):
        return read_run(store, session_id) if has_run else None
    return None


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


def _chunk(kept: Timelines, timeline: Timeline, at: int, grant: Grant) -> dict[str, Any]:
    cells, rows = min(timeline.width, _CELLS_MAX), timeline.rows[at : at + CHUNK]
    shown: list[dict[str, Any]] = [
        {"number": number, "of": row, **_row(row, grant.visible(row.info), cells)}
        for number, row in enumerate(rows, at)
    ]
    for each in shown:
        each["said"] = kept.known_last_message(each["info"])
    return {"at": at, "rows": shown, "total": len(timeline.rows), "version": timeline.version}


def _row(row: TimelineRow, info: SnapshotInfo, cells: int) -> dict[str, Any]:
    """Return a row as the template draws it; `info` is what may be shown of it."""
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
    return {
        "info": info,
        "svg": Markup(drawn),  # noqa: S704  (it contains nothing of the store)
        "lane": lane_class(row.graph.lane),
        "comes_from": comes_from,
    }


def _sparks(timeline: Timeline, about: About) -> list[dict[str, Any]]:
    """Return pictures with their names, and what they say in words.

    They show how the state grew, and how long each step took, on the way to the main head; and what
    the model calls in the newest head took.
    """
    pictures: list[tuple[str, str, str, Callable[[list[float], str], str], list[float]]] = []
    head = timeline.main_head
    at = None if head is None else timeline.position(SnapshotRef(head.scope, head.id))
    line = [] if at is None else timeline.line(at)
    if len(line) >= _SPARK_MIN:
        sizes = [info.size for info in line]
        waits = [
            max(0.0, (after.created_at - before.created_at).total_seconds())
            for before, after in pairwise(line)
        ]
        grown = f"{size_text(sizes[0])} to {size_text(sizes[-1])}"
        if max(sizes) > sizes[-1]:
            grown += f", at most {size_text(max(sizes))}"
        paused = f"median {duration_text(median(waits))}, longest {duration_text(max(waits))}"
        steps = count_text(len(line), "snapshot") + ": "
        pictures.append(("Size of the state", steps, grown, sparkline, [*map(float, sizes)]))
        # Waits are seconds or days: on a straight scale only the longest would be seen.
        logs = [math.log1p(wait) for wait in waits]
        pictures.append(("Time between saves", steps, paused, bars, logs))
    if about.usage is not None and len(about.calls) >= _SPARK_MIN:
        took = [float(each.input + each.output) for each in about.calls]
        pictures.append(("Tokens of each call", "", usage_text(about.usage), bars, took))
    return [
        {"name": name, "text": text, "svg": Markup(draw(values, f"{name}, {steps}{text}"))}  # noqa: S704
        for name, steps, text, draw, values in pictures
    ]
