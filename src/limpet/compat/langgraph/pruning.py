"""Remove and copy: `prune`, `expire`, `delete_thread`, `delete_for_runs` and `copy_thread`.

They take many calls, and run in one thread: the async twins in one of the pool.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, TypeVar

from limpet import Store
from limpet.api.integrations import (
    Backend,
    Commit,
    NoteWrite,
    Query,
    Retention,
    Steps,
    check_retention,
    codec,
    contend,
    limits,
    prepare,
    times,
    verbs,
)
from limpet.compat.langgraph import records
from limpet.compat.langgraph.checkpoints import SaverContext, notes_on, save
from limpet.compat.langgraph.history import channel_histories, stored_history
from limpet.compat.langgraph.listing import all_ids, infos, scopes_of
from limpet.errors import Conflict, Corrupt, InvalidInput
from limpet.model import ScopeKey, SnapshotInfo

T = TypeVar("T")


def delete_thread(context: SaverContext, store: Store, thread_id: str) -> None:
    """Remove a thread. Scopes of its session that are not LangGraph's stay."""
    scopes = [each.key for each in store.scopes(limits.check_id("thread_id", str(thread_id)))]
    ours = [key for key in scopes if records.namespace_of(key) is not None]
    for key in ours:
        context.heads.pop(key)
    if ours and ours == scopes:
        store.delete_session(ours[0].session_id)
    else:
        for key in ours:
            store.scope(*key).delete()


def delete_for_runs(context: SaverContext, store: Store, run_ids: Sequence[str]) -> None:
    if isinstance(run_ids, str):
        raise InvalidInput("run_ids must be a list of ids. type=`str`")
    doomed: dict[ScopeKey, set[str]] = {}
    for run_id in run_ids:
        for info in store.history(labels={records.RUN: records.label_of(run_id)}):
            if records.namespace_of(info.scope) is not None:
                doomed.setdefault(info.scope, set()).add(info.id)
    for scope, ids in doomed.items():
        _remove(context, store, scope, ids)


def prune(
    context: SaverContext,
    store: Store,
    thread_ids: Sequence[str],
    strategy: str,
    keep_last: int | None,
    older_than: timedelta | None,
) -> None:
    if isinstance(thread_ids, str):
        raise InvalidInput("thread_ids must be a list of ids. type=`str`")
    if strategy not in ("keep_latest", "delete"):
        raise InvalidInput(f"strategy must be keep_latest or delete. strategy=`{strategy}`")
    if strategy == "delete":
        if keep_last is not None or older_than is not None:
            raise InvalidInput("strategy `delete` takes neither keep_last nor older_than")
        for thread_id in thread_ids:
            delete_thread(context, store, thread_id)
        return
    kept = max(limits.check_count("keep_last", keep_last) or 1, 1)  # the latest always stays
    policy = check_retention(kept, older_than, now_us=context.tools.draw().now)
    for thread_id in thread_ids:
        session_id = limits.check_id("thread_id", str(thread_id))
        for scope in scopes_of(store.driver.opened.backend, session_id):
            _prune_scope(context, store, scope, policy)


def _prune_scope(context: SaverContext, store: Store, scope: ScopeKey, policy: Retention) -> None:
    backend = store.driver.opened.backend
    created = {info.id: info.created_at for info in infos(backend, Query(scope))}
    head = backend.read_info(scope, None)
    order = sorted(created, reverse=True)
    doomed = {
        id
        for id in order[policy.keep_last :]
        if (policy.cutoff is None or created[id] < policy.cutoff)
        and (head is None or id != head.id)
    }
    orphans: set[str] = set()
    if policy.cutoff is None and order:
        # Writes for a checkpoint that was never saved. One that is still to come is the newest.
        orphans = {id for id in _noted(backend, scope) if id < order[0] and id not in created}
    _remove(context, store, scope, doomed, orphans)


def _noted(backend: Backend, scope: ScopeKey) -> Iterator[str]:
    """Yield the ids in a scope that have notes, whether or not the checkpoints exist."""
    return verbs.each(backend, verbs.noted_ids(scope, after=None, limit=None))


def _remove(
    context: SaverContext,
    store: Store,
    scope: ScopeKey,
    doomed: set[str],
    orphans: Iterable[str] = (),
) -> None:
    """Remove checkpoints; first those that stay get a parent that stays, and what they need."""
    backend = store.driver.opened.backend
    if doomed:
        parents = {info.id: info.parent_id for info in infos(backend, Query(scope))}
        for id, parent in parents.items():
            if id not in doomed and parent in doomed:
                kept = _kept_ancestor(parent, parents, doomed)
                store.driver.drive(_reparent(context, scope, id, kept))
    for page in _pages(sorted(doomed) + sorted(orphans), limits.PAGE_ITEMS_MAX):
        backend.delete_snapshots(scope, page)
    context.heads.pop(scope)


