"""List checkpoints and threads: `list` and `threads`.

LangGraph reads a whole history into a list before it returns the first of it. So large states are
kept as deltas, since each holds nearly all of the one before, and are decoded when they are used.
"""

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby, islice
from typing import Any, NamedTuple, TypeVar

import orjson
from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple

from limpet.api.integrations import Backend, Query, Walk, check_prefix, codec, delta, limits, verbs
from limpet.compat.langgraph import records
from limpet.compat.langgraph.checkpoints import SaverContext, notes_on
from limpet.compat.langgraph.messages import MessageRun
from limpet.compat.langgraph.records import SplitCheckpoint, ValueCodec
from limpet.model import ScopeInfo, ScopeKey, SnapshotInfo, SnapshotRef

T = TypeVar("T")

_END = ord("]")
_TRIES_MAX = 8
_KEY_EVERY = 64  # states between those that are kept whole: the most deltas that are applied
LARGE_MIN = 16 * 1024  # bytes of a state that is decoded when it is used

# Decoding states one after the other


class _LongestRun(NamedTuple):
    """The longest run of messages of a state; `before` is the JSON that precedes them."""

    channel: str
    before: bytes
    run: MessageRun
    ends: list[int]

    def count_in(self, body: bytes) -> int:
        """Return how many of the messages make up the list at the same place; 0 if it differs."""
        if not body.startswith(self.before):
            return 0
        start = len(self.before)
        ends, joined = self.ends, memoryview(self.run.body)  # slices of a memoryview copy nothing
        # One byte rules out nearly all counts before messages are compared.
        last = bisect_right(ends, len(body) - start - 1)
        counts = (count for count in range(last, 0, -1) if body[start + ends[count - 1]] == _END)
        same = (
            count
            for count in islice(counts, _TRIES_MAX)
            if body.startswith(joined[: ends[count - 1]], start)
        )
        return next(same, 0)


class HistoryDecoder:
    """Decodes checkpoints. Messages that the last one had, too, are not decoded again."""

    def __init__(self, codec_: ValueCodec) -> None:
        self._codec = codec_
        self._longest: _LongestRun | None = None
        self._given: list[list[BaseMessage]] = []

    def checkpoint(self, info: SnapshotInfo, body: bytes) -> dict[str, Any]:
        known = self._longest
        if (
            known is not None
            and records.FACADE in info.metadata
            and (count := known.count_in(body))
        ):
            rest = body[len(known.before) + known.ends[count - 1] :]
            checkpoint = records.checkpoint_of(self._codec, info, known.before + rest)
            checkpoint["channel_values"][known.channel] = self._messages(known.run, count)
            return checkpoint
        split = records.split_checkpoint(self._codec, info, body)
        if split is None:
            return records.checkpoint_of(self._codec, info, body)
        self._longest = _longest_run(split, body)
        return records.rebuild_checkpoint(self._codec, info, split)

    def _messages(self, run: MessageRun, count: int) -> list[BaseMessage]:
        # Those of the last two states are held: the caller may still use the last one, and those of
        # the one before are dropped while new ones are made (see `MessageRun.make`).
        released = self._given.pop(0) if len(self._given) == 2 else None
        made = run.make(count, released)
        self._given.append(made.copy())
        return made


def _longest_run(split: SplitCheckpoint, body: bytes) -> _LongestRun | None:
    found: _LongestRun | None = None
    at = len(b'{"channel_values":')
    for name, channel in split.channels.items():
        at += len(orjson.dumps(name)) + 2  # with a brace or comma, and a colon
        if isinstance(channel, bytes):
            at += len(channel)
            continue
        if found is None or len(channel.body) > len(found.run.body):
            found = _LongestRun(name, body[: at + 1], channel, channel.ends())
        at += len(channel.body) + 2
    # Unless other bytes were stored, such as those of another encoder.
    if found is None or not found.before.endswith(b":["):
        return None
    return found if body.startswith(found.run.body, len(found.before)) else None


# Checkpoints that are decoded when they are used


class ListedStates:
    """The states of one listing, as deltas. Reading them in order decodes each one once."""

    def __init__(self, decoder: HistoryDecoder) -> None:
        self._decoder = decoder
        self._parts: list[bytes] = []
        self._added = b""
        self._read: tuple[int, bytes] = (-1, b"")
        self._last: tuple[int, dict[str, Any]] = (-1, {})
        self._lock = threading.Lock()

    def add(self, body: bytes) -> int:
        with self._lock:
            number = len(self._parts)
            if number % _KEY_EVERY:
                self._parts.append(delta.dump(delta.diff(self._added, body)))
            else:
                self._parts.append(codec.compress(body, level=1))
            self._added = body
            return number

    def body(self, number: int) -> bytes:
        with self._lock:
            at, body = self._read
            key = number - number % _KEY_EVERY
            if not key <= at <= number:
                at, body = key, codec.decompress(self._parts[key], what="state")
            for each in range(at + 1, number + 1):
                body = delta.apply(body, delta.parse(self._parts[each]))
            self._read = number, body
            return body

    def checkpoint(self, number: int, info: SnapshotInfo) -> dict[str, Any]:
        """Return the decoded state: the same object until another state is asked for."""
        at, checkpoint = self._last
        if at != number:
            checkpoint = self._decoder.checkpoint(info, self.body(number))
            self._last = number, checkpoint
        return checkpoint


class LazyTuple(CheckpointTuple):
    """A tuple whose `checkpoint` is decoded when it is read, as a plain dict.

    It is decoded again after another one of the listing was read. To keep changes, keep the dict.
    """

    __slots__ = ()

    @property
    def checkpoint(self) -> Any:
        found = tuple.__getitem__(self, 1)
        return found() if callable(found) else found

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


