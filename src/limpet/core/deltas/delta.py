"""Differences between two byte strings: what to copy from the old one, and what is new.

Made for states that are saved again and again and change a little: text appended, counters
changed, a sliding window, edits in several places, one file replaced among many. A common prefix
and suffix are found first. Between them, short samples of the new bytes are searched in the old
ones, nearby at first, and matches are extended both ways. It uses `bytes.find` and comparisons of
blocks, so it costs little more than reading both strings once; the bytes searched are bounded.

As bytes a delta is a JSON array of integers, three for each step (where to copy from, how many
bytes, and how many new bytes follow), and right after its `]` all the new bytes.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from operator import add
from typing import NamedTuple

import orjson

from limpet.errors import Corrupt
from limpet.protocol import Append, AppendOffsets

_SAMPLE = 24  # bytes searched at once
_MATCH_MIN = 32  # bytes that are worth a copy: a step itself takes up to 20
_BLOCK_MIN = 512  # in which the first difference is found at once
_BLOCK_MAX = 64 * 1024
_STEPS_MAX = 512
_NEAR = 2 * 1024
_STEP = 128
_SEARCHES = ((_NEAR, 2), (64 * 1024, 4), (None, 8))  # how far ahead, and how samples spread out
_MOVED_MIN = 8 * 1024  # bytes left that are worth a search behind
_SEARCHED_MAX = 64 * 1024 * 1024
_EMPTY = b"[]"
_WIDE = b" "  # marks an encoding that holds integers beyond 64 bits: core/codec.py
_new = tuple.__new__  # the same as Delta(…), without a call of Python code


class Delta(NamedTuple):
    """Steps of three numbers (copy from, copied bytes, new bytes), and all the new bytes."""

    ops: list[int]
    literal: bytes


def size_of(delta: Delta) -> int:
    return sum(delta.ops[1::3]) + len(delta.literal)


def dump(delta: Delta) -> bytes:
    return orjson.dumps(delta.ops) + delta.literal


def parse(payload: bytes) -> Delta:
    """Return the delta that `dump` was given, or raise Corrupt."""
    ops, end = parse_ops(payload)
    return Delta(ops, payload[end:])


def parse_ops(payload: bytes) -> tuple[list[int], int]:
    """Return the steps of a delta, and where its new bytes begin, or raise Corrupt."""
    end = payload.find(b"]") + 1
    try:
        ops = orjson.loads(payload[:end])
    except ValueError:
        ops = None
    if not _are_steps(ops, len(payload) - end):
        raise Corrupt(f"a delta is malformed. bytes=`{len(payload)}`")
    return ops, end


def _are_steps(ops: object, fresh: int) -> bool:
    return (
        isinstance(ops, list)
        and not len(ops) % 3
        and {int}.issuperset(map(type, ops))  # a bool is not a number here
        and min(ops, default=0) >= 0
        and sum(ops[2::3]) == fresh
    )


def apply(base: bytes, delta: Delta) -> bytes:
    """Return the new bytes, or raise Corrupt if the delta does not fit the base."""
    ops, literal = delta
    starts, counts, fresh = ops[::3], ops[1::3], ops[2::3]
    if max(map(add, starts, counts), default=0) > len(base):
        raise Corrupt(f"a delta does not fit its base. bytes=`{len(base)}`")
    whole, new = memoryview(base), memoryview(literal)
    parts: list[memoryview] = []
    for start, count, size, end in zip(starts, counts, fresh, accumulate(fresh), strict=True):
        parts += (whole[start : start + count], new[end - size : end])
    return b"".join(parts)


def diff(old: bytes, new: bytes) -> Delta:
    """Return a delta from `old` to `new`; it takes at most 64 bytes more than `new`."""
    shorter = min(len(old), len(new))
    prefix = expected = _same_ahead(old, 0, new, 0, shorter)
    suffix = _same_behind(old, len(old), new, len(new), shorter - prefix)
    prefix = prefix if prefix >= _MATCH_MIN else 0
    suffix = suffix if suffix >= _MATCH_MIN else 0
    end = len(new) - suffix
    draft = Draft()
    draft.copy(0, prefix)
    done = prefix
    if prefix < end:
        done = _Search(old, new, end).into(draft, prefix, expected)
    draft.write(new[done:end])
    draft.copy(len(old) - suffix, suffix)
    return draft.finished()


class Draft:
    def __init__(self) -> None:
        self._ops: list[int] = []
        self._parts: list[bytes] = []

    def copy(self, start: int, size: int) -> None:
        if not size:
            return
        if self.continues_at(start):
            self._ops[-2] += size
        else:
            self._ops += (start, size, 0)

    def continues_at(self, start: int) -> bool:
        """Return whether a copy from `start` on would only make the last step longer."""
        ops = self._ops
        return bool(ops) and not ops[-1] and ops[-3] + ops[-2] == start

    def write(self, literal: bytes) -> None:
        if not literal:
            return
        if not self._ops:
            self._ops += (0, 0, 0)
        self._ops[-1] += len(literal)
        self._parts.append(literal)

    @property
    def is_full(self) -> bool:
        return len(self._ops) >= 3 * _STEPS_MAX

    def finished(self) -> Delta:
        return Delta(self._ops, b"".join(self._parts))


class _Search:
    """Finds parts of the new string, up to `end`, in the old one."""

    def __init__(self, old: bytes, new: bytes, end: int) -> None:
        self._old = old
        self._new = new
        self._end = end
        self._left = min(4 * (len(old) + len(new)) + _BLOCK_MAX, _SEARCHED_MAX)

    def into(self, draft: Draft, at: int, expected: int) -> int:
        """Add what is found to a draft, from `at` on; return the end of the last match.

        `expected` is where the old string may continue.
        """
        while at < self._end and not draft.is_full:
            found = self._next(at, expected)
            if found is None:
                break
            start, count, target = found
            draft.write(self._new[at:target])
            draft.copy(start, count)
            at = target + count
            expected = start + count
        return at

    def _next(self, at: int, expected: int) -> tuple[int, int, int] | None:
        for reach, spread in _SEARCHES:
            found = self._sampled(at, expected, len(self._old), reach, spread)
            if found is not None:
                return found
            if reach is not None and expected + reach >= len(self._old):
                break  # all of it was searched
        if self._end - at >= _MOVED_MIN and expected:
            return self._sampled(at, 0, expected, None, 8)
        return None

    def _sampled(
        self, at: int, low: int, high: int, reach: int | None, spread: int
    ) -> tuple[int, int, int] | None:
        """Search samples in old[low:high], at most `reach` bytes of it, each farther from `at`."""
        if high - low < _SAMPLE:
            return None
        # In a small state no long match is missed; in a large one samples spread out soon.
        gap, is_small = 0, reach == _NEAR and len(self._new) <= 2 * _NEAR
        while at + gap + _SAMPLE <= self._end and self._left > 0:
            sample_at = at + gap
            stop = high if reach is None else min(high, low + gap + reach)
            hit = self._old.find(self._new[sample_at : sample_at + _SAMPLE], low, stop)
            self._left -= (stop if hit < 0 else hit) - low + _SAMPLE
            if hit >= 0:
                found = self._extended(hit, sample_at, at)
                start, count, _ = found
                skipped = abs(start - low) if high == len(self._old) else 0
                least = 2 * _STEP if is_small and gap >= _STEP else _MATCH_MIN
                if count >= least and count * 8 >= skipped:
                    return found
            gap = gap + _STEP if is_small and gap >= _STEP else gap * spread + 4
        return None

    def _extended(self, hit: int, sample_at: int, at: int) -> tuple[int, int, int]:
        """Extend a match both ways; return its start in the old string, its size and its target."""
        old, new = self._old, self._new
        behind = _same_behind(old, hit, new, sample_at, min(hit, sample_at - at))
        limit = min(len(old) - hit, self._end - sample_at)
        ahead = _same_ahead(old, hit, new, sample_at, limit)
        self._left -= behind + ahead
        return hit - behind, behind + ahead, sample_at - behind


def _same_ahead(old: bytes, i: int, new: bytes, j: int, limit: int) -> int:
    """Return how many bytes, up to a limit, are equal from two positions on."""
    view = memoryview(old)  # whose slices copy nothing
    done, block = 0, _BLOCK_MIN
    while done < limit:
        size = min(block, limit - done)
        if not new.startswith(view[i + done : i + done + size], j + done):
            break
        done += size
        block = min(block * 4, _BLOCK_MAX)
    else:
        return limit
    while size > _BLOCK_MIN:
        half = size // 2
        if new.startswith(view[i + done : i + done + half], j + done):
            done, half = done + half, size - half
        size = half
    i, j = i + done, j + done
    differ = int.from_bytes(old[i : i + size]) ^ int.from_bytes(new[j : j + size])
    return done + size - (differ.bit_length() + 7) // 8


def _same_behind(old: bytes, i: int, new: bytes, j: int, limit: int) -> int:
    """Return how many bytes, up to a limit, are equal before two positions."""
    view = memoryview(old)
    done, block = 0, _BLOCK_MIN
    while done < limit:
        size = min(block, limit - done)
        if not new.endswith(view[i - done - size : i - done], 0, j - done):
            break
        done += size
        block = min(block * 4, _BLOCK_MAX)
    else:
        return limit
    while size > _BLOCK_MIN:
        half = size // 2
        if new.endswith(view[i - done - half : i - done], 0, j - done):
            done, half = done + half, size - half
        size = half
    i, j = i - done, j - done
    differ = int.from_bytes(old[i - size : i]) ^ int.from_bytes(new[j - size : j])
    return done + ((differ & -differ).bit_length() - 1) // 8


def extended(
    offsets: AppendOffsets, size: int, append: Append
) -> tuple[Delta, AppendOffsets] | None:
    """Return the delta that appends to an encoding of `size` bytes, and the offsets after it.

    The bytes are not needed, only where each top-level list ends: the new items go before its `]`.
    None if the state itself is needed: the value is not a list, or the items hold wide integers.
    """
    if append.items.startswith(_WIDE):
        return None
    if append.key in offsets:
        found = offsets[append.key]
        if found is None:
            return None
        at, nonempty = found
        fresh = append.items[1:-1]
        if fresh and nonempty:
            fresh = b"," + fresh
        entry = (at, nonempty or bool(fresh))
    else:
        at = 1  # a new member goes before the `}`
        comma = b"," if offsets else b""
        fresh = comma + orjson.dumps(append.key) + b":" + append.items
        entry = (2, append.items != _EMPTY)
    moved = {
        key: (each[0] + len(fresh), each[1]) if each is not None and each[0] > at else each
        for key, each in offsets.items()
    }
    moved[append.key] = entry
    return _new(Delta, ([0, size - at, len(fresh), size - at, at, 0], fresh)), moved


# Byte strings spliced from slices of others, so that a chain of deltas is joined only once.
#
# A text is a list of slices: a numbered source, an offset and a length. Applying a delta cuts and
# concatenates such lists; bytes are copied only when the text is joined. The lists also show what a
# text shares with its base, without comparing a byte: that is how several deltas become one
# (`flatten`).

BASE = 0  # the number of the source that all begins with; its bytes need not be known


class Splices:
    """A text as slices of sources. `ends` holds where each slice ends in the text."""

    __slots__ = ("ends", "offsets", "sources")

    def __init__(self) -> None:
        self.sources: list[int] = []
        self.offsets: list[int] = []
        self.ends: list[int] = []

    @classmethod
    def whole(cls, source: int, size: int) -> "Splices":
        splices = cls()
        splices._add(source, 0, size)
        return splices

    def __len__(self) -> int:
        return self.ends[-1] if self.ends else 0

    def _add(self, source: int, offset: int, size: int) -> None:
        if not size:
            return
        ends = self.ends
        if ends and self.sources[-1] == source:
            begin = ends[-2] if len(ends) > 1 else 0
            if self.offsets[-1] + ends[-1] - begin == offset:
                ends[-1] += size
                return
        self.sources.append(source)
        self.offsets.append(offset)
        ends.append((ends[-1] if ends else 0) + size)

    def _copy(self, text: "Splices", start: int, size: int) -> None:
        if not size:
            return
        ends, end = text.ends, start + size
        if end > len(text):
            raise Corrupt(f"a delta does not fit its base. bytes=`{len(text)}`")
        first, last = bisect_right(ends, start), bisect_left(ends, end)
        skipped = start - (ends[first - 1] if first else 0)
        offset = text.offsets[first] + skipped
        self._add(text.sources[first], offset, min(ends[first], end) - start)
        if first == last:
            return
        shift = len(self) - ends[first]
        self.sources += text.sources[first + 1 : last]
        self.offsets += text.offsets[first + 1 : last]
        self.ends += [each + shift for each in ends[first + 1 : last]]
        self._add(text.sources[last], text.offsets[last], end - ends[last - 1])

    def changed(self, ops: Sequence[int], source: int) -> "Splices":
        """Apply the steps of a delta, whose new bytes are `source`."""
        result, at = Splices(), 0
        each = iter(ops)
        for start, count, fresh in zip(each, each, each, strict=True):
            result._copy(self, start, count)
            result._add(source, at, fresh)
            at += fresh
        return result

    def joined(self, sources: Sequence[bytes]) -> bytes:
        if len(self.ends) == 1 and not self.offsets[0]:
            whole = sources[self.sources[0]]
            if len(whole) == self.ends[0]:
                return whole
        views = [memoryview(each) for each in sources]
        parts: list[memoryview] = []
        begin = 0
        for source, offset, end in zip(self.sources, self.offsets, self.ends, strict=True):
            parts.append(views[source][offset : offset + end - begin])
            begin = end
        return b"".join(parts)


def flatten(text: Splices, sources: Sequence[bytes]) -> Delta:
    """Return a text as one delta against the source BASE."""
    draft = Draft()
    begin = 0
    for source, offset, end in zip(text.sources, text.offsets, text.ends, strict=True):
        if source == BASE:
            draft.copy(offset, end - begin)
        else:
            draft.write(sources[source][offset : offset + end - begin])
        begin = end
    return draft.finished()
