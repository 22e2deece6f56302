"""A chain of texts: the first is whole, each other is a delta against the one before it.

The tail of a head is a chain from its base to the newest snapshot; a segment is a chain from its
newest snapshot back to its oldest. Copies begin and end between characters, so that the new bytes
of a delta are text by themselves.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from limpet.core.deltas import delta
from limpet.core.deltas.delta import Delta
from limpet.core.deltas.splices import BASE, SLICES_MAX, Inverse, Splices, flatten

# A delta with many steps costs more as splices than copying the whole text does.
_STEP_BYTES = 8 * 1024


class Chain(NamedTuple):
    first: bytes
    deltas: tuple[Delta, ...] = ()

    def texts(self, numbers: Collection[int]) -> dict[int, bytes]:
        """Return the texts with these numbers, or raise Corrupt. The first has the number 0."""
        found: dict[int, bytes] = {0: self.first} if 0 in numbers else {}
        text, sources = Splices.whole(0, len(self.first)), [self.first]
        for number, each in enumerate(self.deltas[: max(numbers, default=0)], 1):
            steps = len(each.ops)
            if steps * _STEP_BYTES > len(text) or steps * len(text.ends) > SLICES_MAX:
                sources = [delta.apply(text.joined(sources), each)]
                text = Splices.whole(0, len(sources[0]))
            else:
                text = text.changed(each.ops, len(sources))
                sources.append(each.literal)
            if number in numbers:
                found[number] = text.joined(sources)
        return found

    def text(self, number: int) -> bytes:
        return self.texts([number])[number]

    def relinked(
        self, wanted: Sequence[int | bytes], known: Mapping[int, bytes] | None = None
    ) -> "Chain":
        """Return the chain of some of its texts, by number, and of new ones, in this order.

        Only new neighbours are compared. No byte of a text that is left out stays. `known` has
        texts that need not be built again.
        """
        known = known or {}
        links = list(pairwise(wanted))
        needed = {each for each in wanted[:1] if isinstance(each, int)}
        for before, after in links:
            if not _is_forward(before, after):
                needed.update(each for each in (before, after) if isinstance(each, int))
        texts = {**known, **self.texts(needed - known.keys())}
        deltas = tuple(
            self._between(before, after)
            if isinstance(before, int) and isinstance(after, int) and before < after
            else link(_text(before, texts), _text(after, texts))
            for before, after in links
        )
        return Chain(_text(wanted[0], texts), deltas)

    def _between(self, before: int, after: int) -> Delta:
        """Return the delta between two texts, composed from those along the way."""
        if after == before + 1:
            return self.deltas[before]
        size = delta.size_of(self.deltas[before - 1]) if before else len(self.first)
        return composed(size, self.deltas[before:after])

    def reversed(self) -> "Chain":
        """Return the same texts in the opposite order, without comparing any of them."""
        sources = [b"", self.first, *(each.literal for each in self.deltas)]
        texts = [Splices.whole(1, len(self.first))]
        for number, each in enumerate(self.deltas, 2):
            texts.append(texts[-1].changed(each.ops, number))
        texts.reverse()
        deltas = tuple(
            Inverse(after, sources).delta_of(before) for after, before in pairwise(texts)
        )
        return Chain(texts[0].joined(sources), deltas)


def _is_forward(before: int | bytes, after: int | bytes) -> bool:
    return isinstance(before, int) and isinstance(after, int) and before < after


def _text(each: int | bytes, texts: Mapping[int, bytes]) -> bytes:
    return texts[each] if isinstance(each, int) else each


def composed(size: int, deltas: Sequence[Delta]) -> Delta:
    """Return one delta for several that follow each other; the base has `size` bytes."""
    text, sources = Splices.whole(BASE, size), [b""]
    for each in deltas:
        text = text.changed(each.ops, len(sources))
        sources.append(each.literal)
    return flatten(text, sources)


def link(old: bytes, new: bytes) -> Delta:
    """Return a delta whose copies begin and end between characters."""
    found = delta.diff(old, new)
    return found if new.isascii() else _between_characters(found, new)


def _between_characters(found: Delta, new: bytes) -> Delta:
    draft, at = delta.Draft(), 0
    each = iter(found.ops)
    for start, count, fresh in zip(each, each, each, strict=True):
        begin, end = at, at + count
        while begin < end and _is_inside(new, begin):
            begin += 1
        while begin < end and _is_inside(new, end):
            end -= 1
        draft.write(new[at:begin])
        draft.copy(start + begin - at, end - begin)
        draft.write(new[end : at + count + fresh])
        at += count + fresh
    return draft.finished()


def _is_inside(text: bytes, at: int) -> bool:
    """Return whether a position is inside a character of UTF-8."""
    return at < len(text) and text[at] & 0xC0 == 0x80
