"""Overviews of the sessions of a store, and of the scopes of a session."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from math import inf
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args

from limpet.api.opened import Opened
from limpet.api.store import Store
from limpet.api.verbs import check_prefix
from limpet.backends.support.recent import Recent
from limpet.core import limits
from limpet.core.rows import newest_page
from limpet.core.times import to_us
from limpet.core.wire import age_at, age_cursor
from limpet.errors import Corrupt, InvalidInput
from limpet.model import ScopeInfo, ScopeKey, Snapshot, SnapshotInfo, SnapshotRef, Stats
from limpet.protocol import Backend, SessionAge
from limpet.views.format import clipped, visible
from limpet.views.status import is_stored, read_status

if TYPE_CHECKING:
    from limpet.views.chat import ChatTurn
    from limpet.views.usage import Usage

Sort: TypeAlias = Literal["age", "name", "size", "snapshots"]

TITLE_NOTE = "title"
"""The note of a scope that names its conversation."""

SEARCHED_MAX = 500
"""How many sessions are read for one page of those with a text."""

_FIRST_PAGE = 50  # scopes that are read before the first session is shown, in the order of names
_TITLE_CHARS_MAX = 500  # as of a message
_HEADING_CHARS_MAX = 160  # of a title that is the heading of a page
_CALLS_MAX = 50_000  # of heads that are kept
_ALL = 1 << 62


class About(NamedTuple):
    """What a conversation is about: its title, and its last turn.

    The title is the note `title`, else the first message of the user. `keys` are the names of the
    values in a state that is no chat. `status` is that of `status_of`, and `calls` what the
    messages of this head took, if that was asked for.
    """

    title: str | None = None
    last: "ChatTurn | None" = None
    keys: tuple[str, ...] = ()
    status: str = ""
    calls: "tuple[Usage, ...]" = ()

    @property
    def usage(self) -> "Usage | None":
        from limpet.views.usage import total

        return total(self.calls) if self.calls else None

    @property
    def said(self) -> str | None:
        """The last turn on one line."""
        from limpet.views.chat import turn_text  # an empty store is listed without it

        return None if self.last is None else turn_text(self.last)


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
    `damaged` counts the scopes whose head is damaged. `counts` is None unless asked for. So is
    `attention` empty, which says why the session needs it.
    """

    session_id: str
    kinds: tuple[str, ...]
    scopes: int
    damaged: int
    head: SnapshotInfo | None
    head_bytes: int
    about: About
    counts: Counts | None
    attention: tuple[str, ...]


class ScopeOverview(NamedTuple):
    """A scope in a listing, like `SessionOverview`; `forked_from` is of its first snapshot."""

    key: ScopeKey
    head: SnapshotInfo | None
    damaged: bool
    about: About
    counts: Counts | None
    forked_from: SnapshotRef | None


class ScopeHead(NamedTuple):
    key: ScopeKey
    head: SnapshotInfo | None
    damaged: bool = False


class SessionFilter(NamedTuple):
    """Which sessions are listed: all that is given must hold.

    `status` is that of the newest head, `kind` that of any scope, `attention` is for those that
    need it (see `reasons`). `text` is in the title or the last message, in any case. To find a
    text, or a status that is not the stored one, states are read.
    """

    status: str | None = None
    kind: str | None = None
    attention: bool = False
    text: str = ""

    @property
    def is_about_heads(self) -> bool:
        return self.status is not None or self.kind is not None or self.attention


EVERY = SessionFilter()


_Group: TypeAlias = list[ScopeInfo]


