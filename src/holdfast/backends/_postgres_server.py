"""One PostgreSQL server: its connections, transactions on them, and what becomes of a lost answer.

A transaction that met another one is tried again. So is one whose connection was lost before it
asked to be committed. If it was lost after that, the server is asked what became of it, by the
transaction's own number: a commit is never repeated that may have happened.
"""

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any, NamedTuple, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper
from psycopg_pool import ConnectionPool, PoolClosed

from holdfast.backends._postgres_errors import is_busy, is_gone, is_race, translated
from holdfast.backends._postgres_tables import PostgresTables, Wider
from holdfast.backends._postgres_turn import Connection, PostgresTurn, statements_of
from holdfast.errors import InvalidInput, Unavailable
from holdfast.protocol import Clock

T = TypeVar("T")

_PAUSE_S_MIN = 0.002
_PAUSE_S_MAX = 0.1
_READ = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_STATUS = b"SELECT pg_xact_status(%s::text::xid8)"

# What libpq is told unless the URL says otherwise: a server that has vanished is noticed within a
# minute, where the system's own defaults take two hours.
_DEFAULTS = {
    "application_name": "holdfast",
    "connect_timeout": "10",
    "keepalives_idle": "20",
    "keepalives_interval": "5",
    "keepalives_count": "4",
    "tcp_user_timeout": "40000",
}
_IDLE_S_MAX = 60  # inside a transaction: then the server lets the scope go that a client holds


class Settings(NamedTuple):
    """How a server is used. docs/guides/postgres.md explains each."""

    schema: str
    connections: int
    lock_wait_s: float
    retry_s: float
    pooler: bool
    transaction_status: bool


