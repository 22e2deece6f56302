"""Telling others of a change, when it has been committed: a notification that nobody waits for.

Inside the transaction of the change it would hold a lock of the whole server until that is on disk,
so that all commits would wait for each other. By itself it waits for no disk. It is sent only if
somebody listens: who does holds an advisory lock that all listeners share, which the server takes
back when the connection ends. Writers ask for it in passing (`is_heard`). They may be wrong if one
begins to listen at that moment, and a notification may be lost: who listens also looks.
"""

import hashlib
import select
from typing import NamedTuple

import psycopg
from psycopg.pq import TransactionStatus

from limpet.backends._postgres_turn import Connection

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
