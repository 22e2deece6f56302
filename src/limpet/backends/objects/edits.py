"""How heads and segments change: pure functions, without storage.

No edit changes what another snapshot reads back as, and no byte of a state that is removed or
replaced stays in the result.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from limpet.backends.objects.chain import Chain, link
from limpet.backends.objects.objects import Entry, Fact, Head, Named, Segment
from limpet.core.deltas.delta import Delta
from limpet.protocol import AppendOffsets

# The writer's numbers, no part of the format.
BASE_BYTES_MAX = 32 * 1024  # in a head whose base is also in a segment
_TAIL_BYTES_MIN = 16 * 1024
_TAIL_BYTES_MAX = 256 * 1024
TAIL_ITEMS_MAX = 512
SEGMENT_ITEMS_MAX = 1024
_CHAIN_BYTES_MIN = 64 * 1024

Text: TypeAlias = int | bytes
"""A state: a number in the chain of a head or a segment, or the encoding itself."""


def chain_of(head: Head, base: bytes) -> Chain:
    return Chain(base, tuple(each.delta for each in head.entries if each.delta is not None))


def numbered(head: Head) -> list[tuple[Fact, Text]]:
    """Return the tail, each snapshot with its number in the chain."""
    shift = 0 if head.is_rooted else 1
    return [(each.fact, at + shift) for at, each in enumerate(head.entries)]


def arranged(
    head: Head,
    base: bytes,
    wanted: Sequence[tuple[Fact, Text]],
    *,
    base_is_gone: bool = False,
    known: Mapping[int, bytes] | None = None,
) -> Head:
    """Return the head with another tail. `base` is its present base, b"" if there is none.

    `base_is_gone`: the last segment no longer has it, so the first of the tail becomes the base.
    """
    if not wanted:
        kept = None if head.is_rooted or base_is_gone else head.base
        frame = None if kept is None else head.base_frame
        return replace(head, entries=(), is_rooted=False, base=kept, base_frame=frame)
    is_rooted = head.is_rooted or base_is_gone or not head.segments
    texts = [text for _, text in wanted]
    chain = chain_of(head, base).relinked(texts if is_rooted else [0, *texts], known)
    deltas: tuple[Delta | None, ...] = (None, *chain.deltas) if is_rooted else chain.deltas
    facts = [fact for fact, _ in wanted]
    entries = tuple(Entry(fact, each) for fact, each in zip(facts, deltas, strict=True))
    if not is_rooted:
        return replace(head, entries=entries)
    frame = head.base_frame if head.is_rooted and texts[0] == 0 else None
    return replace(head, entries=entries, is_rooted=True, base=chain.first, base_frame=frame)


def added(
    head: Head,
    base: bytes,
    fact: Fact,
    body: bytes,
    *,
    is_shown: bool,
    offsets: AppendOffsets | None,
    known: Mapping[int, bytes] | None = None,
) -> Head:
    """Return the head with a new snapshot. A draft is dropped when another one is shown."""
    tail = numbered(head)
    draft = [] if head.draft is None else [tail.pop()]
    new = arranged(head, base, [*tail, (fact, body), *([] if is_shown else draft)], known=known)
    return shown(new, fact, offsets) if is_shown else new


def appended(head: Head, fact: Fact, each: Delta, offsets: AppendOffsets | None) -> Head:
    """As `added`, for a delta that is known to build on the last kept snapshot."""
    return shown(replace(head, entries=(*head.kept, Entry(fact, each))), fact, offsets)


def shown(head: Head, fact: Fact, offsets: AppendOffsets | None) -> Head:
    return replace(head, shown=(fact.row.id, fact.row.seq), offsets=offsets)


def replaced(head: Head, base: bytes, changed: Mapping[int, tuple[Fact, bytes | None]]) -> Head:
    """Return the head with other versions of snapshots in its tail; None: the same state."""
    tail: list[tuple[Fact, Text]] = []
    for each, text in numbered(head):
        fact, body = changed.get(each.row.seq, (each, None))
        tail.append((fact, text if body is None else body))
    # A draft that becomes kept takes its place in history.
    tail.sort(key=lambda each: (not each[0].row.kept, each[0].row.seq))
    return arranged(head, base, tail)


def without(head: Head, base: bytes, doomed: Collection[int], *, base_is_gone: bool) -> Head:
    """Return the head without some snapshots, by `seq`; they may all be in segments."""
    tail = [each for each in numbered(head) if each[0].row.seq not in doomed]
    if len(tail) == len(head.entries) and not base_is_gone:
        return head
    return arranged(head, base, tail, base_is_gone=base_is_gone)


def edited(
    segment: Segment, doomed: Collection[int], changed: Mapping[int, tuple[Fact, bytes | None]]
) -> Segment:
    """Return a segment without some of its snapshots, not all, and with others changed."""
    facts: list[Fact] = []
    texts: list[Text] = []
    for number, fact in enumerate(reversed(segment.facts)):
        if fact.row.seq in doomed:
            continue
        new, body = changed.get(fact.row.seq, (fact, None))
        facts.insert(0, new)
        texts.append(number if body is None else body)
    return segment._replace(facts=tuple(facts), chain=segment.chain.relinked(texts))


# Flushing the tail into a segment


def is_due(head: Head, tail_bytes: int, base_bytes: int) -> bool:
    """Return whether the tail should go into a segment, by the sizes that are stored now."""
    if len(flushable(head)) == 0:
        return False
    if tail_bytes >= _TAIL_BYTES_MAX or len(head.entries) >= TAIL_ITEMS_MAX:
        return True
    if head.is_rooted and base_bytes > BASE_BYTES_MAX:
        return True
    segment_bytes = head.segments[-1].size if head.segments else base_bytes
    return tail_bytes >= _TAIL_BYTES_MIN and head.paid > segment_bytes + tail_bytes


def flushable(head: Head) -> tuple[Entry, ...]:
    """Return what may go into a segment: not the newest, and nothing newer than a draft.

    So the facts of the head are in the head, and a draft that becomes kept has its place there.
    """
    newest = head.draft or (head.entries[-1] if head.entries else None)
    return tuple(e for e in head.kept if newest is not None and e.row.seq < newest.row.seq)


def absorbs(last: Named) -> bool:
    """Return whether the next segment takes over the content of the last one."""
    state_bytes = last.size - last.chain_bytes
    return last.snapshots < SEGMENT_ITEMS_MAX and last.chain_bytes < max(
        _CHAIN_BYTES_MIN, state_bytes
    )


def flushed(head: Head, base: bytes, last: Segment | None) -> tuple[Segment, Head]:
    """Move the older part of the tail into a new segment, after the content of `last`, if given.

    The head returned has the new base, and still names the segments of before.
    """
    moved = flushable(head)
    number = len(moved) - 1 if head.is_rooted else len(moved)
    whole = chain_of(head, base)
    chain = Chain(base, whole.deltas[:number]).reversed()
    facts = tuple(each.fact for each in moved)
    if not head.is_rooted and last is None:
        chain = Chain(chain.first, chain.deltas[:-1])
    elif last is not None:
        joint = (link(base, last.chain.first),) if head.is_rooted else ()
        chain = Chain(chain.first, (*chain.deltas, *joint, *last.chain.deltas))
        facts = (*last.facts, *facts)
    rest = head.entries[len(moved) :]
    base_frame = head.base_frame if head.is_rooted and number == 0 else None
    new = replace(
        head, entries=rest, is_rooted=False, base=chain.first, base_frame=base_frame, paid=0
    )
    return Segment(head.scope, head.line, facts, chain), new
