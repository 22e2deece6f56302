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
        self.makers: dict[int, Op] = {}

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

    def is_below(self, a: Snap, b: Snap) -> bool:
        """Return whether one snapshot is certainly below another in history.

        Nothing is promised of a history-only save and another one that overlap
        (docs/format.md, not promised: 10).
        """
        if a.seq >= b.seq:
            return False
        if a.aside or b.aside:
            first, second = self.makers.get(a.maker), self.makers.get(b.maker)
            return first is not None and second is not None and not first.overlaps(second)
        return True


class CommitItem(ScopeItem):
    """A save, an update, an append or a fork; `wipers` are the concurrent deletes of its scope."""

    def __init__(self, op: Op, key: int, facts: Facts, wipers: Sequence[Op]) -> None:
        super().__init__(op, key, facts)
        commit: Commit = op.given["commit"]
        self.commit = commit
        # An unknown name sorts below all that are minted.
        self.ids = facts.ids.get(commit.stamp.nonce) or (f"!{commit.stamp.nonce}",)
        self.id = commit.id or self.ids[0]
        # Of history-only saves only those that do not overlap others are compared (`checker`).
        self.minted = commit.id is None and commit.head and not self.id.startswith("!")
        # A save that overlaps a deletion of its scope may happen before it, and once more
        # after it (docs/format.md, not promised: 2).
        self.twice = any(op.overlaps(each) for each in wipers)

    def moves(self, state: State) -> Iterator[tuple[State, Move]]:
        """Yield the scope after the commit, or as it was if that is why it was refused."""
        op, commit = self.op, self.commit
        if commit.again and commit.stamp.nonce in state.applied:
            if self._shows(state, commit.stamp.nonce):
                yield state, Move.OVER
            return
        result = model.apply(state, commit, self.id, op.given["log"], self.key)
        if isinstance(result, Refusal):
            if op.outcome == result.error:
                yield state, Move.FREE
            return
        if self.twice and state.opened(self.key) is None and result.state is not state:
            before = model.apply(
                state, commit, commit.id or self.ids[-1], op.given["log"], self.key
            )
            if isinstance(before, Accepted):
                yield before.state.with_open(self.key, "once"), Move.GOES_ON
        if op.ok and not self._matches(state, result):
            return
        if op.ok or op.open_ended or self.ended:
            yield result.state, Move.OVER
            # Which of the two is newer is not promised either: a history-only save, or what a
            # concurrent deletion uncovers (docs/format.md, not promised: 10).
            uncovering = self.makers.get(state.uncovered_by)
            if result.snap.aside and uncovering is not None and uncovering.overlaps(op):
                yield result.state._replace(head=result.snap.seq), Move.OVER

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
        if sure and info.parent_id != snap.parent and not snap.aside:
            return False
        if result.state is not state and self.minted and snap.nonce == self.commit.stamp.nonce:
            return snap.id > state.floor
        return True


class LateItem(ScopeItem):
    """The creation of a head arrives late, after its scope was deleted: the save is seen again.

    Nothing keeps it from that without conditional deletes (docs/format.md, not promised: 4).
    """

    def __init__(self, op: Op, key: int, facts: Facts, wipers: Sequence[Op]) -> None:
        super().__init__(op, key, facts)
        self.begin = max(op.begin, min(wiper.begin for wiper in wipers))
        self.required = False

    def moves(self, state: State) -> Iterator[tuple[State, Move]]:
        """Yield the scope with the save alone, if there is nothing in it."""
        commit: Commit = self.op.given["commit"]
        for id in self.facts.ids.get(commit.stamp.nonce, ()) if state.empty else ():
            plain = commit._replace(expect=ANY, replaces=None, again=False)
            result = model.apply(state, plain, commit.id or id, self.op.given["log"], self.key)
            if isinstance(result, Accepted) and commit.replaces is None:
                yield result.state, Move.OVER


