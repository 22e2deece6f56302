"""Listening to a PostgreSQL server: by LISTEN, or by polling.

A listener has a connection of its own, on which writers' notifications arrive (`pool.py` sends
them). Where LISTEN is not possible, as behind a pooler, the server is polled.
"""

import select
import socket
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import sql

from limpet.backends.postgres.errors import is_gone, translated
from limpet.backends.postgres.pool import Channel
from limpet.backends.postgres.raw import Connection
from limpet.backends.support.forks import renew_after_fork
from limpet.backends.support.polling import Poller
from limpet.errors import Unavailable
from limpet.protocol import Clock, Listener, Topic

_LOCK_WAIT_S = 1  # a writer holds the lock for some microseconds
_LOCK = b"SELECT pg_advisory_lock_shared(%s)"
_FULL_POLL_S = 5.0  # everything is reported as changed this often
_FIRST_POLL_S = 0.2  # for writers that were about to commit when this listener started
_NAMES_MAX = 1000
_STEPS = 8  # the shortest interval of a poller is this part of the longest


def listen(
    connect: Callable[[], Connection], channel: Channel, *, clock: Clock, poll_s: float
) -> Listener[Topic]:
    """Return a listener with a connection of its own; a poller where the server refuses LISTEN.

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
        # By this lock writers see that there is a listener.
        conn.execute(_LOCK, (channel.key,))
    except psycopg.Error as cause:
        conn.close()
        if is_gone(cause):
            raise translated(cause) from cause
        return poller(clock, poll_s)  # a replica, or a server without LISTEN
    except BaseException:
        conn.close()
        raise
    return PostgresListener(conn, clock)


def poller(clock: Clock, poll_s: float) -> Poller:
    return Poller(first_s=poll_s / _STEPS, poll_s=poll_s, clock=clock)


class PostgresListener:
    """Waits for notifications, and every few seconds asks for a full poll all the same."""

    def __init__(self, conn: Connection, clock: Clock) -> None:
        self._conn: Connection | None = conn
        self._clock = clock
        self._fd = conn.pgconn.socket
        self._lock = threading.RLock()  # the garbage collector may call `wake` in the same thread
        self._waker, self._woken = socket.socketpair()
        for each in (self._waker, self._woken):
            each.setblocking(False)
        self._ready = select.poll()
        self._ready.register(self._fd, select.POLLIN)
        self._ready.register(self._woken, select.POLLIN)
        self._full_poll_at = clock.monotonic() + self._varied(_FIRST_POLL_S)
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Leave the connection to the parent; `wait` raises Unavailable from now on."""
        self._lock = threading.RLock()
        _parents_connections.append(self._conn)
        self._conn = None
        self.close()

    def _varied(self, pause_s: float) -> float:
        return pause_s * (0.5 + self._clock.jitter())

    def follow(self, topics: Collection[Topic]) -> None:
        """Do nothing: all changes of the schema are reported."""

    def wait(self, *, active: bool) -> frozenset[str] | None:
        while self._conn is not None:
            pause_s = self._full_poll_at - self._clock.monotonic()
            if pause_s <= 0:
                self._full_poll_at = self._clock.monotonic() + self._varied(_FULL_POLL_S)
                return None
            # Rounded up: it would return too early otherwise, and spin.
            ready = {fd for fd, _ in self._ready.poll(int(pause_s * 1000) + 1)}
            names = self._received(self._conn) if self._fd in ready else set()
            if ready - {self._fd}:
                with suppress(BlockingIOError):
                    while self._woken.recv(1024):
                        pass
            elif not names:
                continue
            return None if "" in names or len(names) > _NAMES_MAX else frozenset(names)
        raise Unavailable("the listener is closed, or belongs to the parent process: listen again")

    def _received(self, conn: Connection) -> set[str]:
        names = set()
        try:
            conn.pgconn.consume_input()
            while (notice := conn.pgconn.notifies()) is not None:
                names.add(notice.extra.decode(errors="replace"))
        except psycopg.Error as cause:
            raise translated(cause) from cause
        return names

    def wake(self) -> None:
        # Under a lock: once closed, the number of the socket may belong to something else.
        with self._lock, suppress(OSError):
            self._waker.send(b"\0")

    def close(self) -> None:
        with self._lock:
            conn, self._conn = self._conn, None
            self._waker.close()
            self._woken.close()
        if conn is not None:
            conn.close()


# Kept alive in a forked child: to close one there would end the parent's session.
_parents_connections: list[Any] = []
