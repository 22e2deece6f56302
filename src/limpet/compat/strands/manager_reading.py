"""How a `SessionManager` finds what an agent is restored from."""

from collections import deque
from collections.abc import AsyncIterator

from limpet.compat.strands.manager_agents import Restored
from limpet.compat.strands.records import (
    SCHEMA_VERSION,
    Snapshot,
    SnapshotLocation,
    is_uuid7,
)
from limpet.compat.strands.storage import SessionError, SnapshotStorage
from limpet.core.limits import PAGE_ITEMS_MAX
from limpet.errors import Corrupt, Unsupported


async def find(
    storage: SnapshotStorage, place: SnapshotLocation, snapshot_id: str | None
) -> Restored | None:
    """Return a snapshot, or for a latest that is damaged the newest good one of history."""
    try:
        found = await _read(storage, place, snapshot_id)
        return None if found is None else Restored(found, snapshot_id)
    except Exception as error:
        if snapshot_id is not None or not is_damage(error):
            raise
        cause = error
    async for id in newest_first(storage, place):
        try:
            found = await _read(storage, place, id)
        except Exception as error:
            if not is_damage(error):
                raise
            continue
        if found is not None:
            return Restored(found, id, cause)
    raise cause


async def _read(
    storage: SnapshotStorage, place: SnapshotLocation, snapshot_id: str | None
) -> Snapshot | None:
    found = await storage.load_snapshot(place, snapshot_id)
    if found is None:
        return None
    reason: Exception
    if found.schema_version != SCHEMA_VERSION:
        reason = Unsupported(f"the schema is not known. schema_version=`{found.schema_version!a}`")
    elif found.scope != place.scope or not isinstance(found.data, dict):
        reason = Corrupt(f"this is no state of its kind. scope=`{found.scope!a}`")
    else:
        return found
    raise SessionError(
        f"the snapshot cannot be read. session_id=`{place.session_id}` scope_id=`{place.scope_id}`"
    ) from reason


def is_damage(error: BaseException) -> bool:
    """Tell whether an error says that what is stored is damaged."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, Corrupt):
        seen = seen.__cause__
    return seen is not None


async def newest_first(storage: SnapshotStorage, place: SnapshotLocation) -> AsyncIterator[str]:
    """Walk the ids in history from the newest, those whose age is not known last.

    A storage lists them the other way round, so they are listed anew for every page.
    """
    for timed in (True, False):
        page, before = deque[str](maxlen=0), None
        while before is None or len(page) == PAGE_ITEMS_MAX:
            page = await _last_page(storage, place, before, timed=timed)
            for id in reversed(page):
                yield id
            before = page[0] if page else ""


async def _last_page(
    storage: SnapshotStorage, place: SnapshotLocation, before: str | None, *, timed: bool
) -> deque[str]:
    """Return the last ids below another, of those that are UUIDs 7 or of those that are not."""
    last: deque[str] = deque(maxlen=PAGE_ITEMS_MAX)
    after: str | None = None
    while True:
        page = await storage.list_snapshot_ids(place, PAGE_ITEMS_MAX, after)
        below = [id for id in page if before is None or id < before]
        last.extend(id for id in below if is_uuid7(id) is timed)
        if len(below) < PAGE_ITEMS_MAX:
            return last
        after = page[-1]