class DeleteItem(ScopeItem):
    """The deletion of one snapshot.

    One that spares the head may still delete what was not the head when it read it, and has become
    it since, because another one was deleted (docs/format.md, what is not promised).
    """

    def __init__(self, op: Op, key: int, facts: Facts, id: str) -> None:
        super().__init__(op, key, facts)
        self.id = id
        # Which part of it was refused is not known, and repeating it is harmless.
        self.required = op.ok
        alone = facts.exact and op.ok and len(op.given["ids"]) == 1
        self.count: int | None = op.answer.count if alone else None

    def moves(self, state: State) -> Iterator[tuple[State, Move]]:
        """Yield the scope without the snapshot."""
        spares = self.op.given["spare_head"]
        seen_meanwhile = state.opened(self.key)
        if spares and seen_meanwhile is None:
            yield state.with_open(self.key, self.observe(state, False)), Move.FREE_GOES_ON
            return
        snap, over = state.find(self.id), state.with_open(self.key, None)
        is_head = snap is not None and snap.seq == state.head
        if (snap is None or (is_head and spares)) and self.count in (None, 0):
            yield over, Move.OVER
        if (
            snap is not None
            and self.count in (None, 1)
            and (not (is_head and spares) or seen_meanwhile)
        ):
            after = over.without(snap)
            if not is_head:
                yield after, Move.OVER
                return
            for head in self._heads(after):
                yield after._replace(head=head, uncovered_by=self.key), Move.OVER

    def observe(self, state: State, payload: Any) -> Any:
        """Return whether the snapshot has been there, and not the head."""
        snap = state.find(self.id)
        return payload or (snap is not None and snap.seq != state.head)

    def _heads(self, state: State) -> list[int | None]:
        """Return which snapshots may be the newest kept one."""
        kept = list(model.visible(state))
        newest = [a for a in kept if not any(self.is_below(a, b) for b in kept)]
        return [snap.seq for snap in newest] or [None]


class WipeItem(ScopeItem):
    """The deletion of a scope, alone or with its session.

    It takes several steps, and saves that overlap it come before or after it (docs/format.md, not
    promised: 2): so it may empty the scope more than once, and must do so at least once.
    """

    def __init__(self, op: Op, key: int, facts: Facts) -> None:
        super().__init__(op, key, facts)
        self.required = op.ok or op.outcome == "Conflict"
        self.expect = op.given.get("expect", ANY)

    def moves(self, state: State) -> Iterator[tuple[State, Move]]:
        """Yield the empty scope, or the end of the deletion."""
        done = state.opened(self.key) is not None
        head = state.find(None)
        if self.op.outcome == "Conflict":
            if not model.at(self.expect, head):
                yield state, Move.FREE
            return
        if not done and not model.at(self.expect, head):
            return
        if not state.empty or not done:
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


class DroppedItem(ScopeItem):
    """A caller's id that is used again while its scope is deleted may be deleted with it.

    Its copy has the key of the old one; it goes when it is not the head any more
    (docs/format.md, not promised: 4).
    """

    def __init__(self, commit: "CommitItem", key: int, wiper: Op) -> None:
        super().__init__(commit.op, key, commit.facts)
        self.maker = commit.key
        self.begin = max(wiper.begin, commit.begin)
        self.required = False

    @property
    def end(self) -> int:
        """When it has happened, if it does: at any time."""
        return FOREVER

    def moves(self, state: State) -> Iterator[tuple[State, Move]]:
        """Yield the scope without the snapshot."""
        for snap in state.snaps:
            if snap.maker == self.maker and snap.seq != state.head:
                yield state.without(snap), Move.OVER


class ReadItem(ScopeItem):
    """One snapshot, or the head, as it was read. `seen` is None if there was none."""

    def __init__(
        self, op: Op, key: int, facts: Facts, id: str | None, seen: SnapshotInfo | None
    ) -> None:
        super().__init__(op, key, facts)
        self.id = id
        self.seen = seen
        self.log: tuple[str, ...] | None = None

    def moves(self, state: State) -> Iterator[tuple[State, Move]]:
        """Yield the same, if that is what was read."""
        if self._fits(state.find(self.id)):
            yield state, Move.FREE

    def _fits(self, snap: Snap | None) -> bool:
        if snap is None or self.seen is None:
            return snap is None and self.seen is None
        return shows(self.seen, snap) and self.log in (None, snap.log)


def shows(seen: SnapshotInfo, snap: Snap) -> bool:
    """Return whether the facts that were read are those of a snapshot."""
    return (
        seen.id == snap.id
        and nonce_of(seen.revision) == snap.nonce
        and seen.kept == snap.kept
        and (not seen.labels) == (snap.labels == b"{}")
        and (not seen.labels or snap.has(tuple(seen.labels.items())))
    )
