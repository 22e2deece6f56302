"""The verbs of maintenance: prune, expire, stats, check and repair."""

import heapq
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from limpet.api.opened import ScopeContext, Tools
from limpet.api.verbs import (
    Pause,
    Steps,
    Walk,
    Work,
    check_optional_id,
    contend,
    converted,
    each,
    matching,
    noted_ids,
    notes_of,
)
from limpet.core import codec, ids, limits
from limpet.core.retention import (
    ITEMS,
    NEEDS_PARENT,
    VECTORS,
    Choice,
    Retention,
    changed_at,
    check_retention,
)
from limpet.errors import Conflict, Corrupt, Unavailable
from limpet.model import (
    ANY,
    Expect,
    Finding,
    Note,
    Pruned,
    ScopeInfo,
    ScopeKey,
    SnapshotInfo,
    Stats,
)
from limpet.protocol import Backend, FoundNote, NoteChange, NoteDelete, Query

T = TypeVar("T")
_LARGEST = 10
_ALL = 2**62  # as a limit
_REST = 4  # times as long as a deletion took
_REKEY_PASSES_MAX = 10  # over a store that others write to with an older key


def prune(
    context: ScopeContext,
    *,
    keep_last: int | None,
    older_than: timedelta | None,
    dry_run: bool,
) -> Steps[Pruned]:
    policy = check_retention(keep_last, older_than, now_us=context.tools.draw().now)
    dry_run = limits.check_flag("dry_run", dry_run)
    attempt = partial(pruned, context, policy, dry_run=dry_run, total=[0, 0])
    # A lease that is lost is a conflict too, and no contention.
    return contend(context.tools, attempt, lambda backend: context.fence is None)


def pruned(
    context: ScopeContext, policy: Retention, *, dry_run: bool, total: list[int]
) -> Steps[Pruned]:
    """Delete from the history of a scope what a policy drops; add it to `total`.

    Raises:
        Conflict: the head has changed, and may be computed from what was about to go.
    """
    scope, tools, _, fence = context
    head: SnapshotInfo | None = None
    knows_head, choice, after = False, Choice(policy, None), None

    def prune_page(backend: Backend) -> int:
        nonlocal after
        page = backend.list_snapshots(Query(scope, after=after), limit=limits.PRUNED_ITEMS_MAX)
        if not knows_head and (dry_run or any(NEEDS_PARENT in info.metadata for info in page)):
            return -1  # when it deletes, the engine spares the head, but not what that needs
        doomed = [info for info in page if choice.drops(info)]
        done = Pruned(len(doomed), sum(info.size for info in doomed))
        if doomed and not dry_run:
            gone = [info.id for info in doomed]
            expect: Expect = head.revision if head and choice.follows_parents else ANY
            done = backend.delete_snapshots(
                scope, gone, spare_head=True, expect=expect, fence=fence
            )
        total[:] = total[0] + done.count, total[1] + done.bytes
        after = ids.seq_of(page[-1].revision) if page else None
        return len(page)

    while True:
        begun_s = tools.clock.monotonic()
        length: int = yield prune_page
        if length < 0:
            head = yield lambda backend: backend.read_info(scope, None)
            knows_head, choice, after = True, Choice(policy, head), None
        elif length < limits.PRUNED_ITEMS_MAX:
            return Pruned(*total)
        elif not dry_run:
            yield rest_after(begun_s, tools)


def rest_after(begun_s: float, tools: Tools) -> Pause:
    """Return a pause after a deletion that began at a moment: writers may wait for its lock.

    They look for it again and again, with longer and longer pauses, and must find it free.
    """
    return Pause(_REST * (tools.clock.monotonic() - begun_s))


def expire(
    tools: Tools,
    scopes: Sequence[ScopeInfo],
    cutoff: datetime,
    *,
    keep_labels: Collection[str] = (),
    dry_run: bool = False,
) -> Steps[Pruned | None]:
    """Delete scopes of a session; return None if one was changed since `cutoff`, or is in use.

    Each is deleted only if nothing in it has changed since it was listed: no snapshot, no note, and
    not its lease. `main` goes first: what is continued then starts from nothing, not from a part.

    Raises:
        Conflict: one was changed meanwhile. It stays, and so do those that would have followed.
    """
    count = size = 0

    def is_fresh(found: SnapshotInfo | Note) -> bool:
        nonlocal count, size
        if isinstance(found, Note):
            return found.updated_at >= cutoff
        count, size = count + 1, size + found.size
        return changed_at(found) >= cutoff or not found.labels.keys().isdisjoint(keep_labels)

    def in_use(backend: Backend, key: ScopeKey) -> bool:
        head = backend.read_info(key, None)  # a listing leaves out one that is damaged
        lease = backend.read_lease(key, now=tools.draw().now)
        is_held = lease is not None and lease.left_us > 0
        return is_held or (head is not None and not head.kept and is_fresh(head))

    if any(info.head is not None and changed_at(info.head) >= cutoff for info in scopes):
        return None
    for key in [info.key for info in scopes]:
        if (yield partial(in_use, key=key)):
            return None
        walks: list[Walk[Any]] = [matching(Query(key)), notes_of(key, [None])]
        noted = noted_ids(key, after=None, limit=None)
        walks.append(converted(noted, partial(_notes_on, key)))
        for walk in walks:
            if (yield from _any(walk, is_fresh)):
                return None
    for info in [] if dry_run else sorted(scopes, key=lambda info: info.key.scope_id != "main"):
        yield partial(_delete_unchanged, info)
    return Pruned(count, size)


