"""What a record says of one scope: the operations that the search is given."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import count

from limpet.model import ANY, ScopeKey
from limpet.protocol import Commit, Query
from simulation.client import log_of
from simulation.history import Op
from simulation.items import (
    ClearItem,
    CommitItem,
    DeleteItem,
    Facts,
    LateItem,
    ReadItem,
    RepeatedItem,
    ScopeItem,
    SourceItem,
    VanishItem,
    WipeItem,
)
from simulation.leases import ClaimItem, ReleaseItem, RenewItem
from simulation.listing import IdsItem, ListItem, PagesItem
from simulation.notes import EraseItem, LookItem, WriteItem

_CHANGES: dict[str, type[RepeatedItem]] = {
    "claim": ClaimItem,
    "delete": DeleteItem,
    "delete_note": EraseItem,
    "release": ReleaseItem,
    "write_note": WriteItem,
}
_REFUSED_SOURCE = ("Conflict", "NotFound")
_ABOUT_SOURCE = ("ok", *_REFUSED_SOURCE)


def wipes(op: Op, scope: ScopeKey) -> bool:
    """Return whether a call deletes a scope, alone or with its session."""
    if op.verb == "delete_session":
        return bool(op.given["session"] == scope.session_id)
    return op.verb == "delete_scope" and op.scope == scope


def source_of(op: Op) -> ScopeKey | None:
    """Return the scope that a fork begins from, None if it is no fork."""
    commit: Commit = op.given["commit"]
    return None if commit.source is None or not commit.forked_from else commit.forked_from.scope


def beside_wipe(op: Op, ops: Iterable[Op]) -> bool:
    """Return whether a save overlaps the deletion of its scope: it may not know its end."""
    scope = op.scope
    if op.verb != "commit" or scope is None:
        return False
    return any(wipes(each, scope) and each.overlaps(op) for each in ops)


def _wipes_source(wiper: Op, fork: Op) -> bool:
    source = source_of(fork)
    return source is not None and wipes(wiper, source)


def died_with_source(op: Op, ops: Iterable[Op]) -> bool:
    """Return whether a fork came to an end because its source's scope was deleted concurrently.

    It may have been seen before that: it happens wholly before the deletion, and is gone
    (docs/format.md, not promised: 2).
    """
    source = source_of(op) if op.verb == "commit" else None
    if source is None or op.outcome != "NotFound":
        return False
    return any(wipes(each, source) and each.overlaps(op) for each in ops)


def scope_items(scope: ScopeKey, ops: Sequence[Op], facts: Facts) -> Iterator[ScopeItem]:
    """Yield the operations on a scope."""
    keys = count(1)
    wipers = [op for op in ops if wipes(op, scope) and op.outcome != "Conflict"]
    for op in ops:
        key = next(keys)
        if wipes(op, scope):
            if op.given.get("expect", ANY) is ANY:
                yield WipeItem(op, key, facts)
            elif op.outcome != "refused":
                yield ClearItem(op, key, facts)
        elif op.verb == "query":
            if op.ok and op.given["query"].scope in (None, scope):
                yield from _listing(scope, op, key, facts, wipers)
        elif op.verb == "commit":
            if source_of(op) == scope and op.outcome in _ABOUT_SOURCE:
                yield SourceItem(op, key, facts)
            if op.scope == scope:
                yield from _commit_items(op, keys, ops, facts, wipers)
        elif op.scope != scope:
            continue
        elif op.verb in _CHANGES:
            if op.outcome != "refused":
                yield from _with_late(_CHANGES[op.verb](op, key, facts, wipers), keys, wipers)
        elif op.verb == "renew" and op.outcome in ("ok", "Conflict"):
            yield RenewItem(op, key, facts)
        elif op.verb == "notes" and op.ok:
            yield LookItem(op, key, facts)
        elif op.verb == "ids" and op.ok:
            yield IdsItem(op, key, facts)
        elif op.verb == "read" and op.ok:
            seen = [(info, log_of(body)) for info, body in op.answer]
            yield ReadItem(op, key, facts, seen)
        elif op.verb == "info" and op.ok:
            yield ReadItem(op, key, facts, [] if op.answer is None else [(op.answer, None)])


def _listing(
    scope: ScopeKey, op: Op, key: int, facts: Facts, wipers: Sequence[Op]
) -> Iterator[ScopeItem]:
    query: Query = op.given["query"]
    mine = [info for info in op.answer if info.scope == scope]
    if "page" not in op.given and (query.scope or not query.labels):
        yield ListItem(op, key, facts, query, mine)
    # What is read in parts may show part of what a deletion removes (docs/format.md, not
    # promised: 2).
    elif not any(op.overlaps(each) for each in wipers):
        yield PagesItem(op, key, facts, query, mine)


def _with_late(
    item: RepeatedItem, keys: Iterator[int], wipers: Sequence[Op]
) -> Iterator[ScopeItem]:
    yield item
    if item.facts.late and wipers:
        yield LateItem(item, next(keys), wipers)


def _commit_items(
    op: Op, keys: Iterator[int], ops: Sequence[Op], facts: Facts, wipers: Sequence[Op]
) -> Iterator[ScopeItem]:
    of_source = source_of(op) is not None and op.outcome in _REFUSED_SOURCE
    item = CommitItem(op, next(keys), facts, wipers)
    died = died_with_source(op, ops)
    if died:
        item.required, item.ended = False, True
        yield item
    elif op.outcome != "refused" and not of_source:
        yield from _with_late(item, keys, wipers)
    for wiper in ops if died or op.open_ended else ():
        if _wipes_source(wiper, op):
            yield VanishItem(op, next(keys), facts, wiper)
