"""A commit inside one transaction: read what the decision needs, decide, and carry it out."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from limpet.backends.sql.bodies import NewBody
from limpet.backends.sql.tables import ScopeRow, Tables, is_text
from limpet.core import commits
from limpet.core.commits import Plan, ScopeState
from limpet.core.deltas import delta
from limpet.core.deltas.chain import ChainState, extended, is_whole_at_first
from limpet.core.deltas.delta import Delta
from limpet.core.encryption import WrongKeys
from limpet.core.rows import Row
from limpet.errors import Corrupt
from limpet.protocol import Append, AppendOffsets, Commit, Copy

_FAR_BYTES = 64 * 1024  # after a change this large, reading older states costs little
_OLDER_STATES = 2  # before the head
_LINKS_MAX = 64  # of a chain that is read for each save
_ENTRY_BYTES = 512  # what an entry of the cache takes without its body
_STEP_BYTES = 320  # what a step takes without its new bytes
_STEPS_MAX = 32  # applied at once


class LastBody:
    """What a process remembers of the last body of a scope, valid under the nonce of its write.

    Appends are remembered as steps, and applied when the body is asked for: an append costs what
    is appended.
    """

    __slots__ = ("_held", "nonce")

    def __init__(self, nonce: str, body: bytes, steps: tuple[Delta, ...] = ()) -> None:
        self.nonce = nonce
        self._held = body, steps

    @property
    def body(self) -> bytes:
        body, steps = self._held
        for step in steps:
            body = delta.apply(body, step)
        self._held = body, ()
        return body

    @property
    def size(self) -> int:
        body, steps = self._held
        return len(body) + sum(len(step.literal) + _STEP_BYTES for step in steps)

    def after(self, nonce: str, step: Delta) -> "LastBody":
        body, steps = self._held
        if len(steps) < _STEPS_MAX:
            return LastBody(nonce, body, (*steps, step))
        return LastBody(nonce, self.body, (step,))


def cache_cost(known: LastBody) -> int:
    return known.size + _ENTRY_BYTES


class PreparedDelta(NamedTuple):
    """The step from the last body known to this process, computed before the transaction."""

    known: LastBody
    step: Delta | None


def apply_commit(
    tables: Tables, commit: Commit, prepared: PreparedDelta | None = None
) -> tuple[Row, bytes | None]:
    """Store what a commit asks for, or raise why it may not.

    Return the row as stored, and its state if it is known and the last of its scope.
    """
    scope = tables.scope_to_commit(commit)
    if commit.again and scope is not None:
        stored = tables.row("snapshot_by_nonce", scope, commit.stamp.nonce)
        if stored is not None:
            return stored, None
    origin, source = None, None
    if commit.source is not None and commit.forked_from is not None:
        origin, source = tables.source(commit.forked_from)
    current = _current(tables, scope, commit)
    existing = None
    if commit.id is not None and scope is not None:
        existing = tables.existing(scope, commit.id)
    plan = commits.decide(
        commit,
        current,
        existing,
        source=source,
        same_body=partial(_is_same, tables, existing, commit),
        newest_kept=partial(_newest_kept, tables, scope),
    )
    if plan.is_stored:
        return plan.row, None
    if scope is not None and existing is not None:
        return _replace(tables, commit, scope, existing, plan.row, prepared)
    if origin and source and isinstance(commit.body, Copy):
        return _fork(tables, commit, plan, scope, origin, source), None
    if origin and source and isinstance(commit.body, bytes):
        new = _patched(tables, commit, commit.body, source)
        if new.chain is not None:
            scope = tables.join_fork_group(scope or tables.add_scope(commit.scope), origin)
    else:
        new = _body_plan(tables, commit, current, scope, prepared)
    return _insert(tables, commit, plan, scope, current.head, new), new.body


def _is_same(tables: Tables, existing: Row | None, commit: Commit) -> bool:
    body = commit.body
    if existing is None or not isinstance(body, bytes) or existing.size != len(body):
        return False
    return tables.state(existing) == body


def _newest_kept(tables: Tables, scope: ScopeRow | None) -> str | None:
    found = None if scope is None else tables.newest_kept(scope)
    return None if found is None else found.id


class Step(NamedTuple):
    """The step from the last body to a new one, the size of that, and where its lists end."""

    step: Delta | None
    size: int
    append_offsets: AppendOffsets | None


class _BodyPlan(NamedTuple):
    """How a new body is stored: behind which chain, by which step from its last body."""

    chain: ChainState | None
    step: Delta | None
    size: int
    body: bytes | None
    append_offsets: AppendOffsets | None


def _body_plan(
    tables: Tables,
    commit: Commit,
    current: ScopeState,
    scope: ScopeRow | None,
    prepared: PreparedDelta | None,
) -> _BodyPlan:
    body, offsets = commit.body, commit.append_offsets
    if isinstance(body, Append):
        unread = append_unread(body, current, None if scope is None else scope.chain)
        if unread is not None:
            ground = None if scope is None else scope.chain
            return _BodyPlan(ground, unread.step, unread.size, None, unread.append_offsets)
        body, offsets = commits.appended(
            body, None if current.head is None else tables.state(current.head)
        )
    if isinstance(body, Copy):
        raise Corrupt("there is nothing to copy")
    chain, step = None if scope is None else scope.chain, None
    is_draft_covered = commit.head and current.head is not None and not current.head.kept
    if is_whole_at_first(chain, len(body)) and not is_draft_covered:
        return _BodyPlan(None, None, len(body), body, offsets)
    if chain is not None and prepared is not None and prepared.known.nonce == chain.nonce:
        step = prepared.step or delta.diff(prepared.known.body, body)
    elif scope is not None:
        found = _last(tables, scope, chain, current)
        chain = None if found is None else found[0]
        step = None if found is None else delta.diff(found[1], body)
    plan = _BodyPlan(chain, step, len(body), body, offsets)
    if scope is None or step is None or not delta.is_large(step):
        return plan
    return _nearer(tables, commit, current, scope, plan) or plan


def _patched(tables: Tables, commit: Commit, body: bytes, source: Row) -> _BodyPlan:
    """Return how to store the first state of a fork: as what was changed, inside a session."""
    chain, step = None, None
    if shares_states(commit) and (begun := tables.bodies.resume(source.seq, "")) is not None:
        chain, step = begun[0], delta.diff(begun[1], body)
    return _BodyPlan(chain, step, len(body), body, commit.append_offsets)


def shares_states(commit: Commit) -> bool:
    """Forks build on states of their origin only inside a session."""
    origin = commit.forked_from
    return origin is not None and origin.scope.session_id == commit.scope.session_id


def _nearer(
    tables: Tables, commit: Commit, current: ScopeState, scope: ScopeRow, plan: _BodyPlan
) -> _BodyPlan | None:
    """Return how to store a body on another one that is much nearer to it than the last."""
    if plan.body is None or plan.step is None:
        return None
    for seq in _other_bases(tables, commit, current, scope, plan):
        if plan.chain is not None and plan.chain.seq == seq:
            continue
        begun = tables.bodies.resume(seq, "")
        if begun is None or begun[0].links > _LINKS_MAX:
            continue
        step = delta.diff(begun[1], plan.body)
        if 2 * len(step.literal) <= len(plan.step.literal):
            return plan._replace(chain=begun[0], step=step)
    return None


def _other_bases(
    tables: Tables, commit: Commit, current: ScopeState, scope: ScopeRow, plan: _BodyPlan
) -> Iterator[int]:
    """Yield the parent that the caller named and, for a large change, what came before the head.

    Some agents alternate between two or three states. They are looked for by their size.
    """
    if isinstance(commit.parent, str):
        found = tables.seq_and_size(scope, commit.parent)
        if found is not None:
            yield found[0]
    if plan.step is None or not _is_far(plan.step):
        return
    row = current.head
    with suppress(Corrupt):  # a new state must not fail for an old one
        for _ in range(_OLDER_STATES):
            if row is None or row.parent_id is None:
                return
            row = tables.named(scope, row.parent_id)
            if row is not None and 8 * abs(row.size - plan.size) < plan.size:
                yield row.seq


def _is_far(step: Delta) -> bool:
    return len(step.literal) >= _FAR_BYTES


def looks_for_other_bases(commit: Commit, step: Delta) -> bool:
    """Return whether so much has changed that a nearer state may be there, and is looked for."""
    return delta.is_large(step) and (isinstance(commit.parent, str) or _is_far(step))


def append_unread(append: Append, current: ScopeState, chain: ChainState | None) -> Step | None:
    """Return what an append does if no state is read for it; None if too little is known."""
    if chain is None or current.head is None or chain.append_offsets is None:
        return None
    if (chain.seq, chain.nonce) != (current.head.seq, current.head.nonce):
        return None
    found = extended(chain.append_offsets, chain.size, append)
    if found is None:
        return None
    step, offsets = found
    size = chain.size + len(step.literal)
    commits.check_size(size, append)
    return Step(step, size, offsets)


def _last(
    tables: Tables, scope: ScopeRow, chain: ChainState | None, current: ScopeState
) -> tuple[ChainState, bytes] | None:
    """Return the chain of a scope and its last body, or what to begin a new one with."""
    if chain is not None:
        try:
            return chain, tables.bodies.read(chain.seq, written_by=chain.written_by)
        except Corrupt:
            return None  # reading it raises; a new state must not fail for it
    if current.head is not None:
        return tables.bodies.resume(current.head.seq, current.head.nonce)
    return None if scope.tip_seq is None else tables.bodies.resume(scope.tip_seq, "")


def _insert(
    tables: Tables,
    commit: Commit,
    plan: Plan,
    scope: ScopeRow | None,
    head: Row | None,
    how: _BodyPlan,
) -> Row:
    """Add a new snapshot, and make the scope show it if asked; a draft that it covers goes."""
    scope = scope or tables.add_scope(commit.scope)
    row = plan.row._replace(size=how.size)
    tables.insert(scope, row, head)
    covered = None if plan.covers is None else plan.covers.seq
    if covered is not None:
        tables.remove(scope, covered)
    new = NewBody(row.seq, row.nonce, row.size, how.body, how.append_offsets)
    chain = tables.bodies.write(how.chain, new, how.step, scope.top)
    if covered is not None and not (chain.rows and how.chain and how.chain.seq == covered):
        tables.bodies.release([covered])  # unless the new state is a delta on top of it
    tables.move_scope(moved_scope(scope._replace(shown=head), commit, plan, row, chain))
    return row


def _fork(
    tables: Tables,
    commit: Commit,
    plan: Plan,
    scope: ScopeRow | None,
    origin: ScopeRow,
    source: Row,
) -> Row:
    """Begin a scope with the state of another snapshot: shared inside a session, else copied."""
    shares = shares_states(commit)
    scope = scope or tables.add_scope(commit.scope)
    scope = tables.join_fork_group(scope, origin) if shares else scope
    row = plan.row._replace(size=source.size)
    tables.insert(scope, row, None)
    chain = origin.chain
    new = NewBody(row.seq, row.nonce, row.size, None, None)
    if shares:
        chain = tables.bodies.copy(source, chain, new)
    else:
        offsets = chain.append_offsets if chain is not None and chain.seq == source.seq else None
        body = tables.state(source, origin.cipher)
        new = new._replace(body=body, append_offsets=offsets)
        chain = tables.bodies.write(None, new, None)
    tables.move_scope(moved_scope(scope, commit, plan, row, chain))
    return row


def moved_scope(
    scope: ScopeRow, commit: Commit, plan: Plan, row: Row, chain: ChainState | None
) -> ScopeRow:
    """Return the scope after a new snapshot, `chain` being that of its last body."""
    return scope._replace(
        head_seq=row.seq if commit.head else scope.head_seq,
        tip_seq=row.seq if row.kept else scope.tip_seq,
        next_seq=row.seq + 1,
        floor=plan.floor,
        codec=scope.dumped(chain),
        shown=row if commit.head else scope.shown,
    )


def _replace(
    tables: Tables,
    commit: Commit,
    scope: ScopeRow,
    existing: Row,
    row: Row,
    prepared: PreparedDelta | None,
) -> tuple[Row, bytes | None]:
    """Store another version of a snapshot in its place; its body only if that is another one."""
    body = commit.body
    if not isinstance(body, bytes):
        raise Corrupt("only a state can replace another")
    chain = scope.chain
    old = _old(tables, existing, chain, prepared)
    row = row._replace(state_nonce=existing.written_by if old == body else "")
    tables.replace(scope, existing, row)
    if old == body:
        if chain is not None and chain.seq == row.seq:
            chain = chain._replace(nonce=row.nonce, state_nonce=row.state_nonce)
    else:
        tables.lock_fork_group(scope)
        new = NewBody(row.seq, row.nonce, len(body), body, commit.append_offsets)
        chain, lost = tables.bodies.replace(chain, old, existing, new, body)
        if lost:
            tables.forget_chains(scope.pk)
            chain = None
    moved = scope._replace(
        tip_seq=max(scope.tip_seq or 0, row.seq) if row.kept else scope.tip_seq,
        codec=scope.dumped(chain),
    )
    tables.move_scope(moved)
    return row, body if chain is not None and chain.seq == row.seq else None


def replace_all(tables: Tables, changes: Sequence[Commit]) -> int:
    """Store other versions of several snapshots of a scope in their places; return how many."""
    key, fence = changes[0].scope, changes[0].fence
    scope = tables.scope_to_change(key)
    commits.check_fence(fence, None if scope is None else scope.fence, key)
    if scope is None:
        return 0
    seqs: set[int] = set()
    states: dict[int, tuple[bytes, str]] = {}
    for commit in changes:
        existing = tables.named(scope, commit.id)
        if existing is None:
            continue
        seqs.add(existing.seq)
        if existing.nonce == commit.stamp.nonce:
            continue  # it is stored, and its answer was lost
        plan = commits.decide(
            commit,
            ScopeState(fence=scope.fence),
            existing,
            same_body=lambda: False,
            newest_kept=lambda: None,
        )
        state_nonce = existing.written_by
        if isinstance(commit.body, bytes) and not _is_same(tables, existing, commit):
            states[existing.seq] = commit.body, plan.row.nonce
            state_nonce = ""
        tables.replace(scope, existing, plan.row._replace(state_nonce=state_nonce))
    chain = scope.chain
    if states and tables.bodies.replace_all(states):
        tables.forget_chains(scope.pk)
    elif chain is not None and chain.seq in seqs:
        tables.transaction.do("forget_chain", (scope.pk,))
    return len(seqs)


def _old(
    tables: Tables, existing: Row, chain: ChainState | None, prepared: PreparedDelta | None
) -> bytes | None:
    known = None if prepared is None else prepared.known
    last = None if chain is None else (chain.seq, chain.nonce)
    if known is not None and last == (existing.seq, known.nonce):
        return known.body
    try:
        return tables.state(existing)
    except Corrupt:
        return None


def _current(tables: Tables, scope: ScopeRow | None, commit: Commit) -> ScopeState:
    next_seq, next_saved_at = tables.next_seq_and_time(scope, commit.stamp)
    if scope is None:
        return ScopeState(next_seq=next_seq, next_saved_at=next_saved_at)
    if not is_text(scope.floor):
        raise Corrupt(f"the row of a scope is damaged. pk=`{scope.pk}`")
    try:
        head = tables.head(scope)
    except Corrupt as cause:
        # The damaged row stays where it is, and is no longer shown.
        if commits.needs_head(commit) or isinstance(cause, WrongKeys):
            raise
        head = None
    is_taken = commit.new_scope and tables.is_taken(scope)  # else it does not matter
    return ScopeState(head, scope.floor, scope.fence, next_seq, next_saved_at, is_taken)
