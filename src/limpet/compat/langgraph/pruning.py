"""Remove and copy: `prune`, `expire`, `delete_thread`, `delete_for_runs` and `copy_thread`."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from limpet.api import verbs
from limpet.api.verbs import Steps, check_prefix, contend
from limpet.compat.langgraph import records
from limpet.compat.langgraph.checkpoints import SaverContext, bound, notes_on, save
from limpet.compat.langgraph.history import channel_histories, stored_history
from limpet.compat.langgraph.listing import all_ids, infos, scopes_of
from limpet.core import codec, limits, prepare, times
from limpet.core.prepare import Retention, check_retention
from limpet.errors import Conflict, Corrupt, InvalidInput
from limpet.model import ScopeInfo, ScopeKey, SnapshotInfo
from limpet.protocol import Backend, Commit, NoteWrite, Query

_PAGE = limits.PAGE_ITEMS_MAX


def delete_thread(context: SaverContext, thread_id: str) -> Steps[None]:
    """Remove a thread. Scopes of its session that are not LangGraph's stay."""
    session_id = limits.check_id("thread_id", str(thread_id))
    scopes: list[ScopeKey] = yield lambda backend: [
        each.key for each in verbs.each_scope(backend, session_id=session_id)
    ]
    ours = [scope for scope in scopes if records.namespace_of(scope) is not None]
    for scope in ours:
        context.heads.pop(scope)
    if ours and ours == scopes:
        yield lambda backend: backend.delete_session(session_id)
    else:
        yield lambda backend: [backend.delete_scope(scope) for scope in ours]


def delete_for_runs(context: SaverContext, run_ids: Sequence[str]) -> Steps[None]:
    if isinstance(run_ids, str):
        raise InvalidInput("run_ids must be a list of ids. type=`str`")

    def find(backend: Backend) -> dict[ScopeKey, set[str]]:
        found: dict[ScopeKey, set[str]] = {}
        for run_id in run_ids:
            query = Query(labels=((records.RUN, records.label_of(run_id)),))
            for info in infos(backend, query):
                if records.namespace_of(info.scope) is not None:
                    found.setdefault(info.scope, set()).add(info.id)
        return found

    doomed: dict[ScopeKey, set[str]] = yield find
    for scope, ids in doomed.items():
        yield from _remove(context, scope, ids)


def prune(
    context: SaverContext,
    thread_ids: Sequence[str],
    *,
    strategy: str,
    keep_last: int | None,
    older_than: timedelta | None,
) -> Steps[None]:
    if isinstance(thread_ids, str):
        raise InvalidInput("thread_ids must be a list of ids. type=`str`")
    if strategy not in ("keep_latest", "delete"):
        raise InvalidInput(f"strategy must be keep_latest or delete. strategy=`{strategy}`")
    given = keep_last is not None or older_than is not None
    if strategy == "delete":
        if given:
            raise InvalidInput("strategy `delete` takes neither keep_last nor older_than")
        for thread_id in thread_ids:
            yield from delete_thread(context, thread_id)
        return
    kept = max(limits.check_count("keep_last", keep_last) or 1, 1)  # the latest always stays
    policy = check_retention(kept, older_than, now_us=context.tools.draw().now)
    for thread_id in thread_ids:
        session_id = limits.check_id("thread_id", str(thread_id))
        scopes: list[ScopeKey] = yield bound(scopes_of, session_id)
        for scope in scopes:
            yield from _prune_scope(context, scope, policy)


def _prune_scope(context: SaverContext, scope: ScopeKey, policy: Retention) -> Steps[None]:
    def find(backend: Backend) -> tuple[set[str], set[str]]:
        created = {info.id: info.created_at for info in infos(backend, Query(scope))}
        head = backend.read_info(scope, None)
        order = sorted(created, reverse=True)
        doomed = {
            id
            for id in order[policy.keep_last :]
            if (policy.cutoff is None or created[id] < policy.cutoff)
            and (head is None or id != head.id)
        }
        if policy.cutoff is not None:
            return doomed, set()
        # Writes for a checkpoint that was never saved. One that is still to come is the newest.
        latest = order[0] if order else ""
        return doomed, {id for id in _noted(backend, scope) if id < latest and id not in created}

    doomed, orphans = yield find
    yield from _remove(context, scope, doomed, orphans)


def _noted(backend: Backend, scope: ScopeKey) -> list[str]:
    """Return the ids in a scope that have notes, whether or not the checkpoints exist."""
    return [*verbs.each(backend, verbs.noted_ids(scope, after=None, limit=None))]


def _remove(
    context: SaverContext, scope: ScopeKey, doomed: set[str], orphans: Iterable[str] = ()
) -> Steps[None]:
    """Remove checkpoints; first those that stay get a parent that stays, and what they need."""

    def find_orphaned(backend: Backend) -> list[tuple[str, str | None]]:
        parents = {info.id: info.parent_id for info in infos(backend, Query(scope))}
        return [
            (id, _kept_ancestor(parent, parents, doomed))
            for id, parent in parents.items()
            if id not in doomed and parent in doomed
        ]

    if doomed:
        orphaned: list[tuple[str, str | None]] = yield find_orphaned
        for id, parent_id in orphaned:
            yield from _reparent(context, scope, id, parent_id)
    everything = sorted(doomed) + sorted(orphans)
    for start in range(0, len(everything), _PAGE):
        yield bound(_delete_snapshots, scope, everything[start : start + _PAGE])
    context.heads.pop(scope)


