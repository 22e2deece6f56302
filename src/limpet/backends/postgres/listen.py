"""Hearing of changes on a PostgreSQL server: by LISTEN, or by looking now and then.

A listener has a connection of its own, on which nothing happens until somebody tells of a change
(`_postgres_telling.py`). Where there can be none, as behind a pooler, it says at intervals that
something may have changed.
"""

import os
import select
import socket
import threading
import weakref
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import sql

from limpet.backends.postgres.errors import is_gone, translated
from limpet.backends.postgres.pool import Channel
from limpet.backends.postgres.transaction import Connection
from limpet.backends.support.polling import Poller
from limpet.errors import Unavailable
from limpet.protocol import Clock, Listener, Topic

_LOCK_WAIT_S = 1  # a writer holds the lock for some microseconds
_LOCK = b"SELECT pg_advisory_lock_shared(%s)"
_LOOK_S = 5.0
_FIRST_LOOK_S = 0.2  # for those who were about to commit when this one began to listen
_NAMES_MAX = 1000
_STEPS = 8  # from the shortest pause of one who only looks to the longest


def listen(
    connect: Callable[[], Connection], channel: Channel, *, clock: Clock, poll_s: float
) -> Listener:
    """Begin to listen on a connection of its own; where the server refuses that, to look.

    Raises:
        Unavailable: the server does not answer.
    """
    try:
        conn = connect()
    except psycopg.Error as cause:
        raise translated(cause) from cause
    try:
        conn.execute(f"SET lock_timeout = '{_LOCK_WAIT_S}s'".encode())
        conn.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel.name)))
        # From here on writers see that somebody listens.
        conn.execute(_LOCK, (channel.key,))
    except psycopg.Error as cause:
        conn.close()
        if is_gone(cause):
            raise translated(cause) from cause
        return poller(clock, poll_s)  # a replica, or a server that knows no LISTEN
    except BaseException:
        conn.close()
        raise
    return PostgresListener(conn, clock)


class PostgresListener:
    """Waits until the server says something, and from time to time asks for a look all the same."""

    def __init__(self, conn: Connection, clock: Clock) -> None:
        self._conn: Connection | None = conn
        self._clock = clock
        self._fd = conn.pgconn.socket
        self._lock = threading.RLock()  # the garbage collector may wake it in the same thread
        self._waker, self._woken = socket.socketpair()
        for each in (self._waker, self._woken):
            each.setblocking(False)
        self._ready = select.poll()
        self._ready.register(self._fd, select.POLLIN)
        self._ready.register(self._woken, select.POLLIN)
        self._look_at = clock.monotonic() + self._varied(_FIRST_LOOK_S)
        _listeners.add(self)

    def _varied(self, pause_s: float) -> float:
        return pause_s * (0.5 + self._clock.jitter())

    def follow(self, topics: Collection[Topic]) -> None:
        """Nothing: all changes of the schema are heard."""

    def wait(self, *, lively: bool) -> frozenset[str] | None:
        """Wait for the server, for `wake`, or until it is time to look."""
        while self._conn is not None:
            pause_s = self._look_at - self._clock.monotonic()
            if pause_s <= 0:
                self._look_at = self._clock.monotonic() + self._varied(_LOOK_S)
                return None
            # Rounded up, or it would come too early, and spin.
            ready = {fd for fd, _ in self._ready.poll(int(pause_s * 1000) + 1)}
            names = self._heard(self._conn) if self._fd in ready else set()
            if ready - {self._fd}:
                self._forget_wake()
            elif not names:
                continue
            return None if "" in names or len(names) > _NAMES_MAX else frozenset(names)
        raise Unavailable("the listener is closed, or it is that of a parent process")

    def _heard(self, conn: Connection) -> set[str]:
        names = set()
        try:
            conn.pgconn.consume_input()
            while (notice := conn.pgconn.notifies()) is not None:
                names.add(notice.extra.decode(errors="replace"))
        except psycopg.Error as cause:
            raise translated(cause) from cause
        return names

    def _forget_wake(self) -> None:
        with suppress(BlockingIOError):
            while self._woken.recv(1024):
                pass

    def wake(self) -> None:
        """End a wait."""
        # Under a lock, so that it never writes to what has been closed, and is something else now.
        with self._lock, suppress(OSError):
            self._waker.send(b"\0")

    def close(self) -> None:
        """End the connection. May be repeated."""
        with self._lock:
            conn, self._conn = self._conn, None
            self._waker.close()
            self._woken.close()
        if conn is not None:
            conn.close()

    def forget_after_fork(self) -> None:
        """Leave the connection, and who waits for it, to the parent."""
        self._lock = threading.RLock()
        _left_alone.append(self._conn)
        self._conn = None
        self.close()


def poller(clock: Clock, poll_s: float) -> Poller:
    """Return what looks where nobody can listen."""
    return Poller(first_s=poll_s / _STEPS, poll_s=poll_s, clock=clock)


_listeners: "weakref.WeakSet[PostgresListener]" = weakref.WeakSet()
_left_alone: list[Any] = []  # the connections of a parent: to end them here would end them there


def _after_fork_in_child() -> None:
    for listener in list(_listeners):
        listener.forget_after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
