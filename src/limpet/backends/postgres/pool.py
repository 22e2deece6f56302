"""Connections for many threads: the one used last is used next, and none beyond a number.

A connection is made by the thread that needs it, so that the reason why it cannot be made reaches
the caller, and the first call after an outage finds the server again. Nothing runs in between.
"""

import hashlib
import select
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import NamedTuple

import psycopg
from psycopg.pq import TransactionStatus

from limpet.backends.postgres.tables import Again
from limpet.backends.postgres.transaction import Connection
from limpet.errors import InvalidInput, LimpetError, Unavailable
from limpet.protocol import Clock

# Telling others of a change, when it has been committed: a notification that nobody waits for.
#
# Inside the transaction of the change it would hold a lock of the whole server until that is on disk,
# so that all commits would wait for each other. By itself it waits for no disk. It is sent only if
# somebody listens: who does holds an advisory lock that all listeners share, which the server takes
# back when the connection ends. Writers ask for it in passing (`is_heard`). They may be wrong if one
# begins to listen at that moment, and a notification may be lost: who listens also looks.

_NAME_BYTES_MAX = 63
_PAYLOAD_BYTES_MAX = 7999
_TELL = b"SELECT pg_notify($1, $2)"


class Channel(NamedTuple):
    """Where changes of a schema are told: the channel, and the lock of those who listen."""

    name: str
    key: int


def channel_of(schema: str) -> Channel:
    """Return the channel of a schema, the same for all."""
    digest = hashlib.sha256(schema.encode()).digest()
    name = f"limpet_{schema}"
    if len(name.encode()) > _NAME_BYTES_MAX:
        name = f"limpet_{digest.hex()[:32]}"
    return Channel(name, int.from_bytes(digest[:8], signed=True))


def tell(conn: Connection, channel: Channel, session_id: str) -> None:
    """Say that a session has changed, and leave the answer to who next uses the connection.

    What is committed stays so: if nothing can be said, the connection is closed.
    """
    payload = session_id.encode()
    if len(payload) > _PAYLOAD_BYTES_MAX:
        payload = b""  # anything may have changed
    try:
        conn.pgconn.send_query_params(_TELL, [channel.name.encode(), payload])
        conn.pgconn.flush()
    except psycopg.Error:
        conn.close()


def is_free(conn: Connection) -> bool:
    """Tell whether a connection can be used: what was told on it is answered, well or not.

    One that is lost is closed.
    """
    pgconn = conn.pgconn
    if conn.closed or pgconn.transaction_status == TransactionStatus.IDLE:
        return not conn.closed
    try:
        pgconn.flush()
        pgconn.consume_input()
        while not pgconn.is_busy():
            if pgconn.get_result() is None:
                if pgconn.transaction_status != TransactionStatus.IDLE:
                    conn.close()
                return not conn.closed
    except psycopg.Error:
        conn.close()
    return False


def wait_until_free(conn: Connection, wait_s: float) -> bool:
    """Wait for the answer to what was told on a connection; one that stays silent is closed."""
    try:
        while not is_free(conn) and not conn.closed:
            ready = select.poll()
            ready.register(conn.pgconn.socket, select.POLLIN)
            if not ready.poll(wait_s * 1000):
                conn.close()
    except BaseException:
        conn.close()  # interrupted, where nobody else knows of it
        raise
    return not conn.closed


_IDLE_S_MAX = 600.0  # then a connection is given back to the server
_ANSWER_S_MAX = 1.0


class _Slot:
    """The right to one connection. It comes back by itself, wherever an interrupt strikes."""

    def __init__(self, slots: "weakref.ref[SimpleQueue[_Slot]]") -> None:
        self._slots = slots

    def __del__(self) -> None:
        slots = self._slots()
        if slots is not None:
            slots.put(_Slot(self._slots))


class Pool:
    """Up to `size` connections."""

    def __init__(self, connect: Callable[[], Connection], size: int, clock: Clock) -> None:
        self._connect = connect
        self._size = size
        self._clock = clock
        self._slots: SimpleQueue[_Slot] = SimpleQueue()
        for _ in range(size):
            self._slots.put(_Slot(weakref.ref(self._slots)))
        self._idle: deque[tuple[Connection, float]] = deque()
        self._taking = threading.RLock()
        self._closed = False

    def close(self) -> None:
        """Close the connections that are idle; those in use are closed when they are let go."""
        self._closed = True
        self._close_idle()

    def check_open(self) -> None:
        """Raise InvalidInput once it is closed."""
        if self._closed:
            raise InvalidInput("the store is closed")

    @contextmanager
    def connection(self, wait_s: float) -> Iterator[Connection]:
        """Have a connection that nobody else uses.

        Raises:
            psycopg.Error: it cannot be made.
            Unavailable: all were in use for so long.
        """
        self.check_open()
        try:
            slot = self._slots.get(timeout=max(0.0, wait_s))
        except Empty:
            count = self._size
            raise Unavailable(f"all connections are in use. connections=`{count}`") from None
        conn = None
        try:
            conn = self._take_free() or self._connect()
            yield conn
        except (LimpetError, Again):
            raise  # the server has done nothing wrong
        except BaseException:
            # After an error the driver may believe that a statement is prepared which is not.
            if conn is not None:
                conn.close()
            raise
        finally:
            if conn is not None:
                self._give_back(conn)
            del slot

    def _take_free(self) -> Connection | None:
        """Return a connection that can be used at once, or None if another is to be made.

        Where there may be no more, wait until what was told on one is answered.
        """
        told: deque[tuple[Connection, float]] = deque()
        # One thread at a time, or another would find none here meanwhile, and make one too many.
        with self._taking:
            try:
                while (entry := self._take()) is not None:
                    if is_free(entry[0]):
                        return entry[0]
                    if not entry[0].closed:
                        told.appendleft(entry)
                if len(told) <= self._slots.qsize():
                    return None
                oldest, _ = told.popleft()
            finally:
                self._idle.extend(told)
        return oldest if wait_until_free(oldest, _ANSWER_S_MAX) else None

    def _take(self) -> tuple[Connection, float] | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _give_back(self, conn: Connection) -> None:
        if conn.closed:
            return
        status = conn.pgconn.transaction_status
        if status not in (TransactionStatus.IDLE, TransactionStatus.ACTIVE):  # or has told others
            try:
                conn.execute(b"ROLLBACK")
            except psycopg.Error:
                conn.close()
                return
        now = self._clock.monotonic()
        self._idle.append((conn, now))
        if self._closed:
            self._close_idle()
            return
        try:
            oldest, since = self._idle.popleft()
        except IndexError:
            return
        if now - since > _IDLE_S_MAX:
            oldest.close()
        else:
            self._idle.appendleft((oldest, since))

    def _close_idle(self) -> None:
        while (entry := self._take()) is not None:
            entry[0].close()
