"""`LimpetStore`: its methods run functions that are written once for both APIs, see below."""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import cache, partial
from itertools import groupby
from typing import Any, NamedTuple

from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchOp,
    TTLConfig,
)

from limpet import AsyncStore, Store
from limpet.api.integrations import (
    Ask,
    Backend,
    NoteChange,
    NoteQuery,
    Steps,
    Tools,
    Work,
    limits,
    matching,
    start_thread,
    upkeep,
    verbs,
)
from limpet.compat.langgraph.openable import Openable
from limpet.compat.langgraph.store import records
from limpet.compat.langgraph.store.records import KIND, SCOPE_ID, Stored
from limpet.compat.langgraph.store.semantic import Index, packed, ranked
from limpet.compat.wire import check_store
from limpet.errors import InvalidInput, LimpetError
from limpet.model import ScopeKey

_ALL = 2**62  # as a limit
_ANY_LABEL = "*"
_SWEEP_MINUTES = 5.0
_log = logging.getLogger("limpet")


class StoreContext(NamedTuple):
    tools: Tools
    semantic: Index | None


class Embed(NamedTuple):
    """The functions that make vectors of texts and of a query, sync or async."""

    documents: Callable[[list[str]], Any]
    query: Callable[[str], Any]


class Search(NamedTuple):
    """A search, checked. `vector` is that of its query, if it has one and there is an index."""

    notes: NoteQuery
    limit: int
    offset: int
    refresh: bool
    vector: Sequence[float] | None


class LimpetStore(Openable, BaseStore):
    """LangGraph's long-term memory over an opened store, which the caller closes.

    ::

        with limpet.open("sqlite:///agents.db") as store:
            graph = builder.compile(
                checkpointer=LimpetSaver(store), store=LimpetStore(store)
            )

    It takes a `Store` or an `AsyncStore` and has sync and async methods in either case. It may be
    shared between threads, tasks and graphs; any number of processes may use the same store.

    A namespace is a session, an item a note of it, so that `limpet ls`, `copy` and `export` see
    them. A put is durable when it returns; of several the last one counts, and `created_at` stays.
    In a batch all reads come before the writes. Those of one namespace are one step, except on
    directories and S3. What is read is the caller's own copy.

    Items that have expired are never returned; `sweep_ttl` removes them. Reading an item extends
    its time to live, but is no update of it.

    With an `index` items are found by meaning: vectors are stored with them, and searched exactly.
    Items without vectors follow those that have some, without a score.
    """

    supports_ttl = True

    def __init__(
        self,
        store: Store | AsyncStore,
        *,
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
    ) -> None:
        """Take an opened store; `index` and `ttl` are as in LangGraph's own stores."""
        check_store(store)
        super().__init__()
        self._sync = store.sync
        self._aio = store.aio
        self.index_config = index
        self.ttl_config = ttl
        default_ttl = (ttl or {}).get("default_ttl")
        if default_ttl is not None:
            records.expiry_of(default_ttl, 0)
        found = None if index is None else Index(index)
        self.embeddings = None if found is None else found.embeddings
        self._context = StoreContext(self._sync.driver.tools, found)
        self._stop: threading.Event | None = None
        self._sweeper: threading.Thread | None = None

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations, reads before writes; return a result for each, None for a put.

        Raises:
            InvalidInput: a namespace, key, value or filter is not acceptable; nothing was written.
        """
        one = self.embeddings
        embed = None if one is None else Embed(one.embed_documents, one.embed_query)
        return self._sync.driver.drive(_run(self._context, list(ops), embed))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Async twin of `batch`."""
        one = self.embeddings
        embed = None if one is None else Embed(one.aembed_documents, one.aembed_query)
        return await self._aio.driver.drive(_run(self._context, list(ops), embed))

    def sweep_ttl(self) -> int:
        """Delete the items that have expired, and return how many.

        One that is put or read at that moment stays.
        """
        return self._sync.driver.drive(upkeep.expire_items(self._context.tools))

    async def asweep_ttl(self) -> int:
        """Async twin of `sweep_ttl`."""
        return await self._aio.driver.drive(upkeep.expire_items(self._context.tools))

    def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> "Future[None]":
        """Sweep at intervals in a thread, until `stop_ttl_sweeper` or the store is closed.

        The interval is that of the `ttl` configuration, else 5 minutes. Returns a future that is
        done when the sweeper has ended.
        """
        if self._sweeper is not None and self._sweeper.is_alive():
            raise InvalidInput("the sweeper of this store runs already: stop_ttl_sweeper() ends it")
        configured = (self.ttl_config or {}).get("sweep_interval_minutes")
        pause_s = 60 * float(sweep_interval_minutes or configured or _SWEEP_MINUTES)
        stop = self._stop = threading.Event()
        ended: Future[None] = Future()

        def sweep() -> None:
            while not stop.wait(pause_s):
                try:
                    self.sweep_ttl()
                except LimpetError:
                    _log.exception("expired items could not be deleted; the sweeper tries again")
            ended.set_result(None)

        self._sync.driver.opened.at_close(stop.set)
        self._sweeper = start_thread(sweep, "limpet-sweeper")
        return ended

    def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:
        """End the sweeper, and return whether it has ended within `timeout` seconds."""
        if self._stop is None or self._sweeper is None:
            return True
        self._stop.set()
        self._sweeper.join(timeout)
        return not self._sweeper.is_alive()


