"""Byte strings spliced from slices of others, so that a chain of deltas is joined only once.

A text is a list of slices: a numbered source, an offset and a length. Applying a delta cuts and
concatenates such lists; bytes are copied only when the text is joined. The lists also show which
parts two texts share, without comparing a byte: that is how the deltas of a group become one
(`flatten`), and how its members are rewritten against the last of them (`Inverse`).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from limpet.core.deltas.delta import Delta, Draft
from limpet.errors import Corrupt

BASE = 0  # the number of the source that is a group's anchor; its bytes need not be known
SLICES_MAX = 2**20  # of one text; each takes as much memory as 100 bytes
_COPY_MIN = 24  # fewer bytes than this are written again rather than copied


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

    def changed(
        self, ops: Sequence[int], source: int, at: int = 0, *, behind: "Splices | None" = None
    ) -> "Splices":
        """Apply the steps of a delta; its new bytes are in `source`, from `at` on.

        With `behind`, the base of the delta is this text followed by that one.
        """
        result = Splices()
        size = len(self)
        each = iter(ops)
        for start, count, fresh in zip(each, each, each, strict=True):
            if start < size or behind is None:
                here = count if behind is None else min(count, size - start)
                result._copy(self, start, here)
                start, count = start + here, count - here
            if count and behind is not None:
                result._copy(behind, start - size, count)
            result._add(source, at, fresh)
            at += fresh
        return result

    def begins_as(self, other: "Splices", count: int) -> bool:
        """Return whether the first `count` slices are those of the other text."""
        return (
            self.ends[:count] == other.ends[:count]
            and self.offsets[:count] == other.offsets[:count]
            and self.sources[:count] == other.sources[:count]
        )

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


class Inverse:
    """Writes texts as deltas against a later text followed by the source BASE."""

    def __init__(self, later: Splices, sources: Sequence[bytes]) -> None:
        self._sources = sources
        self._later = later
        self._size = len(later)
        # By source: where a slice of it starts and ends, and where that is in the later text.
        self._slices: dict[int, list[tuple[int, int, int]]] = {}
        begin = 0
        for source, offset, end in zip(later.sources, later.offsets, later.ends, strict=True):
            entry = (offset, offset + end - begin, begin)
            self._slices.setdefault(source, []).append(entry)
            begin = end
        for slices in self._slices.values():
            slices.sort()

    def delta_of(self, text: Splices) -> Delta:
        draft = Draft()
        # What was only appended to begins with the same slices, up to the last.
        same = max(len(text.ends) - 1, 0)
        if not text.begins_as(self._later, same):
            same = 0
        begin = text.ends[same - 1] if same else 0
        draft.copy(0, begin)
        rest = slice(same, None)
        for source, offset, end in zip(
            text.sources[rest], text.offsets[rest], text.ends[rest], strict=True
        ):
            self._express(draft, source, offset, offset + end - begin)
            begin = end
        return draft.finished()

    def _express(self, draft: Draft, source: int, at: int, end: int) -> None:
        slices = self._slices.get(source, [])
        index = max(0, bisect_right(slices, (at, 2**63, 0)) - 1)
        while at < end:
            low, high, start = slices[index] if index < len(slices) else (end, end, 0)
            if high <= at and index < len(slices):
                index += 1
            elif at < low:
                self._missing(draft, source, at, min(low, end))
                at = min(low, end)
            else:
                upto, found = min(high, end), start + at - low
                is_worth = upto - at >= _COPY_MIN or draft.continues_at(found)
                if is_worth or source == BASE:
                    draft.copy(found, upto - at)
                else:
                    self._missing(draft, source, at, upto)
                at = upto
                index += 1

    def _missing(self, draft: Draft, source: int, at: int, end: int) -> None:
        """Write what the later text lacks; BASE is copied, as its bytes may not be known."""
        if source == BASE:
            draft.copy(self._size + at, end - at)
        else:
            draft.write(self._sources[source][at:end])
