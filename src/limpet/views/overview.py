"""What a store holds, at a glance: its sessions, and the scopes of one of them."""

import heapq
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from limpet.api.store import Store
from limpet.core import limits
from limpet.errors import Corrupt, InvalidInput
from limpet.model import ScopeInfo, ScopeKey, SnapshotInfo, SnapshotRef, Stats

Sort: TypeAlias = Literal["age", "name", "size", "snapshots"]

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class SessionOverview:
    """A session as a listing shows it.

    `head` is the newest of what its scopes show, None if none shows anything that can be read;
    `damaged` counts the scopes whose head cannot be. `snapshots` and `logical_bytes` count drafts
    too, `branches` the ends of the lines in all scopes. What damage hides is None.
    """

    __hash__ = None  # type: ignore[assignment]  # as SnapshotInfo

    session_id: str
    kinds: tuple[str, ...]
    scopes: int
    damaged: int
    head: SnapshotInfo | None
    snapshots: int | None
    branches: int | None
    logical_bytes: int | None
    stored_bytes: int | None

    @property
    def created_at(self) -> datetime | None:
        """When the newest head was made."""
        return None if self.head is None else self.head.created_at

    @property
    def status(self) -> str | None:
        """The status of the newest head."""
        return None if self.head is None else self.head.status


@dataclass(frozen=True, slots=True)
class ScopeOverview:
    """A scope as a listing shows it.

    `head` is what it shows, None if that is nothing or, as `damaged` then tells, cannot be read.
    `snapshots` and `logical_bytes` count a draft too, `branches` the ends of its lines.
    `forked_from` is that of its first snapshot. What damage hides is None.
    """

    __hash__ = None  # type: ignore[assignment]

    key: ScopeKey
    head: SnapshotInfo | None
    damaged: bool
    snapshots: int | None
    branches: int | None
    logical_bytes: int | None
    forked_from: SnapshotRef | None


class Sessions(NamedTuple):
    """How many sessions there are, and those that were asked for, measured as they are read."""

    total: int
    shown: Iterator[SessionOverview]


def sessions(
    store: Store, *, prefix: str = "", sort: Sort = "age", limit: int | None = None
) -> Sessions:
    """Return the first sessions whose id begins with `prefix`, in an order.

    By "age" those with the newest head come first, by "size" and "snapshots" those that store most,
    and by "name" it is the order of the store. Of the sessions that are not given only a head for
    each scope is read; by size and by snapshots all of them are measured. No more than `limit` ids
    are held.
    """
    if sort not in get_args(Sort):
        raise InvalidInput(f"there is no such order. sort=`{sort}`")
    limit = limits.check_count("limit", limit)
    total = 0

    def counted() -> Iterator[tuple[Any, str]]:
        nonlocal total
        for each in _RANKS[sort](store, prefix):
            total += 1
            yield each

    # Both keep those of the same rank in the order of the store.
    if limit is None:
        ranked = sorted(counted(), key=_rank, reverse=True)
    else:
        ranked = heapq.nlargest(max(1, limit), counted(), key=_rank)[:limit]  # of 0 it asks none
    looks = (session(store, session_id) for _, session_id in ranked)
    return Sessions(total, (each for each in looks if each is not None))


def session(store: Store, session_id: str) -> SessionOverview | None:
    """Return one session, None if there is none."""
    found = list(_looks(store.scopes(session_id), store))
    if not found:
        return None
    head = max((each.head for each in found if each.head), key=_moment, default=None)
    stats = _stats(store, session_id)
    ends = [_ends(store, each) for each in found]
    return SessionOverview(
        session_id,
        kinds=tuple(dict.fromkeys(each.key.kind for each in found)),
        scopes=len(found),
        damaged=sum(each.damaged for each in found),
        head=head,
        snapshots=None if stats is None else stats.snapshots,
        branches=None if None in ends else sum(filter(None, ends)),
        logical_bytes=None if stats is None else stats.logical_bytes,
        stored_bytes=None if stats is None else stats.stored_bytes,
    )


