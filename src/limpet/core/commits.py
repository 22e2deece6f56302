"""The rules of a commit and of a lease, without the storage.

An engine reads what the rules need, calls `decide`, and carries out the plan in the same atomic
step. All engines agree because the rules are here.
"""

from collections.abc import Callable
from typing import NamedTuple

from limpet.core import codec, ids
from limpet.core.rows import Row, pack_ref
from limpet.errors import AlreadyExists, Conflict, InvalidInput, NotFound
from limpet.model import ANY, HEAD, Expect, ScopeKey
from limpet.protocol import Append, AppendOffsets, Claim, Commit, Hold


def default_parent(
    own_id: str | None, head: Row | None, newest_kept: Callable[[], str | None]
) -> str | None:
    """Return the parent of a new snapshot for which the caller named none.

    It is always a kept one: the head if it is kept; else the parent of the draft that is the head;
    else the newest kept snapshot of the scope. It is never the snapshot itself: a draft may have a
    parent that was deleted and is now saved again.
    """
    if head is not None:
        named = head.id if head.kept else head.parent_id
        if named is not None and named != own_id:
            return named
    newest = newest_kept()
    return None if newest == own_id else newest


class ScopeState(NamedTuple):
    """What an engine knows about a scope when it commits.

    A minted id must be greater than `floor`, and carries the tag of `line`. `taken`: the
    scope holds a snapshot, a note or a lease.
    """

    head: Row | None = None
    floor: str = ""
    fence: str | None = None
    next_seq: int = 1
    next_saved_at: int = 0
    taken: bool = False
    line: int | None = None


class Plan(NamedTuple):
    """What a commit writes.

    Attributes:
        row: its snapshot. The size is that of the state given, and 0 if the engine makes the state.
        replaces: the row whose place it takes; the same row if the commit is stored already.
        covers: the draft that was the head, and goes.
        floor: the greatest id minted in the scope after it.
    """

    row: Row
    replaces: Row | None
    covers: Row | None
    floor: str

    @property
    def is_stored(self) -> bool:
        return self.row is self.replaces


def decide(
    commit: Commit,
    scope: ScopeState,
    existing: Row | None,
    *,
    source: Row | None = None,
    same_body: Callable[[], bool],
    newest_kept: Callable[[], str | None],
) -> Plan:
    """Return what a commit writes, or raise the error for which it is refused.

    `existing` is the snapshot with the commit's id, `source` the one that a fork begins at.
    `same_body` is called only if everything else about `existing` equals the commit, `newest_kept`
    only if the parent depends on it.
    """
    check_source(commit, source)
    is_stored = _is_stored(commit, scope, existing, same_body)
    size = len(commit.body) if isinstance(commit.body, bytes) else 0
    if existing is not None:
        row = existing if is_stored else replaced_row(commit, existing, size=size)
        return Plan(row, existing, None, scope.floor)
    row = new_row(commit, scope, size=size, newest_kept=newest_kept)
    head = scope.head
    covers = head if commit.head and head is not None and not head.kept else None
    return Plan(row, None, covers, scope.floor if commit.id is not None else row.id)


def _is_stored(
    commit: Commit, scope: ScopeState, existing: Row | None, same_body: Callable[[], bool]
) -> bool:
    """Return whether a commit is stored already, or raise the error for which it is refused."""
    if commit.new_scope and scope.taken:
        raise AlreadyExists(
            f"the scope exists already: choose another scope_id. {_where(commit.scope)}",
            scope=commit.scope,
        )
    if commit.replaces is not None:
        check_fence(commit.fence, scope.fence, commit.scope)
        if existing is None:
            raise _missing(commit.scope, commit.id)
        if existing.revision != commit.replaces:
            raise _changed(commit.scope, commit.id, commit.replaces, existing.revision)
        return False
    if existing is not None:
        same = _same_facts(commit, existing) and same_body()
        # A draft that is saved again with keep=True is not a repetition: it is promoted in place.
        if same and (existing.kept or not commit.keep):
            return True
        if not same and not commit.overwrite:
            where = _where(commit.scope, commit.id)
            message = f"this id has another body: choose another, or give overwrite=True. {where}"
            raise AlreadyExists(message, scope=commit.scope, id=commit.id)
    check_fence(commit.fence, scope.fence, commit.scope)
    check_expect(commit.expect, scope.head, commit.scope)
    return False


def needs_head(commit: Commit) -> bool:
    """Return whether a commit is impossible while the head cannot be read."""
    if commit.past_damage:
        return False
    return commit.head or commit.expect is not ANY or commit.fence is not None


def check_fence(fence: str | None, found: str | None, scope: ScopeKey) -> None:
    if fence is not None and fence != found:
        raise Conflict(
            f"the lease was lost: another owner may hold it. {_where(scope)}", scope=scope
        )


def check_source(commit: Commit, found: Row | None) -> None:
    if commit.source is None or commit.forked_from is None:
        return
    if found is None:
        raise _missing(*commit.forked_from)
    if found.revision != commit.source:
        raise _changed(*commit.forked_from, commit.source, found.revision)


