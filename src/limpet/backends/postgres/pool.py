"""A bounded pool of connections for many threads, and the notifications sent on them.

The connection used last is used next. A connection is opened by the thread that needs it, so that
a failure reaches the caller, and the first call after an outage finds the server again. There is no
background thread.

A notification is sent after its change was committed, and its answer is not waited for. Inside the
transaction NOTIFY would hold a lock of the whole server until the commit is on disk, and serialise
all commits. It is sent only if someone listens: listeners share an advisory lock, which the server
releases when a connection ends, and writers test for it (`has_listeners`). That test can miss a
listener that has just begun, and a notification can be lost, so listeners also poll.
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

from limpet.backends.postgres.raw import Connection, roll_back
from limpet.errors import CLOSED, InvalidInput, LimpetError, Unavailable
from limpet.protocol import Clock

_NAME_BYTES_MAX = 63
_PAYLOAD_BYTES_MAX = 7999
_IDLE_S_MAX = 600.0  # then a connection is closed
_ANSWER_S_MAX = 1.0


class Channel(NamedTuple):
    """The notification channel of a schema, and the key of its listeners' advisory lock."""

    name: str
    key: int


def channel_of(schema: str) -> Channel:
    digest = hashlib.sha256(schema.encode()).digest()
    name = f"limpet_{schema}"
    if len(name.encode()) > _NAME_BYTES_MAX:
        name = f"limpet_{digest.hex()[:32]}"
    return Channel(name, int.from_bytes(digest[:8], signed=True))


def notify(conn: Connection, channel: Channel, session_id: str) -> None:
    """Notify listeners of a change; the next user of the connection reads the answer.

    The change is committed already, so a failure only closes the connection.
    """
    payload = session_id.encode()
    if len(payload) > _PAYLOAD_BYTES_MAX:
        payload = b""  # anything may have changed
    values = [channel.name.encode(), payload]
    try:
        conn.pgconn.send_query_params(b"SELECT pg_notify($1, $2)", values)
        conn.pgconn.flush()
    except psycopg.Error:
        conn.close()


def is_free(conn: Connection) -> bool:
    """Return whether a connection has no notification under way; close it if it is lost."""
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
    """Wait until a notification is answered; close the connection if that takes too long."""
    try:
        while not is_free(conn) and not conn.closed:
            ready = select.poll()
            ready.register(conn.pgconn.socket, select.POLLIN)
            if not ready.poll(wait_s * 1000):
                conn.close()
    except BaseException:
        conn.close()  # interrupted: no other code holds a reference to it
        raise
    return not conn.closed


class _Slot:
    """The right to one connection. It returns to the pool when dropped, even by an interrupt."""

    def __init__(self, slots: "weakref.ref[SimpleQueue[_Slot]]") -> None:
        self._slots = slots

    def __del__(self) -> None:
        slots = self._slots()
        if slots is not None:
            slots.put(_Slot(self._slots))


class Pool:
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
        """Close idle connections now, and those in use when they are returned."""
        self._closed = True
        self._close_idle()

    def check_open(self) -> None:
        if self._closed:
            raise InvalidInput(CLOSED)

    @contextmanager
    def connection(self, wait_s: float) -> Iterator[Connection]:
        """Borrow a connection.

        Raises:
            psycopg.Error: it cannot be opened.
            Unavailable: all connections were in use for `wait_s`.
        """
        self.check_open()
        try:
            slot = self._slots.get(timeout=max(0.0, wait_s))
        except Empty:
            count = self._size
            raise Unavailable(
                f"all connections are in use: open with more connections. connections=`{count}`"
            ) from None
        conn = None
        try:
            conn = self._take_free() or self._connect()
            yield conn
        except LimpetError:
            raise  # the connection is still good
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
        """Return an idle connection, or None if a new one has to be opened.

        If that would be one too many, wait until a notification is answered.
        """
        notifying: deque[tuple[Connection, float]] = deque()
        # One thread at a time: another one would find the pool empty, and open one too many.
        with self._taking:
            try:
                while (entry := self._take()) is not None:
                    if is_free(entry[0]):
                        return entry[0]
                    if not entry[0].closed:
                        notifying.appendleft(entry)
                if len(notifying) <= self._slots.qsize():
                    return None
                oldest, _ = notifying.popleft()
            finally:
                self._idle.extend(notifying)
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
        if status not in (TransactionStatus.IDLE, TransactionStatus.ACTIVE):  # ACTIVE: it notifies
            try:
                roll_back(conn)
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
