"""The verdict on a run: does its record keep the promises?

Scopes are judged one by one: an order of the operations on each must explain all that was answered
(`search`), by a model that knows no storage. What one scope alone cannot show is asked of the whole
record: losers that are seen, forks of what was deleted, two ids for one save.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from limpet.model import ScopeKey, SnapshotInfo
from limpet.protocol import Commit
from simulation.history import Op, nonce_of, seq_of
from simulation.items import Facts, LateItem
from simulation.model import State
from simulation.projection import (
    beside_wipe,
    died_with_source,
    scope_items,
    source_of,
    wipes,
)
from simulation.search import Search, TooMany
from simulation.words import describe, describe_answer

_LOSERS = ("Conflict", "AlreadyExists", "NotFound", "refused", "InvalidInput")
_EXPECTED = ("ok", "unknown", "refused", "crash", "Conflict", "AlreadyExists", "NotFound")


def seen_infos(op: Op) -> Iterator[SnapshotInfo]:
    """Yield the facts of all snapshots in an answer."""
    if op.ok:
        match op.answer:
            case SnapshotInfo():
                yield op.answer
            case list():
                for each in op.answer:
                    info = each[0] if isinstance(each, tuple) else each
                    if isinstance(info, SnapshotInfo):
                        yield info


def violations(ops: Sequence[Op], *, faulty: bool, late: bool) -> list[str]:
    """Return what breaks a promise, in words; nothing if the record is as it must be."""
    ops = _without_unknown_ids(_without_half_deleted(ops), late=late)
    found = [*unexpected(ops, faulty), *losers(ops, faulty)]
    found += [*_seqs(ops), *_grown(ops), *_forks(ops)]
    ids, twins = ids_of(ops, late=late)
    found += twins
    if found:
        return found
    acks: dict[str, int] = {}
    for op in ops:
        if op.verb == "commit" and op.ok:
            acks.setdefault(nonce_of(op.answer.revision), op.end)
    facts = Facts(ids, acks, late=late, exact=not faulty)
    for scope in sorted({op.scope for op in ops if op.scope is not None}):
        found += _scope_violations(scope, ops, facts)
    return found


def unexpected(ops: Sequence[Op], faulty: bool) -> Iterator[str]:
    """Yield answers that no engine may give: errors of its own, or silence where nothing fails."""
    for op in ops:
        silent = not faulty and op.outcome in ("unknown", "refused")
        excused = op.outcome == "unknown" and beside_wipe(op, ops)
        if op.outcome not in _EXPECTED or (silent and not excused):
            yield f"unexpected answer: {said(op)}"
        if op.verb == "check" and op.ok:
            errors = (each for each in op.answer if each.severity == "error")
            yield from (f"check finds an error: {each.code}: {each.message}" for each in errors)


def _without_half_deleted(ops: Sequence[Op]) -> list[Op]:
    """Leave out what found a head lost during a deletion, or since one that died.

    A deletion beside another one, or beside a repair, may remove the head of a scope that others
    have begun again meanwhile. Until it is complete, or repeated, that looks like damage
    (docs/format.md, not promised: 3). Queries of the whole store leave such a scope out, and a
    repair brings back a part of it.
    """
    wiping = [op for op in ops if op.verb in ("delete_session", "delete_scope")]
    others = [*wiping, *(op for op in ops if op.given.get("repair"))]
    wiping = [w for w in wiping if any(w is not other and w.overlaps(other) for other in others)]
    lost = [
        op
        for op in ops
        if _finds_head_lost(op)
        and any(w.overlaps(op) or (w.open_ended and w.begin < op.end) for w in wiping)
    ]
    begin = min((w.begin for w in wiping), default=0)
    until = max((op.end for op in lost), default=0)
    repairs = (op for op in lost if op.verb == "check" and any(f.repaired for f in op.answer or ()))
    repaired = min((op.begin for op in repairs), default=None)
    return [
        op
        for op in ops
        if op not in lost
        and not (op.verb == "query" and op.scope is None and begin < op.end and op.begin < until)
        and (repaired is None or op.begin < repaired)
    ]


def _without_unknown_ids(ops: Sequence[Op], *, late: bool) -> list[Op]:
    """Leave out lists of ids with one that nothing else shows: that of a write without an answer.

    Which write it belongs to cannot be told. It may also be a first attempt that arrives `late`,
    after its scope was deleted (docs/format.md, not promised: 4): that has another id.
    """
    known = {info.id for op in ops for info in seen_infos(op)}
    known |= {op.given["commit"].id for op in ops if op.verb == "commit"}
    silent = any(op.verb == "commit" and op.open_ended for op in ops)

    def is_unknown(op: Op) -> bool:
        if op.verb != "ids" or not op.ok or op.scope is None or known.issuperset(op.answer):
            return False
        return silent or (late and any(wipes(each, op.scope) for each in ops))

    return [op for op in ops if not is_unknown(op)]


def _finds_head_lost(op: Op) -> bool:
    if op.verb == "check" and op.ok:
        return any(each.code == "head_missing" for each in op.answer)
    return "the head of a scope is missing" in op.said


def said(op: Op) -> str:
    """Return a call and its answer in a line."""
    return f"{op.actor} {op.verb} {describe(op)} -> {describe_answer(op)} [{op.begin}-{op.end}]"


def losers(ops: Sequence[Op], faulty: bool) -> Iterator[str]:
    """Yield what was refused and is seen all the same (promise 3)."""
    answered: dict[str, list[Op]] = defaultdict(list)
    for op in ops:
        if op.verb == "commit":
            answered[op.given["commit"].stamp.nonce].append(op)
        elif op.verb == "write_note":
            answered[op.given["write"].stamp.nonce].append(op)
    lost = {
        nonce: each
        for nonce, each in answered.items()
        if all(op.outcome in _LOSERS and not died_with_source(op, ops) for op in each)
    }
    sightings: dict[str, list[Op]] = defaultdict(list)
    for op in ops:
        seen = [info.revision for info in seen_infos(op)]
        if op.verb == "notes" and op.ok:
            seen += [note.revision for note in op.answer]
        for nonce in lost.keys() & {nonce_of(revision) for revision in seen}:
            sightings[nonce].append(op)
    for nonce, found in sightings.items():
        loser, last = lost[nonce][0], found[-1]
        if not (faulty and _is_deleted_unread(loser, last.begin, ops)):
            yield f"a loser is seen (promise 3): {said(loser)}\n    by {said(last)}"


def _is_deleted_unread(loser: Op, seen: int, ops: Iterable[Op]) -> bool:
    """Return whether what was refused was seen only before a deletion of its scope was over.

    It may have been executed, refused all the same, and deleted before its writer read it again
    (docs/format.md, not promised: 6).
    """
    wipers = (op for op in ops if loser.scope is not None and wipes(op, loser.scope))
    return loser.outcome != "refused" and any(w.overlaps(loser) and seen < w.end for w in wipers)


def ids_of(
    ops: Sequence[Op], *, late: bool = False
) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """Return the ids that each write was seen under, the last one first, and what has two.

    Only a save that overlaps the deletion of its scope may have two: it may happen before it,
    and once more after it (docs/format.md, not promised: 2). Its second id must exceed others then.
    With `late` requests, also one whose scope was deleted after it, perhaps by a deletion without
    an answer: its first attempt may arrive after that (not promised: 4).
    """
    ids: dict[str, tuple[str, ...]] = {}
    for op in ops:
        for info in seen_infos(op):
            nonce = nonce_of(info.revision)
            if info.id not in ids.get(nonce, ()):
                ids[nonce] = (info.id, *ids.get(nonce, ()))
    twins = []
    for op in ops:
        nonce = op.given["commit"].stamp.nonce if op.verb == "commit" else ""
        if op.ok and nonce in ids:
            others = (each for each in ids[nonce] if each != op.answer.id)
            ids[nonce] = (op.answer.id, *others)
        wipers = (w for w in ops if op.scope and wipes(w, op.scope))
        wiped = late and any(w.open_ended or w.end > op.begin for w in wipers)
        if len(ids.get(nonce, ())) > 1 and not wiped and not beside_wipe(op, ops):
            twins.append(f"one save under two ids (promise 4): {ids[nonce]} {said(op)}")
    return ids, twins


def _seqs(ops: Sequence[Op]) -> Iterator[str]:
    """Yield listings in which two snapshots have one seq, and those that disagree on an order."""
    above: dict[ScopeKey, dict[tuple[str, str], Op]] = defaultdict(dict)
    for op in ops:
        if op.verb != "query" or not op.ok or op.scope is None:
            continue
        infos: list[SnapshotInfo] = op.answer
        seqs = [seq_of(info.revision) for info in infos]
        if len(set(seqs)) < len(seqs):
            yield f"two snapshots have one seq (promise 7): {said(op)}"
        # A snapshot that was deleted and saved again has another seq, and may change the order.
        names = [f"{info.id}@{seq_of(info.revision)}" for info in infos]
        known = above[op.scope]
        for at, name in enumerate(names):
            for other in names[at + 1 :]:
                if (other, name) in known:
                    before = known[other, name]
                    yield f"an order has changed (promise 7): {said(before)}\n    {said(op)}"
                known.setdefault((name, other), op)


def _grown(ops: Sequence[Op]) -> Iterator[str]:
    """Yield minted ids that are not greater than one that was acknowledged before (promise 7)."""
    minted = [
        op
        for op in ops
        if op.verb == "commit"
        and op.ok
        and op.given["commit"].id is None
        and not op.given["commit"].again  # it may have been minted long before
    ]
    for second in minted:
        for first in minted:
            if first.scope != second.scope or first.end > second.begin or first.scope is None:
                continue
            if first.answer.id < second.answer.id or first.answer == second.answer:
                continue
            # A scope that was deleted begins again.
            if not any(wipes(op, first.scope) and op.begin < second.end for op in ops):
                yield f"minted ids do not grow (promise 7): {said(first)}\n    {said(second)}"


def _forks(ops: Sequence[Op]) -> Iterator[str]:
    """Yield forks that bring back what delete_session has deleted (promise 5)."""
    for fork in ops:
        if fork.verb != "commit" or fork.given["commit"].source is None:
            continue
        commit: Commit = fork.given["commit"]
        source, born = source_of(fork), _born(ops, commit.source or "")
        for wipe in ops:
            if source is None or not wipe.ok or wipe.begin < born or not wipes(wipe, source):
                continue
            if wipe.end < fork.begin and fork.ok:
                yield f"a fork of what was deleted (promise 5): {said(fork)}\n    {said(wipe)}"
            after = [op for op in ops if op.begin > wipe.end and op.scope == commit.scope]
            shown = [op for op in after if _sees(op, commit.stamp.nonce)]
            absent = [op for op in after if op.verb == "info" and op.ok and op.answer is None]
            late = bool(shown) and any(op.end < shown[-1].begin for op in absent)
            if late or (shown and wipes(wipe, commit.scope)):
                yield f"a fork outlives its source (promise 5): {said(fork)}\n    {said(shown[-1])}"


def _born(ops: Iterable[Op], revision: str) -> int:
    """Return when a revision was certainly there: when it was acknowledged, or first read."""
    nonce = nonce_of(revision)
    return min(op.end for op in ops if _sees(op, nonce))


def _sees(op: Op, nonce: str) -> bool:
    return any(nonce_of(info.revision) == nonce for info in seen_infos(op))


def _scope_violations(scope: ScopeKey, ops: Sequence[Op], facts: Facts) -> list[str]:
    items = list(scope_items(scope, ops, facts))
    by_key = {item.key: item for item in items}

    def settle(state: State) -> State:
        if not state.open:
            return state
        return state._replace(
            open=tuple((key, by_key[key].observe(state, payload)) for key, payload in state.open)
        )

    search: Search[State] = Search(items, settle)
    what = f"{scope.session_id}/{scope.scope_id}"
    in_time = [item for item in items if not isinstance(item, LateItem)]
    try:
        # What may have arrived late need not have: mostly there is an order without it, soon found.
        if len(in_time) < len(items) and Search(in_time, settle).explains(State()):
            return []
        return [] if search.explains(State()) else [_unexplained(what, search)]
    except TooMany as tangle:
        return [f"no verdict on {what}: {tangle}"]


def _unexplained(what: str, search: Search[State]) -> str:
    lines = [f"no order of the operations on {what} explains the answers. The longest one found:"]
    lines += [f"    {said(op)}" for op in search.explanation()]
    lines += ["  after which none of these fits:"]
    lines += [f"    {said(item.op)}" for item in search.blocked]
    return "\n".join(lines)
