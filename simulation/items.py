"""The operations on one scope as the search takes them."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from limpet.model import ANY, SnapshotInfo
from limpet.protocol import Commit
from simulation import model
from simulation.history import FOREVER, Op, nonce_of
from simulation.model import Accepted, Refusal, Snap, State
from simulation.search import Move


class Facts(NamedTuple):
    """What is known of a whole run.

    `ids` are the ids by the nonce of the write that made them, `acks` when a write was first
    acknowledged. `late` says that a call without an answer may still happen later; `exact`, that
    nothing goes wrong, so that counts are exact too.
    """

    ids: dict[str, tuple[str, ...]]
    acks: dict[str, int]
    late: bool
    exact: bool


class ScopeItem:
    """What all have in common."""

    def __init__(self, op: Op, key: int, facts: Facts) -> None:
        self.op = op
        self.key = key
        self.facts = facts
        self.begin = op.begin
        self.required = not op.open_ended
        self.ended = False  # whatever the answer, it may have happened until then

    @property
    def end(self) -> int:
        """When it has happened, if it does; a call without an answer may still arrive."""
        answered = self.required or self.ended
        return self.op.end if answered or not self.facts.late else FOREVER

    def moves(self, state: State) -> Iterator[tuple[State, Move]]:
        """Yield what may come of it."""
        raise NotImplementedError

    def observe(self, state: State, payload: Any) -> Any:
        """Return what the item notes for itself when the scope has changed."""
        return payload


class RepeatedItem(ScopeItem):
    """A change of a scope; `wipers` are the deletions of the scope.

    If its answer was lost and it overlaps one of them, it may happen before that, and once more
    after it (docs/format.md, not promised: 2).
    """

    def __init__(self, op: Op, key: int, facts: Facts, wipers: Sequence[Op]) -> None:
        super().__init__(op, key, facts)
        self.twice = not facts.exact and any(op.overlaps(each) for each in wipers)

    def moves(self, state: State) -> Iterator[tuple[State, Move]]:
        """Yield the scope after it, or as it was if that is why it was refused."""
        if self.twice and state.opened(self.key) is None:
            for first in self.applied(state):
                if first is not state:
                    yield first.with_open(self.key, "once"), Move.GOES_ON
        yield from self.once(state)

    def applied(self, state: State) -> Iterator[State]:
        """Yield the scope after it, whatever the answer; nothing if it is refused."""
        raise NotImplementedError

    def once(self, state: State) -> Iterator[tuple[State, Move]]:
        """Yield what may come of it, given its answer."""
        raise NotImplementedError

    def begun(self, state: State) -> Iterator[State]:
        """Yield an empty scope that begins with it."""
        return self.applied(state)


class CommitItem(RepeatedItem):
    """A save, an update, an append or a fork."""

    def __init__(self, op: Op, key: int, facts: Facts, wipers: Sequence[Op]) -> None:
        super().__init__(op, key, facts, wipers)
        commit: Commit = op.given["commit"]
        self.commit = commit
        # An unknown name sorts below all that are minted.
        self.ids = facts.ids.get(commit.stamp.nonce) or (f"!{commit.stamp.nonce}",)
        self.id = commit.id or self.ids[0]
        self.minted = commit.id is None and not self.id.startswith("!")

    def applied(self, state: State) -> Iterator[State]:
        commit, nonce = self.commit, self.commit.stamp.nonce
        if not commit.again or nonce not in state.applied:
            # Nobody needs to have seen it under the id that it had before the deletion.
            for id in dict.fromkeys((commit.id or self.ids[-1], commit.id or f"!{nonce}")):
                result = model.apply(state, commit, id, self.op.given["log"])
                if isinstance(result, Accepted):
                    yield result.state

    def once(self, state: State) -> Iterator[tuple[State, Move]]:
        op, commit = self.op, self.commit
        if commit.again and commit.stamp.nonce in state.applied:
            if self._shows(state, commit.stamp.nonce):
                yield state, Move.OVER
            return
        result = model.apply(state, commit, self.id, op.given["log"])
        if isinstance(result, Refusal):
            if op.outcome == result.error:
                yield state, Move.FREE
        elif (op.open_ended or self.ended) if not op.ok else self._matches(state, result):
            yield result.state, Move.OVER

    def begun(self, state: State) -> Iterator[State]:
        commit = self.commit
        if commit.replaces is None:
            for id in self.facts.ids.get(commit.stamp.nonce, ()):
                plain = commit._replace(expect=ANY, again=False)
                result = model.apply(state, plain, commit.id or id, self.op.given["log"])
                if isinstance(result, Accepted):
                    yield result.state

    def _shows(self, state: State, nonce: str) -> bool:
        """Return whether a commit that is repeated (`again`) is answered as it must be.

        It is not applied again, whatever has become of it since, and it is never answered with the
        revision of another write: who goes on from that overwrites what it has not seen.
        """
        if self.op.ok:
            info: SnapshotInfo = self.op.answer
            return info.id == self.id and nonce_of(info.revision) == nonce
        return self.op.outcome != "refused"

    def _matches(self, state: State, result: Accepted) -> bool:
        info: SnapshotInfo = self.op.answer
        snap = result.snap
        if (info.id, nonce_of(info.revision), info.kept) != (snap.id, snap.nonce, snap.kept):
            return False
        # An id that begins with `!` was never seen by anybody.
        sure = snap.parent is None or (snap.parent != "" and not snap.parent.startswith("!"))
        if sure and info.parent_id != snap.parent:
            return False
        if result.state is not state and self.minted and snap.nonce == self.commit.stamp.nonce:
            return snap.id > state.floor
        return True


class LateItem(ScopeItem):
    """The creation of a head arrives late, after its scope was deleted: the change is seen again.

    Nothing keeps it from that without conditional deletes (docs/format.md, not promised: 4).
    """

    def __init__(self, late: RepeatedItem, key: int, wipers: Sequence[Op]) -> None:
        super().__init__(late.op, key, late.facts)
        self.late = late
        self.begin = max(late.begin, min(wiper.begin for wiper in wipers))
        self.required = False

    def moves(self, state: State) -> Iterator[tuple[State, Move]]:
        """Yield the scope with the change alone, if there is nothing in it."""
        if state.empty:
            yield from ((begun, Move.OVER) for begun in self.late.begun(state))


class DeleteItem(RepeatedItem):
    """The deletion of some snapshots and of the notes on them, as one step."""

    def applied(self, state: State) -> Iterator[State]:
        ids = {*self.op.given["ids"]}
        head = state.find(None)
        if self.op.given["spare_head"] and head is not None:
            ids.discard(head.id)
        for snap in state.snaps:
            if snap.id in ids:
                state = state.without(snap)
        yield state._replace(notes=frozenset(each for each in state.notes if each.on not in ids))

    def once(self, state: State) -> Iterator[tuple[State, Move]]:
        (after,) = self.applied(state)
        if not self.op.ok or self.op.answer.count == len(state.snaps) - len(after.snaps):
            yield after, Move.OVER


class ClearItem(ScopeItem):
    """The deletion of a scope that must show what was expected, as one step."""

    def moves(self, state: State) -> Iterator[tuple[State, Move]]:
        """Yield the empty scope, or as it was if that is why it was refused."""
        op = self.op
        if op.ok and state.empty and not self.facts.exact:
            yield state, Move.OVER  # its answer was lost, and another one has deleted the scope
        if not model.at(op.given["expect"], state.find(None)):
            if op.outcome == "Conflict":
                yield state, Move.FREE
        elif op.open_ended or (op.ok and op.answer == len(state.snaps)):
            yield state.wiped(), Move.OVER


class WipeItem(ScopeItem):
    """The deletion of a scope, alone or with its session.

    It takes several steps, and saves that overlap it come before or after it (docs/format.md, not
    promised: 2): so it may empty the scope more than once, and must do so at least once.
    """

    def __init__(self, op: Op, key: int, facts: Facts) -> None:
        super().__init__(op, key, facts)
        self.required = op.ok

    def moves(self, state: State) -> Iterator[tuple[State, Move]]:
        """Yield the empty scope, or the end of the deletion."""
        done = state.opened(self.key) is not None
        if not done or state != state.wiped():  # also what an empty one has minted goes
            yield state.wiped().with_open(self.key, "wiped"), Move.GOES_ON
        if done and self.required:
            yield state.with_open(self.key, None), Move.OVER


class SourceItem(ScopeItem):
    """What a fork says of its source: it was at the revision that was asked for, or was not.

    The fork reads its source and then commits, in another scope: both need not be one moment, as
    long as the source's scope is not deleted in between (which `checker` asks of the whole record).
    """

    def moves(self, state: State) -> Iterator[tuple[State, Move]]:
        """Yield the same, if the source was as the fork says."""
        commit: Commit = self.op.given["commit"]
        snap = state.find(None if commit.forked_from is None else commit.forked_from.id)
        same = snap is not None and snap.nonce == nonce_of(commit.source or "")
        if (snap is None) if self.op.outcome == "NotFound" else (same == self.op.ok):
            yield state, Move.FREE


class VanishItem(ScopeItem):
    """A fork without an answer is seen as long as its source lives, and not after that.

    Its head still names the line of its source (docs/format.md, how a commit is made: a fork).
    """

    def __init__(self, op: Op, key: int, facts: Facts, wiper: Op) -> None:
        super().__init__(op, key, facts)
        self.begin = wiper.begin
        self.required = False

    @property
    def end(self) -> int:
        """When it has happened, if it does: at any time."""
        return FOREVER

    def moves(self, state: State) -> Iterator[tuple[State, Move]]:
        """Yield the scope without the fork, as long as there is nothing else in it."""
        commit: Commit = self.op.given["commit"]
        if [snap.nonce for snap in state.snaps] == [commit.stamp.nonce]:
            yield state.wiped(), Move.OVER


class ReadItem(ScopeItem):
    """Snapshots by id, or the head, as they were read: `seen`, with their logs if they were."""

    def __init__(
        self,
        op: Op,
        key: int,
        facts: Facts,
        seen: Sequence[tuple[SnapshotInfo, tuple[str, ...] | None]],
    ) -> None:
        super().__init__(op, key, facts)
        self.ids = op.given["ids"]
        self.seen = seen

    def moves(self, state: State) -> Iterator[tuple[State, Move]]:
        """Yield the same, if that is what was read."""
        there = [snap for snap in map(state.find, self.ids) if snap is not None]
        if len(there) == len(self.seen) and all(
            shows(info, snap) and log in (None, snap.log)
            for (info, log), snap in zip(self.seen, there, strict=True)
        ):
            yield state, Move.FREE


def shows(seen: SnapshotInfo, snap: Snap) -> bool:
    """Return whether the facts that were read are those of a snapshot."""
    return (
        seen.id == snap.id
        and nonce_of(seen.revision) == snap.nonce
        and seen.kept == snap.kept
        and (not seen.labels) == (snap.labels == b"{}")
        and (not seen.labels or snap.has(tuple(seen.labels.items())))
    )