@dataclass
class Sessions:
    """Sessions in an order: a page of them, or all.

    After `read`, `next` is where the next page begins, None at the end. `is_cut` says that a search
    in states stopped before its page was full, after `SEARCHED_MAX` sessions.
    """

    store: Store
    prefix: str
    sort: Sort
    limit: int | None
    after: SessionAge | None
    where: SessionFilter
    counts_s_max: float
    attention: bool
    usage: bool
    next: str | None = None
    is_cut: bool = False
    _counting_s: float = 0.0
    _total: int | None = None
    _is_search: bool = False

    def total(self) -> int | None:
        """Return how many there are on all pages; None if all states would have to be read."""
        if self._total is None and not self.where.text:
            heads, prefix = self.where.is_about_heads, self.prefix
            listed = self._matching(None) if heads else self.store.sessions(prefix=prefix)
            self._total = sum(1 for _ in listed)
        return None if self._is_search else self._total

    def read(self) -> Iterator[SessionOverview]:
        """Yield the sessions of the page, each when it is read."""
        count = searched = 0
        last: SessionAge | None = None
        for age, group in self._ordered():
            is_search = self.where.text or self._is_search
            if count == self.limit or (is_search and searched == SEARCHED_MAX):
                self.next = None if last is None else age_cursor(last)
                self.is_cut = count != self.limit
                return
            last, searched = age, searched + 1
            found = self._session(age.session_id, group or list(self.store.scopes(age.session_id)))
            if found is not None:
                count += 1
                yield found

    def _ordered(self) -> Iterator[tuple[SessionAge, _Group | None]]:
        """Yield sessions after what they are sorted by, and their scopes if these are known."""
        after, where = self.after, self.where
        if self.sort == "name":
            for session_id, group in self._matching(None if after is None else after.session_id):
                yield SessionAge(session_id, None), group
            return
        wanted = SEARCHED_MAX if where.text else self.limit
        if wanted is not None and (where.status is not None or where.attention):
            wanted = max(wanted, SEARCHED_MAX)
        wanted = _ALL if wanted is None else wanted + 1  # is there another page?
        is_short = wanted <= limits.PAGE_ITEMS_MAX
        if self.sort == "age" and is_short and not where.is_about_heads:
            ages = self.store.driver.run(
                lambda backend: backend.list_newest(prefix=self.prefix, after=after, limit=wanted)
            )
        else:
            ages = newest_page(self._ranked(), after, wanted)
        yield from ((each, None) for each in ages)

    def _ranked(self) -> Iterator[tuple[str, int | None]]:
        sort, total = self.sort, 0
        for session_id, group in self._matching(None):
            total += 1
            if sort == "age":
                newest = _newest(group)
                yield session_id, None if newest is None else to_us("time", newest.created_at)
            else:
                stats = _stats(self.store, session_id)
                size = None if stats is None else stats.stored_bytes
                yield session_id, size if sort == "size" or stats is None else stats.snapshots
        if not self.where.text:
            self._total = total  # need not be counted again

    def _matching(self, after: str | None) -> Iterator[tuple[str, _Group]]:
        where = self.where
        for session_id, group in _groups(self.store, self.prefix, after):
            newest = _newest(group)
            if where.kind is not None and all(each.key.kind != where.kind for each in group):
                continue
            # Else `_session` decides: the state is needed.
            if newest is None or is_stored(newest):
                status = None if newest is None else newest.status
                if where.status not in (None, status):
                    continue
                if where.attention and not reasons(self.store, _scope_heads(group, self.store)):
                    continue
            elif where.status is not None or where.attention:
                self._is_search = True
            yield session_id, group

    def _session(self, session_id: str, group: _Group) -> SessionOverview | None:
        """Return a session unless it was deleted meanwhile, or is not about the text asked for."""
        store, found = self.store, list(_scope_heads(group, self.store))
        head = _newest(found)
        # A fork has no notes of its own, so the title is that of the main scope.
        main = next((each.key for each in found if each.key == ScopeKey(session_id)), None)
        topic, where = read_about(store, head, main, usage=self.usage), self.where
        if (
            not found
            or not _has_text(topic, where.text)
            or where.status not in (None, topic.status)
        ):
            return None
        attention = reasons(store, found) if self.attention or where.attention else []
        if head is not None and topic.status != head.status and topic.status in STOPPED:
            attention.append(topic.status)
        if where.attention and not attention:
            return None
        return SessionOverview(
            session_id,
            kinds=tuple(dict.fromkeys(each.key.kind for each in found)),
            scopes=len(found),
            damaged=sum(each.damaged for each in found),
            head=head,
            head_bytes=sum(each.head.size for each in found if each.head is not None),
            about=topic,
            counts=self._counts(session_id, found),
            attention=tuple(attention) if self.attention else (),
        )

    def _counts(self, session_id: str, found: list[ScopeHead]) -> Counts | None:
        if self._counting_s >= self.counts_s_max:
            return None
        clock = self.store.driver.tools.clock.monotonic
        begun = clock()
        counts = _session_counts(self.store, session_id, found)
        self._counting_s += clock() - begun
        return counts


