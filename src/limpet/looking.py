"""What the hub looks at: what a topic shows at this moment."""

from collections.abc import Iterable
from typing import NamedTuple

from limpet.core import limits
from limpet.errors import LimpetError, Unavailable
from limpet.listening import Target
from limpet.model import ScopeKey, SnapshotInfo
from limpet.protocol import Backend, Query


class Present(NamedTuple):
    """What there is now; `exists` is False if it was deleted, or never there.

    `error` is why it cannot be told: for this topic, while others can.
    """

    infos: list[SnapshotInfo]
    exists: bool
    error: LimpetError | None = None


def shown(backend: Backend, target: Target, mark: str | None) -> Present:
    """Return what a target is now, of which the mark was read."""
    try:
        info = None if mark is None else backend.read_info(*target)
    except Unavailable:
        raise
    except LimpetError as error:
        return Present([], False, error)
    return Present([], False) if info is None else Present([info], True)


def found(backend: Backend, prefix: str, snapshot_id: str) -> Present:
    """Return the snapshot of an id, wherever it is."""
    try:
        infos = backend.list_snapshots(Query(prefix=prefix, id=snapshot_id), limit=1)
    except Unavailable:
        raise
    except LimpetError as error:
        return Present([], False, error)
    return Present(infos, bool(infos))


def listed(backend: Backend, *, session_id: str | None, prefix: str) -> Present:
    """Return what the scopes of a session show, or of all below a prefix."""
    heads: list[SnapshotInfo] = []
    after: ScopeKey | None = None
    while True:
        page = backend.list_scopes(
            session_id=session_id,
            kind=None,
            prefix=prefix,
            after=after,
            limit=limits.PAGE_ITEMS_MAX,
        )
        heads += [scope.head for scope in page if scope.head is not None]
        if len(page) < limits.PAGE_ITEMS_MAX:
            return Present(heads, bool(page) or after is not None)
        after = page[-1].key


def by_session(infos: Iterable[SnapshotInfo]) -> dict[str, list[SnapshotInfo]]:
    """Return what scopes show, by their sessions."""
    sessions: dict[str, list[SnapshotInfo]] = {}
    for info in infos:
        sessions.setdefault(info.session_id, []).append(info)
    return sessions
