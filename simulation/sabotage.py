"""Engines that are broken on purpose: what the checker must catch, or it has no teeth.

Each does one thing as an obvious but wrong design does. The rest is the real engine.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, NamedTuple

from limpet.backends.buckets.protocol import Bucket, Listed, Moved
from limpet.backends.objects import keys
from limpet.backends.objects.chain import Chain
from limpet.backends.objects.objects import Head, Segment
from limpet.backends.objects.storage import Beaten, Held, NoncesOf, Storage
from limpet.backends.objects.writer import Change, Writer
from limpet.engine import rolling
from limpet.errors import Unavailable
from limpet.model import ANY
from limpet.protocol import Backend, Clock, Stamp
from limpet.storage import SHARED, LostAnswer
from simulation.engine import open_objects
from simulation.scopes import open_engine
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


def _changing(backend: Any, change_of: Callable[[Any, Any], Any]) -> None:
    """Have every change of a storage of scopes altered on its way."""
    storage = backend.storage
    write = storage._write

    def altered(change: Any, **options: Any) -> bool:
        done: bool = write(change_of(storage, change), **options)
        return done

    storage._write = altered


def _unguarded(backend: Any) -> None:
    _changing(backend, lambda s, change: change._replace(before=s._scopes.at(change.key).record))


def _notes_stay_in_scopes(backend: Any) -> None:
    _changing(backend, lambda _, change: change._replace(notes_gone=()))


def _states_left_on_what_goes(backend: Any) -> None:
    def altered(_: Any, change: Any) -> Any:
        return change._replace(tail=()) if change.rows_gone and not change.rows else change

    _changing(backend, altered)


def _sent_again_blindly(backend: Any) -> None:
    def transact(key: Any, stamp: Stamp, decide: Any, sent: Any = None) -> Any:
        def once(reader: Any) -> Any:
            change, result = decide(reader, stamp)
            return change, (change, result)

        while True:
            with suppress(LostAnswer):
                return backend.storage.transact(key, once)

    backend._transact = transact


def _roll_ignores_epoch(backend: Any) -> None:
    def roll_of(key: Any) -> None:
        roll = backend.storage.read(key, rolling.plan)

        def at(reader: Any, stamp: Stamp) -> Any:
            epoch = 0 if reader.record is None else reader.record.epoch
            return roll._replace(epoch=epoch).at(reader, stamp)

        if not isinstance(roll, int):
            backend._touch(key, backend._draw(), at)

    backend._roll = roll_of


def _quick_ignores_expect(backend: Any) -> None:
    careful = backend.commit

    def quick(commit: Any) -> Any:
        known = backend._known.get(commit.scope) is not None
        return careful(commit._replace(expect=ANY) if known else commit)

    backend.commit = quick


def _shared_without_nonce(backend: Any) -> None:
    """An update of the source of a fork leaves the name of its state as it was."""

    def nameless(body: bytes) -> bytes:
        return body[:8] + bytes(8) + body[16:]

    def altered(_: Any, change: Any) -> Any:
        tail = [
            row._replace(body=row.body[:8] + bytes(8) + row.body[16:])
            if row.encoding == SHARED
            else row
            for row in change.tail
        ]
        shared = [row._replace(name=nameless(row.name)) for row in change.shared]
        return change._replace(tail=tail, shared=shared)

    _changing(backend, altered)


class Sabotage(NamedTuple):
    """What is broken, and the scenario, mode and seed from which on it is caught soonest."""

    apply: Callable[[Any], None]
    scenario: str
    mode: str
    seed: int = 0
    engine: str = "objects"


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
    "writes without a guard": Sabotage(_unguarded, "A", "none", engine="scopes"),
    "notes stay in scopes": Sabotage(_notes_stay_in_scopes, "Q", "none", engine="scopes"),
    "left on what goes": Sabotage(_states_left_on_what_goes, "P", "none", 70, engine="scopes"),
    "sent again blindly": Sabotage(_sent_again_blindly, "A", "lost", engine="scopes"),
    "roll ignores the epoch": Sabotage(_roll_ignores_epoch, "P", "none", engine="scopes"),
    "quick ignores expect": Sabotage(_quick_ignores_expect, "A", "none", engine="scopes"),
    "names without nonces": Sabotage(_shared_without_nonce, "T", "none", engine="scopes"),
}


def sabotaged(name: str) -> Opener:
    """Return an opener of an engine that is broken in one way."""

    def open_(bucket: Bucket, clock: Clock, draw: Callable[[], Stamp]) -> Backend:
        sabotage = SABOTAGES[name]
        opener = open_objects if sabotage.engine == "objects" else open_engine
        backend: Backend = opener(bucket, clock, draw)
        sabotage.apply(backend)
        return backend

    return open_
