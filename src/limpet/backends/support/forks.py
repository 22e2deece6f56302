"""The one registry of objects that a forked child must renew: locks, threads, connections.

A lock may have been held, at the moment of the fork, by a thread that does not exist in the child.
"""

import os
import weakref
from typing import Protocol


class Renewable(Protocol):
    """An object that can be used on both sides of a fork."""

    def after_fork(self) -> None:
        """Called in the child, which has a single thread then: replace locks, forget the rest."""
        ...


_renewables: "weakref.WeakSet[Renewable]" = weakref.WeakSet()


def renew_after_fork(each: Renewable) -> None:
    """Have `each.after_fork()` called in every forked child, for as long as the object lives."""
    _renewables.add(each)


def abandon(fd: int) -> None:
    """Put /dev/null in the place of a socket that a forked child has inherited.

    While the child has it open, the other end does not see that the parent has ended, and keeps
    what the parent has locked. The number stays taken, so that what refers to it does no harm.
    """
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(null, fd, inheritable=False)
    os.close(null)


def _after_fork_in_child() -> None:
    for each in list(_renewables):
        each.after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