def _run(context: StoreContext, given: list[Op], embed: Embed | None) -> Steps[list[Result]]:
    """Read first, then write. Nothing is written if one of the operations is not acceptable."""
    work = _single(context, given[0]) if len(given) == 1 else None
    if work is not None:
        result: Result = yield work
        return [result]
    now = cache(lambda: context.tools.draw().now)  # the same each time, and only if it is needed
    reads: dict[int, GetOp | Search | ListNamespacesOp] = {}
    puts: dict[tuple[ScopeKey, str], PutOp] = {}
    for at, op in enumerate(given):
        if isinstance(op, PutOp):
            # The last one of a key counts.
            puts[records.scope_of(op.namespace), records.key_of(op.key)] = op
        elif isinstance(op, GetOp):
            reads[at] = op
            records.scope_of(op.namespace)
            records.key_of(op.key)
        elif isinstance(op, SearchOp):
            reads[at] = yield from _search_of(context, op, embed)
        elif isinstance(op, ListNamespacesOp):
            reads[at] = op
        else:
            raise InvalidInput(f"unknown operation of a store. type=`{type(op).__name__}`")
    changes = yield from _changes(context, list(puts.values()), embed)
    results: list[Result] = [None] * len(given)
    if reads:
        found = yield partial(_read, context, reads, now)
        for at, result in found.items():
            results[at] = result
    for _, group in groupby(sorted(changes, key=_scope), key=_scope):
        yield partial(_write, [*group])
    return results


def _scope(change: NoteChange) -> ScopeKey:
    return change.scope


def _write(changes: Sequence[NoteChange], backend: Backend) -> None:
    backend.write_notes(changes)


def _single(context: StoreContext, op: Op) -> Work[Result] | None:
    """Return what runs a get, or a put without vectors: what `_run` does in less time."""
    if isinstance(op, PutOp) and context.semantic is None:
        return partial(_write, records.changes_of(op, None, context.tools))
    if not isinstance(op, GetOp):
        return None
    scope, key = records.scope_of(op.namespace), records.key_of(op.key)

    def get(backend: Backend) -> Result:
        for note in backend.read_notes(scope, [key]):
            stored = records.stored_of(note, lambda: context.tools.draw().now)
            if stored is not None:
                if op.refresh_ttl and stored.ttl is not None:
                    _refresh(context, [stored], backend)
                return stored.item()
        return None

    return get


# Writing


def _changes(
    context: StoreContext, puts: Sequence[PutOp], embed: Embed | None
) -> Steps[list[NoteChange]]:
    made: list[dict[str, str] | None] = [None] * len(puts)
    if context.semantic is not None and embed is not None:
        texts = [context.semantic.texts_of(op) for op in puts]
        distinct = list(dict.fromkeys(text for each in texts for text in each.values()))
        vectors: dict[str, str] = {}
        if distinct:
            found = context.semantic.check((yield Ask(embed.documents, distinct)), len(distinct))
            vectors = dict(zip(distinct, map(packed, found), strict=True))
        made = [{path: vectors[text] for path, text in each.items()} for each in texts]
    pairs = zip(puts, made, strict=True)
    return [each for op, of in pairs for each in records.changes_of(op, of, context.tools)]


# Reading


def _read(
    context: StoreContext,
    reads: dict[int, GetOp | Search | ListNamespacesOp],
    now: Callable[[], int],
    backend: Backend,
) -> dict[int, Result]:
    results: dict[int, Result] = {}
    gets: dict[ScopeKey, dict[int, GetOp]] = {}
    touched: dict[tuple[ScopeKey, str], Stored] = {}
    for at, op in reads.items():
        if isinstance(op, GetOp):
            gets.setdefault(records.scope_of(op.namespace), {})[at] = op
        elif isinstance(op, Search):
            scored = _found(context, backend, op, now)
            results[at] = [each.search_item(score) for score, each in scored]
            if op.refresh:
                found = (each for _, each in scored if each.ttl is not None)
                touched |= {(each.note.scope, each.note.name): each for each in found}
        else:
            results[at] = _namespaces(backend, op, now)
    for scope, wanted in gets.items():
        notes = backend.read_notes(scope, list({op.key: None for op in wanted.values()}))
        items = {note.name: records.stored_of(note, now) for note in notes}
        for at, get in wanted.items():
            stored = items.get(get.key)
            results[at] = None if stored is None else stored.item()
            if stored is not None and get.refresh_ttl and stored.ttl is not None:
                touched[scope, get.key] = stored
    _refresh(context, touched.values(), backend)
    return results


def _refresh(context: StoreContext, found: Iterable[Stored], backend: Backend) -> None:
    """Let items that expire begin their time to live again."""
    upkeep.change_unchanged([[records.refreshed(each, context.tools)] for each in found], backend)


