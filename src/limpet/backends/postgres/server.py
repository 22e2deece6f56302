"""One PostgreSQL server: transactions on its connections, and retries.

A transaction that conflicts with another one is retried, and so is one whose connection was lost
before COMMIT was sent. After that it is not known whether it was committed: LostAnswer.
"""

import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo

from limpet.backends.postgres.errors import (
    is_gone,
    is_of_other_tables,
    is_race,
    is_taken,
    is_unprepared,
    place_of,
    translated,
)
from limpet.backends.postgres.pool import Pool, channel_of, notify
from limpet.backends.postgres.raw import PREPARE_THRESHOLD, Connection, Statement
from limpet.backends.postgres.transaction import Moved, PostgresTransaction, statements_of
from limpet.backends.support import logs
from limpet.backends.support.backoff import Backoff
from limpet.backends.support.forks import abandon, opening_a_socket, renew_after_fork
from limpet.errors import InvalidInput, LimpetError, Unavailable
from limpet.protocol import Clock
from limpet.storage import LostAnswer, Taken

T = TypeVar("T")

_PAUSE_S_MIN = 0.002
_PAUSE_S_MAX = 0.1
_ANSWER_S_MAX = 2.0
_READ = Statement(b"limpet_read", b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
_WRITE = Statement(b"limpet_write", b"BEGIN ISOLATION LEVEL READ COMMITTED")
# A function that others put into a schema of the path could fit the types of a call better than
# PostgreSQL's own, and would run with our rights. Our tables are named with their schema.
_SEARCH_PATH = "search_path = pg_catalog"

# Defaults for libpq unless the URL, a service or the environment sets them: a server that has
# vanished is noticed within a minute, where the system's own defaults take two hours.
_DEFAULTS = {
    "connect_timeout": "10",
    "keepalives_idle": "20",
    "keepalives_interval": "5",
    "keepalives_count": "4",
    "tcp_user_timeout": "40000",
}
_ALWAYS = {"client_encoding": "utf8", "fallback_application_name": "limpet"}
_HARMLESS = {*_DEFAULTS, *_ALWAYS, "host", "hostaddr", "port", "dbname", "user", "service"}
_IDLE_S_MAX = 60  # inside a transaction: then the server releases the locks of a stalled client


class Settings(NamedTuple):
    """How a server is used. docs/guides/postgres.md explains each."""

    schema: str
    connections: int
    lock_wait_s: float
    retry_s: float
    pooler: bool
    notifies: bool


class PostgresServer:
    """A pool of connections to one server, each opened when it is needed."""

    def __init__(self, conninfo: str, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._conninfo = _complete(conninfo)
        self._secrets = _secrets(self._conninfo)
        self.channel = channel_of(settings.schema)
        self._listeners = (self.channel.key,) if settings.notifies else ()
        self._statements = statements_of(settings.schema, notifies=settings.notifies)
        self._begin = [_WRITE]
        if settings.pooler:  # what is set for a connection would be set for its other users too
            self._begin += [Statement(b"", f"SET LOCAL {each}".encode()) for each in self._limits()]
        self._connections: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._pool = self._new_pool()
        renew_after_fork(self)

    def _new_pool(self) -> Pool:
        return Pool(self.connect, self._settings.connections, self._clock)

    def after_fork(self) -> None:
        for conn in list(self._connections):
            with suppress(psycopg.Error, OSError):  # it is closed
                abandon(conn.pgconn.socket)
        self._connections = weakref.WeakSet()
        _pools_of_parents.append(self._pool)
        self._pool = self._new_pool()

    def close(self) -> None:
        self._pool.close()

    def check_open(self) -> None:
        self._pool.check_open()

    def connect(self) -> Connection:
        try:
            with opening_a_socket():
                conn = Connection.connect(
                    self._conninfo,
                    autocommit=True,  # BEGIN and COMMIT are sent by our own code
                    prepare_threshold=None if self._settings.pooler else PREPARE_THRESHOLD,
                )
                self._connections.add(conn)
        except psycopg.Error as cause:
            if any(each in str(cause) for each in self._secrets):
                raise psycopg.OperationalError("an option of the URL is not acceptable") from None
            cause.add_note(place_of(cause, self._conninfo))
            raise
        if not self._settings.pooler:
            self._set_up(conn)
        return conn

    def _set_up(self, conn: Connection) -> None:
        """Set what holds for a connection, unless a pooler would give it to others.

        A pooler makes up the process id that it tells its clients.
        """
        is_direct = f"SELECT 1 / (pg_backend_pid() = {conn.info.backend_pid})::int"
        settings = [f"SET {each}" for each in (*self._limits(), _SEARCH_PATH)]
        try:
            conn.execute("; ".join([*settings, is_direct]).encode())  # all of it, or nothing
        except psycopg.errors.DivisionByZero:
            place = f"host=`{conn.info.host}` port=`{conn.info.port}`"
            conn.close()
            raise InvalidInput(
                f"the connection goes through a pooler: open with pooler=True. {place}"
            ) from None

    def _limits(self) -> list[str]:
        lock_ms = max(1, int(self._settings.lock_wait_s * 1000))
        return [
            f"lock_timeout = {lock_ms}",
            f"idle_in_transaction_session_timeout = {_IDLE_S_MAX * 1000}",
        ]

    # Transactions

    def query(self, action: Callable[[PostgresTransaction], T]) -> T:
        """Run statements without a transaction: each has a snapshot of its own."""
        return self._until_answered(lambda conn: action(self._transaction(conn)))

    def read(self, action: Callable[[PostgresTransaction], T], *, apart: bool = False) -> T:
        """Run statements in one read-only transaction, which all see the same snapshot.

        With `apart` each is tried to be one, in fewer round trips.
        """

        def attempt(conn: Connection) -> T:
            transaction = self._transaction(conn, _READ)
            if apart:
                transaction.apart = True
                with suppress(Moved):
                    return action(transaction)
                transaction = self._transaction(conn, _READ)
            result = action(transaction)
            transaction.commit()
            return result

        return self._until_answered(attempt)

    def write(self, action: Callable[[PostgresTransaction], T]) -> T:
        """Run statements in one transaction: durable when this returns, or not applied at all.

        Raises:
            Taken: a seq or an id is taken.
            LostAnswer: the connection was lost after COMMIT was sent.
        """

        def attempt(conn: Connection) -> T:
            transaction = self._transaction(conn, *self._begin)
            result = action(transaction)
            self._commit(transaction, "check_version", self._listeners)
            return result

        return self._until_answered(attempt)

    def once(self, name: str, values: tuple[Any, ...], session_id: str | None = None) -> bool:
        """Run one statement; return whether it applied.

        It returns a row if it did: whether listeners are to be notified that a session changed.

        Raises:
            Taken, LostAnswer: as `write`, the latter if the connection was lost at all.
        """

        if session_id is not None:
            values += self._listeners
        # A pooler knows no settings of a connection: those of the transaction are sent along.
        begin = self._begin if self._settings.pooler else ()

        def attempt(conn: Connection) -> bool:
            transaction = self._transaction(conn, *begin)
            transaction.changed = session_id or ""
            try:
                return bool(self._commit(transaction, name, values))
            except psycopg.Error as cause:
                if is_race(cause) and not is_taken(cause):
                    return False
                raise

        return self._until_answered(attempt)

    def _commit(
        self, transaction: PostgresTransaction, name: str, values: tuple[Any, ...]
    ) -> list[Any]:
        """Commit with a last statement, which tells whether anybody listens; return its rows."""
        try:
            found = transaction.commit(name, values)
        except psycopg.Error as cause:
            if is_gone(cause) and not is_unprepared(cause):
                raise LostAnswer from cause
            raise
        if transaction.changed and self._listeners and found and found[0][0]:
            notify(transaction.conn, self.channel, transaction.changed)
        return found

    def answers(self) -> bool:
        try:
            with self._pool.connection(_ANSWER_S_MAX) as conn:
                return self._transaction(conn).one("store_id") is not None
        except (psycopg.Error, Unavailable):
            return False

    def _transaction(self, conn: Connection, *begin: Statement) -> PostgresTransaction:
        return PostgresTransaction(conn, self._statements, begin)

    def _translated(self, cause: psycopg.Error) -> LimpetError:
        """Return our error for the driver's; a newer version may have replaced the tables."""
        if is_of_other_tables(cause):
            try:
                with self._pool.connection(self._settings.retry_s) as conn:
                    self._transaction(conn).one("check_version", self._listeners)
            except psycopg.Error as newer:
                cause = newer
        return translated(cause)

    def _until_answered(self, attempt: Callable[[Connection], T]) -> T:
        """Retry conflicts for up to `lock_wait_s`, and lost connections for up to `retry_s`."""
        start = self._clock.monotonic()
        backoff = Backoff(self._clock, first_s=_PAUSE_S_MIN, longest_s=_PAUSE_S_MAX)
        while True:
            waited_s = self._clock.monotonic() - start
            try:
                with self._pool.connection(self._settings.retry_s - waited_s) as conn:
                    return attempt(conn)
            except psycopg.Error as cause:
                if is_taken(cause):
                    raise Taken from cause
                race, gone = is_race(cause), is_gone(cause)
                patience_s = self._settings.lock_wait_s if race else self._settings.retry_s
                if not (race or gone) or waited_s >= patience_s:
                    raise self._translated(cause) from cause
                if gone:
                    logs.info(
                        "a request is sent again", engine="postgresql", reason="no connection"
                    )
            backoff.sleep()


def check_url(url: str) -> str:
    """Return the URL if libpq accepts it, or raise InvalidInput."""
    try:
        given = conninfo_to_dict(url)
    except psycopg.Error:
        # Its message quotes the URL, which may hold a password.
        raise InvalidInput("the URL or one of its options is not one of PostgreSQL's") from None
    if "@" in str(given.get("host", "")):
        raise InvalidInput("an `@` in a user's name or password is written as %40")
    return url


def _complete(conninfo: str) -> str:
    """Add our defaults for what neither the URL nor the environment sets."""
    given = {option.keyword.decode() for option in Conninfo.get_defaults() if option.val}
    given |= conninfo_to_dict(check_url(conninfo)).keys()
    extra: dict[str, Any] = dict(_ALWAYS)
    if "service" not in given:
        extra |= {name: each for name, each in _DEFAULTS.items() if name not in given}
    return make_conninfo(conninfo, **extra)


def _secrets(conninfo: str) -> list[str]:
    """Return the values that no message may show: a password may be in the wrong option."""
    given = conninfo_to_dict(conninfo)
    return [str(each) for name, each in given.items() if name not in _HARMLESS and each]


# Kept alive in a forked child: closing these connections would close them for the parent.
_pools_of_parents: list[Pool] = []
