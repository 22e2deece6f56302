"""What a scope is, without any storage: the meaning against which a history is checked.

Written independently of the product, so that both would have to be wrong in the same way.
"""

from collections.abc import Hashable, Iterator
from typing import NamedTuple

from limpet.core import codec
from limpet.model import ANY, HEAD, Expect
from limpet.protocol import Append, Commit, Copy
from simulation.client import log_of
from simulation.history import nonce_of


class Snap(NamedTuple):
    """A snapshot."""

    id: str
    seq: int
    nonce: str
    log: tuple[str, ...]
    kept: bool
    labels: bytes
    parent: str | None  # "" where the model is not sure

    def has(self, labels: tuple[tuple[str, str], ...]) -> bool:
        """Return whether all these labels are there."""
        mine = codec.decode(self.labels)
        return all(mine.get(name) == value for name, value in labels)


class Noted(NamedTuple):
    """A note, and the nonce of its write."""

    on: str | None
    name: str
    nonce: str
    value: str


class State(NamedTuple):
    """A scope at one moment, and in `open` what goes on in it for longer than a moment."""

    snaps: tuple[Snap, ...] = ()
    notes: frozenset[Noted] = frozenset()
    fence: str | None = None
    head: int | None = None
    last_seq: int = 0
    floor: str = ""
    applied: frozenset[str] = frozenset()
    open: tuple[tuple[int, Hashable], ...] = ()

    def find(self, id: str | None) -> Snap | None:
        """Return a snapshot by its id, or the head."""
        for snap in self.snaps:
            if snap.seq == self.head if id is None else snap.id == id:
                return snap
        return None

    @property
    def empty(self) -> bool:
        """Whether it holds no snapshot, no note and no lease."""
        return not self.snaps and not self.notes and self.fence is None

    def note(self, on: str | None, name: str) -> Noted | None:
        """Return a note."""
        return next((each for each in self.notes if (each.on, each.name) == (on, name)), None)

    def with_note(self, on: str | None, name: str, *made: Noted) -> "State":
        """Return the scope with another note in the place of one, or without it."""
        left = (each for each in self.notes if (each.on, each.name) != (on, name))
        return self._replace(notes=frozenset((*left, *made)))

    def opened(self, key: int) -> Hashable:
        """Return what an item has noted for itself, None if nothing."""
        return next((payload for number, payload in self.open if number == key), None)

    def with_open(self, key: int, payload: Hashable) -> "State":
        """Return the state in which an item has noted something for itself; None: no longer."""
        rest = [entry for entry in self.open if entry[0] != key]
        if payload is not None:
            rest.append((key, payload))
        return self._replace(open=tuple(sorted(rest, key=lambda entry: entry[0])))

    def wiped(self) -> "State":
        """Return the scope after it was deleted: not even what was minted is remembered."""
        return State(last_seq=self.last_seq, open=self.open)

    def without(self, snap: Snap) -> "State":
        """Return the scope without a snapshot; the newest kept one becomes the head if need be."""
        snaps = tuple(each for each in self.snaps if each is not snap)
        head = self.head
        if head == snap.seq:
            head = max((each.seq for each in snaps if each.kept), default=None)
        return self._replace(snaps=snaps, head=head)


class Refusal(NamedTuple):
    """A commit that the scope refuses, by the name of the error class."""

    error: str


class Accepted(NamedTuple):
    """A commit that succeeds: what it shows, and the scope after it."""

    snap: Snap
    state: State


def apply(state: State, commit: Commit, id: str, log: tuple[str, ...]) -> Accepted | Refusal:
    """Return what a commit does to a scope. `id` is the one that it has, given or minted."""
    if commit.new_scope and not state.empty:
        return Refusal("AlreadyExists")
    if commit.fence not in (None, state.fence):
        return Refusal("Conflict")
    existing = None if commit.id is None else state.find(commit.id)
    if commit.replaces is not None:
        if existing is None:
            return Refusal("NotFound")
        if existing.nonce != nonce_of(commit.replaces):
            return Refusal("Conflict")
        return _replaced(state, commit, existing, log)
    if existing is not None:
        same = _same(commit, existing)
        if same and (existing.kept or not commit.keep):
            return Accepted(existing, state)
        if not same and not commit.overwrite:
            return Refusal("AlreadyExists")
    if not at(commit.expect, state.find(None)):
        return Refusal("Conflict")
    if existing is not None:
        return _replaced(state, commit, existing, log)
    return _inserted(state, commit, id, log)


def at(expect: Expect, head: Snap | None) -> bool:
    """Return whether the head is the one that is expected."""
    if expect is ANY:
        return True
    return head is None if expect is None else head is not None and head.nonce == nonce_of(expect)


def _same(commit: Commit, snap: Snap) -> bool:
    return (
        isinstance(commit.body, bytes)
        and log_of(commit.body) == snap.log
        and commit.labels == snap.labels
        and (commit.parent is HEAD or commit.parent == snap.parent)
    )


def _log(state: State, commit: Commit, log: tuple[str, ...]) -> tuple[str, ...]:
    match commit.body:
        case Append(items=items):
            head = state.find(None)
            return (() if head is None else head.log) + tuple(codec.decode(items))
        case Copy():
            return log
    return log_of(commit.body)


def _replaced(state: State, commit: Commit, existing: Snap, log: tuple[str, ...]) -> Accepted:
    snap = existing._replace(
        nonce=commit.stamp.nonce,
        log=_log(state, commit, log),
        labels=commit.labels,
        kept=existing.kept or (commit.keep and commit.replaces is None),
        parent=existing.parent if commit.parent is HEAD else commit.parent,
    )
    snaps = tuple(snap if each is existing else each for each in state.snaps)
    applied = state.applied | {commit.stamp.nonce}
    return Accepted(snap, state._replace(snaps=snaps, applied=applied))


def _inserted(state: State, commit: Commit, id: str, log: tuple[str, ...]) -> Accepted:
    head = state.find(None)
    seq = state.last_seq + 1
    parent = commit.parent
    if parent is HEAD:
        parent = _default_parent(state, head, id)
    snap = Snap(
        id=id,
        seq=seq,
        nonce=commit.stamp.nonce,
        log=_log(state, commit, log),
        kept=commit.keep,
        labels=commit.labels,
        parent=parent,
    )
    kept = state.snaps
    if commit.head:
        kept = tuple(each for each in kept if each.kept or each.seq != state.head)
    after = state._replace(
        snaps=(*kept, snap),
        head=seq if commit.head else state.head,
        last_seq=seq,
        floor=max(state.floor, id) if commit.id is None else state.floor,
        applied=state.applied | {commit.stamp.nonce},
    )
    return Accepted(snap, after)


def _default_parent(state: State, head: Snap | None, id: str) -> str | None:
    """Return the parent of a snapshot whose caller named none, "" where it depends on more."""
    if head is None:
        return None if state.empty else ""
    named = head.id if head.kept else head.parent
    return named if named and named != id else ""


def visible(state: State) -> Iterator[Snap]:
    """Yield the snapshots in history, the last saved first."""
    return (snap for snap in reversed(state.snaps) if snap.kept)