def sessions(
    store: Store,
    *,
    prefix: str = "",
    sort: Sort = "age",
    limit: int | None = None,
    after: str | None = None,
    where: SessionFilter = EVERY,
    counts: bool = False,
    counts_s_max: float = inf,
    attention: bool = False,
    usage: bool = False,
) -> Sessions:
    """Return the sessions whose id begins with `prefix`, or a page of them.

    "age" sorts by the newest head, "size" and "snapshots" the largest first, "name" in the order of
    the store. "size" and "snapshots" read the statistics of every session; `where` reads every
    head, as does "age" without a limit. In the order of names nothing is read ahead.

    Of each session that is shown one state is read; with `counts` also its statistics and the
    snapshots without a child, until that has taken `counts_s_max`; with `attention` the leases of
    what is running; with `usage` what the messages took. `after` is `next` of the page before.
    """
    if sort not in get_args(Sort):
        raise InvalidInput(f"unknown sort order. sort=`{sort}`")
    limit = limits.check_count("limit", limit)
    last = None if after is None else age_at(after)
    counts_s_max = counts_s_max if counts else 0.0
    prefix = check_prefix(prefix)
    return Sessions(store, prefix, sort, limit, last, where, counts_s_max, attention, usage)


def reads_heads_one_by_one(store: Store) -> bool:
    """Return whether each head is a request of its own, so that to sort by age takes long.

    That is so in a bucket or a folder, where nothing is done to several scopes in one step.
    """
    return store.driver.run(lambda backend: "atomic" not in backend.capabilities)


def _groups(store: Store, prefix: str, after: str | None) -> Iterator[tuple[str, _Group]]:
    listed = scopes_after(store, prefix, None if after is None else ScopeKey(after))
    for session_id, group in groupby(listed, key=lambda each: each.key.session_id):
        if after is None or session_id > after:
            yield session_id, list(group)


def scopes_after(store: Store, prefix: str, after: ScopeKey | None) -> Iterator[ScopeInfo]:
    """Yield the scopes behind a key, in the order of the store, a page ahead."""
    last, size = after, _FIRST_PAGE
    while True:
        page = store.driver.run(partial(_scopes_page, prefix=prefix, after=last, limit=size))
        yield from page
        if len(page) < size:
            return
        last, size = page[-1].key, min(2 * size, limits.PAGE_ITEMS_MAX)


def _scopes_page(
    backend: Backend, *, prefix: str, after: ScopeKey | None, limit: int
) -> list[ScopeInfo]:
    return backend.list_scopes(session_id=None, kind=None, prefix=prefix, after=after, limit=limit)


def _newest(group: Iterable[ScopeInfo | ScopeHead]) -> SnapshotInfo | None:
    heads = (each.head for each in group if each.head is not None)
    return max(heads, key=lambda info: info.created_at, default=None)


def _has_text(about: About, text: str) -> bool:
    return not text or text.casefold() in f"{about.title or ''}\n{about.said or ''}".casefold()


def _session_counts(store: Store, session_id: str, found: list[ScopeHead]) -> Counts:
    stats, branches = _stats(store, session_id), None
    with suppress(Corrupt):
        branches = sum(
            _branches(map(_is_root, store.scope(*each.key).leaves()), each) for each in found
        )
    if stats is None:
        return Counts(branches=branches)
    return Counts(stats.snapshots, branches, stats.logical_bytes, stats.stored_bytes)