def _delete_snapshots(backend: Backend, scope: ScopeKey, ids: Sequence[str]) -> None:
    backend.delete_snapshots(scope, ids)


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
    seen: list[str | None] = []

    def attempt() -> Steps[None]:
        commit: Commit | None = yield prepared
        if commit is not None:
            yield lambda backend: backend.commit(commit)

    def prepared(backend: Backend) -> Commit | None:
        found = backend.read_snapshots(scope, [id])
        seen[:] = [found[0][0].revision if found else None]
        if not found:
            return None
        ((info, body),) = found
        body, metadata = _with_delta_history(context, backend, info, body)
        return Commit(
            scope=scope,
            body=body,
            status=info.status,
            labels=prepare.encode_labels(info.labels),
            metadata=codec.encode(metadata),
            stamp=context.tools.draw(),
            id=id,
            parent=parent_id,
            replaces=info.revision,
        )

    def changed(backend: Backend) -> bool:
        info = backend.read_info(scope, id)
        return [None if info is None else info.revision] != seen

    context.heads.pop(scope)
    return contend(context.tools, attempt, changed)


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


def copy_thread(context: SaverContext, source: str, target: str) -> Steps[None]:
    source_id = limits.check_id("source_thread_id", str(source))
    target_id = limits.check_id("target_thread_id", str(target))
    if source_id == target_id:
        return
    scopes: list[ScopeKey] = yield bound(scopes_of, source_id)
    for scope in scopes:
        copied = scope._replace(session_id=target_id)
        # The writes first: a checkpoint that can be seen has all of them.
        noted: list[str] = yield bound(_noted, scope)
        for start in range(0, len(noted), _PAGE):
            yield bound(_copy_notes, context, scope, copied, noted[start : start + _PAGE])
        ids: list[str] = yield bound(all_ids, scope)
        for start in range(0, len(ids), limits.PAGE_STATES_MAX):
            page = ids[start : start + limits.PAGE_STATES_MAX]
            commits: list[Commit] = yield bound(_commits, context, scope, copied, page)
            for commit in commits:
                yield from save(context, commit, None)


def _copy_notes(
    backend: Backend, context: SaverContext, scope: ScopeKey, copied: ScopeKey, ids: Sequence[str]
) -> None:
    for note in notes_on(backend, scope, ids):
        value = codec.encode(note.value)
        write = NoteWrite(copied, note.name, note.snapshot_id, value, context.tools.draw())
        backend.write_note(write)


def _commits(
    backend: Backend, context: SaverContext, scope: ScopeKey, copied: ScopeKey, ids: Sequence[str]
) -> list[Commit]:
    return [
        Commit(
            scope=copied,
            body=body,
            status="completed",
            labels=prepare.encode_labels(info.labels),
            metadata=codec.encode(info.metadata),
            stamp=context.tools.draw(),
            id=info.id,
            parent=info.parent_id,
            created_at=times.to_us("created_at", info.created_at),
        )
        for info, body in backend.read_snapshots(scope, ids)
    ]


def expire(
    context: SaverContext, older_than: timedelta, *, prefix: str, limit: int | None
) -> Steps[list[str]]:
    check_prefix(prefix)
    count = limits.check_count("limit", limit)
    cutoff = check_retention(0, older_than, now_us=context.tools.draw().now).cutoff
    if cutoff is None:
        raise InvalidInput("older_than must be a timedelta, such as timedelta(days=30)")
    removed: list[str] = []
    seen: str | None = None
    after: ScopeKey | None = None
    while count is None or len(removed) < count:
        page: list[ScopeInfo] = yield bound(_scopes, prefix, after)
        # The heads rule out most threads that are in use; the others are checked one by one.
        fresh = {
            each.key.session_id for each in page if each.head and _saved_at(each.head) >= cutoff
        }
        for session_id in dict.fromkeys(each.key.session_id for each in page):
            if session_id in fresh or session_id == seen or len(removed) == count:
                continue
            seen = session_id
            gone: bool = yield bound(_remove_if_old, context, session_id, cutoff)
            if gone:
                removed.append(session_id)
        if len(page) < _PAGE:
            break
        after = page[-1].key
    return removed


def _scopes(backend: Backend, prefix: str, after: ScopeKey | None) -> list[ScopeInfo]:
    return backend.list_scopes(
        session_id=None, kind=records.KIND, prefix=prefix, after=after, limit=_PAGE
    )


def _remove_if_old(
    backend: Backend, context: SaverContext, session_id: str, cutoff: datetime
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
    for start in range(0, len(noted := [None, *_noted(backend, scope)]), _PAGE):
        notes = notes_on(backend, scope, noted[start : start + _PAGE])
        if any(note.updated_at >= cutoff for note in notes):
            return True
    return False


def _saved_at(info: SnapshotInfo) -> datetime:
    # `created_at` of an imported or copied checkpoint is older than the moment it was saved here.
    return max(info.created_at, info.updated_at)
