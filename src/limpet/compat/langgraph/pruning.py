"""Remove and copy: `prune`, `expire`, `delete_thread`, `delete_for_runs` and `copy_thread`.

They take many calls, and run in one thread: the async twins in one of the pool.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, TypeVar

from limpet import Scope
from limpet.api.integrations import (
    Backend,
    Commit,
    NoteWrite,
    Steps,
    codec,
    contend,
    limits,
    prepare,
    retention,
    times,
    upkeep,
)
from limpet.compat.langgraph import records
from limpet.compat.langgraph.checkpoints import SaverContext, save
from limpet.compat.langgraph.history import channel_histories, stored_history
from limpet.errors import Conflict, Corrupt, InvalidInput
from limpet.model import ScopeInfo, ScopeKey, SnapshotInfo

T = TypeVar("T")


def _scopes_of(context: SaverContext, session_id: str) -> list[Scope]:
    """Return the scopes of a thread, without those of other applications."""
    listed = context.store.scopes(limits.check_id("thread_id", session_id), kind=records.KIND)
    ours = [each.key for each in listed if records.namespace_of(each.key) is not None]
    return [context.store.scope(*key) for key in ours]


def delete_thread(context: SaverContext, thread_id: str) -> None:
    """Remove a thread. Scopes of its session that are not LangGraph's stay."""
    session_id = limits.check_id("thread_id", records.session_of(thread_id))
    listed = [each.key for each in context.store.scopes(session_id)]
    ours = [key for key in listed if records.namespace_of(key) is not None]
    for key in ours:
        context.heads.pop(key)
    if ours and ours == listed:
        context.store.delete_session(session_id)
    else:
        for key in ours:
            context.store.scope(*key).delete()


def delete_for_runs(context: SaverContext, run_ids: Sequence[str]) -> None:
    doomed: dict[ScopeKey, set[str]] = {}
    for run_id in _check_list("run_ids", run_ids):
        for info in context.store.history(labels={records.RUN: records.label_of(run_id)}):
            if records.namespace_of(info.scope) is not None:
                doomed.setdefault(info.scope, set()).add(info.id)
    for scope, ids in doomed.items():
        _remove(context, context.store.scope(*scope), ids)


def _check_list(name: str, ids: Sequence[str]) -> Sequence[str]:
    if isinstance(ids, str):
        raise InvalidInput(f"{name} must be a list of ids. type=`str`")
    return ids


def prune(
    context: SaverContext,
    thread_ids: Sequence[str],
    strategy: str,
    keep_last: int | None,
    older_than: timedelta | None,
) -> None:
    _check_list("thread_ids", thread_ids)
    if strategy not in ("keep_latest", "delete"):
        raise InvalidInput(f"strategy must be keep_latest or delete. strategy=`{strategy}`")
    if strategy == "delete":
        if keep_last is not None or older_than is not None:
            raise InvalidInput("strategy `delete` takes neither keep_last nor older_than")
        for thread_id in thread_ids:
            delete_thread(context, thread_id)
        return
    kept = max(limits.check_count("keep_last", keep_last) or 1, 1)  # the latest always stays
    policy = retention.check_retention(kept, older_than, now_us=context.tools.draw().now)
    for thread_id in thread_ids:
        for scope in _scopes_of(context, records.session_of(thread_id)):
            _prune_scope(context, scope, policy)


def _prune_scope(context: SaverContext, scope: Scope, policy: retention.Retention) -> None:
    created = {info.id: info.created_at for info in scope.history()}
    head = scope.info()
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
        orphans = {id for id in scope.noted_ids() if id < order[0] and id not in created}
    _remove(context, scope, doomed, orphans)


def _remove(
    context: SaverContext, scope: Scope, doomed: set[str], orphans: Iterable[str] = ()
) -> None:
    """Remove checkpoints; first those that stay get a parent that stays, and what they need."""
    parents = {info.id: info.parent_id for info in scope.history()} if doomed else {}
    for id, parent in parents.items():
        if id not in doomed and parent in doomed:
            met: set[str] = set()
            while parent in doomed and parent not in met:
                met.add(parent)
                parent = parents.get(parent)
            kept = None if parent in doomed else parent
            context.store.driver.drive(_reparent(context, scope.key, id, kept))
    for page in _pages(sorted(doomed) + sorted(orphans), limits.PAGE_ITEMS_MAX):
        context.backend.delete_snapshots(scope.key, page)
    context.heads.pop(scope.key)