def _search_of(context: StoreContext, op: SearchOp, embed: Embed | None) -> Steps[Search]:
    pattern: Any = None
    if op.filter:
        pattern = {"value": dict(op.filter)}
        matching.check(pattern)
    under = records.session_id_of(op.namespace_prefix)
    vector = None
    if op.query and context.semantic is not None and embed is not None:
        (vector,) = context.semantic.check([(yield Ask(embed.query, op.query))], 1)
    limit, offset = _count("limit", op.limit), _count("offset", op.offset)
    return Search(NoteQuery(SCOPE_ID, KIND, under, pattern), limit, offset, op.refresh_ttl, vector)


def _found(
    context: StoreContext, backend: Backend, op: Search, now: Callable[[], int]
) -> list[tuple[float | None, Stored]]:
    end = op.offset + op.limit
    if not op.limit:
        return []
    if op.vector is not None and context.semantic is not None:
        return _nearest(context.semantic, backend, op, now)[op.offset : end]
    return [(None, each) for each in _stored(backend, op.notes, end, now)[op.offset :]]


def _nearest(
    semantic: Index, backend: Backend, op: Search, now: Callable[[], int]
) -> list[tuple[float | None, Stored]]:
    """Return the nearest items. Only these are read, if there is no filter."""
    query = op.notes._replace(values=op.notes.where is not None)
    found = backend.find_notes(query, limit=_ALL)
    order = ranked(op.vector or (), semantic.cache.vectors_of(backend, found))
    nearest: list[tuple[float | None, Stored]] = []
    end = op.offset + op.limit
    while order and len(nearest) < end:
        some, order = order[:end], order[end:]
        names: dict[ScopeKey, list[str]] = {}
        for _, at in some:
            names.setdefault(found[at].scope, []).append(found[at].name)
        notes = [note for scope, each in names.items() for note in backend.read_notes(scope, each)]
        items = {(note.scope, note.name): records.stored_of(note, now) for note in notes}
        for score, at in some:
            item = items.get((found[at].scope, found[at].name))
            if item is not None:
                nearest.append((score, item))
    return nearest


def _stored(backend: Backend, query: NoteQuery, limit: int, now: Callable[[], int]) -> list[Stored]:
    """Return the first items that a query finds. What has expired is found, too: then read more."""
    count = limit
    while True:
        found = backend.find_notes(query, limit=count)
        items = [each for note in found if (each := records.stored_of(note, now)) is not None]
        if len(items) >= limit or len(found) < count:
            return items[:limit]
        count *= 8


def _count(name: str, value: Any) -> int:
    if type(value) is int and value >= 0:
        return value
    raise InvalidInput(f"{name} must be a whole number from 0 on. found=`{value!r}`")


def _namespaces(
    backend: Backend, op: ListNamespacesOp, now: Callable[[], int]
) -> list[tuple[str, ...]]:
    conditions = op.match_conditions or ()
    limit, offset = _count("limit", op.limit), _count("offset", op.offset)
    found: set[tuple[str, ...]] = set()
    for info in verbs.each(backend, verbs.scopes(None, kind=KIND, prefix=_prefix_of(conditions))):
        namespace = records.namespace_of(info.key.session_id)
        if namespace is None or info.key.scope_id != SCOPE_ID:
            continue
        shown = namespace[: op.max_depth]
        matching_all = all(_is_match(condition, namespace) for condition in conditions)
        if matching_all and shown not in found and _has_items(backend, info.key, now):
            found.add(shown)
    return sorted(found)[offset : offset + limit]


def _prefix_of(conditions: Sequence[MatchCondition]) -> str:
    """Return what the sessions of all namespaces that may match begin with."""
    prefix = ""
    for condition in conditions:
        if condition.match_type == "prefix":
            path = tuple(condition.path)
            known = path[: path.index(_ANY_LABEL)] if _ANY_LABEL in path else path
            prefix = max(prefix, records.session_id_of(known), key=len)
    return prefix


def _is_match(condition: MatchCondition, namespace: tuple[str, ...]) -> bool:
    path = tuple(condition.path)
    if condition.match_type not in ("prefix", "suffix"):
        raise InvalidInput(
            f"match_type must be prefix or suffix. match_type=`{condition.match_type}`"
        )
    if len(path) > len(namespace):
        return False
    end = len(path) if condition.match_type == "prefix" else len(namespace)
    labels = namespace[end - len(path) : end]
    return all(want in (_ANY_LABEL, label) for want, label in zip(path, labels, strict=True))


def _has_items(backend: Backend, scope: ScopeKey, now: Callable[[], int]) -> bool:
    """Return whether a namespace has items that have not expired; nearly always the first has."""
    after, count = "", 1
    while notes := backend.list_notes(scope, on=[None], name=None, after=after, limit=count):
        found = backend.read_notes(scope, [note.name for note in notes])
        if any(records.stored_of(note, now) for note in found):
            return True
        after, count = notes[-1].name, limits.PAGE_ITEMS_MAX
    return False
