"""Lists of checkpoints, newest first by their ids, and of threads."""

import heapq
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

import orjson
import zstandard
from langchain_core.messages import BaseMessage
from langgraph.checkpoint.base import CheckpointTuple

from limpet.api.verbs import Walk
from limpet.compat.langgraph import records
from limpet.compat.langgraph.checkpoints import Desk, notes_on
from limpet.compat.langgraph.messages import Run
from limpet.compat.langgraph.records import Codec, Config, Warm
from limpet.core import ids, limits
from limpet.core.deltas import delta
from limpet.errors import InvalidInput
from limpet.model import Note, ScopeInfo, ScopeKey, SnapshotInfo, SnapshotRef
from limpet.protocol import Backend, Query

# Reading one state after the other, of which each holds nearly all of the one before.

_END = ord("]")
_TRIES_MAX = 8


class _Seen(NamedTuple):
    """The longest run of messages of a state: its channel, where it begins, and where each ends."""

    name: str
    head: bytes
    run: Run
    joined: bytes
    ends: list[int]


class Walker:
    """Reads checkpoints. Messages that the last one had, too, are not read again."""

    def __init__(self, codec_: Codec) -> None:
        self._codec = codec_
        self._seen: _Seen | None = None
        self._given: list[list[BaseMessage]] = []

    def checkpoint(self, info: SnapshotInfo, body: bytes) -> dict[str, Any]:
        """Return the checkpoint that a snapshot is."""
        found = self._again(info, body)
        if found is not None:
            return found
        warm = records.taken_apart(self._codec, info, body)
        if warm is None:
            return records.checkpoint_of(self._codec, info, body)
        self._seen = _longest(warm, body)
        return records.made_again(self._codec, info, warm)

    def _again(self, info: SnapshotInfo, body: bytes) -> dict[str, Any] | None:
        """Return a checkpoint whose messages are the first of those seen; None if it is none."""
        seen = self._seen
        if seen is None or records.FACADE not in info.metadata or not body.startswith(seen.head):
            return None
        start = len(seen.head)
        count = _same(body, start, seen)
        if not count:
            return None
        end = start + seen.ends[count - 1]
        checkpoint = records.checkpoint_of(self._codec, info, seen.head + body[end:])
        checkpoint["channel_values"][seen.name] = self._messages(seen.run, count)
        return checkpoint

    def _messages(self, run: Run, count: int) -> list[BaseMessage]:
        # Those of the last two states are held: the caller may still use the last one, and those of
        # the one before are dropped while new ones are made (see `Run.make`).
        released = self._given.pop(0) if len(self._given) == 2 else None
        made = run.make(count, released)
        self._given.append(made.copy())
        return made


def _same(body: bytes, start: int, seen: _Seen) -> int:
    """Return how many of the messages stand in a body from `start` on, and are all of its list."""
    ends, joined = seen.ends, memoryview(seen.joined)  # whose slices copy nothing
    # Where the list of the body could end: to look at one byte is cheap, and few will do.
    last = bisect_right(ends, len(body) - start - 1)
    places = (count for count in range(last, 0, -1) if body[start + ends[count - 1]] == _END)
    for count in islice(places, _TRIES_MAX):
        if body.startswith(joined[: ends[count - 1]], start):
            return count
    return 0


def _longest(warm: Warm, body: bytes) -> _Seen | None:
    runs = {name: each for name, each in warm.channels.items() if isinstance(each, Run)}
    if not runs:
        return None
    name = max(runs, key=lambda each: runs[each].size())
    run = runs[name]
    at = len(b'{"channel_values":{')
    for other, channel in warm.channels.items():
        at += len(orjson.dumps(other)) + 1
        if other == name:
            break
        at += (len(channel) if isinstance(channel, bytes) else channel.size() + 2) + 1
    head = body[: at + 1]
    joined = run.joined()
    is_there = head.endswith(b":[") and body.startswith(joined, at + 1)
    return _Seen(name, head, run, joined, run.ends()) if is_there and run.plain else None


