"""Segments: the immutable part of a scope's history, in one format for every storage.

A segment is `[[bytes, newest seq, oldest seq, count], …]` and a newline, then as many frames, the
newest snapshots first. A frame is compressed with zstd and holds `[kind, seqs, lengths]`, a newline
and the payloads; the first of the seqs is a number, the others are how much smaller each is than
the one before.

- WHOLE: states, one after the other.
- DELTAS: each leads from the state before it, in the segment, to its own.
- JUMP: the same, and one more at the end that leads over the whole frame at once.

The first frame is WHOLE, so the newest state needs no delta. A reader of an old state skips frames
by their jumps. Small states are compressed together, which finds what they share.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from operator import sub
from typing import NamedTuple

import orjson

from limpet.core import codec
from limpet.core.deltas import delta
from limpet.core.deltas.delta import Delta, Draft, Splices, flatten
from limpet.core.limits import KIB, STORED_BYTES_MAX
from limpet.errors import Corrupt

WHOLE, DELTAS, JUMP = 0, 1, 2
SMALL_BYTES = 4 * KIB  # states up to this size are not compared: zstd finds what they share
_LEVEL = 3
_FRAME_DELTAS = 16
_JUMP_MIN = 8  # deltas that are worth one that leads over all of them
_JUMP_SLICES_MAX = 2048
_JUMP_BYTES_MORE = 4 * KIB
_SPLICED_MIN = 32 * KIB  # bytes of a state that is cheaper to splice than to copy for each delta
_SLICES_MAX = 512

Item = tuple[int, bytes]
"""A seq and its state."""


class Frame(NamedTuple):
    """A compressed frame, and which snapshots it holds."""

    data: bytes
    newest: int
    oldest: int
    length: int  # how many


class _Opened(NamedTuple):
    kind: int
    seqs: list[int]
    payloads: list[bytes]  # one more than seqs if it is a JUMP
    size: int

    @property
    def leap(self) -> list[bytes]:
        """The fewest payloads that lead to the oldest state of the frame."""
        return self.payloads if self.kind == DELTAS else self.payloads[-1:]


class Segment:
    """A segment; each frame is decompressed at most once. Threads may read it at the same time."""

    def __init__(self, frames: Iterable[Frame] = ()) -> None:
        self.frames = list(frames)
        self._opened: dict[int, _Opened] = {}

    @classmethod
    def parse(cls, blob: bytes) -> "Segment":
        """Return what `dump` was given, or raise Corrupt."""
        end = blob.find(b"\n")
        try:
            heads = orjson.loads(blob[:end])
            ends = list(accumulate((head[0] for head in heads), initial=end + 1))
            if not heads or ends[-1] != len(blob) or min(map(min, heads)) < 0:
                raise ValueError
            return cls(
                Frame(blob[at : at + size], newest, oldest, count)
                for at, (size, newest, oldest, count) in zip(ends, heads, strict=False)
            )
        except (ValueError, TypeError, IndexError) as cause:
            raise _malformed() from cause

    def dump(self) -> bytes:
        heads = [(len(each.data), *each[1:]) for each in self.frames]
        return b"%b\n%b" % (orjson.dumps(heads), b"".join(each.data for each in self.frames))

    @property
    def newest_seq(self) -> int:
        return self.frames[0].newest

    @property
    def oldest_seq(self) -> int:
        return self.frames[-1].oldest

    @property
    def count(self) -> int:
        return sum(each.length for each in self.frames)

    @property
    def seqs(self) -> list[int]:
        """The seqs of all its states, the newest first."""
        return [seq for at in range(len(self.frames)) for seq in self._open(at).seqs]

    def sizes(self) -> dict[int, int]:
        """Return the size of each of its states by seq, which makes none of them."""
        found = dict[int, int]()
        for at in range(len(self.frames)):
            kind, seqs, payloads, _ = self._open(at)
            for seq, each in zip(seqs, payloads, strict=False):
                found[seq] = len(each) if kind == WHOLE else delta.size_of(delta.parse(each))
        return found

    @property
    def delta_bytes(self) -> int:
        """How much its frames take without the first."""
        return sum(len(each.data) for each in self.frames[1:])

    @property
    def cost(self) -> int:
        """What it takes in memory, about, with the frames that were read."""
        opened = list(self._opened.values())  # at once: threads may read it
        return sum(len(each.data) for each in self.frames) + sum(each.size for each in opened)

    def holds(self, seq: int) -> bool:
        here = [at for at, frame in enumerate(self.frames) if _held(frame, [seq])]
        return any(seq in self._open(at).seqs for at in here)

    def newest(self) -> bytes:
        return self._open(0).payloads[0]

    def state(self, wanted: int) -> bytes:
        return self.states([wanted])[wanted]

    def states(self, wanted: Collection[int]) -> dict[int, bytes]:
        """Return some states by seq, or raise Corrupt; only the frames down to them are read."""
        found, base, steps = dict[int, bytes](), b"", list[Delta]()
        for at, frame in enumerate(self.frames):
            opened = self._open(at)
            here = _held(frame, wanted)
            each = zip(opened.seqs, opened.payloads, strict=False)
            for seq, payload in each if here else ((0, payload) for payload in opened.leap):
                if opened.kind == WHOLE:
                    base, steps = payload, []
                else:
                    steps.append(delta.parse(payload))
                if seq in wanted:
                    base, steps = apply_all(base, steps), []
                    found[seq] = base
            if len(found) == len(wanted):
                return found
        raise Corrupt("a state is missing in its segment")

    def _walk(self, at: int, before: bytes) -> list[Item]:
        """Return the states of a frame, given the one before it."""
        opened, found = self._open(at), list[Item]()
        for seq, payload in zip(opened.seqs, opened.payloads, strict=False):
            is_whole = opened.kind == WHOLE
            before = payload if is_whole else apply_all(before, [delta.parse(payload)])
            found.append((seq, before))
        return found

    def _open(self, at: int) -> _Opened:
        found = self._opened.get(at)
        if found is None:
            found = self._opened[at] = _parsed(self.frames[at])
        return found

    def _add(self, kind: int, seqs: Sequence[int], payloads: Sequence[bytes]) -> None:
        if not seqs:
            return
        gaps = [seqs[0], *map(sub, seqs[:-1], seqs[1:])]
        head = orjson.dumps((kind, gaps, [len(each) for each in payloads]))
        data = codec.compress(b"%b\n%b" % (head, b"".join(payloads)), _LEVEL)
        self.frames.append(Frame(data, seqs[0], seqs[-1], len(seqs)))

    def _add_deltas(self, size: int, steps: Sequence[tuple[int, Delta]]) -> int:
        """Add a frame of deltas behind a state of some size; return the size of its oldest state.

        The jump is composed of them. It repeats their bytes, so it costs little in the same frame.
        """
        seqs = [seq for seq, _ in steps]
        payloads = [delta.dump(step) for _, step in steps]
        text, sources = Splices.whole(0, size), [b""]
        for _, step in steps:
            text = text.changed(step.ops, len(sources))
            sources.append(step.literal)
        if len(steps) >= _JUMP_MIN and len(text.ends) <= _JUMP_SLICES_MAX:
            jump = delta.dump(flatten(text, sources))
            if len(jump) <= sum(map(len, payloads)) + _JUMP_BYTES_MORE:
                self._add(JUMP, seqs, [*payloads, jump])
                return len(text)
        self._add(DELTAS, seqs, payloads)
        return len(text)


def pack(items: Sequence[Item], older: Segment | None = None) -> Segment:
    """Return a segment of small states, the newest first, and behind them those of `older`."""
    made = Segment()
    made._add(WHOLE, [seq for seq, _ in items], [state for _, state in items])
    made.frames += () if older is None else older.frames
    return made


def chain(newest: Item, steps: Sequence[tuple[int, Delta]], older: Segment | None) -> Segment:
    """Return a segment of a state, and of deltas from each state to the one before it.

    With `older`, the last of them leads to its newest state, which is then no longer stored whole.
    """
    made = Segment()
    made._add(WHOLE, [newest[0]], [newest[1]])
    size = len(newest[1])
    for at in range(0, len(steps), _FRAME_DELTAS):
        size = made._add_deltas(size, steps[at : at + _FRAME_DELTAS])
    if older is not None:
        first = older._open(0)
        made._add(WHOLE, first.seqs[1:], first.payloads[1:])
        made.frames += older.frames[1:]
    return made


def edit(
    segment: Segment, dropped: Collection[int], replaced: Mapping[int, bytes]
) -> Segment | None:
    """Return a segment without some states, and with others replaced; None if nothing is left.

    Only the frames concerned are written again, and in them only the deltas next to what changed.
    Frames of which everything goes are cut off the old end unread: nothing builds on them.
    """
    touched = {*dropped, *replaced}
    frames = list(segment.frames)
    while frames and _goes(frames[-1], dropped):
        frames.pop()
    concerned = [at for at, frame in enumerate(frames) if _held(frame, touched)]
    if not concerned:
        return Segment(frames) if frames else None
    start, stop = concerned[0], concerned[-1] + 1
    if stop < len(frames) and frames[stop - 1].oldest in touched:
        stop += 1  # its first delta builds on that state
    made = Segment(frames[:start])
    old: bytes | None = segment.state(frames[start - 1].oldest) if start else None
    new = old
    for at in range(start, stop):
        old, new = _edit_frame(made, segment, at, (old, new), dropped, replaced)
    made.frames += frames[stop:]
    return made if made.frames else None


def _edit_frame(
    made: Segment,
    segment: Segment,
    at: int,
    before: tuple[bytes | None, bytes | None],
    dropped: Collection[int],
    replaced: Mapping[int, bytes],
) -> tuple[bytes | None, bytes | None]:
    """Add a frame as it is after an edit; return its oldest state before and after the edit.

    `before` is the same of the frame before it.
    """
    old, new = before
    opened = segment._open(at)
    whole, steps, size = list[Item](), list[tuple[int, Delta]](), len(new or b"")
    for (seq, state), payload in zip(segment._walk(at, old or b""), opened.payloads, strict=False):
        follows, old = new is old, state
        if seq in dropped:
            continue
        after = replaced.get(seq, state)
        if opened.kind == WHOLE or new is None:
            whole.append((seq, after))
            size = len(after)
        elif follows and after is state:
            steps.append((seq, delta.parse(payload)))
        else:
            steps.append((seq, delta.diff(new, after)))
        new = after
    made._add(WHOLE, [seq for seq, _ in whole], [state for _, state in whole])
    if steps:
        made._add_deltas(size, steps)
    return old, new


def _goes(frame: Frame, dropped: Collection[int]) -> bool:
    # Both ends, too: a seq whose state is lost is none of those that the frame holds.
    is_all = frame.newest in dropped and frame.oldest in dropped
    return is_all and _held(frame, dropped) == frame.length


def _held(frame: Frame, seqs: Collection[int]) -> int:
    return sum(frame.oldest <= each <= frame.newest for each in seqs)


def _parsed(frame: Frame) -> _Opened:
    raw = codec.decompress(frame.data, what="segment")
    end = raw.find(b"\n")
    try:
        kind, gaps, lengths = orjson.loads(raw[:end])
        seqs = list(accumulate(gaps, sub))
        ends = list(accumulate(lengths, initial=end + 1))
        more = len(lengths) - len(seqs)
        is_known = (kind in (WHOLE, DELTAS) and not more) or (kind == JUMP and more == 1)
        if not is_known or ends[-1] != len(raw) or min(lengths) < 0:
            raise ValueError
        if (seqs[0], seqs[-1], len(seqs)) != frame[1:]:
            raise ValueError
    except (ValueError, TypeError, IndexError) as cause:
        raise _malformed() from cause
    return _Opened(kind, seqs, [raw[at:to] for at, to in pairwise(ends)], len(raw))


def _malformed() -> Corrupt:
    return Corrupt("a segment is malformed")


def apply_all(state: bytes, steps: Sequence[Delta]) -> bytes:
    """Return what deltas make of a state, one after the other, or raise Corrupt."""
    if any(delta.size_of(step) > STORED_BYTES_MAX for step in steps):
        raise Corrupt("a delta makes a state that is too large")
    if len(steps) < 3 or len(state) < _SPLICED_MIN:
        for step in steps:
            state = delta.apply(state, step)
        return state
    text, sources = Splices.whole(0, len(state)), [state]
    for step in steps:
        text = text.changed(step.ops, len(sources))
        sources.append(step.literal)
        if len(text.ends) > _SLICES_MAX:  # cheaper to copy it once and to go on
            state = text.joined(sources)
            text, sources = Splices.whole(0, len(state)), [state]
    return text.joined(sources)


def inverse(old: bytes, step: Delta) -> Delta:
    """Return the delta that leads back to `old` from what a delta makes of it, without a search."""
    at, copies = 0, list[tuple[int, int, int]]()
    for start, count, fresh in zip(step.ops[::3], step.ops[1::3], step.ops[2::3], strict=True):
        if count:
            copies.append((start, count, at))
        at += count + fresh
    draft, done = Draft(), 0
    for start, count, target in sorted(copies):
        skipped = max(0, done - start)
        if skipped < count:
            draft.write(old[done : start + skipped])
            draft.copy(target + skipped, count - skipped)
            done = start + count
    draft.write(old[done:])
    return draft.finished()