def scopes(store: Store, session_id: str, *, counts: bool = False) -> Iterator[ScopeOverview]:
    """Yield the scopes of a session, by kind and id.

    Reads the state of each head, and with `counts` the history of each scope.
    """
    for scope in _scope_heads(store.scopes(session_id), store):
        found = scope_counts(store, scope) if counts else (None, None)
        yield ScopeOverview(*scope, read_about(store, scope.head), *found)


def read_about(
    store: Store, head: SnapshotInfo | None, main: ScopeKey | None = None, *, usage: bool = False
) -> About:
    """Return what a head is about; its title may be the note of the `main` scope."""
    if head is None:
        return About()
    with suppress(Corrupt):
        found = store.scope(*head.scope).load(head.id)
        if found is not None:
            about = _about_of(found, _title_note(store, head.scope, main))
            calls = store.driver.opened.service(_Calls).read(found) if usage else ()
            return about._replace(status=status_of(store, found), calls=calls)
    return About(status=head.status)


def status_of(store: Store, snapshot: Snapshot) -> str:
    """Return the status of a snapshot at its time, by what its framework stores."""
    return read_status(snapshot, store.scope(*snapshot.scope).notes(on=snapshot.id))


def about_session(
    store: Store, session_id: str, scopes: Iterable[ScopeInfo] | None = None
) -> About:
    """Return what the newest head of a session is about, with a title for a heading."""
    listed = store.scopes(session_id) if scopes is None else scopes
    about = read_about(store, _newest(listed), ScopeKey(session_id), usage=True)
    return about._replace(title=about.title and clipped(about.title, _HEADING_CHARS_MAX))


def session_title(
    store: Store, session_id: str, scopes: Iterable[ScopeInfo] | None = None
) -> str | None:
    return about_session(store, session_id, scopes).title


def _title_note(store: Store, *keys: ScopeKey | None) -> str | None:
    """Return the note `title` of the first of these scopes that has one."""
    for key in dict.fromkeys(keys):
        with suppress(Corrupt):
            note = None if key is None else store.scope(*key).note(TITLE_NOTE)
            if note is not None and isinstance(note.value, str) and note.value.strip():
                start = note.value.strip()[: 2 * _TITLE_CHARS_MAX]
                return clipped(visible(" ".join(start.split())), _TITLE_CHARS_MAX)
    return None


class _Calls:
    """A service of an opened store: what messages took is read once from each revision of a head.

    A list follows every change, and of most sessions nothing has changed.
    """

    def __init__(self, opened: Opened) -> None:
        self._kept: Recent[tuple[ScopeKey, str], tuple[Usage, ...]] = Recent(
            _CALLS_MAX, lambda calls: 1 + len(calls)
        )

    def close(self) -> None:
        self._kept.clear()

    def read(self, head: Snapshot) -> "tuple[Usage, ...]":
        from limpet.views.usage import read_calls

        key = head.scope, head.revision
        found = self._kept.get(key)
        if found is None:
            found = tuple(each.usage for each in read_calls(head.state))
            self._kept.put(key, found)
        return found


def _about_of(snapshot: Snapshot, title: str | None) -> About:
    from limpet.views.chat import read_chat, turn_text  # an empty store is listed without them

    chat = read_chat(snapshot.state, ends=True)
    if chat is None or not chat.turns:
        names = snapshot.state if isinstance(snapshot.state, dict) else ()
        return About(title, keys=tuple(map(visible, names)))
    asked = (turn_text(turn) for turn in chat.turns if turn.role == "user")
    return About(title or next(filter(None, asked), None), chat.last)


def _scope_heads(listed: Iterable[ScopeInfo], store: Store) -> Iterator[ScopeHead]:
    for each in listed:
        found, damaged = with_head(store, each)
        yield ScopeHead(found.key, found.head, damaged)


def with_head(store: Store, each: ScopeInfo) -> tuple[ScopeInfo, bool]:
    """Return a scope with its head, and whether that is damaged: a listing leaves it out then."""
    if each.head is not None:
        return each, False
    try:
        return replace(each, head=store.scope(*each.key).info()), False
    except Corrupt:
        return each, True


