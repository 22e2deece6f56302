"""Overviews of the sessions of a store, and of the scopes of a session."""

import heapq
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args

from limpet.api.store import Store
from limpet.core import limits
from limpet.errors import Corrupt, InvalidInput
from limpet.model import ScopeInfo, ScopeKey, Snapshot, SnapshotInfo, SnapshotRef, Stats
from limpet.views.format import visible

if TYPE_CHECKING:
    from limpet.views.chat import ChatTurn

Sort: TypeAlias = Literal["age", "name", "size", "snapshots"]

TITLE_NOTE = "title"
"""The note of a scope that names its conversation."""

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


class About(NamedTuple):
    """What a conversation is about: its title, and its last turn.

    The title is the note `title`, else the first message of the user. `keys` are the names of the
    values in a state that is no chat.
    """

    title: str | None = None
    last: "ChatTurn | None" = None
    keys: tuple[str, ...] = ()


class Counts(NamedTuple):
    """What a session or a scope takes up; None if it needs damaged data.

    `snapshots` and `logical_bytes` include drafts; `branches` counts the snapshots without a child.
    """

    snapshots: int | None = None
    branches: int | None = None
    logical_bytes: int | None = None
    stored_bytes: int | None = None


class SessionOverview(NamedTuple):
    """A session in a listing.

    `head` is the newest readable head of its scopes, `head_bytes` the size of all heads, and
    `damaged` counts the scopes whose head is damaged. `counts` is None unless asked for.
    """

    session_id: str
    kinds: tuple[str, ...]
    scopes: int
    damaged: int
    head: SnapshotInfo | None
    head_bytes: int
    about: About
    counts: Counts | None


class ScopeOverview(NamedTuple):
    """A scope in a listing, like `SessionOverview`; `forked_from` is of its first snapshot."""

    key: ScopeKey
    head: SnapshotInfo | None
    damaged: bool
    about: About
    counts: Counts | None
    forked_from: SnapshotRef | None


class Sessions(NamedTuple):
    """How many sessions there are, and the first ones, read lazily."""

    total: int
    shown: Iterator[SessionOverview]


def sessions(
    store: Store,
    *,
    prefix: str = "",
    sort: Sort = "age",
    limit: int | None = None,
    counts: bool = False,
) -> Sessions:
    """Return the first sessions whose id begins with `prefix`.

    "age" sorts by the newest head, "size" and "snapshots" the largest first, "name" in the order of
    the store. "size" and "snapshots" read the statistics of every session, "age" every head. At
    most `limit` ids are held. Of each session that is shown, one state is read; with `counts` also
    its statistics and the snapshots without a child.
    """
    if sort not in get_args(Sort):
        raise InvalidInput(f"unknown sort order. sort=`{sort}`")
    limit = limits.check_count("limit", limit)
    total = 0

    def counted() -> Iterator[tuple[Any, str]]:
        nonlocal total
        for each in _ranked(store, prefix, sort):
            total += 1
            yield each

    # Both are stable.
    if limit is None:
        ranked = sorted(counted(), key=itemgetter(0), reverse=True)
    else:
        most = max(1, limit)  # nlargest(0) would not count
        ranked = heapq.nlargest(most, counted(), key=itemgetter(0))[:limit]
    overviews = (_session(store, session_id, counts=counts) for _, session_id in ranked)
    return Sessions(total, (each for each in overviews if each is not None))


def _session(store: Store, session_id: str, *, counts: bool) -> SessionOverview | None:
    found = list(_scope_heads(store.scopes(session_id), store))
    if not found:
        return None
    heads = [each.head for each in found if each.head is not None]
    head = max(heads, key=lambda info: info.created_at, default=None)
    return SessionOverview(
        session_id,
        kinds=tuple(dict.fromkeys(each.key.kind for each in found)),
        scopes=len(found),
        damaged=sum(each.damaged for each in found),
        head=head,
        head_bytes=sum(each.size for each in heads),
        # A fork has no notes of its own, so the title is that of the main scope.
        about=about(store, head, ScopeKey(session_id)),
        counts=_session_counts(store, session_id, found) if counts else None,
    )


def _session_counts(store: Store, session_id: str, found: "list[_ScopeHead]") -> Counts:
    stats = _stats(store, session_id)
    branches = [_branches(store, each) for each in found]
    total = None if None in branches else sum(filter(None, branches))
    if stats is None:
        return Counts(branches=total)
    return Counts(stats.snapshots, total, stats.logical_bytes, stats.stored_bytes)


def scopes(store: Store, session_id: str, *, counts: bool = False) -> Iterator[ScopeOverview]:
    """Yield the scopes of a session, by kind and id.

    Reads the state of each head, and with `counts` the history of each scope.
    """
    for scope in _scope_heads(store.scopes(session_id), store):
        found = _scope_counts(store, scope) if counts else (None, None)
        yield ScopeOverview(*scope, about(store, scope.head), *found)


