"""Removing threads that nobody has saved to for long."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from limpet.compat.langgraph import records
from limpet.compat.langgraph.listing import infos, scopes_of
from limpet.compat.langgraph.verbs import Desk, notes_on
from limpet.core import limits
from limpet.core.retention import check_retention
from limpet.errors import Conflict, Corrupt, InvalidInput
from limpet.model import Note, ScopeInfo, ScopeKey, SnapshotInfo
from limpet.protocol import Backend, Query
from limpet.steps import Steps, check_prefix

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
