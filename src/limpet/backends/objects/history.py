"""Finding snapshots in a scope: in the tail of its head, or in one of its segments."""

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from limpet.backends.objects import edits
from limpet.backends.objects.objects import Fact, Head, Named
from limpet.backends.objects.storage import Gone, Held, Storage
from limpet.core import ids
from limpet.core.rows import Row
from limpet.errors import Corrupt
from limpet.protocol import Query

_LEAVES_MAX = 4096  # candidates compared at a time


class Place(NamedTuple):
    """A snapshot, and the segment that it is in; None: in the tail."""

    fact: Fact
    segment: Named | None

    @property
    def row(self) -> Row:
        return self.fact.row


class History:
    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def find(self, head: Head | None, id: str | None) -> Place | None:
        """Return a snapshot by its id; None asks for the one shown."""
        if head is None or (id is None and head.shown is None):
            return None
        if id is None or (head.shown is not None and head.shown[0] == id):
            return self._shown(head)
        return self.find_all(head, [id]).get(id)

    def _shown(self, head: Head) -> Place | None:
        if head.shown is None:
            return None
        id, seq = head.shown
        for entry in head.entries:
            if entry.row.seq == seq:
                return Place(entry.fact, None)
        for named in head.segments:
            if named.first <= seq <= named.last:
                (facts,) = self._storage.read_facts(head.scope, [named])
                for fact in facts:
                    if fact.row.seq == seq:
                        return Place(fact, named)
        raise Corrupt(f"the head shows a snapshot that is missing. id=`{id}`")

    def find_all(
        self, head: Head, wanted: Iterable[str], *, with_states: bool = False
    ) -> dict[str, Place]:
        """Return the snapshots that exist, by id. Facts are read of no more segments than needed.

        The time in an id that we minted says which segment to read first. With `with_states` that
        one is read whole, since its states will be needed.
        """
        left = set(wanted)
        found: dict[str, Place] = {}
        for entry in head.entries:
            if entry.row.id in left:
                found[entry.row.id] = Place(entry.fact, None)
        left -= found.keys()
        times = {ms for id in left if (ms := ids.time_ms_of(id)) is not None}
        likely = [each for each in head.segments if any(_covers(each, ms) for ms in times)]
        others = [each for each in reversed(head.segments) if each not in likely]
        for group in (likely, others):
            if not left or not group:
                continue
            if with_states and len(group) == 1:
                self._storage.read_segments(head.scope, group)
            for named, facts in zip(
                group, self._storage.read_facts(head.scope, group), strict=True
            ):
                for fact in facts:
                    if fact.row.id in left:
                        found[fact.row.id] = Place(fact, named)
            left -= found.keys()
        return found

    def newest_kept(self, head: Head) -> Row | None:
        return next((fact.row for fact in self.newest_first(head)), None)

    def newest_first(
        self, head: Head | None, after: int | None = None, since: int = 0, *, skip: bool = False
    ) -> Iterator[Fact]:
        """Yield kept snapshots, the last saved first: those before `after`, back to `since`.

        With `skip` segments that cannot be read are left out.
        """
        if head is None:
            return
        end = ids.SEQ_MAX + 1 if after is None else after
        for entry in reversed(head.kept):
            if since <= entry.row.seq < end:
                yield entry.fact
        for named in reversed(head.segments):
            if named.first < end and named.last >= since:
                try:
                    (facts,) = self._storage.read_facts(head.scope, [named])
                except (Corrupt, Gone):
                    if skip:
                        continue
                    raise
                yield from (fact for fact in reversed(facts) if since <= fact.row.seq < end)

    def matching(
        self, head: Head | None, query: Query, since: int = 0, *, skip: bool = False
    ) -> Iterator[Fact]:
        every = self.newest_first(head, query.after, since, skip=skip)
        facts = (fact for fact in every if fits(fact, query))
        return facts if not query.leaves else self._leaves(head, facts)

    def _leaves(self, head: Head | None, facts: Iterator[Fact]) -> Iterator[Fact]:
        while chunk := [fact for _, fact in zip(range(_LEAVES_MAX), facts, strict=False)]:
            names = {fact.row.id for fact in chunk}
            parents = (fact.row.parent_id for fact in self.newest_first(head))
            inner = {parent for parent in parents if parent in names}
            yield from (fact for fact in chunk if fact.row.id not in inner)

    def states(self, held: Held, places: Collection[Place]) -> dict[int, bytes]:
        """Return the encoded states of snapshots, by `seq`; raise Corrupt or Gone."""
        found: dict[int, bytes] = {}
        tail = {each.row.seq for each in places if each.segment is None}
        if tail:
            whole = held.whole()
            if whole is None:
                return {}
            found |= tail_states(whole, self._storage.base_of(whole), tail)
        segments = list(dict.fromkeys(each.segment for each in places if each.segment is not None))
        if segments and held.head is not None:
            scope = held.head.scope
            for named, segment in zip(
                segments, self._storage.read_segments(scope, segments), strict=True
            ):
                wanted = {each.row.seq for each in places if each.segment == named}
                rows = [fact.row.seq for fact in reversed(segment.facts)]
                numbers = {number: seq for number, seq in enumerate(rows) if seq in wanted}
                texts = segment.chain.texts(numbers.keys())
                found |= {seq: texts[number] for number, seq in numbers.items()}
        return found


def tail_states(head: Head, base: bytes, wanted: Collection[int]) -> dict[int, bytes]:
    numbers = {
        text: fact.row.seq
        for fact, text in edits.numbered(head)
        if fact.row.seq in wanted and isinstance(text, int)
    }
    texts = edits.chain_of(head, base).texts(numbers.keys())
    return {seq: texts[number] for number, seq in numbers.items()}


def _covers(named: Named, ms: int) -> bool:
    return ids.place_us(named.first) // 1000 <= ms <= ids.place_us(named.last) // 1000


def fits(fact: Fact, query: Query) -> bool:
    row = fact.row
    if query.id not in (None, row.id) or query.status not in (None, row.status):
        return False
    if not query.labels:
        return True
    labels = fact.labels
    return all(labels.get(name) == value for name, value in query.labels)
