"""The history of all scopes of a session as the rows of a graph."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from limpet.api.store import Store
from limpet.core import limits
from limpet.errors import Corrupt
from limpet.model import ScopeInfo, ScopeKey, SnapshotInfo, SnapshotRef
from limpet.views.chat import turn_text
from limpet.views.format import clipped, visible
from limpet.views.overview import last_turn, with_head
from limpet.views.tree import GraphRow, graph_rows, join_lone, newest_of, session_forest

SNAPSHOTS_MAX = 20_000
"""How many of the newest snapshots a timeline has: about 40 MB."""

_PAGE_MIN = 50
_ONE_BY_ONE_MAX = 2_000  # snapshots of a damaged scope
_NAME_CHARS_MAX = 40
_STATES_BYTES_MAX = 8 * 1024 * 1024  # that one call decodes, besides the first


class TimelineRow(NamedTuple):
    """A row of the graph; `parent` and `child` are the numbers of others.

    `child` continues the line. `step` counts the snapshots from the root.
    """

    graph: GraphRow
    parent: int | None
    child: int | None
    step: int

    @property
    def info(self) -> SnapshotInfo:
        """The snapshot, without its metadata."""
        return self.graph.node.info


class Timeline(NamedTuple):
    """The newest snapshots of a session, a parent below all of its children.

    `damaged` are scopes whose head or whose history cannot be read; `is_cut` says that there are
    older snapshots. `version` is another one after each change of what is drawn.
    """

    scopes: Sequence[ScopeInfo]
    rows: Sequence[TimelineRow]
    damaged: Sequence[ScopeKey]
    is_cut: bool
    version: str

    @property
    def newest_head(self) -> SnapshotInfo | None:
        heads = (each.head for each in self.scopes if each.head is not None)
        return max(heads, key=lambda info: info.updated_at, default=None)

    @property
    def main_head(self) -> SnapshotInfo | None:
        """The head of the scope `main`, or else the newest head."""
        heads = (each.head for each in self.scopes if each.key == ScopeKey(each.key.session_id))
        return next(heads, None) or self.newest_head

    @property
    def heads_bytes(self) -> int:
        """The size of the current states."""
        return sum(each.head.size for each in self.scopes if each.head is not None)

    @property
    def branches(self) -> int:
        """How many snapshots have no child in their scope, as in `overview.Counts`."""
        nodes = (row.graph.node for row in self.rows)
        return sum(
            all(child.info.scope != node.info.scope for child in node.children) for node in nodes
        )

    @property
    def has_lone(self) -> bool:
        """Whether there are snapshots that are only drawn below each other, as `join_lone` says."""
        return any(row.graph.lone for row in self.rows[:1])

    @property
    def width(self) -> int:
        """The cells of the widest row."""
        return max((row.graph.width for row in self.rows), default=0)

    def position(self, ref: SnapshotRef) -> int | None:
        """Return the number of a snapshot's row; None if it is not in here."""
        for number, row in enumerate(self.rows):
            if row.info.id == ref.id and row.info.scope == ref.scope:
                return number
        return None

    def line(self, start: int) -> list[SnapshotInfo]:
        """Return the snapshot of a row and those that it comes from, the oldest first."""
        found = []
        at: int | None = start
        while at is not None:
            found.append(self.rows[at].info)
            at = self.rows[at].parent
        return found[::-1]


def read_timeline(store: Store, session_id: str, *, limit: int = SNAPSHOTS_MAX) -> Timeline | None:
    """Return the history of a session, or None if there is none. It reads no state."""
    damaged: list[ScopeKey] = []
    scopes = [_with_head(store, each, damaged) for each in store.scopes(session_id)]
    if not scopes:
        return None
    # The merge below holds a page of every scope.
    page = max(_PAGE_MIN, min(limits.PAGE_ITEMS_MAX, limit // len(scopes)))
    histories = [_history(store, each.key, damaged, page) for each in scopes]
    infos, is_cut = newest_of(histories, limit)
    rows = _numbered(graph_rows(join_lone(session_forest(infos, scopes))))
    known = dict.fromkeys(damaged)
    return Timeline(scopes, rows, list(known), is_cut, _version(rows, known, is_cut=is_cut))


def _with_head(store: Store, each: ScopeInfo, damaged: list[ScopeKey]) -> ScopeInfo:
    found, is_damaged = with_head(store, each)
    damaged += [each.key] if is_damaged else []
    return found if found.head is None else replace(found, head=_lean(found.head))


def _history(
    store: Store, key: ScopeKey, damaged: list[ScopeKey], page: int
) -> Iterator[SnapshotInfo]:
    """Yield the snapshots of a scope, newest first, also those after one that is damaged."""
    scope = store.scope(*key)
    seen: set[str] = set()
    last: SnapshotInfo | None = None
    try:
        while found := list(scope.history(limit=page, after=last)):
            seen.update(info.id for info in found)
            last = found[-1]
            yield from map(_lean, found)
            if len(found) < page:
                return
        return
    except Corrupt:
        damaged.append(key)
    rest = []
    with suppress(Corrupt):  # all of it may be damaged
        for snapshot_id in scope.ids(limit=_ONE_BY_ONE_MAX):
            with suppress(Corrupt):
                one = None if snapshot_id in seen else scope.info(snapshot_id)
                rest += [] if one is None else [_lean(one)]
    yield from sorted(rest, key=lambda info: info.created_at, reverse=True)


def _lean(info: SnapshotInfo) -> SnapshotInfo:
    return replace(info, metadata={}) if info.metadata else info


def _numbered(rows: Sequence[GraphRow]) -> list[TimelineRow]:
    numbers = {id(row.node): number for number, row in enumerate(rows)}
    parents: list[int | None] = [None] * len(rows)
    steps = [1] * len(rows)
    found: list[TimelineRow] = []
    for number in range(len(rows) - 1, -1, -1):  # parents before their children
        children = rows[number].node.children
        for child in children:
            at = numbers[id(child)]
            parents[at], steps[at] = number, steps[number] + 1
        first = numbers[id(children[0])] if children else None
        found.append(TimelineRow(rows[number], parents[number], first, steps[number]))
    return found[::-1]


def _version(rows: Sequence[TimelineRow], damaged: Iterable[ScopeKey], *, is_cut: bool) -> str:
    digest = hashlib.sha256(repr((list(damaged), is_cut)).encode())
    for row in rows:
        node, info = row.graph.node, row.info
        digest.update(f"{info.scope!r}{info.id!r}{info.revision}{node.is_head}".encode())
    return digest.hexdigest()[:16]


class LastMessage(NamedTuple):
    """The last message of a chat, on one line; `name` is that of its speaker or node."""

    role: str
    text: str
    name: str = ""


def read_last_messages(store: Store, infos: Sequence[SnapshotInfo]) -> list[LastMessage | None]:
    """Return the last message in each state; None for one that is damaged, gone or no chat.

    Reading states is slow: the result is shorter than asked for if they are large.
    """
    left = _STATES_BYTES_MAX
    found: list[LastMessage | None] = []
    for info in infos:
        left -= info.size
        if found and left < 0:
            break
        found.append(_last_message(store, info))
    return found


def _last_message(store: Store, info: SnapshotInfo) -> LastMessage | None:
    turn = last_turn(store, info)
    if turn is None:
        return None
    role, name = (visible(clipped(each, _NAME_CHARS_MAX)) for each in (turn.role, turn.name or ""))
    return LastMessage(role, turn_text(turn), name)