class PostgresServer:
    """A pool of connections to one server, opened by its first use."""

    def __init__(self, conninfo: str, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._conninfo = _complete(conninfo, settings)
        self._statements = statements_of(settings.schema)
        self._begin = [b"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"]
        if settings.pooler:  # behind one, what is set for a connection would be set for strangers
            self._begin += [f"SET LOCAL {each}".encode() for each in _session_settings(settings)]
        self._closed = False
        self._forget()
        _servers.add(self)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._pool: ConnectionPool[Connection] | None = None

    def forget_after_fork(self) -> None:
        """Leave the parent's connections to the parent; more are opened when they are needed."""
        _left_alone.append(self._pool)
        self._forget()

    def close(self) -> None:
        """Close the connections that are idle; those in use are closed when they are let go."""
        self._closed = True
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def connect(self) -> Connection:
        """Return a connection of its own, which is not the pool's."""
        try:
            conn = psycopg.connect(self._conninfo, autocommit=True, prepare_threshold=None)
        except psycopg.Error as cause:
            raise translated(cause) from cause
        _adapt(conn)
        return conn

    # Transactions

    def look(self, action: Callable[[PostgresTables], T]) -> T:
        """Run statements of which each sees a moment of its own."""
        return self._until_answered(lambda conn, _: action(PostgresTables(self._turn(conn))))

    def read(self, action: Callable[[PostgresTables], T]) -> T:
        """Run statements that all see one moment of the store."""

        def attempt(conn: Connection, _: int) -> T:
            turn = self._turn(conn, _READ)
            result = action(PostgresTables(turn))
            turn.commit()
            return result

        return self._until_answered(attempt)

    def write(self, action: Callable[[PostgresTables], T]) -> T:
        """Run statements as one step, durable when this returns, or not at all."""
        wide = False

        def attempt(conn: Connection, number: int) -> T:
            asks = self._settings.transaction_status
            turn = PostgresTurn(conn, self._statements, self._begin, numbered=asks)
            result = action(PostgresTables(turn, wide=wide, attempt=number))
            try:
                turn.commit()
            except psycopg.Error as cause:
                if not is_gone(cause) or not turn.committing:
                    raise
                self._settle(turn.number, cause)
            return result

        try:
            return self._until_answered(attempt)
        except Wider:
            wide = True
            return self._until_answered(attempt)

    def _turn(self, conn: Connection, *begin: bytes) -> PostgresTurn:
        return PostgresTurn(conn, self._statements, begin)

    def _until_answered(self, attempt: Callable[[Connection, int], T]) -> T:
        """Try until there is an answer, for as long as that is worth while."""
        start = self._clock.monotonic()
        pause_s = _PAUSE_S_MIN
        for number in count():
            waited_s = self._clock.monotonic() - start
            try:
                with self._connection(self._settings.retry_s - waited_s) as conn:
                    return attempt(conn, number)
            except _Repeat:
                pass
            except psycopg.Error as cause:
                race, gone = is_race(cause), is_gone(cause)
                patience_s = self._settings.lock_wait_s if race else self._settings.retry_s
                if not (race or gone) or waited_s >= patience_s:
                    raise translated(cause) from cause
            self._clock.sleep(pause_s * (0.5 + self._clock.jitter()))
            pause_s = min(pause_s * 1.5, _PAUSE_S_MAX)
        raise AssertionError  # it counts for ever

    def _settle(self, number: str | None, lost: psycopg.Error) -> None:
        """Find out whether a transaction whose answer was lost took place; return if it did.

        Raises:
            Unavailable: it cannot be found out. It may even still be under way.
        """
        start = self._clock.monotonic()
        while number is not None and self._clock.monotonic() - start < self._settings.retry_s:
            with suppress(psycopg.Error, Unavailable), self._connection(1.0) as conn:
                found = conn.execute(_STATUS, (number,)).fetchone()
                if found == ("committed",):
                    return
                if found == ("aborted",):
                    raise _Repeat
                if found != ("in progress",):
                    break  # too long ago for the server to know
            self._clock.sleep(_PAUSE_S_MAX * (0.5 + self._clock.jitter()))
        raise translated(lost, outcome_known=False) from lost

    def once(self, name: str, values: Any) -> Any:
        """Run one statement by itself, once; return its first row, or None.

        Raises:
            psycopg.Error: what came of it, as the driver says it.
        """
        with self._connection(self._settings.retry_s) as conn:
            return conn.execute(self._statements[name], values, binary=True).fetchone()

    # Connections

    @contextmanager
    def _connection(self, wait_s: float) -> Iterator[Connection]:
        pool = self._open_pool()
        try:
            conn = pool.getconn(timeout=max(0.05, wait_s))
        except PoolClosed:
            raise InvalidInput("the store is closed") from None
        except Exception as cause:
            if not is_busy(cause):
                raise
            raise self._why_none() from cause
        try:
            yield conn
        finally:
            _end_transaction(conn)
            pool.putconn(conn)

    def _open_pool(self) -> "ConnectionPool[Connection]":
        pool = self._pool
        if pool is not None:
            return pool
        with self._lock:
            if self._closed:
                raise InvalidInput("the store is closed")
            if self._pool is None:
                self._pool = ConnectionPool(
                    self._conninfo,
                    kwargs={
                        "autocommit": True,  # transactions are begun and ended by us alone
                        "prepare_threshold": None if self._settings.pooler else 2,
                    },
                    min_size=0,
                    max_size=self._settings.connections,
                    configure=_adapt,
                    name="holdfast",
                    open=True,
                )
            return self._pool

    def _why_none(self) -> Exception:
        """Return why the pool had no connection for us, by trying to make one."""
        try:
            self.connect().close()
        except Unavailable as cause:
            return cause
        count = self._settings.connections
        return Unavailable(f"all connections are in use. connections=`{count}`")


class _Repeat(Exception):
    """The transaction did not take place; it is to be tried again."""


def _complete(conninfo: str, settings: Settings) -> str:
    """Return what libpq is told, with our defaults where nothing was said."""
    try:
        given = conninfo_to_dict(conninfo)
    except psycopg.Error:
        # Its message quotes the text, which may hold a password.
        raise InvalidInput("the URL or one of its options is not one of PostgreSQL's") from None
    extra: dict[str, Any] = {name: each for name, each in _DEFAULTS.items() if name not in given}
    if not settings.pooler:
        switches = " ".join(f"-c {each.replace(' ', '')}" for each in _session_settings(settings))
        extra["options"] = f"{switches} {given.get('options', '')}".strip()
    return make_conninfo(conninfo, **extra)


def _session_settings(settings: Settings) -> list[str]:
    lock_ms = max(1, int(settings.lock_wait_s * 1000))
    return [
        f"lock_timeout = {lock_ms}",
        f"idle_in_transaction_session_timeout = {_IDLE_S_MAX * 1000}",
    ]


def _adapt(conn: Connection) -> None:
    # All whole numbers are sent as bigint, so that a statement is prepared once and not once for
    # each size that its numbers happen to have.
    conn.adapters.register_dumper(int, Int8Dumper)
    conn.adapters.register_dumper(int, Int8BinaryDumper)


def _end_transaction(conn: Connection) -> None:
    if conn.closed:
        return
    if conn.pgconn.transaction_status != psycopg.pq.TransactionStatus.IDLE:
        try:
            conn.execute(b"ROLLBACK")
        except psycopg.Error:
            conn.close()


_servers: "weakref.WeakSet[PostgresServer]" = weakref.WeakSet()
_left_alone: list[Any] = []  # the pools of a parent: to end them here would end them there


def _after_fork_in_child() -> None:
    for server in list(_servers):
        server.forget_after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
