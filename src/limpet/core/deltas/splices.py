"""Byte strings spliced from slices of others, so that a chain of deltas is joined only once.

A text is a list of slices: a numbered source, an offset and a length. Applying a delta cuts and
concatenates such lists; bytes are copied only when the text is joined. The lists also show what a
text shares with its base, without comparing a byte: that is how several deltas become one
(`flatten`).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from limpet.core.deltas.delta import Delta, Draft
from limpet.errors import Corrupt

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