# Checkpoints of a listing, which are made when they are looked at.
#
# LangGraph reads a whole history into a list before it shows the first of it. Each state holds nearly
# all of the one before, so they are kept as what differs, and taken apart one at a time.

_KEY_EVERY = 64  # states: what it takes at most to come to one of them from anywhere
LARGE_MIN = 16 * 1024  # bytes of a state that is worth it


class Shelf:
    """The states of one listing. Whoever goes through them in order pays for each one once."""

    def __init__(self, walker: Walker) -> None:
        self.walker = walker
        self._parts: list[bytes] = []
        self._added = b""
        self._read: tuple[int, bytes] = (-1, b"")
        self._shown: tuple[int, dict[str, Any]] = (-1, {})
        self._lock = threading.Lock()

    def add(self, body: bytes) -> int:
        """Keep a state, and return its number."""
        with self._lock:
            number = len(self._parts)
            if number % _KEY_EVERY:
                self._parts.append(delta.dump(delta.diff(self._added, body)))
            else:
                self._parts.append(zstandard.ZstdCompressor(level=1).compress(body))
            self._added = body
            return number

    def body(self, number: int) -> bytes:
        """Return a state."""
        with self._lock:
            at, body = self._read
            key = number - number % _KEY_EVERY
            if not key <= at <= number:
                at, body = key, zstandard.ZstdDecompressor().decompress(self._parts[key])
            for each in range(at + 1, number + 1):
                body = delta.apply(body, delta.parse(self._parts[each]))
            self._read = number, body
            return body

    def shown(self, number: int, make: Callable[[bytes], dict[str, Any]]) -> dict[str, Any]:
        """Return the checkpoint of a state: the same one as long as no other is looked at."""
        at, checkpoint = self._shown
        if at != number:
            checkpoint = make(self.body(number))
            self._shown = number, checkpoint
        return checkpoint


class Waiting:
    """A checkpoint that is not made yet."""

    __slots__ = ("_make", "_number", "_shelf")

    def __init__(self, shelf: Shelf, body: bytes, make: Callable[[bytes], dict[str, Any]]) -> None:
        self._shelf = shelf
        self._number = shelf.add(body)
        self._make = make

    def made(self) -> dict[str, Any]:
        """Return it: a plain dict."""
        return self._shelf.shown(self._number, self._make)