def scopes(store: Store, session_id: str, *, kind: str | None = None) -> Iterator[ScopeOverview]:
    """Yield the scopes of a session, by kind and scope id. Reads the history of each once."""
    for look in _looks(store.scopes(session_id, kind=kind), store):
        yield _scope(store, look)


class _Look(NamedTuple):
    key: ScopeKey
    head: SnapshotInfo | None
    damaged: bool


def _looks(listed: Iterator[ScopeInfo], store: Store) -> Iterator[_Look]:
    """Yield scopes with their heads; a listing does not tell whether one is absent or damaged."""
    for key, head in ((each.key, each.head) for each in listed):
        damaged = False
        if head is None:
            try:
                head = store.scope(*key).info()
            except Corrupt:
                damaged = True
        yield _Look(key, head, damaged)


def _stats(store: Store, session_id: str) -> Stats | None:
    with suppress(Corrupt):
        # Not `store.stats`, which also reads the states of the heads.
        return store.driver.run(lambda backend: backend.read_stats(session_id, limit=0))
    return None


def _ends(store: Store, look: _Look) -> int | None:
    with suppress(Corrupt):
        leaves = [_is_lone(leaf) for leaf in store.scope(*look.key).leaves()]
        return _at_least(len(leaves), sum(leaves), look)
    return None


def _is_lone(info: SnapshotInfo) -> bool:
    return info.parent_id is None and info.forked_from is None


def _at_least(ends: int, lone: int, look: _Look) -> int:
    """Return how many lines there are: a draft alone is one too, and one with a damaged end.

    Ends that follow nothing are one line together: that of a tool which states no parents.
    """
    return ends - max(0, lone - 1) or int(look.head is not None or look.damaged)


def _scope(store: Store, look: _Look) -> ScopeOverview:
    size = count = 0
    # No more than there are branches: ends of lines, and parents that are still to come.
    ends: dict[str, bool] = {}
    awaited: set[str] = set()
    first: SnapshotInfo | None = None
    try:
        for first in store.scope(*look.key).history():
            count, size = count + 1, size + first.size
            if first.id in awaited:
                awaited.remove(first.id)
            else:
                ends[first.id] = _is_lone(first)
            if first.parent_id in ends:
                del ends[first.parent_id]  # it was saved after what follows it
            elif first.parent_id is not None:
                awaited.add(first.parent_id)
    except Corrupt:
        return ScopeOverview(*look, None, None, None, None)
    if look.head is not None and not look.head.kept:
        count, size = count + 1, size + look.head.size
        first = first or look.head
    branches = _at_least(len(ends), sum(ends.values()), look)
    source = None if first is None else first.forked_from
    return ScopeOverview(*look, count, branches, size, source)


def _moment(info: SnapshotInfo) -> datetime:
    return info.created_at


def _rank(ranked: tuple[Any, str]) -> Any:
    return ranked[0]


def _by_age(store: Store, prefix: str) -> Iterator[tuple[datetime, str]]:
    listed = store.scopes(prefix=prefix)
    for session_id, group in groupby(listed, key=lambda each: each.key.session_id):
        moments = [each.head.created_at for each in group if each.head is not None]
        yield max(moments, default=_LONG_AGO), session_id


def _by_name(store: Store, prefix: str) -> Iterator[tuple[int, str]]:
    return ((0, session_id) for session_id in store.sessions(prefix=prefix))


def _by_size(store: Store, prefix: str) -> Iterator[tuple[int, str]]:
    for session_id in store.sessions(prefix=prefix):
        stats = _stats(store, session_id)
        yield 0 if stats is None else stats.stored_bytes, session_id


def _by_snapshots(store: Store, prefix: str) -> Iterator[tuple[int, str]]:
    for session_id in store.sessions(prefix=prefix):
        stats = _stats(store, session_id)
        yield 0 if stats is None else stats.snapshots, session_id


_RANKS: dict[Sort, Callable[[Store, str], Iterator[tuple[Any, str]]]] = {
    "age": _by_age,
    "name": _by_name,
    "size": _by_size,
    "snapshots": _by_snapshots,
}
