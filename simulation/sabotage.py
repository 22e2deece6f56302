"""Engines that are broken on purpose: what the checker must catch, or it has no teeth.

Each does one thing as an obvious but wrong design does. The rest is the real engine.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

from limpet.backends.buckets.protocol import Bucket
from limpet.backends.objects import keys
from limpet.backends.objects.building import Built
from limpet.backends.objects.files import walk
from limpet.backends.objects.heads import Head
from limpet.engine import rolling
from limpet.model import ANY, ScopeKey
from limpet.protocol import Backend, Clock, Stamp
from limpet.storage import SHARED, Change, LostAnswer
from simulation.engine import open_objects
from simulation.scopes import open_scopes
from simulation.world import Opener

# Of objects


def _blind_head(backend: Any) -> None:
    bucket = backend.storage.files.bucket
    put = bucket.put

    def blind(key: str, data: bytes, *, expect: Any) -> str:
        version: str = put(key, data, expect=ANY if key.endswith("/head") else expect)
        return version

    bucket.put = blind


def _head_before_parts(backend: Any) -> None:
    storage, bucket = backend.storage, backend.storage.files.bucket
    write, put = storage._write_parts, bucket.put
    waiting = dict[str, bytes]()

    def later(key: ScopeKey, built: Built) -> None:
        waiting.update(built.parts)
        write(key, built._replace(parts={}))

    def late(key: str, data: bytes, *, expect: Any) -> str:
        version: str = put(key, data, expect=expect)
        while key.endswith("/head") and waiting:
            put(*waiting.popitem(), expect=ANY)
        return version

    storage._write_parts, bucket.put = later, late


def _old_parts_first(backend: Any) -> None:
    storage = backend.storage
    write = storage._write_parts

    def early(key: ScopeKey, built: Built) -> None:
        write(key, built)
        storage.files.delete(built.removed)

    storage._write_parts = early


def _sweep_reads_head_first(backend: Any) -> None:
    storage = backend.storage

    def sweep_after(head: Head, *_: Any) -> None:
        listed = list(walk(storage.files.bucket, keys.scope_prefix(head.key)))
        storage.files.delete([each.key for each in storage.unnamed(head, listed)])

    storage._sweep_after = sweep_after


def _sweep_ignores_after(backend: Any) -> None:
    unnamed = backend.storage.unnamed
    backend.storage.unnamed = lambda head, listed: unnamed(head._replace(w="-"), listed)


def _no_sweep(backend: Any) -> None:
    backend.storage._sweep_after = lambda *_: None


def _attempts_share_parts(backend: Any) -> None:
    stamp = backend.storage.draw()
    backend.storage.draw = lambda: stamp


def _taken_back_unread(backend: Any) -> None:
    backend.storage._take_back = lambda *given: backend.storage._drop_parts(given[-1])


def _deleted_without_a_head(backend: Any) -> None:
    storage = backend.storage
    storage._bury = lambda _, reader: storage.files.delete([keys.head_key(reader.key)]) or True


def _fork_without_check(backend: Any) -> None:
    backend.storage._settle = lambda held: True
    backend.storage.files.is_alive = lambda *_: True


def _pointers_last(backend: Any) -> None:
    storage = backend.storage
    write, finish = storage._write_parts, storage._finish

    def without(key: ScopeKey, built: Built) -> None:
        write(key, built._replace(pointers=()))

    def late(before: Any, now: Any, built: Built) -> None:
        finish(before, now, built)
        storage.index.write(built.head.key, built.pointers)

    storage._write_parts, storage._finish = without, late


def _signs_after_heads(backend: Any) -> None:
    """Deletes of a session the heads before the signs that their lines were begun."""
    delete = backend.storage.files.delete

    def deleted(doomed: Sequence[str]) -> None:
        if not all("/started." in key for key in doomed):
            delete(doomed)

    backend.storage.files.delete = deleted


# Of both


def _lease_merely_read(backend: Any) -> None:
    save = backend.commit

    def commit(commit: Any) -> Any:
        if commit.fence is not None:
            hold = backend.read_lease(commit.scope, now=0)
            if hold is None or hold.key != commit.fence:
                return save(commit)
        return save(commit._replace(fence=None))

    backend.commit = commit


class _Beaten(Exception):
    """A change is decided again, and nothing remembers that it was sent."""


def _forgetting(backend: Any) -> None:
    transact = backend._transact

    def again(key: ScopeKey, stamp: Stamp, decide: Any, *_: Any) -> Any:
        while True:
            with suppress(_Beaten):
                return transact(key, stamp, decide)

    backend._transact = again


def _lost_is_failed(backend: Any) -> None:
    transact = backend.storage.transact

    def failed(key: ScopeKey, decide: Any) -> Any:
        try:
            return transact(key, decide)
        except LostAnswer:
            raise _Beaten from None

    backend.storage.transact = failed
    _forgetting(backend)


def _refusal_believed(backend: Any) -> None:
    storage = backend.storage
    commit, write = storage._commit, storage.write

    def refused(*given: Any) -> bool:
        if not commit(*given):
            raise _Beaten
        return True

    def quick(change: Change) -> bool:
        with suppress(_Beaten):
            return bool(write(change))
        return False

    storage._commit, storage.write = refused, quick
    _forgetting(backend)


def _changing(backend: Any, change_of: Callable[[Any, Change], Change]) -> None:
    """Have every change altered on its way."""
    storage = backend.storage
    if hasattr(storage, "files"):
        commit = storage._commit
        storage._commit = lambda held, change, reader: commit(
            held, change_of(storage, change), reader
        )
        return
    write = storage._write
    storage._write = lambda change, **options: write(change_of(storage, change), **options)


def _new_notes_replace(backend: Any) -> None:
    _changing(backend, lambda _, change: change._replace(new_note=False))


def _notes_stay(backend: Any) -> None:
    _changing(backend, lambda _, change: change._replace(notes_gone=()))


def _states_left_on_what_goes(backend: Any) -> None:
    def altered(_: Any, change: Change) -> Change:
        return change._replace(tail=()) if change.rows_gone and not change.rows else change

    _changing(backend, altered)


def _roll_ignores_epoch(backend: Any) -> None:
    def roll_of(key: Any) -> None:
        roll = backend.storage.read(key, partial(rolling.plan, limits=backend._tails))

        def at(reader: Any, stamp: Stamp) -> Any:
            here = roll.change._replace(before=reader.record)
            return roll._replace(change=here).at(reader, stamp)

        if not isinstance(roll, int):
            backend._touch(key, backend._draw(), at)

    backend._roll = roll_of


def _quick_ignores_expect(backend: Any) -> None:
    careful = backend.commit

    def quick(commit: Any) -> Any:
        known = backend._known.get(commit.scope) is not None
        return careful(commit._replace(expect=ANY) if known else commit)

    backend.commit = quick


def _unguarded(backend: Any) -> None:
    _changing(backend, lambda s, change: change._replace(before=s._scopes.at(change.key).record))


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


ENGINES: Final[dict[str, Opener]] = {"objects": open_objects, "scopes": open_scopes}


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
    "a refusal is believed": Sabotage(_refusal_believed, "A", "lost"),
    "head before its parts": Sabotage(_head_before_parts, "A", "none"),
    "old parts deleted first": Sabotage(_old_parts_first, "A", "none"),
    "attempts share parts": Sabotage(_attempts_share_parts, "A", "delayed", 150),
    "taken back unread": Sabotage(_taken_back_unread, "A", "lost"),
    "sweep reads the head first": Sabotage(_sweep_reads_head_first, "A", "none"),
    "sweep ignores after": Sabotage(_sweep_ignores_after, "G", "none"),
    "delete without sweep": Sabotage(_no_sweep, "C", "none"),
    "deleted without a head": Sabotage(_deleted_without_a_head, "D", "none"),
    "fork without check": Sabotage(_fork_without_check, "H", "none", 150),
    "lease merely read": Sabotage(_lease_merely_read, "I", "none"),
    "pointers after the commit": Sabotage(_pointers_last, "G", "crash"),
    "notes stay": Sabotage(_notes_stay, "Q", "none"),
    "roll ignores the epoch": Sabotage(_roll_ignores_epoch, "P", "none"),
    "signs deleted after heads": Sabotage(_signs_after_heads, "S", "none"),
    "writes without a guard": Sabotage(_unguarded, "A", "none", engine="scopes"),
    "new notes replace": Sabotage(_new_notes_replace, "F", "none", 70, "scopes"),
    "notes stay in scopes": Sabotage(_notes_stay, "Q", "none", engine="scopes"),
    "left on what goes": Sabotage(_states_left_on_what_goes, "P", "none", 70, engine="scopes"),
    "lost is failed in scopes": Sabotage(_lost_is_failed, "A", "lost", engine="scopes"),
    "epoch ignored in scopes": Sabotage(_roll_ignores_epoch, "P", "none", engine="scopes"),
    "quick ignores expect": Sabotage(_quick_ignores_expect, "A", "none", engine="scopes"),
    "names without nonces": Sabotage(_shared_without_nonce, "T", "none", engine="scopes"),
}


def sabotaged(name: str) -> Opener:
    """Return an opener of an engine that is broken in one way."""

    def open_(bucket: Bucket, clock: Clock, draw: Callable[[], Stamp]) -> Backend:
        sabotage = SABOTAGES[name]
        backend = ENGINES[sabotage.engine](bucket, clock, draw)
        sabotage.apply(backend)
        return backend

    return open_