def _notes_on(key: ScopeKey, backend: Backend, snapshot_ids: Sequence[str]) -> list[Note]:
    return [*each(backend, notes_of(key, snapshot_ids))]


def _delete_unchanged(info: ScopeInfo, backend: Backend) -> None:
    backend.delete_scope(info.key, expect=info.revision)


def _any(walk: Walk[T], is_match: Callable[[T], bool]) -> Steps[bool]:
    """Return whether one of a listing matches, a page in each step."""
    page: Sequence[T] | None = None
    while True:
        try:
            work = next(walk) if page is None else walk.send(page)
        except StopIteration:
            return False
        page = yield work
        if any(map(is_match, page or ())):
            return True


def expire_items(tools: Tools, *, dry_run: bool = False) -> Steps[int]:
    """Delete the items of long-term memory that have expired; return how many.

    One that was changed meanwhile stays.
    """
    query = ITEMS._replace(where={"expires_at": {"$lte": tools.draw().now}})
    size = _ALL if dry_run else limits.PAGE_ITEMS_MAX
    count, found = 0, list[FoundNote]()
    while True:
        found = yield lambda backend: backend.find_notes(query, limit=size)
        if dry_run:
            return len(found)
        deletes = [item_deletes(note.scope, note.name, note.revision) for note in found]
        deleted: int = yield partial(change_unchanged, deletes)
        count += deleted
        if len(found) < size:
            return count


def item_deletes(scope: ScopeKey, key: str, expect: Expect = ANY) -> list[NoteChange]:
    """Return what deletes an item, if it is at a revision."""
    return [NoteDelete(scope, key, None, expect), NoteDelete(scope, key, VECTORS)]


def change_unchanged(items: Sequence[Sequence[NoteChange]], backend: Backend) -> int:
    """Change items, except those that others have changed meanwhile; return how many."""
    by_scope: dict[ScopeKey, list[Sequence[NoteChange]]] = {}
    for changes in items:
        by_scope.setdefault(changes[0].scope, []).append(changes)
    count = 0
    for group in by_scope.values():
        try:
            backend.write_notes([*chain(*group)])
            count += len(group)
        except Conflict:
            for changes in group:
                with suppress(Conflict):
                    backend.write_notes(changes)
                    count += 1
    return count


def stats(session_id: str | None) -> Work[Stats]:
    session_id = check_optional_id("session_id", session_id)

    def work(backend: Backend) -> Stats:
        found = backend.read_stats(session_id, limit=_LARGEST)
        if session_id is None:
            return found
        return replace(found, largest=_largest_keys(backend, session_id))

    return work


def _largest_keys(backend: Backend, session_id: str) -> tuple[tuple[str, int], ...]:
    """Return the largest top-level keys in the largest heads of a session."""
    largest: list[tuple[int, str]] = []
    for head in backend.list_largest_heads(session_id, limit=limits.PAGE_ITEMS_MAX):
        if len(largest) == _LARGEST and head.size <= largest[-1][0]:
            break  # no part of it is larger, nor of those that follow
        try:
            found = backend.read_snapshots(head.scope, [None])
        except Corrupt:
            continue  # `check` reports it
        for _, body in found:
            state = codec.decode(body)
            if isinstance(state, dict):
                sizes = [
                    (len(codec.encode(value)), f"{head.scope.scope_id}:{key}")
                    for key, value in state.items()
                ]
                largest = heapq.nlargest(_LARGEST, largest + sizes)
    return tuple((name, size) for size, name in largest)


def rekey() -> Steps[int]:
    """Encrypt everything with the current keys; go over it again until nothing is left."""
    total = 0
    for _ in range(_REKEY_PASSES_MAX):
        changed, after = 0, ""
        while after is not None:

            def rekey_page(backend: Backend, start: str = after) -> tuple[int, str | None]:
                return backend.rekey(start, limit=limits.PAGE_ITEMS_MAX)

            count, after = yield rekey_page
            changed += count
        total += changed
        if not changed:
            return total
    raise Unavailable(
        "other writers keep encrypting with an older key: give them the current one, and repeat "
        f"it. encrypted=`{total}`"
    )


def check(*, repair: bool) -> Walk[Finding]:
    """Walk over everything stored and report damage; with `repair`, repair it."""
    after: str | None = ""
    while after is not None:

        def check_page(backend: Backend, start: str = after) -> list[Finding]:
            nonlocal after
            findings, after = backend.check(start, repair=repair, limit=limits.PAGE_ITEMS_MAX)
            return findings

        yield check_page