def _pages(ids: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (ids[start : start + size] for start in range(0, len(ids), size))


def _reparent(
    context: SaverContext, scope: ScopeKey, id: str, parent_id: str | None
) -> Steps[None]:
    """Give a checkpoint another parent and the deltas of the removed ancestors, in one commit."""
    seen: str | None = None

    def replace(backend: Backend) -> None:
        nonlocal seen
        for info, body in backend.read_snapshots(scope, [id]):
            seen = info.revision
            whole = _with_delta_history(context, info, body)
            commit = _copied(context, info, whole, scope)
            if whole is not body:  # it has now what the metadata says that it lacks
                others = {k: v for k, v in info.metadata.items() if k != records.ABSENT}
                commit = commit._replace(metadata=codec.encode(others))
            backend.commit(commit._replace(created_at=None, parent=parent_id, replaces=seen))

    def attempt() -> Steps[None]:
        yield replace

    def changed(backend: Backend) -> bool:
        info = backend.read_info(scope, id)
        return info is None or info.revision != seen

    context.heads.pop(scope)
    return contend(context.tools, attempt, changed)


def _copied(context: SaverContext, info: SnapshotInfo, body: bytes, scope: ScopeKey) -> Commit:
    """Return the commit that saves a checkpoint as it is, with this state."""
    return Commit(
        scope=scope,
        body=body,
        status=info.status,
        labels=prepare.encode_labels(info.labels),
        metadata=codec.encode(info.metadata),
        stamp=context.tools.draw(),
        id=info.id,
        parent=info.parent_id,
        created_at=times.to_us("created_at", info.created_at),
    )


def _with_delta_history(context: SaverContext, info: SnapshotInfo, body: bytes) -> bytes:
    """Return the state of a checkpoint with the deltas of its ancestors."""
    if records.FACADE not in info.metadata:
        return body
    tree = records.tree_of(info, body)
    counted = records.delta_channels(records.read_metadata(context.codec, info))
    known = stored_history(info, tree)
    missing = counted - tree["channel_values"].keys() - known.keys()
    wanted = sorted(name for name in missing if isinstance(name, str))
    if not wanted:
        return body
    merged: dict[str, Any] = {}
    for name, history in (known | channel_histories(context, info.scope, info.id, wanted)).items():
        seed = {"seed": history.seed[0]} if history.seed else {}
        merged[name] = {**seed, "writes": [list(write) for write in history.writes]}
    whole = {**tree, records.DELTA_HISTORY: merged}
    return prepare.encode_state(whole, context.tools.state_bytes_max)[0]


def copy_thread(context: SaverContext, source: str, target: str) -> None:
    source_id = limits.check_id("source_thread_id", records.session_of(source))
    target_id = limits.check_id("target_thread_id", records.session_of(target))
    if source_id == target_id:
        return
    backend = context.backend
    for scope in _scopes_of(context, source_id):
        copied = scope.key._replace(session_id=target_id)
        # The writes first: a checkpoint that can be seen has all of them.
        for page in _pages([*scope.noted_ids()], limits.PAGE_ITEMS_MAX):
            for note in scope.notes(on=page):
                value, stamp = codec.encode(note.value), context.tools.draw()
                backend.write_note(NoteWrite(copied, note.name, note.snapshot_id, value, stamp))
        for page in _pages([*scope.ids()], limits.PAGE_STATES_MAX):
            for info, body in backend.read_snapshots(scope.key, page):
                context.store.driver.drive(save(context, _copied(context, info, body, copied)))


def expire(
    context: SaverContext, older_than: timedelta, prefix: str, limit: int | None
) -> list[str]:
    count = limits.check_count("limit", limit)
    cutoff = retention.cutoff_of("older_than", older_than, context.tools.draw().now)
    removed: list[str] = []
    scopes = context.store.scopes(kind=records.KIND, prefix=prefix)
    ours = (each for each in scopes if records.namespace_of(each.key) is not None)
    for session_id, some in groupby(ours, lambda each: each.key.session_id):
        if len(removed) == count:
            break
        thread_id = records.thread_of(session_id)
        if thread_id.startswith(prefix) and _expired(context, [*some], cutoff):
            removed.append(thread_id)
    return removed


def _expired(context: SaverContext, scopes: Sequence[ScopeInfo], cutoff: datetime) -> bool:
    """Remove a thread if nothing in it was changed since `cutoff`; return whether it is gone."""
    for each in scopes:
        context.heads.pop(each.key)
    try:
        verb = upkeep.expire(context.tools, scopes, cutoff)
        return context.store.driver.drive(verb) is not None
    except (Conflict, Corrupt):
        return False  # it is in use; or its age is not known, which `limpet check` reports
