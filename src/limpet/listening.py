"""What can be watched, and how an engine tells that it may have changed."""

from collections.abc import Collection
from typing import NamedTuple, Protocol

from limpet.model import ScopeKey


class Target(NamedTuple):
    """One thing that can be watched: what a scope shows, or (with an id) one snapshot of it."""

    scope: ScopeKey
    id: str | None = None


class Topic(NamedTuple):
    """What somebody watches: one target, or everything in sessions.

    Without a target it is what all scopes show whose session is `session_id`, or begins with
    `prefix`; with `id` it is the snapshot of that id, in whatever scope of them.
    """

    target: Target | None = None
    session_id: str | None = None
    prefix: str = ""
    id: str | None = None


class Listener(Protocol):
    """Hears that something may have changed, in this process or another.

    One thread uses it; only `wake` may be called from others.
    """

    def follow(self, topics: Collection[Topic]) -> None:
        """Listen for these from now on: what changes after this returns ends a `wait`."""
        ...

    def wait(self, *, lively: bool) -> frozenset[str] | None:
        """Wait until something may have changed; return the sessions in which it may have.

        None stands for all of them. No sessions: somebody called `wake`. It may be wrong in one
        way only, by naming too much: whoever polls does so for ever. `lively` says that the last
        look at the topics found something new.

        Raises:
            Unavailable: nothing is heard any more; listen anew.
        """
        ...

    def wake(self) -> None:
        """End the wait that is under way, or the next one."""
        ...

    def close(self) -> None:
        """Let go of everything held."""
        ...
