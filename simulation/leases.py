"""What leases promise, asked of the whole record: who was put out does not write any more.

A lease may be judged to have lapsed at any step, so that the only thing between an old holder and
the head is the fence.
"""

from collections.abc import Iterator, Sequence

from limpet.model import ScopeKey, SnapshotInfo
from limpet.protocol import Claim, Commit
from simulation.history import FOREVER, Op, nonce_of, seq_of
from simulation.projection import wipes
from simulation.words import describe, describe_answer


def lease_violations(ops: Sequence[Op]) -> Iterator[str]:
    """Yield what was written under a lease after another had been acknowledged that is younger."""
    claims = [op for op in ops if op.verb == "claim"]
    won = [op for op in claims if op.ok and op.answer.key == op.given["claim"].key]
    for op in ops:
        commit: Commit | None = op.given.get("commit")
        if commit is None or commit.fence is None:
            continue
        over = _last_claimed(claims, commit.scope, commit.fence)
        younger = [
            each
            for each in won
            if each.scope == commit.scope
            and each.given["claim"].key != commit.fence
            and each.begin > over
        ]
        for claim in younger:
            late = _is_above(ops, commit, claim) or _appears(ops, commit, claim.end)
            if late or (op.ok and claim.end < op.begin):
                yield f"written under a lease that had passed: {_said(op)}\n    to {_said(claim)}"


def _last_claimed(claims: Sequence[Op], scope: ScopeKey, key: str) -> int:
    """Return when the last claim of a lease was over."""
    over = 0
    for op in claims:
        claim: Claim = op.given["claim"]
        if claim.scope == scope and claim.key == key:
            over = max(over, FOREVER if op.open_ended else op.end)
    return over


def _is_above(ops: Sequence[Op], commit: Commit, claim: Op) -> bool:
    """Return whether a save got its seq after one that was made under the younger lease.

    When a scope was deleted and begins again, its seqs are as good as the clocks.
    """
    if any(wipes(op, commit.scope) for op in ops):
        return False
    seqs = [seq_of(info.revision) for op in ops for info in _seen(op, commit.stamp.nonce)]
    below = (
        op.answer
        for op in ops
        if op.verb == "commit"
        and op.ok
        and op.scope == claim.scope
        and op.given["commit"].fence == claim.given["claim"].key
    )
    return bool(seqs) and any(seq_of(info.revision) < max(seqs) for info in below)


def _seen(op: Op, nonce: str) -> list[SnapshotInfo]:
    """Return the snapshots of one write in an answer."""
    found = op.answer if isinstance(op.answer, list) else [op.answer]
    infos = (each[0] if type(each) is tuple else each for each in found)
    return [
        info
        for info in infos
        if isinstance(info, SnapshotInfo) and nonce_of(info.revision) == nonce
    ]


def _appears(ops: Sequence[Op], commit: Commit, since: int) -> bool:
    """Return whether a save is seen by a listing, and is not by one before it, after some time."""
    missing = FOREVER
    for op in sorted(ops, key=lambda each: each.begin):
        if op.verb != "query" or not op.ok or op.scope != commit.scope or op.begin <= since:
            continue
        seen = bool(_seen(op, commit.stamp.nonce))
        if seen and op.begin > missing:
            return True
        if not seen:
            missing = min(missing, op.end)
    return False


def _said(op: Op) -> str:
    return f"{op.actor} {op.verb} {describe(op)} -> {describe_answer(op)} [{op.begin}-{op.end}]"
