"""The verbs of maintenance: prune, stats, check and repair."""

import heapq
from dataclasses import replace
from datetime import timedelta

from limpet.api.opened import ScopeContext
from limpet.api.verbs import Steps, Walk, Work, check_optional_id
from limpet.core import codec, ids, limits
from limpet.core.prepare import check_retention
from limpet.errors import Corrupt, Unavailable
from limpet.model import Finding, Pruned, Stats
from limpet.protocol import Backend, Query

_LARGEST = 10
_REKEY_PASSES_MAX = 10  # over a store that others write to with an older key


def prune(
    context: ScopeContext,
    *,
    keep_last: int | None,
    older_than: timedelta | None,
    dry_run: bool,
) -> Steps[Pruned]:
    scope, tools, _, fence = context
    policy = check_retention(keep_last, older_than, now_us=tools.draw().now)
    dry_run = limits.check_flag("dry_run", dry_run)

    def steps() -> Steps[Pruned]:
        seen, count, size = 0, 0, 0
        after: int | None = None
        while True:

            def prune_page(backend: Backend, after: int | None = after, seen: int = seen) -> _Page:
                query = Query(scope, after=after)
                page = backend.list_snapshots(query, limit=limits.PRUNED_ITEMS_MAX)
                # When it deletes, the engine spares the head.
                head = backend.read_info(scope, None) if page and dry_run else None
                head_id = None if head is None else head.id
                doomed = list(policy.droppable(page, seen=seen, head_id=head_id))
                pruned = Pruned(len(doomed), sum(info.size for info in doomed))
                if doomed and not dry_run:
                    pruned = backend.delete_snapshots(
                        scope, [info.id for info in doomed], spare_head=True, fence=fence
                    )
                last = ids.seq_of(page[-1].revision) if page else None
                return len(page), pruned, last

            length, pruned, after = yield prune_page
            seen, count, size = seen + length, count + pruned.count, size + pruned.bytes
            if length < limits.PRUNED_ITEMS_MAX:
                return Pruned(count, size)

    return steps()


_Page = tuple[int, Pruned, int | None]


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
