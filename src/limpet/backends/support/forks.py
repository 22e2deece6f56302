"""The one registry of objects that a forked child must renew: locks, threads, connections.

A lock may have been held, at the moment of the fork, by a thread that does not exist in the child.
"""

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

_FORK_POLL_S = 0.001
_FORK_POLLS_MAX = 2_000


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


class _Opening:
    """The threads that open a socket. A fork waits for them, and keeps others from beginning."""

    def __init__(self) -> None:
        self.after_fork()

    def after_fork(self) -> None:
        # No Condition: an interrupt in its `__enter__` would leave it locked.
        self.lock = threading.RLock()
        self.threads: set[int] = set()

    def before_fork(self) -> None:
        itself = {threading.get_ident()}  # a signal handler may fork
        polls = 0  # not for ever: the server may not answer
        self.lock.acquire()
        while not self.threads <= itself and polls < _FORK_POLLS_MAX:
            self.lock.release()
            threading.Event().wait(_FORK_POLL_S)
            polls += 1
            self.lock.acquire()

    def after_fork_in_parent(self) -> None:
        self.lock.release()


_opening = _Opening()


@contextmanager
def opening_a_socket() -> Iterator[None]:
    """Let a fork wait until a socket is open and known: a child cannot abandon it before."""
    try:
        with _opening.lock:
            _opening.threads.add(threading.get_ident())
        yield
    finally:
        with _opening.lock:
            _opening.threads.discard(threading.get_ident())


def _after_fork_in_child() -> None:
    _opening.after_fork()
    for each in list(_renewables):
        each.after_fork()


os.register_at_fork(
    before=_opening.before_fork,
    after_in_parent=_opening.after_fork_in_parent,
    after_in_child=_after_fork_in_child,
)