def about(store: Store, head: SnapshotInfo | None, main: ScopeKey | None = None) -> About:
    """Return what a head is about; its title may be the note of the `main` scope."""
    if head is None:
        return About()
    with suppress(Corrupt):
        found = store.scope(*head.scope).load(head.id)
        if found is not None:
            return _about_of(found, _title_note(store, head.scope, main))
    return About()


def _title_note(store: Store, *keys: ScopeKey | None) -> str | None:
    """Return the note `title` of the first of these scopes that has one."""
    for key in dict.fromkeys(keys):
        with suppress(Corrupt):
            note = None if key is None else store.scope(*key).note(TITLE_NOTE)
            if note is not None and isinstance(note.value, str) and note.value.strip():
                return visible(" ".join(note.value.split()))
    return None


def _about_of(snapshot: Snapshot, title: str | None = None) -> About:
    """Return what a snapshot is about; `title` is the note."""
    from limpet.views.chat import read_chat, turn_text  # an empty store is listed without them

    chat = read_chat(snapshot.state, ends=True)
    if chat is None or not chat.turns:
        names = snapshot.state if isinstance(snapshot.state, dict) else ()
        return About(title, keys=tuple(map(visible, names)))
    asked = (turn_text(turn) for turn in chat.turns if turn.role == "user")
    return About(title or next(filter(None, asked), None), chat.turns[-1])


class _ScopeHead(NamedTuple):
    key: ScopeKey
    head: SnapshotInfo | None
    damaged: bool


def _scope_heads(listed: Iterator[ScopeInfo], store: Store) -> Iterator[_ScopeHead]:
    """Yield scopes with their heads; a listing gives None for a damaged head too."""
    for key, head in ((each.key, each.head) for each in listed):
        damaged = False
        if head is None:
            try:
                head = store.scope(*key).info()
            except Corrupt:
                damaged = True
        yield _ScopeHead(key, head, damaged)


def _stats(store: Store, session_id: str) -> Stats | None:
    with suppress(Corrupt):
        # Not `store.stats`, which also reads the states of the heads.
        return store.driver.run(lambda backend: backend.read_stats(session_id, limit=0))
    return None


def _branches(store: Store, scope: _ScopeHead) -> int | None:
    with suppress(Corrupt):
        leaves = [_is_lone(leaf) for leaf in store.scope(*scope.key).leaves()]
        return _count_branches(len(leaves), sum(leaves), scope)
    return None


def _is_lone(info: SnapshotInfo) -> bool:
    return info.parent_id is None and info.forked_from is None


def _count_branches(ends: int, lone: int, scope: _ScopeHead) -> int:
    """Count branches: at least one if there is a head, and all leaves without a parent as one.

    Other tools save histories in which nothing has a parent: they are one branch.
    """
    return ends - max(0, lone - 1) or int(scope.head is not None or scope.damaged)


def _scope_counts(store: Store, scope: _ScopeHead) -> tuple[Counts, SnapshotRef | None]:
    size = count = 0
    # Bounded by the number of branches: leaves, and parents that are still to come.
    ends: dict[str, bool] = {}
    awaited: set[str] = set()
    first: SnapshotInfo | None = None
    try:
        for first in store.scope(*scope.key).history():
            count, size = count + 1, size + first.size
            if first.id in awaited:
                awaited.remove(first.id)
            else:
                ends[first.id] = _is_lone(first)
            if first.parent_id in ends:
                del ends[first.parent_id]  # the parent was saved later than its child
            elif first.parent_id is not None:
                awaited.add(first.parent_id)
    except Corrupt:
        return Counts(), None
    if scope.head is not None and not scope.head.kept:
        count, size = count + 1, size + scope.head.size
        first = first or scope.head
    branches = _count_branches(len(ends), sum(ends.values()), scope)
    source = None if first is None else first.forked_from
    return Counts(count, branches, size), source


def _ranked(store: Store, prefix: str, sort: Sort) -> Iterator[tuple[Any, str]]:
    """Yield each session after what it is sorted by, the largest first."""
    if sort == "age":
        listed = store.scopes(prefix=prefix)
        for session_id, group in groupby(listed, key=lambda each: each.key.session_id):
            moments = [each.head.created_at for each in group if each.head is not None]
            yield max(moments, default=_LONG_AGO), session_id
        return
    for session_id in store.sessions(prefix=prefix):
        stats = None if sort == "name" else _stats(store, session_id)
        if stats is None:
            yield 0, session_id
        else:
            yield stats.stored_bytes if sort == "size" else stats.snapshots, session_id