# Listing


def list_checkpoints(
    context: SaverContext,
    config: RunnableConfig | None,
    *,
    filter: dict[str, Any] | None = None,
    before: RunnableConfig | None = None,
    limit: int | None = None,
) -> Walk[CheckpointTuple]:
    """List a namespace or a thread by descending id; without a config all, the last saved first."""
    wanted = dict(filter or {})
    count = None if limit is None or limit < 0 else limit
    ceiling = None if before is None else records.id_in(before)
    states = ListedStates(HistoryDecoder(context.codec))
    refs: Callable[[Backend], Iterable[SnapshotRef]] = partial(_matching, context, None, wanted)
    if config is not None:
        scope, only = records.scope_in(config), records.id_in(config)
        one_scope = records.configurable(config).get("checkpoint_ns") is not None
        refs = partial(_in_thread, context, scope, only, one_scope, wanted)

    def find(backend: Backend) -> Iterator[CheckpointTuple]:
        chosen = (ref for ref in refs(backend) if ceiling is None or ref.id < ceiling)
        limited = islice(chosen, count)
        while page := list(islice(limited, limits.PAGE_STATES_MAX)):
            yield from _read(backend, context, states, page)

    return _paged(find, limits.PAGE_STATES_MAX)


def list_threads(
    context: SaverContext, *, prefix: str = "", after: str | None = None, limit: int | None = None
) -> Walk[str]:
    prefix = check_prefix(prefix)
    count = limits.check_count("limit", limit)
    last_id = None if after is None else records.session_of(check_prefix(after, "after"))
    start = None if last_id is None else ScopeKey(last_id, "\U0010ffff", "\U0010ffff")

    def fetch(backend: Backend, last: ScopeInfo | None, size: int) -> list[ScopeInfo]:
        key = start if last is None else last.key
        return backend.list_scopes(
            session_id=None, kind=records.KIND, prefix=prefix, after=key, limit=size
        )

    def find(backend: Backend) -> Iterator[str]:
        keys = (each.key for each in verbs.each(backend, verbs.pages(fetch, limit=None)))
        ours = (key.session_id for key in keys if records.namespace_of(key) is not None)
        found = (records.thread_of(session_id) for session_id, _ in groupby(ours))
        return islice((each for each in found if each.startswith(prefix)), count)

    return _paged(find, limits.PAGE_ITEMS_MAX)


def _paged(find: Callable[[Backend], Iterator[T]], size: int) -> Walk[T]:
    """Walk what `find` returns; it is asked for a page at a time."""
    found: Iterator[T] | None = None
    ended = False

    def page(backend: Backend) -> list[T]:
        nonlocal found, ended
        found = find(backend) if found is None else found
        items = list(islice(found, size))
        ended = len(items) < size
        return items

    while not ended:
        yield page


def _in_thread(
    context: SaverContext,
    scope: ScopeKey,
    only: str | None,
    one_scope: bool,
    wanted: Mapping[str, Any],
    backend: Backend,
) -> list[SnapshotRef]:
    """Return the checkpoints of a thread, or of one namespace, the greatest id first."""
    listed = verbs.scopes(scope.session_id, kind=records.KIND, prefix="")
    scopes = [scope] if one_scope else [each.key for each in verbs.each(backend, listed)]
    found: list[SnapshotRef] = []
    for each in scopes:
        if records.namespace_of(each) is None:  # of another application
            continue
        if wanted:
            found += _matching(context, each, wanted, backend)
        else:
            ids = verbs.each(backend, verbs.list_ids(each, after=None, limit=None))
            found += (SnapshotRef(each, id) for id in ids)
    chosen = (ref for ref in found if only is None or ref.id == only)
    return sorted(chosen, key=lambda ref: ref.id, reverse=True)


def _matching(
    context: SaverContext, scope: ScopeKey | None, wanted: Mapping[str, Any], backend: Backend
) -> Iterator[SnapshotRef]:
    """Yield the checkpoints whose metadata has the wanted values, the last saved first."""
    run_id = wanted.get(records.RUN)  # the store has an index for it
    labels = ((records.RUN, records.label_of(run_id)),) if isinstance(run_id, str) else ()
    for info in verbs.each(backend, verbs.matching(Query(scope, labels=labels))):
        if records.namespace_of(info.scope) is None:
            continue
        meta = records.read_metadata(context.codec, info) if wanted else {}
        if all(key in meta and _is_equal(meta[key], wanted[key]) for key in wanted):
            yield SnapshotRef(info.scope, info.id)


def _is_equal(value: Any, wanted: Any) -> bool:
    try:
        return bool(value == wanted)
    except ValueError:
        return False  # that of an array, which has no truth value


def _read(
    backend: Backend, context: SaverContext, states: ListedStates, refs: Sequence[SnapshotRef]
) -> list[CheckpointTuple]:
    """Return the checkpoints that still exist, in the order of `refs`."""
    tuples: dict[SnapshotRef, CheckpointTuple] = {}
    for scope in dict.fromkeys(ref.scope for ref in refs):
        found = backend.read_snapshots(scope, [ref.id for ref in refs if ref.scope == scope])
        notes = notes_on(backend, scope, [info.id for info, _ in found])
        for info, body in found:
            own = [note for note in notes if note.snapshot_id == info.id]
            checkpoint: Any
            if len(body) < LARGE_MIN:
                checkpoint = records.checkpoint_of(context.codec, info, body)
            else:
                checkpoint = partial(states.checkpoint, states.add(body), info)
            made = records.tuple_of(context.codec, info, checkpoint, own)
            is_late = callable(checkpoint)
            tuples[SnapshotRef(scope, info.id)] = LazyTuple(*made) if is_late else made
    return [tuples[ref] for ref in refs if ref in tuples]