def _missing(scope: ScopeKey, id: str | None) -> NotFound:
    return NotFound(
        f"there is no such snapshot: history() lists what there is. {_where(scope, id)}",
        scope=scope,
        id=id,
    )


def _changed(scope: ScopeKey, id: str | None, expected: str, found: str) -> Conflict:
    message = f"the snapshot has changed. {_where(scope, id)}"
    return Conflict(message, scope=scope, id=id, expected=expected, found=found)


def check_expect(expect: Expect, head: Row | None, scope: ScopeKey) -> None:
    if expect is ANY:
        return
    found = None if head is None else head.revision
    if found != expect:
        raise Conflict(
            "the head has moved: load it, and try again. "
            f"{_where(scope)} expect=`{expect}` found=`{found}`",
            scope=scope,
            expected=expect,
            found=found,
        )


def _same_facts(commit: Commit, row: Row) -> bool:
    return (
        commit.status == row.status
        and commit.labels == row.labels
        and commit.metadata == row.metadata
        and (commit.parent is HEAD or commit.parent == row.parent_id)
    )


def _where(scope: ScopeKey, snapshot_id: str | None = None) -> str:
    named = "" if snapshot_id is None else f" id=`{snapshot_id}`"
    return f"session=`{scope.session_id}` scope=`{scope.scope_id}` kind=`{scope.kind}`{named}"


def new_row(
    commit: Commit, scope: ScopeState, *, size: int, newest_kept: Callable[[], str | None]
) -> Row:
    """Return the row of a new snapshot; `newest_kept` is called only if its parent needs it."""
    parent_id = commit.parent
    if parent_id is HEAD:
        parent_id = default_parent(commit.id, scope.head, newest_kept)
    now, nonce, bits = commit.stamp
    return Row(
        seq=scope.next_seq,
        id=commit.id if commit.id is not None else ids.mint(now, bits, scope.floor, scope.line),
        rev=0,
        nonce=nonce,
        kept=commit.keep,
        parent_id=parent_id,
        forked_from=pack_ref(commit.forked_from),
        status=_status(commit, scope.head),
        labels=commit.labels,
        metadata=commit.metadata,
        created_at=now if commit.created_at is None else commit.created_at,
        updated_at=now,
        saved_at=max(now, scope.next_saved_at),
        size=size,
    )


def replaced_row(commit: Commit, existing: Row, *, size: int) -> Row:
    """Return the row of a new version, with the old `seq` and `created_at`. Kept stays kept."""
    return existing._replace(
        rev=existing.rev + 1,
        nonce=commit.stamp.nonce,
        kept=bool(existing.kept) or (commit.keep and commit.replaces is None),
        parent_id=existing.parent_id if commit.parent is HEAD else commit.parent,
        forked_from=pack_ref(commit.forked_from) or existing.forked_from,
        status=_status(commit, existing),
        labels=commit.labels,
        metadata=commit.metadata,
        updated_at=commit.stamp.now,
        size=size,
    )


def _status(commit: Commit, before: Row | None) -> str:
    if commit.status is not None:
        return commit.status
    return "" if before is None else before.status


def appended(append: Append, head_body: bytes | None) -> tuple[bytes, AppendOffsets | None]:
    """Return the head's state with the items appended, encoded, and its append offsets.

    Raises:
        InvalidInput: the state is not an object, the value not a list, or the result too large.
    """
    state = {} if head_body is None else codec.decode(head_body)
    if not isinstance(state, dict):
        raise InvalidInput(f"the state of the head is not an object. type=`{type(state).__name__}`")
    current = state.setdefault(append.key, [])
    if not isinstance(current, list):
        raise InvalidInput(
            f"the value is not a list. key=`{append.key}` type=`{type(current).__name__}`"
        )
    current.extend(codec.decode(append.items))
    encoded, offsets = codec.encode_state(state)
    check_size(len(encoded), append)
    return encoded, offsets


def check_size(size: int, append: Append) -> None:
    if size > append.state_bytes_max:
        raise InvalidInput(f"the state is too large. bytes=`{size}` max=`{append.state_bytes_max}`")


# Leases


class LeaseRow(NamedTuple):
    """A lease as SQL engines store it; `until` is in microseconds of the engine's clock."""

    key: str
    owner: str
    until: int

    def hold(self, now: int) -> Hold:
        return Hold(self.key, self.owner, self.until - now)


def claimed(claim: Claim, found: LeaseRow | None, now: int) -> LeaseRow:
    """Return the lease after a claim: that of the claim, or another one that has not expired."""
    if found is not None and found.key != claim.key and found.until > now:
        return found
    return LeaseRow(claim.key, claim.owner, now + claim.ttl_us)


def renewed(claim: Claim, found: LeaseRow | None, now: int) -> LeaseRow:
    """Return the extended lease, or raise Conflict if it is not held any more."""
    check_fence(claim.key, None if found is None else found.key, claim.scope)
    return LeaseRow(claim.key, claim.owner, now + claim.ttl_us)
