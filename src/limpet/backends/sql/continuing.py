"""A save by the writer that changed the scope last: all of it is decided before the transaction.

It knows the row of the scope, since it wrote it. What it decides holds only if the scope is still
as it left it, which the engine verifies as it writes. If it is not, nothing was stored, and the
save is made in the ordinary way (`commit.py`), which reads everything again.

The last body is not verified again: damage to it is found by reads and by `check`.
"""

from typing import Any, NamedTuple

from limpet.backends.sql.commit import (
    PreparedDelta,
    Step,
    append_unread,
    looks_for_other_bases,
    moved_scope,
)
from limpet.backends.sql.tables import ScopeRow, labels_of, snapshot_values
from limpet.core import codec, commits
from limpet.core.commits import Plan, ScopeState
from limpet.core.deltas import delta
from limpet.core.deltas.chain import (
    FOLDED_MAX,
    FOLDED_TOGETHER,
    WHOLE_BYTES_MAX,
    BodyRow,
    ChainState,
    Unfolded,
    body_row,
    chain_state_of,
    folded,
    is_whole_at_first,
    next_form,
)
from limpet.core.deltas.delta import Delta
from limpet.core.limits import MIB
from limpet.core.rows import Row
from limpet.errors import LimpetError
from limpet.protocol import Append, AppendOffsets, Commit

KNOWN_SCOPES_BYTES_MAX = 10 * MIB  # some thousand scopes
_SCOPE_BYTES = 3072  # of a scope without its variable columns
_LIST_BYTES = 256  # of where a list ends


class KnownScope(NamedTuple):
    """What a process knows of a scope that it changed last.

    Attributes:
        alone: no other process had changed it just before.
        unfolded: its last states, if they were written whole and are not folded yet.
        folds: how many states before those were folded, each on the next.
    """

    scope: ScopeRow
    chain: ChainState
    alone: bool = True
    unfolded: tuple[Unfolded, ...] = ()
    folds: int = 0

    def cost(self) -> int:
        head = self.scope.shown
        head_bytes = 0 if head is None else len(head.labels) + len(head.metadata)
        lists = _LIST_BYTES * len(self.chain.append_offsets or ())
        bodies = WHOLE_BYTES_MAX * len(self.unfolded)
        return _SCOPE_BYTES + len(self.scope.codec or b"") + head_bytes + lists + bodies

    @property
    def is_fold_due(self) -> bool:
        return len(self.unfolded) > FOLDED_TOGETHER

    @property
    def last_body(self) -> bytes | None:
        """The last state, if it was written whole by this process."""
        return self.unfolded[-1].body if self.unfolded else None


def known_scope(
    moved: ScopeRow | None, body: bytes | None, added: BodyRow | None, *, alone: bool = True
) -> KnownScope | None:
    """Return what is known of a scope that a commit left like this; None if too little.

    `body` is the state that it stored, if that is known; `added` the row, if it is whole.
    """
    chain = None if moved is None else moved.chain
    if moved is None or chain is None:
        return None
    unfolded: tuple[Unfolded, ...] = ()
    is_last = added is not None and added.seq == chain.seq == moved.tip_seq
    if body is not None and added and is_last and is_whole_at_first(chain, len(body)):
        unfolded = (Unfolded(added.seq, body, added.checksum, chain.nonce),)
    return KnownScope(moved, chain, alone, unfolded)


class Save(NamedTuple):
    """A save at its place in history: what is written, and what is known after it."""

    row: Row
    snapshot: tuple[Any, ...]  # the values of `add_snapshot`
    labels: list[tuple[str, str, int]]
    stored: BodyRow
    known: KnownScope