def _pages(ids: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (ids[start : start + size] for start in range(0, len(ids), size))


def _kept_ancestor(
    parent: str | None, parents: dict[str, str | None], doomed: set[str]
) -> str | None:
    met: set[str] = set()
    while parent in doomed and parent not in met:
        met.add(parent)
        parent = parents.get(parent)
    return None if parent in doomed else parent


def _reparent(
    context: SaverContext, scope: ScopeKey, id: str, parent_id: str | None
) -> Steps[None]:
    """Give a checkpoint another parent and the deltas of the removed ancestors, in one commit."""
    seen: str | None = None

    def replace(backend: Backend) -> None:
        nonlocal seen
        for info, body in backend.read_snapshots(scope, [id]):
            seen = info.revision
            body, metadata = _with_delta_history(context, backend, info, body)
            commit = _copied(context, info, body, metadata, scope)
            backend.commit(commit._replace(parent=parent_id, replaces=seen, created_at=None))

    def attempt() -> Steps[None]:
        yield replace

    def changed(backend: Backend) -> bool:
        info = backend.read_info(scope, id)
        return info is None or info.revision != seen

    context.heads.pop(scope)
    return contend(context.tools, attempt, changed)


def _copied(
    context: SaverContext, info: SnapshotInfo, body: bytes, metadata: Any, scope: ScopeKey
) -> Commit:
    """Return the commit that saves a checkpoint as it is, with this state and metadata."""
    return Commit(
        scope=scope,
        body=body,
        status=info.status,
        labels=prepare.encode_labels(info.labels),
        metadata=codec.encode(metadata),
        stamp=context.tools.draw(),
        id=info.id,
        parent=info.parent_id,
        created_at=times.to_us("created_at", info.created_at),
    )


def _with_delta_history(
    context: SaverContext, backend: Backend, info: SnapshotInfo, body: bytes
) -> tuple[bytes, dict[str, Any]]:
    if records.FACADE not in info.metadata:
        return body, info.metadata
    tree = records.tree_of(info, body)
    counted = records.delta_channels(records.read_metadata(context.codec, info))
    known = stored_history(info, tree)
    missing = counted - tree["channel_values"].keys() - known.keys()
    wanted = sorted(name for name in missing if isinstance(name, str))
    if not wanted:
        return body, info.metadata
    merged: dict[str, Any] = {}
    for name, history in (known | channel_histories(backend, info.scope, info.id, wanted)).items():
        seed = {"seed": history.seed[0]} if history.seed else {}
        merged[name] = {**seed, "writes": [list(write) for write in history.writes]}
    encoded, _ = prepare.encode_state(
        {**tree, records.DELTA_HISTORY: merged}, context.tools.state_bytes_max
    )
    others = {name: each for name, each in info.metadata.items() if name != records.ABSENT}
    return encoded, {**others, records.DELTA_HISTORY_OF: sorted(merged)}


def copy_thread(context: SaverContext, store: Store, source: str, target: str) -> None:
    source_id = limits.check_id("source_thread_id", str(source))
    target_id = limits.check_id("target_thread_id", str(target))
    if source_id == target_id:
        return
    backend = store.driver.opened.backend
    for scope in scopes_of(backend, source_id):
        copied = scope._replace(session_id=target_id)
        # The writes first: a checkpoint that can be seen has all of them.
        for page in _pages([*_noted(backend, scope)], limits.PAGE_ITEMS_MAX):
            for note in notes_on(backend, scope, page):
                value, stamp = codec.encode(note.value), context.tools.draw()
                backend.write_note(NoteWrite(copied, note.name, note.snapshot_id, value, stamp))
        for page in _pages(all_ids(backend, scope), limits.PAGE_STATES_MAX):
            for info, body in backend.read_snapshots(scope, page):
                commit = _copied(context, info, body, info.metadata, copied)
                store.driver.drive(save(context, commit))


def expire(
    context: SaverContext, store: Store, older_than: timedelta, prefix: str, limit: int | None
) -> list[str]:
    count = limits.check_count("limit", limit)
    cutoff = check_retention(0, older_than, now_us=context.tools.draw().now).cutoff
    if cutoff is None:
        raise InvalidInput("older_than must be a timedelta, such as timedelta(days=30)")
    removed: list[str] = []
    scopes = store.scopes(kind=records.KIND, prefix=prefix)
    for session_id, some in groupby(scopes, lambda each: each.key.session_id):
        if len(removed) == count:
            break
        # The heads rule out most threads that are in use; the others are checked one by one.
        if any(each.head is not None and _saved_at(each.head) >= cutoff for each in some):
            continue
        if _remove_if_old(context, store.driver.opened.backend, session_id, cutoff):
            removed.append(session_id)
    return removed


def _remove_if_old(
    context: SaverContext, backend: Backend, session_id: str, cutoff: datetime
) -> bool:
    """Remove a thread if nothing was saved in it since `cutoff`; return whether it is gone.

    The heads are read first and compared when the scopes are deleted, so a new head stays. The
    root namespace goes first: a thread that is continued then starts from nothing, not from a part.
    """
    try:
        scopes = scopes_of(backend, session_id)
        heads = {key: backend.read_info(key, None) for key in scopes}
        fresh = (_is_fresh(context, backend, key, heads[key], cutoff) for key in scopes)
        if not scopes or any(fresh):
            return False
        for key in sorted(scopes, key=lambda key: key.scope_id != "main"):
            head = heads[key]
            context.heads.pop(key)
            backend.delete_scope(key, expect=None if head is None else head.revision)
    except (Conflict, Corrupt):
        return False  # it is in use; or its age is not known, which `limpet check` reports
    return True


def _is_fresh(
    context: SaverContext,
    backend: Backend,
    scope: ScopeKey,
    head: SnapshotInfo | None,
    cutoff: datetime,
) -> bool:
    """Return whether something was saved at `cutoff` or later, or a worker holds the scope."""
    if head is not None and _saved_at(head) >= cutoff:
        return True
    lease = backend.read_lease(scope, now=context.tools.draw().now)
    if lease is not None and lease.left_us > 0:
        return True
    if any(_saved_at(info) >= cutoff for info in infos(backend, Query(scope))):
        return True
    return any(
        note.updated_at >= cutoff
        for page in _pages([None, *_noted(backend, scope)], limits.PAGE_ITEMS_MAX)
        for note in notes_on(backend, scope, page)
    )


def _saved_at(info: SnapshotInfo) -> datetime:
    # `created_at` of an imported or copied checkpoint is older than the moment it was saved here.
    return max(info.created_at, info.updated_at)