def last_turn(store: Store, info: SnapshotInfo) -> "ChatTurn | None":
    """Return the last message of a snapshot; None if it is damaged, gone or no chat.

    Its name is the node of a graph that the snapshot comes from, if the message has none; a
    snapshot of a graph that is no chat is a message of that node without words.
    """
    from limpet.views.chat import ChatTurn, nodes_of, read_chat

    with suppress(Corrupt):
        found = store.scope(*info.scope).load(info.id)
        if found is None:
            return None
        chat, nodes = read_chat(found.state, ends=True), ", ".join(nodes_of(found.state))
        last = None if chat is None else chat.last
        if last is None:
            return ChatTurn("node", nodes, (), -1) if nodes else None
        return replace(last, name=last.name or nodes or None)
    return None


def _stats(store: Store, session_id: str) -> Stats | None:
    with suppress(Corrupt):
        # Not `store.stats`, which also reads the states of the heads.
        return store.driver.run(lambda backend: backend.read_stats(session_id, limit=0))
    return None


def _is_root(info: SnapshotInfo) -> bool:
    return info.parent_id is None and info.forked_from is None


def _branches(leaves: Iterable[bool], scope: ScopeHead) -> int:
    """Count leaves, all that are roots too as one, and at least one if there is a head.

    Other tools save histories in which nothing has a parent: they are one branch.
    """
    are_roots = list(leaves)
    branches = len(are_roots) - max(0, sum(are_roots) - 1)
    return branches or int(scope.head is not None or scope.damaged)


def scope_counts(store: Store, scope: ScopeHead) -> tuple[Counts, SnapshotRef | None]:
    """Read the history once: it has the sizes, the leaves and the origin."""
    size = count = 0
    first: SnapshotInfo | None = None
    leaves: dict[str | None, bool] = {}
    parents: set[str | None] = set()  # those not met yet, so that few are held
    try:
        for first in store.scope(*scope.key).history():
            count, size = count + 1, size + first.size
            if first.id in parents:
                parents.remove(first.id)
            else:
                leaves[first.id] = _is_root(first)
            if leaves.pop(first.parent_id, None) is None:  # else it was saved after its child
                parents.add(first.parent_id)
    except Corrupt:
        return Counts(), None
    if scope.head is not None and not scope.head.kept:
        count, size = count + 1, size + scope.head.size
        first = first or scope.head
    source = None if first is None else first.forked_from
    return Counts(count, _branches(leaves.values(), scope), size), source


# Which heads need a person: work that stopped before its end, and damage

STOPPED = frozenset(
    {"failed", "failure", "error", "errored", "aborted", "expired", "interrupted", "timeout"}
    | {"waiting"}
)
"""Statuses, in lower case, of work that stopped before its end, or waits for a person."""

DAMAGED = "the head is damaged: run limpet check"
NO_WORKER = "running, but no worker holds it"
_ERROR_CHARS_MAX = 120


def reasons(store: Store, heads: Iterable[ScopeHead]) -> list[str]:
    """Return why these scopes need attention, each reason once; nothing if they do not.

    Of each that is running the lease is read: whether its worker is alive is a hint, as in
    `runs.list`.
    """
    found = (
        DAMAGED if damaged else None if head is None else _reason(store, head)
        for _, head, damaged in heads
    )
    return list(dict.fromkeys(filter(None, found)))


def _reason(store: Store, head: SnapshotInfo) -> str | None:
    from limpet.runs.model import RUNNING, read_record  # what lists and draws needs no runs
    from limpet.runs.verbs import is_held

    status = head.status.lower()
    if status == RUNNING:
        driver = store.driver
        held = driver.run(lambda backend: is_held(driver.tools, backend, head.scope))
        return None if held else NO_WORKER
    if status not in STOPPED:
        return None
    error = read_record(head).error
    if error is None:
        return visible(head.status)
    what = " ".join(f"{error.type}: {error.message}".strip(": ").split())
    return clipped(visible(f"{head.status}: {what}"), _ERROR_CHARS_MAX)
