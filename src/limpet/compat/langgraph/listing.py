"""Lists of checkpoints, newest first by their ids, and of threads."""

import heapq
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple

from limpet.compat.langgraph import records
from limpet.compat.langgraph.listed import LARGE_MIN, ListedTuple, Shelf, Waiting
from limpet.compat.langgraph.records import Config
from limpet.compat.langgraph.verbs import Desk, notes_on
from limpet.compat.langgraph.walking import Walker
from limpet.core import ids, limits
from limpet.errors import InvalidInput
from limpet.model import Note, ScopeInfo, ScopeKey, SnapshotInfo, SnapshotRef
from limpet.protocol import Backend, Query
from limpet.steps import Walk

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
