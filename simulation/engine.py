"""The engine under simulation: with small numbers, and a look at what is stored.

Tails are rolled after two snapshots, most states are deltas, many are compressed, and notes are in
pages soon, so that short runs have all of it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

from limpet.backends.buckets.protocol import Bucket, Stored
from limpet.backends.objects import building, keys
from limpet.backends.objects.files import Files
from limpet.backends.objects.format import StoredSegment, parse_page
from limpet.backends.objects.heads import parse_head
from limpet.backends.objects.reader import ObjectReader
from limpet.backends.objects.storage import ObjectStorage
from limpet.core import codec, segments
from limpet.core.encryption import NO_KEYS
from limpet.core.rows import Row
from limpet.core.segments import Segment
from limpet.engine import Engine, rolling, saving, states
from limpet.engine.joining import Joining, Waiting
from limpet.engine.rolling import Limits
from limpet.engine.states import States
from limpet.model import Pruned, ScopeKey
from limpet.protocol import Clock, NoteWrite, Stamp
from limpet.storage import Change, Reader

_SMALLER: Final = {
    "SMALL_BYTES": 24,
    "_WHOLE_ZSTD_MIN": 96,
    "_DELTA_ZSTD_MIN": 48,
    "_SHARED_MIN": 8,
    "_INLINE_NOTES_MAX": 1,
    "_PAGE_NOTES_MAX": 2,
}
_NEWEST_BYTES: Final = 40


@contextmanager
def small_states() -> Iterator[None]:
    """Let states be large sooner, in this block alone: the process may have other stores."""
    modules = [vars(each) for each in (segments, states, saving, rolling, building)]
    before = [{name: each[name] for name in _SMALLER if name in each} for each in modules]
    try:
        for module, values in zip(modules, before, strict=True):
            module.update({name: _SMALLER[name] for name in values})
        yield
    finally:
        for module, values in zip(modules, before, strict=True):
            module.update(values)


class Meanwhile(Joining):
    """Where a thread would wait for the save of another one, it makes that save itself."""

    save: Callable[[], object] = staticmethod(lambda: None)

    def wait(self, write: NoteWrite, first: AbstractContextManager[None]) -> bool | Change:
        mine = Waiting(write)
        self.waiting[mine] = write.scope
        try:
            self.save()
        finally:
            self.waiting.clear()
        return mine.outcome


class Inspected(Engine):
    """The engine; after a deletion the storage itself is searched for what was deleted."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._joining = self.meanwhile = Meanwhile()

    def delete_snapshots(
        self, scope: ScopeKey, ids: Sequence[str], *, spare_head: bool = False, **options: Any
    ) -> Pruned:
        before, parts = _tags(*self.moment(scope)), self.parts(scope)
        answer = super().delete_snapshots(scope, ids, spare_head=spare_head, **options)
        if not answer.count:
            return answer  # another deletion came first: that one may have been interrupted
        reader, rows = self.moment(scope)
        stored = b"\n".join((*_texts(reader), *self.texts(scope, parts)))
        # What others hold, or held until another deletion, is no concern of this one.
        others = {id: tags for id, tags in before.items() if id not in ids} | _tags(reader, rows)
        for tag in set().union(*(before.get(id, ()) for id in ids)).difference(*others.values()):
            assert codec.encode(tag) not in stored, f"{tag} was deleted and is still stored"
        return answer

    def moment(self, scope: ScopeKey) -> tuple[Reader, Iterable[Row]]:
        """Return a scope as it is now, past the engine, and its snapshots."""
        raise NotImplementedError

    def parts(self, scope: ScopeKey) -> set[str]:
        """Return what is stored of it elsewhere."""
        return set()

    def texts(self, scope: ScopeKey, before: set[str]) -> Iterator[bytes]:
        """Yield what its parts hold, decompressed: those that it names, and those from before."""
        raise NotImplementedError


def _tags(reader: Reader, rows: Iterable[Row]) -> dict[str, set[str]]:
    """Return what the states of a scope and the notes on them hold, by id."""
    found = dict[str, set[str]]()
    for row in rows:
        state = codec.decode(States(reader).get(row.seq))
        notes = {str(codec.decode(note.value)) for note in reader.notes([row.id])}
        found[row.id] = notes | set(state.get("log", ()) if isinstance(state, dict) else ())
    return found


def _texts(reader: Reader) -> Iterator[bytes]:
    yield from (States(reader).payload(row) for row in reader.tail().values())


def in_segment(blob: bytes) -> Iterator[bytes]:
    """Yield what the states of a segment are made of, decompressed."""
    frames = Segment.parse(blob).frames
    yield from (codec.decompress(frame.data, what="frame") for frame in frames)


class _Calm:
    """The objects of a bucket as they are now, without steps; they are only read."""

    def __init__(self, objects: dict[str, Stored]) -> None:
        self.objects = objects

    def get(self, keys: Sequence[str], *, first: int | None = None) -> list[Stored | None]:
        return [self.objects.get(key) for key in keys]

    mark = delete = list = fingerprints = listen = close = None


class InspectedObjects(Inspected):
    """The engine over objects.

    A part that its writer puts after a deletion has begun is no concern of that one, unless a head
    names it (docs/format.md, not promised: 1).
    """

    @property
    def _bucket(self) -> Any:
        return _Calm(self.storage.files.bucket.below._storage.objects)  # type: ignore[attr-defined]

    def moment(self, scope: ScopeKey) -> tuple[Reader, Iterable[Row]]:
        (stored,) = self._bucket.get([keys.head_key(scope)])
        head = None if stored is None else parse_head(stored.data)
        files = Files(self._bucket, clock=self._clock, ciphers=NO_KEYS)
        reader = ObjectReader(files, scope, head)
        return reader, [fact.row for fact in reader.newest_first()]

    def parts(self, scope: ScopeKey) -> set[str]:
        found = ((key, keys.parse(key)) for key in self._bucket.objects)
        return {key for key, each in found if each and each.scope == scope and each.part}

    def texts(self, scope: ScopeKey, before: set[str]) -> Iterator[bytes]:
        reader: Any = self.moment(scope)[0]
        yield from (note.value for note in reader.head.notes.values())
        named = {*building.part_keys(reader.head)}
        for path in self.parts(scope) & (before | named):
            data, name = self._bucket.objects[path].data, path.rpartition("/")[2]
            if "/segments/" in path:
                yield from in_segment(StoredSegment(name, data).states)
            else:
                yield from (note.value for note in parse_page(name, data))


def open_objects(bucket: Bucket, clock: Clock, draw: Callable[[], Stamp]) -> Engine:
    """Open the engine over a bucket."""
    storage = ObjectStorage(bucket, clock=clock, states=States, draw=draw)
    tails = Limits(snapshots=2, newest_bytes=_NEWEST_BYTES)
    return InspectedObjects(storage, clock=clock, draw=draw, tails=tails)
