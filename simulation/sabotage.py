"""Engines that are broken on purpose: what the checker must catch, or it has no teeth.

Each does one thing as an obvious but wrong design does. The rest is the real engine.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from limpet.backends.buckets.protocol import Bucket, Listed, Moved
from limpet.backends.objects import keys
from limpet.backends.objects.chain import Chain
from limpet.backends.objects.objects import Head, Segment
from limpet.backends.objects.storage import Beaten, Held, NoncesOf, Storage
from limpet.backends.objects.writer import Change, Writer
from limpet.errors import Unavailable
from limpet.model import ANY
from limpet.protocol import Backend, Clock, Stamp
from simulation.engine import open_objects
from simulation.world import Opener


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


def _only_listed_heads(backend: Any) -> None:
    """Deletes of a session only the heads that a listing shows, not those of what it shows."""
    bucket = backend._storage.bucket
    list_, delete = bucket.list, bucket.delete
    seen: set[str] = set()

    def listed(prefix: str, **options: Any) -> list[Listed]:
        found: list[Listed] = list_(prefix, **options)
        seen.update(each.key for each in found if each.key.endswith("/head"))
        return found

    def deleted(doomed: Sequence[str]) -> None:
        delete([key for key in doomed if key in seen or not key.endswith("/head")])
        seen.difference_update(doomed)

    bucket.list, bucket.delete = listed, deleted


class Sabotage(NamedTuple):
    """What is broken, and the scenario, mode and seed from which on it is caught soonest."""

    engine: Callable[[Any], None]
    scenario: str
    mode: str
    seed: int = 0


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
    "only listed heads deleted": Sabotage(_only_listed_heads, "S", "none", 440),
}


def sabotaged(name: str) -> Opener:
    """Return an opener of an engine that is broken in one way."""

    def open_(bucket: Bucket, clock: Clock, draw: Callable[[], Stamp]) -> Backend:
        backend = open_objects(bucket, clock, draw)
        SABOTAGES[name].engine(backend)
        return backend

    return open_
