"""Removing checkpoints without harm to those that stay, and copying threads."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from limpet.api.verbs import Steps, check_prefix, contend
from limpet.compat.langgraph import records
from limpet.compat.langgraph.checkpoints import Desk, notes_on, save
from limpet.compat.langgraph.history import carried_in, pasts
from limpet.compat.langgraph.listing import all_ids, infos, scopes_of
from limpet.compat.langgraph.records import Draft
from limpet.core import codec, limits, prepare, times
from limpet.core.retention import Retention, check_retention
from limpet.errors import Conflict, Corrupt, InvalidInput
from limpet.model import Note, ScopeInfo, ScopeKey, SnapshotInfo
from limpet.protocol import Backend, Commit, NoteWrite, Query

_CHUNK = limits.PAGE_ITEMS_MAX


def delete_thread(desk: Desk, thread_id: str) -> Steps[None]:
    """Remove all checkpoints and writes of a thread; what others keep in its session stays."""
    session_id = limits.check_id("thread_id", str(thread_id))
    scopes: list[ScopeKey] = yield lambda backend: scopes_of(backend, session_id, None)
    ours = [scope for scope in scopes if records.namespace_of(scope) is not None]
    for scope in ours:
        desk.heads.forget(scope)
    if ours and ours == scopes:
        yield lambda backend: backend.delete_session(session_id)
    else:
        for scope in ours:
            yield lambda backend, scope=scope: backend.delete_scope(scope)  # type: ignore[misc]


def delete_for_runs(desk: Desk, run_ids: Sequence[str]) -> Steps[None]:
    """Remove the checkpoints and writes of some runs, in whatever threads they are."""
    if isinstance(run_ids, str):
        raise InvalidInput("run_ids must be several ids. type=`str`")
    doomed: dict[ScopeKey, set[str]] = {}
    for run_id in run_ids:
        query = Query(labels=((records.RUN, records.label_of(run_id)),))
        found: list[SnapshotInfo] = yield lambda backend, query=query: list(  # type: ignore[misc]
            infos(backend, query)
        )
        for info in found:
            if records.namespace_of(info.scope) is not None:
                doomed.setdefault(info.scope, set()).add(info.id)
    for scope, ids in doomed.items():
        yield from _remove(desk, scope, ids)


def prune(
    desk: Desk,
    thread_ids: Sequence[str],
    *,
    strategy: str,
    keep_last: int | None,
    older_than: timedelta | None,
) -> Steps[None]:
    """Remove what a strategy, or a number and an age, do not keep, in each namespace by itself."""
    if isinstance(thread_ids, str):
        raise InvalidInput("thread_ids must be several ids. type=`str`")
    if strategy not in ("keep_latest", "delete"):
        raise InvalidInput(f"there is no such strategy. strategy=`{strategy}`")
    given = keep_last is not None or older_than is not None
    if strategy == "delete":
        if given:
            raise InvalidInput("what is deleted whole has no keep_last and no older_than")
        for thread_id in thread_ids:
            yield from delete_thread(desk, thread_id)
        return
    kept = max(limits.check_count("keep_last", keep_last) or 1, 1)  # the latest always stays
    policy = check_retention(kept, older_than, now_us=desk.tools.draw().now)
    for thread_id in thread_ids:
        session_id = limits.check_id("thread_id", str(thread_id))
        scopes: list[ScopeKey] = yield lambda backend, session_id=session_id: scopes_of(  # type: ignore[misc]
            backend, session_id
        )
        for scope in scopes:
            if records.namespace_of(scope) is not None:
                yield from _prune_scope(desk, scope, policy)


def _prune_scope(desk: Desk, scope: ScopeKey, policy: Retention) -> Steps[None]:
    def find(backend: Backend) -> tuple[set[str], set[str]]:
        born: dict[str, datetime] = {
            info.id: info.created_at for info in infos(backend, Query(scope))
        }
        head = backend.read_info(scope, None)
        order = sorted(born, reverse=True)
        doomed = {
            id
            for place, id in enumerate(order)
            if place >= policy.keep_last
            and (policy.cutoff is None or born[id] < policy.cutoff)
            and (head is None or id != head.id)
        }
        # Writes on a checkpoint that never came; one that may still come is newer than all.
        latest = order[0] if order else ""
        orphans = {id for id in _noted(backend, scope) if id < latest and id not in born}
        return doomed, orphans if policy.cutoff is None else set()

    doomed, orphans = yield find
    yield from _remove(desk, scope, doomed, orphans)


def _noted(backend: Backend, scope: ScopeKey) -> Iterator[str]:
    after = ""
    while True:
        page = backend.list_noted(scope, after=after, limit=_CHUNK)
        yield from page
        if len(page) < _CHUNK:
            return
        after = page[-1]


def _remove(
    desk: Desk, scope: ScopeKey, doomed: set[str], orphans: Iterable[str] = ()
) -> Steps[None]:
    """Remove checkpoints. First those whose parents go are made to stand by themselves."""

    def cut(backend: Backend) -> list[tuple[str, str | None]]:
        parents = {info.id: info.parent_id for info in infos(backend, Query(scope))}
        return [
            (id, _above(parent, parents, doomed))
            for id, parent in parents.items()
            if id not in doomed and parent in doomed
        ]

    if doomed:
        boundary: list[tuple[str, str | None]] = yield cut
        for id, parent_id in boundary:
            yield from _settle(desk, scope, id, parent_id)
    everything = sorted(doomed) + sorted(orphans)
    for start in range(0, len(everything), _CHUNK):
        some = everything[start : start + _CHUNK]
        yield lambda backend, some=some: backend.delete_snapshots(scope, some)  # type: ignore[misc]
    desk.heads.forget(scope)


def _above(parent: str | None, parents: dict[str, str | None], doomed: set[str]) -> str | None:
    """Return the nearest ancestor that stays."""
    met: set[str] = set()
    while parent in doomed and parent not in met:
        met.add(parent)
        parent = parents.get(parent)
    return None if parent in doomed else parent


def _settle(desk: Desk, scope: ScopeKey, id: str, parent_id: str | None) -> Steps[None]:
    """Give a checkpoint another parent, and what it needs of the ancestors between. One commit."""
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
        body, metadata = _carrying(desk, backend, info, body)
        return Commit(
            scope=scope,
            body=body,
            status=info.status,
            labels=prepare.encode_labels(info.labels),
            metadata=codec.encode(metadata),
            stamp=desk.tools.draw(),
            id=id,
            parent=parent_id,
            replaces=info.revision,
        )

    def changed(backend: Backend) -> bool:
        info = backend.read_info(scope, id)
        return [None if info is None else info.revision] != seen

    desk.heads.forget(scope)
    return contend(desk.tools, attempt, changed)


def _carrying(
    desk: Desk, backend: Backend, info: SnapshotInfo, body: bytes
) -> tuple[bytes, dict[str, Any]]:
    """Return state and metadata of a checkpoint, with the deltas that its ancestors hold."""
    if records.FACADE not in info.metadata:
        return body, info.metadata
    tree = records.tree_of(info, body)
    counted = records.delta_channels(records.read_metadata(desk.codec, info))
    known = carried_in(info, tree)
    missing = counted - tree["channel_values"].keys() - known.keys()
    wanted = sorted(name for name in missing if isinstance(name, str))
    if not wanted:
        return body, info.metadata
    carried: dict[str, Any] = {}
    for name, past in (known | pasts(backend, info.scope, info.id, wanted)).items():
        seed = {"seed": past.seed[0]} if past.seed else {}
        carried[name] = {**seed, "writes": [list(write) for write in past.writes]}
    encoded, _ = prepare.encode_state(
        {**tree, records.CARRIED: carried}, desk.tools.state_bytes_max
    )
    others = {name: each for name, each in info.metadata.items() if name != records.ABSENT}
    return encoded, {**others, records.CARRIES: sorted(carried)}


def copy_thread(desk: Desk, source: str, target: str) -> Steps[None]:
    """Copy all checkpoints and writes of a thread to another one, each as one step."""
    source_id = limits.check_id("source_thread_id", str(source))
    target_id = limits.check_id("target_thread_id", str(target))
    if source_id == target_id:
        return
    scopes: list[ScopeKey] = yield lambda backend: scopes_of(backend, source_id)
    for scope in scopes:
        if records.namespace_of(scope) is None:
            continue
        there = scope._replace(session_id=target_id)
        noted: list[str] = yield lambda backend, scope=scope: list(_noted(backend, scope))  # type: ignore[misc]
        for start in range(0, len(noted), _CHUNK):
            some = noted[start : start + _CHUNK]
            yield lambda backend, some=some, scope=scope, there=there: _copy_notes(  # type: ignore[misc]
                desk, backend, scope, there, some
            )
        ids: list[str] = yield lambda backend, scope=scope: list(all_ids(backend, scope))  # type: ignore[misc]
        for start in range(0, len(ids), limits.PAGE_STATES_MAX):
            page = ids[start : start + limits.PAGE_STATES_MAX]
            drafts: list[Draft] = yield lambda backend, page=page, scope=scope, there=there: [  # type: ignore[misc]
                _copied(there, info, body) for info, body in backend.read_snapshots(scope, page)
            ]
            for draft in drafts:
                yield from save(desk, draft)


def _copy_notes(
    desk: Desk, backend: Backend, scope: ScopeKey, there: ScopeKey, ids: Sequence[str]
) -> None:
    for note in notes_on(backend, scope, ids):
        value = codec.encode(note.value)
        write = NoteWrite(there, note.name, note.snapshot_id, value, desk.tools.draw())
        backend.write_note(write)


def _copied(there: ScopeKey, info: SnapshotInfo, body: bytes) -> Draft:
    return Draft(
        scope=there,
        id=info.id,
        parent_id=info.parent_id,
        body=body,
        labels=prepare.encode_labels(info.labels),
        metadata=codec.encode(info.metadata),
        created_at=times.to_us("created_at", info.created_at),
    )


# Removing threads that nobody has saved to for long.

_PAGE = limits.PAGE_ITEMS_MAX


def expire(
    desk: Desk, older_than: timedelta, *, prefix: str, limit: int | None
) -> Steps[list[str]]:
    """Remove threads in which nothing was saved since a while ago, and return their ids."""
    check_prefix(prefix)
    count = limits.check_count("limit", limit)
    cutoff = check_retention(0, older_than, now_us=desk.tools.draw().now).cutoff
    if cutoff is None:
        raise InvalidInput("older_than must be a timedelta that is not negative")
    return _expire(desk, cutoff, prefix, count)


def _expire(desk: Desk, cutoff: datetime, prefix: str, count: int | None) -> Steps[list[str]]:
    removed: list[str] = []
    seen: str | None = None
    place: ScopeKey | None = None
    while count is None or len(removed) < count:
        page: list[ScopeInfo] = yield lambda backend, place=place: backend.list_scopes(  # type: ignore[misc]
            session_id=None, kind=records.KIND, prefix=prefix, after=place, limit=_PAGE
        )
        # Most threads that are in use show so by a head; the others are looked at closely.
        fresh = {each.key.session_id for each in page if each.head and _at(each.head) >= cutoff}
        for session_id in dict.fromkeys(each.key.session_id for each in page):
            if session_id in fresh or session_id == seen or len(removed) == count:
                continue
            seen = session_id
            gone: bool = yield lambda backend, session_id=session_id: _remove_old(  # type: ignore[misc]
                desk, backend, session_id, cutoff
            )
            if gone:
                removed.append(session_id)
        if len(page) < _PAGE:
            break
        place = page[-1].key
    return removed


def _remove_old(desk: Desk, backend: Backend, session_id: str, cutoff: datetime) -> bool:
    """Remove a thread if nothing was saved in it since; tell whether it is gone.

    What its scopes show is read first and compared when they are removed: a new head that comes in
    between stays. The root graph goes first, so that a thread that is gone on with is whole.
    """
    try:
        scopes = [key for key in scopes_of(backend, session_id) if _is_ours(key)]
        heads = {key: backend.read_info(key, None) for key in scopes}
        fresh = (_is_fresh(desk, backend, key, heads[key], cutoff) for key in scopes)
        if not scopes or any(fresh):
            return False
        for key in sorted(scopes, key=lambda key: key.scope_id != "main"):
            head = heads[key]
            desk.heads.forget(key)
            backend.delete_scope(key, expect=None if head is None else head.revision)
    except (Conflict, Corrupt):
        return False  # somebody went on with it; or it cannot be told, which `check` tells
    return True


def _is_ours(key: ScopeKey) -> bool:
    return records.namespace_of(key) is not None


def _is_fresh(
    desk: Desk, backend: Backend, scope: ScopeKey, head: SnapshotInfo | None, cutoff: datetime
) -> bool:
    """Tell whether a checkpoint or a note was saved at that time or later, or somebody holds it."""
    if head is not None and _at(head) >= cutoff:
        return True
    hold = backend.read_lease(scope, now=desk.tools.draw().now)
    if hold is not None and hold.left_us > 0:
        return True
    if any(_at(info) >= cutoff for info in infos(backend, Query(scope))):
        return True
    return any(note.updated_at >= cutoff for note in _notes(backend, scope))


def _at(info: SnapshotInfo) -> datetime:
    """Return when a checkpoint was saved: what was brought from elsewhere is itself older."""
    return max(info.created_at, info.updated_at)


def _notes(backend: Backend, scope: ScopeKey) -> Iterator[Note]:
    after = ""
    yield from notes_on(backend, scope, [None])
    while True:
        noted = backend.list_noted(scope, after=after, limit=_PAGE)
        yield from notes_on(backend, scope, noted)
        if len(noted) < _PAGE:
            return
        after = noted[-1]
