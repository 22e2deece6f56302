"""Hears of changes in sessions: what a bucket hears of its keys, by the layout."""

from collections.abc import Collection
from typing import NamedTuple

from limpet.backends._bucket.protocol import Ear
from limpet.core.layout import File, Layout, id_prefix, unescape
from limpet.listening import Topic

# Nobody watches these, and a lease is renewed again and again.
_UNWATCHED = frozenset({File.LEASE, File.MANIFEST, File.NOTE})


class _Place(NamedTuple):
    folder: str
    session: str  # what its keys begin with
    session_id: str | None
    awaited: bool = False


class ObjectListener:
    """Tells in which sessions something may have changed."""

    def __init__(self, ear: Ear, layout: Layout) -> None:
        self._ear = ear
        self._layout = layout
        self._known: dict[Topic, _Place] = {}
        self._sessions: dict[str, str] = {}  # by what their keys begin with

    def follow(self, topics: Collection[Topic]) -> None:
        """Listen to the folders in which these topics are."""
        # Thousands may be followed, one more at a time.
        self._known = {each: self._known.get(each) or self._place(each) for each in topics}
        places = set(self._known.values())
        self._sessions = {place.session: place.session_id for place in places if place.session_id}
        self._ear.follow(
            {place.folder for place in places if not place.awaited},
            awaited={place.folder for place in places if place.awaited},
        )

    def _place(self, topic: Topic) -> "_Place":
        layout, session_id = self._layout, topic.session_id
        if topic.target is not None:
            session_id = topic.target.scope.session_id
        session = "" if session_id is None else layout.session_prefix(session_id)
        if topic.target is not None:
            return _Place(layout.scope_prefix(topic.target.scope), session, session_id)
        if topic.id is not None:
            # Nobody knows where it will be, but there will be a pointer to it.
            return _Place(id_prefix(topic.id), session, session_id, awaited=True)
        return _Place(session or layout.root, session, session_id)

    def wait(self, *, lively: bool) -> frozenset[str] | None:
        """Wait until something is heard; return the sessions."""
        while True:
            keys = self._ear.wait(lively=lively)
            if not keys:
                return keys
            sessions = {self._session_of(key) for key in keys if self._is_watched(key)}
            if None in sessions:
                return None
            if sessions:
                return frozenset(each for each in sessions if each is not None)

    def _is_watched(self, key: str) -> bool:
        found = self._layout.parse(key)
        return found is None or found.file not in _UNWATCHED

    def _session_of(self, key: str) -> str | None:
        """Return the session of a key or a folder; None if it cannot be told."""
        root = self._layout.root
        if not key.startswith(root):
            return None
        name = key[len(root) :].partition("/")[0]
        known = self._sessions.get(f"{root}{name}/")
        if known is not None:
            return known
        session_id = unescape(name) if name else None
        return session_id if isinstance(session_id, str) else None

    def wake(self) -> None:
        """End a wait."""
        self._ear.wake()

    def close(self) -> None:
        """Let go of what the bucket holds."""
        self._ear.close()