class Continued(NamedTuple):
    """A save that needs no question, but for its place in history.

    The rows `folded` take the places of some of `known.unfolded`, provided that all of those are
    unchanged. Tiny states gain nothing by it, so that there may be none.
    """

    known: KnownScope
    commit: Commit
    plan: Plan
    body: bytes | None
    step: Delta | None  # from the last body to this one, if that is known
    size: int
    form: int
    squeezed: tuple[int, bytes]
    payload_bytes: int
    offsets: AppendOffsets | None
    folded: list[BodyRow]

    def at(self, seq: int, saved_at: int) -> Save:
        now, row = self.commit.stamp.now, self.plan.row
        row = row._replace(seq=seq, saved_at=max(now, saved_at), size=self.size)
        scope, chain, _, unfolded, folds = self.known
        if self.known.is_fold_due:
            unfolded, folds = unfolded[-1:], folds + len(unfolded) - 1
            if folds >= FOLDED_MAX:
                unfolded, folds = (), 0  # the last of them stays whole
        if self.form == codec.WHOLE:
            stored = body_row(seq, None, self.squeezed, scope.cipher, (row.nonce,))
            sizes = [(len(stored.body), row.size)]
            new = chain_state_of(seq, row.nonce, row.size, sizes, self.offsets)
            is_small = row.kept and row.size <= WHOLE_BYTES_MAX
            whole = Unfolded(seq, self.squeezed[1], stored.checksum, row.nonce)
            unfolded = (*unfolded, whole) if is_small else ()
        else:
            nonces = (row.nonce, chain.written_by)
            stored = body_row(seq, chain.seq, self.squeezed, scope.cipher, nonces)
            new = chain.after_delta(seq, row.nonce, row.size, self.payload_bytes, self.offsets)
            unfolded = ()
        moved = moved_scope(scope, self.commit, self.plan, row, new).summed()
        values = snapshot_values(scope, row, scope.shown)
        left = KnownScope(moved, new, True, unfolded, folds if unfolded else 0)
        return Save(row, values, labels_of(scope, row), stored, left)


def continued(
    known: KnownScope, commit: Commit, prepared: PreparedDelta | None
) -> Continued | None:
    """Return a commit as such a save, or None if more has to be known for it."""
    scope, chain = known.scope, known.chain
    head = scope.shown
    if head is None or not head.kept or commit.id == head.id:
        return None
    if commit.replaces or commit.again or commit.source or commit.new_scope:
        return None
    current = ScopeState(head, scope.floor, scope.fence)
    given = commit.body if isinstance(commit.body, bytes) else None
    try:
        # The head is kept, and so is the parent: the newest kept snapshot need not be known.
        plan = commits.decide(commit, current, None, same_body=bool, newest_kept=lambda: None)
        found = _step(known, commit, current, prepared)
    except LimpetError:
        return None  # what is known may be out of date: only the storage refuses
    if found is None:
        return None
    step, size, offsets = found
    body = given
    if given is None and step is not None and known.last_body is not None:
        body = delta.apply(known.last_body, step)
    if body is not None and is_whole_at_first(chain, size):
        form, squeezed, payload_bytes = codec.WHOLE, codec.squeeze(body), 0
    elif step is None or looks_for_other_bases(commit, step):
        return None
    else:
        form, chosen, payload_bytes = next_form(chain, size, given, step)
        if chosen is None or (form == codec.WHOLE and chain.rows):
            return None  # a group ends: its members are read
        squeezed = chosen
    fold = folded(known.unfolded, scope.cipher) if known.is_fold_due else []
    how = (form, squeezed, payload_bytes, offsets, fold)
    return Continued(known, commit, plan, body, step, size, *how)


def _step(
    known: KnownScope, commit: Commit, current: ScopeState, prepared: PreparedDelta | None
) -> Step | None:
    """Return the step of a commit from the last body, as far as it is known."""
    body = commit.body
    if isinstance(body, Append):
        return append_unread(body, current, known.chain)
    if not isinstance(body, bytes):
        return None
    is_known = prepared is not None and prepared.known.nonce == known.chain.nonce
    step = prepared.step if prepared is not None and is_known else None
    return Step(step, len(body), commit.append_offsets)
