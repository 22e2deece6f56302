"""What each scope showed when it was last looked at, so that a save need not look again.

And what a saver itself saved there last, taken apart: a thread goes on from where it was left.
"""

from typing import NamedTuple

from limpet.compat.langgraph.records import Warm
from limpet.model import ScopeKey, SnapshotInfo

_SCOPES_MAX = 4096
_STATES_MAX = 256
_BYTES_MAX = 32 * 1024 * 1024  # as JSON; beside it stand the fields of the messages


class Head(NamedTuple):
    """What a scope shows: its id and revision, or two times None if there is nothing."""

    id: str | None
    revision: str | None


class Heads:
    """A bounded memory. It may be behind, which the next save notices.

    Without a lock, as what it is: a process that is forked off may find one held for good.
    """

    def __init__(self) -> None:
        self._heads: dict[ScopeKey, Head] = {}

    def of(self, scope: ScopeKey) -> Head | None:
        """Return what is known of a scope."""
        return self._heads.get(scope)

    def saw(self, scope: ScopeKey, info: SnapshotInfo | None) -> Head:
        """Remember what a scope shows."""
        head = Head(None, None) if info is None else Head(info.id, info.revision)
        self._heads.pop(scope, None)
        self._heads[scope] = head
        if len(self._heads) > _SCOPES_MAX:
            self._heads.pop(list(self._heads)[0], None)  # noqa: RUF015  # others may change it
        return head

    def forget(self, scope: ScopeKey) -> None:
        """Know nothing of a scope any more."""
        self._heads.pop(scope, None)


class WarmStates:
    """The last checkpoints of some scopes, by the revision that they got. Bounded, as `Heads`."""

    def __init__(self, bytes_max: int = _BYTES_MAX) -> None:
        self._states: dict[ScopeKey, tuple[str, Warm]] = {}
        self._bytes_max = bytes_max

    def last(self, scope: ScopeKey) -> Warm | None:
        """Return the last checkpoint of a scope that was seen, whether or not it is the last."""
        found = self._states.get(scope)
        return None if found is None else found[1]

    def at(self, scope: ScopeKey, revision: str) -> Warm | None:
        """Return the checkpoint of a scope, if it is still that of this revision."""
        found = self._states.get(scope)
        return found[1] if found is not None and found[0] == revision else None

    def keep(self, scope: ScopeKey, revision: str, warm: Warm | None) -> None:
        """Remember what a scope shows; those that were not used for longest are forgotten."""
        self._states.pop(scope, None)
        if warm is None or warm.size > self._bytes_max // 2:
            return
        self._states[scope] = (revision, warm)
        left = self._bytes_max
        for place, (each, (_, state)) in enumerate(reversed(list(self._states.items()))):
            left -= state.size
            if left < 0 or place >= _STATES_MAX:
                self._states.pop(each, None)
