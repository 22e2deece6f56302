"""The engine with segments under simulation: small numbers, a look at its objects, sabotages.

Its tails are flushed after two snapshots and its segments hold few, so that short runs have many.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from limpet.backends.buckets.protocol import Bucket, Moved
from limpet.backends.segments import edits, keys
from limpet.backends.segments.backend import SegmentBackend
from limpet.backends.segments.chain import Chain
from limpet.backends.segments.history import tail_states
from limpet.backends.segments.objects import Head, Segment, parse_head, parse_segment, unpack
from limpet.backends.segments.storage import Beaten, Held, NoncesOf, Storage
from limpet.backends.segments.writer import Change, Writer
from limpet.core import codec
from limpet.errors import Unavailable
from limpet.model import ANY, Pruned, ScopeKey
from limpet.protocol import Backend, Clock, Stamp

edits.TAIL_ITEMS_MAX = 2
edits.SEGMENT_ITEMS_MAX = 4
edits.BASE_BYTES_MAX = 60


class Inspected(SegmentBackend):
    """The engine; after a deletion the storage itself is searched for what was deleted."""

    def delete_snapshots(
        self, scope: ScopeKey, ids: Sequence[str], *, spare_head: bool = False, **options: Any
    ) -> Pruned:
        objects = self._bucket._storage.objects  # type: ignore[attr-defined]
        before = {key for key in objects if "/segments/" in key}
        doomed = {tag for id, tags in _snapshots(objects, scope) if id in ids for tag in tags}
        answer = super().delete_snapshots(scope, ids, spare_head=spare_head, **options)
        left = {
            tag for at in _scopes(objects) for _, tags in _snapshots(objects, at) for tag in tags
        }
        heads = [parse_head(data).facts_only for key, (data, _) in _heads(objects)]
        named = {keys.segment_key(h.scope, each.name) for h in heads for each in h.segments}
        for key, (data, _) in list(objects.items()):
            if key.endswith("/head") or key in named or key in before:
                for tag in doomed - left:
                    assert not _holds(data, tag), f"{tag} was deleted and is in {key}"
        return answer


def _holds(data: bytes, tag: str) -> bool:
    text = codec.encode(tag)
    return text in data or text.replace(b'"', b'\\"') in data


def _heads(objects: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(key, each) for key, each in list(objects.items()) if key.endswith("/head")]


def _scopes(objects: dict[str, Any]) -> list[ScopeKey]:
    return [parse_head(data).facts_only.scope for _, (data, _) in _heads(objects)]


def _snapshots(objects: dict[str, Any], scope: ScopeKey) -> Iterator[tuple[str, list[str]]]:
    """Return the ids of a scope and what their states hold, past the engine."""
    found = objects.get(keys.head_key(scope))
    if found is None:
        return
    head = parse_head(found[0]).whole()
    base, texts = head.base, dict[int, bytes]()
    facts = [entry.fact for entry in head.entries]
    for named in head.segments:
        segment = parse_segment(unpack("segment", objects[keys.segment_key(scope, named.name)][0]))
        base = segment.chain.first if head.base is None else base
        for at, fact in enumerate(reversed(segment.facts)):
            texts[fact.row.seq] = segment.chain.text(at)
            facts.append(fact)
    texts |= tail_states(head, base or b"", [entry.row.seq for entry in head.entries])
    for fact in facts:
        state = codec.decode(texts[fact.row.seq])
        yield fact.row.id, list(state.get("log", ())) if isinstance(state, dict) else []


def open_segments(bucket: Bucket, index: bool, clock: Clock, draw: Callable[[], Stamp]) -> Backend:
    """Open the engine. It always has an index."""
    return Inspected(bucket, clock=clock, draw=draw)


# Sabotages: each does one thing as an obvious but wrong design does.


def _blind_head(backend: Any) -> None:
    put = backend._storage.bucket.put

    def blind(key: str, data: bytes, *, expect: Any) -> str:
        version: str = put(key, data, expect=ANY if key.endswith("/head") else expect)
        return version

    backend._storage.bucket.put = blind


def _swapping(backend: Any, *, resends: bool) -> None:
    storage: Storage = backend._storage

    def swap(
        key: str, data: bytes, *, expect: str | None, nonce: str, base: str, nonces_of: NoncesOf
    ) -> str | None:
        for _ in range(8):
            try:
                return storage.bucket.put(key, data, expect=expect)
            except Moved:
                raise Beaten from None
            except Unavailable as error:
                if error.outcome_known:
                    raise
                if not resends:
                    raise Beaten from None
        raise Beaten

    storage.swap = swap  # type: ignore[method-assign]


def _lost_is_failed(backend: Any) -> None:
    _swapping(backend, resends=False)


def _refusal_believed(backend: Any) -> None:
    _swapping(backend, resends=True)


def _head_before_segment(backend: Any) -> None:
    bucket = backend._storage.bucket
    put, waiting = bucket.put, []

    def late(key: str, data: bytes, *, expect: Any) -> str:
        if "/segments/" in key:
            waiting.append((key, data))
            return ""
        version: str = put(key, data, expect=expect)
        while key.endswith("/head") and waiting:
            put(*waiting.pop(0), expect=ANY)
        return version

    bucket.put = late


def _old_segment_first(backend: Any) -> None:
    storage: Storage = backend._storage
    swap_head = storage.swap_head

    def swap(held: Held, head: Head, *rest: Any) -> Held:
        names = {each.name for each in head.segments}
        before = () if held.head is None else held.head.segments
        storage.drop_segments(head.scope, [e.name for e in before if e.name not in names])
        return swap_head(held, head, *rest)

    storage.swap_head = swap  # type: ignore[method-assign,assignment]


def _sweep_reads_head_first(backend: Any) -> None:
    storage: Storage = backend._storage

    def sweep_after(head: Head, before: Head | None) -> None:
        listed = storage.bucket.list(keys.segments_prefix(head.scope), limit=1000)
        names = {keys.segment_key(head.scope, each.name) for each in head.segments}
        storage.bucket.delete([each.key for each in listed if each.key not in names])

    storage.sweep_after = sweep_after  # type: ignore[method-assign]


def _sweep_ignores_after(backend: Any) -> None:
    storage: Storage = backend._storage

    def sweep_after(head: Head, before: Head | None) -> None:
        listed = storage.bucket.list(keys.segments_prefix(head.scope), limit=1000)
        now = storage.read_head(head.scope).head
        names = set() if now is None else {each.name for each in now.segments}
        doomed = [e.key for e in listed if e.key.rpartition("/")[2] not in names]
        storage.bucket.delete(doomed)

    storage.sweep_after = sweep_after  # type: ignore[method-assign]


def _no_sweep(backend: Any) -> None:
    backend._storage.sweep_after = lambda head, before: None


def _first_head_names_a_segment(backend: Any) -> None:
    writer: Writer = backend._writer
    store = writer.store

    def first(held: Held, change: Change) -> Held:
        head = change.head
        if held.head is not None or len(head.entries) != 1 or not head.entries[0].row.kept:
            return store(held, change)
        fact = head.entries[0].fact
        segment = Segment(head.scope, head.line, (fact,), Chain(head.base or b""))
        name = keys.segment_name(fact.row.seq, head.w, "0")
        named, _ = writer.storage.put_segment(head, name, segment)
        new = replace(head, entries=(), is_rooted=False, base=None, base_frame=None)
        return store(held, change._replace(head=replace(new, segments=(named,))))

    writer.store = first  # type: ignore[method-assign]


def _fork_without_check(backend: Any) -> None:
    backend._settle = lambda stored: None
    backend._storage.is_alive = lambda head: True


def _lease_merely_read(backend: Any) -> None:
    save = backend.commit

    def commit(commit: Any) -> Any:
        if commit.fence is not None:
            hold = backend.read_lease(commit.scope, now=0)
            if hold is None or hold.key != commit.fence:
                return save(commit)
        return save(commit._replace(fence=None))

    backend.commit = commit


def _pointers_last(backend: Any) -> None:
    writer: Writer = backend._writer
    store = writer.store

    def late(held: Held, change: Change) -> Held:
        stored = store(held, change._replace(pointers=()))
        writer.index.write(change.head.scope, change.pointers)
        return stored

    writer.store = late  # type: ignore[method-assign]


def _notes_stay(backend: Any) -> None:
    backend._clear_notes = lambda scope, on: None


class Sabotage(NamedTuple):
    """What is broken, and the scenario and the mode in which it is caught soonest."""

    engine: Callable[[Any], None]
    scenario: str
    mode: str


SABOTAGES: Final = {
    "blind head": Sabotage(_blind_head, "A", "none"),
    "lost is failed": Sabotage(_lost_is_failed, "A", "lost"),
    "head before segment": Sabotage(_head_before_segment, "A", "none"),
    "old segment deleted first": Sabotage(_old_segment_first, "A", "none"),
    "sweep reads the head first": Sabotage(_sweep_reads_head_first, "A", "none"),
    "sweep ignores after": Sabotage(_sweep_ignores_after, "A", "none"),
    "delete without sweep": Sabotage(_no_sweep, "C", "none"),
    "first head names a segment": Sabotage(_first_head_names_a_segment, "D", "none"),
    "a refusal is believed": Sabotage(_refusal_believed, "A", "lost"),
    "fork without check": Sabotage(_fork_without_check, "H", "none"),
    "lease merely read": Sabotage(_lease_merely_read, "I", "none"),
    "pointers after the commit": Sabotage(_pointers_last, "G", "crash"),
    "notes stay": Sabotage(_notes_stay, "Q", "none"),
}


def sabotaged(name: str) -> Callable[[Bucket, bool, Clock, Callable[[], Stamp]], Backend]:
    """Return an opener of an engine that is broken in one way."""

    def open_(bucket: Bucket, index: bool, clock: Clock, draw: Callable[[], Stamp]) -> Backend:
        backend = open_segments(bucket, index, clock, draw)
        SABOTAGES[name].engine(backend)
        return backend

    return open_
