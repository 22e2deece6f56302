"""The timelines that pages show, kept for the chunks that a browser asks for while it scrolls."""

from collections.abc import Sequence

from limpet.api.opened import Opened
from limpet.api.store import Store
from limpet.backends.support.recent import Recent
from limpet.errors import NotFound
from limpet.model import SnapshotInfo, SnapshotRef
from limpet.views.timeline import SNAPSHOTS_MAX, Said, Timeline, read_said, read_timeline

_ROWS_MAX = 3 * SNAPSHOTS_MAX
_SAID_MAX = 20_000


class Timelines:
    """A service of an opened store. A version of a timeline never changes, so it may be kept."""

    def __init__(self, opened: Opened) -> None:
        self._kept: Recent[tuple[str, str], Timeline] = Recent(
            _ROWS_MAX, lambda timeline: 100 + len(timeline.rows) + len(timeline.scopes)
        )
        self._said: Recent[tuple[SnapshotRef, str], tuple[Said | None]] = Recent(_SAID_MAX)

    def close(self) -> None:
        self._kept.clear()
        self._said.clear()

    def read(self, store: Store, session_id: str, version: str | None = None) -> Timeline:
        """Return this version of a session's timeline if it is still kept, else a new one."""
        kept = None if version is None else self._kept.get((session_id, version))
        if kept is not None and next(store.scopes(session_id), None) is None:
            kept = None  # the session was deleted
        found = kept or read_timeline(store, session_id)
        if found is None:
            raise NotFound(f"there is no such session. session_id=`{session_id}`")
        self._kept.put((session_id, found.version), found)
        return found

    def known_said(self, info: SnapshotInfo) -> Said | None:
        """Return the last message in a state, if it was read before."""
        found = self._said.get(_key(info))
        return None if found is None else found[0]

    def read_said(self, store: Store, infos: Sequence[SnapshotInfo]) -> list[Said | None]:
        """Return the last message of each state, or of as many of the first as is not slow."""
        known = [self._said.get(_key(info)) for info in infos]
        unread = [info for info, each in zip(infos, known, strict=True) if each is None]
        fresh = iter(read_said(store, unread))
        found = []
        for info, each in zip(infos, known, strict=True):
            if each is None:
                try:
                    each = (next(fresh),)
                except StopIteration:
                    break
                self._said.put(_key(info), each)
            found.append(each[0])
        return found


def timelines(store: Store) -> Timelines:
    return store.driver.opened.service(Timelines)


def _key(info: SnapshotInfo) -> tuple[SnapshotRef, str]:
    return SnapshotRef(info.scope, info.id), info.revision