class ListedTuple(CheckpointTuple):
    """A checkpoint with what belongs to it, whose state is made when it is asked for.

    What it then gives is a plain dict. It is made anew once another one of the listing was asked
    for: who wants to keep it keeps the dict.
    """

    __slots__ = ()

    @property
    def checkpoint(self) -> Any:
        """The checkpoint."""
        found = tuple.__getitem__(self, 1)
        return found.made() if isinstance(found, Waiting) else found

    def __getitem__(self, at: Any) -> Any:
        return self.checkpoint if at in (1, -4) else tuple(self)[at]

    def __iter__(self) -> Iterator[Any]:
        for at, each in enumerate(tuple.__iter__(self)):
            yield self.checkpoint if at == 1 else each

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple) and tuple(self) == tuple(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(CheckpointTuple(*self))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return CheckpointTuple, tuple(self)


Matches = Callable[[SnapshotInfo], bool]


def checkpoints(
    desk: Desk,
    config: Config | None,
    *,
    filter: Mapping[str, Any] | None,
    before: Config | None,
    limit: int | None,
) -> Walk[CheckpointTuple]:
    """Walk checkpoints: of a thread, of one of its namespaces, or of all threads.

    Newest first by id; of all threads, by when they were saved.
    """
    limit = None if limit is None or limit < 0 else limit
    ceiling = None if before is None else records.id_in(before)
    wanted = dict(filter or {})
    if config is None:
        return _everywhere(desk, wanted, ceiling, limit)
    return _of_thread(desk, config, wanted, ceiling, limit)


def _of_thread(
    desk: Desk,
    config: Config,
    wanted: Mapping[str, Any],
    ceiling: str | None,
    limit: int | None,
) -> Walk[CheckpointTuple]:
    named = records.configurable(config)
    scope = records.scope_in(config)
    one_scope = "checkpoint_ns" in named and named["checkpoint_ns"] is not None
    only = records.id_in(config)

    def find(backend: Backend) -> list[SnapshotRef]:
        scopes = [scope] if one_scope else scopes_of(backend, scope.session_id)
        found = (ref for each in scopes for ref in _refs(desk, backend, each, wanted))
        chosen = (
            ref
            for ref in found
            if (ceiling is None or ref.id < ceiling) and (only is None or ref.id == only)
        )
        if limit is not None:
            return heapq.nlargest(limit, chosen, key=lambda ref: ref.id)
        return sorted(chosen, key=lambda ref: ref.id, reverse=True)

    def walk() -> Walk[CheckpointTuple]:
        refs: list[SnapshotRef] = []
        shelf = Shelf(Walker(desk.codec))

        def first(backend: Backend) -> list[CheckpointTuple]:
            refs.extend(find(backend))
            return _read(desk, backend, shelf, refs[: limits.PAGE_STATES_MAX])

        yield first
        for start in range(limits.PAGE_STATES_MAX, len(refs), limits.PAGE_STATES_MAX):
            page = refs[start : start + limits.PAGE_STATES_MAX]
            yield lambda backend, page=page: _read(desk, backend, shelf, page)  # type: ignore[misc]

    return walk()


def scopes_of(backend: Backend, session_id: str, kind: str | None = records.KIND) -> list[ScopeKey]:
    """Return the scopes of a thread."""
    found: list[ScopeKey] = []
    after: ScopeKey | None = None
    while True:
        page = backend.list_scopes(
            session_id=session_id, kind=kind, prefix="", after=after, limit=limits.PAGE_ITEMS_MAX
        )
        found += (each.key for each in page)
        if len(page) < limits.PAGE_ITEMS_MAX:
            return found
        after = page[-1].key


def _refs(
    desk: Desk, backend: Backend, scope: ScopeKey, wanted: Mapping[str, Any]
) -> Iterable[SnapshotRef]:
    """Yield where the checkpoints of a scope are: all, or those whose metadata is as wanted."""
    if records.namespace_of(scope) is None:
        return
    if not wanted:
        for id in all_ids(backend, scope):
            yield SnapshotRef(scope, id)
        return
    for info in infos(backend, Query(scope, labels=_labels(wanted))):
        if _matches(desk, info, wanted):
            yield SnapshotRef(scope, info.id)


def all_ids(backend: Backend, scope: ScopeKey) -> Iterable[str]:
    """Yield the ids of a scope in ascending order."""
    after = ""
    while True:
        page = backend.list_ids(scope, after=after, limit=limits.PAGE_ITEMS_MAX)
        yield from page
        if len(page) < limits.PAGE_ITEMS_MAX:
            return
        after = page[-1]


def infos(backend: Backend, query: Query) -> Iterable[SnapshotInfo]:
    """Yield the facts of checkpoints, the last saved first."""
    place: int | None = query.after
    while True:
        page = backend.list_snapshots(
            Query(query.scope, prefix=query.prefix, labels=query.labels, after=place),
            limit=limits.PAGE_ITEMS_MAX,
        )
        yield from page
        if len(page) < limits.PAGE_ITEMS_MAX:
            return
        place = ids.seq_of(page[-1].revision)


def _labels(wanted: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return what of a filter the store can look up."""
    run_id = wanted.get(records.RUN)
    return ((records.RUN, records.label_of(run_id)),) if isinstance(run_id, str) else ()


def _matches(desk: Desk, info: SnapshotInfo, wanted: Mapping[str, Any]) -> bool:
    if not wanted:
        return True
    meta = records.read_metadata(desk.codec, info)
    return all(key in meta and meta[key] == value for key, value in wanted.items())


def _shown(
    desk: Desk, shelf: Shelf, info: SnapshotInfo, body: bytes, notes: list[Note]
) -> CheckpointTuple:
    """Return a checkpoint; a large one is made when it is asked for."""
    if len(body) < LARGE_MIN:
        checkpoint = records.checkpoint_of(desk.codec, info, body)
        return records.tuple_of(desk.codec, info, checkpoint, notes)
    waiting: Any = Waiting(shelf, body, lambda read: shelf.walker.checkpoint(info, read))
    return ListedTuple(*records.tuple_of(desk.codec, info, waiting, notes))


def _read(
    desk: Desk, backend: Backend, shelf: Shelf, refs: list[SnapshotRef]
) -> list[CheckpointTuple]:
    """Return checkpoints with their states, those that are still there, in the order asked."""
    tuples: dict[SnapshotRef, CheckpointTuple] = {}
    for scope in dict.fromkeys(ref.scope for ref in refs):
        wanted = [ref.id for ref in refs if ref.scope == scope]
        found = backend.read_snapshots(scope, wanted)
        notes = notes_on(backend, scope, [info.id for info, _ in found])
        for info, body in found:
            own = [note for note in notes if note.snapshot_id == info.id]
            tuples[SnapshotRef(scope, info.id)] = _shown(desk, shelf, info, body, own)
    return [tuples[ref] for ref in refs if ref in tuples]


def _everywhere(
    desk: Desk, wanted: Mapping[str, Any], ceiling: str | None, limit: int | None
) -> Walk[CheckpointTuple]:
    place: int | None = None
    left = limit
    shelf = Shelf(Walker(desk.codec))
    ended = left == 0
    while not ended:

        def some(backend: Backend) -> list[CheckpointTuple]:
            nonlocal place, left, ended
            query = Query(labels=_labels(wanted), after=place)
            page = backend.list_snapshots(query, limit=limits.PAGE_STATES_MAX)
            ended = len(page) < limits.PAGE_STATES_MAX
            if page:
                place = ids.seq_of(page[-1].revision)
            refs = [
                SnapshotRef(info.scope, info.id)
                for info in page
                if records.namespace_of(info.scope) is not None
                and (ceiling is None or info.id < ceiling)
                and _matches(desk, info, wanted)
            ]
            found = _read(desk, backend, shelf, refs if left is None else refs[:left])
            if left is not None:
                left -= len(found)
                ended = ended or left <= 0
            return found

        yield some


def threads(prefix: str, after: str | None, limit: int | None) -> Walk[str]:
    """Walk the threads whose id begins with a text, in text order."""
    limits.check_text("prefix", prefix, chars_max=limits.ID_CHARS_MAX)
    count = limits.check_count("limit", limit)
    last = "" if after is None else limits.check_text("after", after, chars_max=limits.ID_CHARS_MAX)
    if count == 0:
        return
    seen, place, ended = 0, ScopeKey(last, "\U0010ffff", "\U0010ffff") if last else None, False
    shown = last or None
    while not ended:

        def some(backend: Backend) -> list[str]:
            nonlocal seen, place, ended, shown
            page: list[ScopeInfo] = backend.list_scopes(
                session_id=None,
                kind=records.KIND,
                prefix=prefix,
                after=place,
                limit=limits.PAGE_ITEMS_MAX,
            )
            ended = len(page) < limits.PAGE_ITEMS_MAX
            found: list[str] = []
            for each in page:
                place = each.key
                if each.key.session_id != shown and records.namespace_of(each.key) is not None:
                    shown = each.key.session_id
                    found.append(shown)
            if count is not None:
                found = found[: count - seen]
                seen += len(found)
                ended = ended or seen >= count
            return found

        yield some


def check_config(config: object) -> None:
    """Raise InvalidInput if something is no config."""
    if config is not None and not isinstance(config, Mapping):
        raise InvalidInput(f"a config must be a mapping. type=`{type(config).__name__}`")
