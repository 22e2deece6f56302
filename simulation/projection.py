"""What a record says of one scope, or of one note: the operations that the search is given."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import count

from limpet.core import codec
from limpet.model import Note, ScopeKey
from limpet.protocol import Commit, NoteWrite, Query
from simulation.client import log_of
from simulation.history import OK, Op
from simulation.items import (
    CommitItem,
    DeleteItem,
    DroppedItem,
    Facts,
    LateItem,
    ReadItem,
    ScopeItem,
    SourceItem,
    VanishItem,
    WipeItem,
)
from simulation.listing import ListItem
from simulation.notes import EraseItem, LookItem, NoteItem, SweepItem, WriteItem

Address = tuple[ScopeKey, str | None, str]

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
    """Yield the operations on the snapshots of a scope."""
    keys = count(1)
    wipers = [op for op in ops if wipes(op, scope) and op.outcome != "Conflict"]
    for op in ops:
        if wipes(op, scope):
            yield WipeItem(op, next(keys), facts)
            continue
        if op.verb == "query":
            query: Query = op.given["query"]
            if op.ok and query.scope in (None, scope) and not _overlap(op, wipers):
                mine = [info for info in op.answer if info.scope == scope]
                listing = ListItem(op, next(keys), facts, query, mine)
                listing.saved_again = _deleted_meanwhile(op, ops)
                yield listing
        if op.verb == "commit" and source_of(op) == scope and op.outcome in _ABOUT_SOURCE:
            yield SourceItem(op, next(keys), facts)
        if op.scope != scope:
            continue
        if op.verb == "commit":
            if op.given["commit"].fence is not None and op.outcome == "Conflict":
                continue  # whether it had to be refused is not asked here (see `leases`)
            of_source = source_of(op) is not None and op.outcome in _REFUSED_SOURCE
            item = CommitItem(op, next(keys), facts, wipers)
            if died_with_source(op, ops):
                item.required, item.ended = False, True
                yield item
            elif op.outcome != "refused" and not of_source:
                yield item
                for wiper in wipers if item.commit.id is not None else ():
                    if op.overlaps(wiper):
                        yield DroppedItem(item, next(keys), wiper)
                if facts.late and wipers:
                    yield LateItem(op, next(keys), facts, wipers)
                for wiper in ops if op.open_ended else ():
                    if _wipes_source(wiper, op):
                        yield VanishItem(op, next(keys), facts, wiper)
        elif op.verb == "delete":
            for id in op.given["ids"]:
                yield DeleteItem(op, next(keys), facts, id)
        elif op.verb == "ids" and op.ok and not _overlap(op, wipers):
            listing = ListItem(op, next(keys), facts, Query(scope), op.answer)
            listing.left_behind = _left_behind(op, ops, wipers, facts)
            listing.saved_again = _deleted_meanwhile(op, ops)
            yield listing
        elif op.verb in ("read", "info") and op.ok:
            yield _read_item(op, next(keys), facts)


def _deleted_meanwhile(listing: Op, ops: Iterable[Op]) -> frozenset[str]:
    deletes = (op for op in ops if op.verb == "delete" and op.overlaps(listing))
    return frozenset(id for op in deletes for id in op.given["ids"])


def _left_behind(
    listing: Op, ops: Iterable[Op], wipers: Sequence[Op], facts: Facts
) -> frozenset[str]:
    """Return listed ids whose copies a writer may have put there after the scope was deleted.

    Any concurrent writer may do it, also for another: it rolls heads forward. Some of these ids
    are seen by this listing only.
    """
    writes = [op for op in ops if op.scope == listing.scope and op.verb in ("commit", "delete")]
    known = {id for each in facts.ids.values() for id in each}
    found = {id for id in listing.answer if id not in known}
    for wipe in wipers:
        if facts.late or any(op.overlaps(wipe) for op in writes):
            for op in writes:
                if op.verb == "commit" and op.begin < wipe.end:
                    commit: Commit = op.given["commit"]
                    found |= {commit.id or "", *facts.ids.get(commit.stamp.nonce, ())}
    return frozenset(found) if wipers else frozenset()


def _overlap(op: Op, wipers: Sequence[Op]) -> bool:
    """Return whether a listing overlaps the deletion of its scope: it may see part of it.

    See docs/format.md, not promised: 2.
    """
    return any(op.overlaps(each) for each in wipers)


def _read_item(op: Op, key: int, facts: Facts) -> ReadItem:
    if op.verb == "info":
        return ReadItem(op, key, facts, op.given["id"], op.answer)
    found = op.answer[0] if op.answer else None
    item = ReadItem(op, key, facts, op.given["id"], None if found is None else found[0])
    item.log = None if found is None else log_of(found[1])
    return item


def note_addresses(ops: Iterable[Op]) -> set[Address]:
    """Return all notes that were written or seen."""
    written = {_address(op.given["write"]) for op in ops if op.verb == "write_note"}
    seen = {
        (op.scope, note.snapshot_id, note.name)
        for op in ops
        if op.verb == "notes" and op.ok and op.scope is not None
        for note in op.answer
    }
    return written | seen


def _address(write: NoteWrite) -> Address:
    return write.scope, write.on, write.name


def note_items(address: Address, ops: Sequence[Op], facts: Facts) -> Iterator[NoteItem]:
    """Yield the operations on one note."""
    scope, on, name = address
    keys = count(1)
    late = facts.late
    for op in ops:
        key = next(keys)
        given = op.given
        if wipes(op, scope):
            if op.ok or op.open_ended or op.outcome == "refused":
                yield _optional(SweepItem(op, key, late))
        elif op.scope != scope:
            continue
        elif op.verb == "write_note" and _address(given["write"]) == address:
            if op.outcome != "refused":
                yield WriteItem(op, key, late, codec.decode(given["write"].value))
        elif op.verb == "delete_note" and (given["on"], given["name"]) == (on, name):
            erase = EraseItem(op, key, late)
            erase.counts = facts.exact and not _deleted_by_others(op, ops)
            yield _optional(erase)
        elif op.verb == "delete" and on is not None and on in given["ids"]:
            yield _optional(SweepItem(op, key, late))
        elif op.verb == "notes" and op.ok and given["on"] == on and given["name"] in (None, name):
            seen: Note | None = next((note for note in op.answer if note.name == name), None)
            yield LookItem(op, key, late, seen)


def _deleted_by_others(op: Op, ops: Iterable[Op]) -> bool:
    """Return whether another client deletes at the same time: then both may report it."""
    others = (each for each in ops if each is not op and each.verb.startswith("delete"))
    return any(each.overlaps(op) for each in others)


def _optional(item: NoteItem) -> NoteItem:
    """Return a deletion: if it was refused, part of it may have happened."""
    item.required = item.op.outcome == OK
    return item
