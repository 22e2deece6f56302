"""One PostgreSQL server: transactions on its connections, retries, and lost answers.

A transaction that conflicts with another one is retried, and so is one whose connection was lost
before COMMIT was sent. If the connection was lost after that, the next attempt first looks, under
the same lock, for the traces of the previous one (`lost_answers.py`): a commit that may have
happened is never repeated. The server's own transaction ids would not do: they are assigned again
after a crash.
"""

import weakref
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any, Generic, NamedTuple, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper

from limpet.backends.postgres.errors import (
    is_gone,
    is_of_other_tables,
    is_race,
    is_seq_taken,
    is_unprepared,
    place_of,
    translated,
)
from limpet.backends.postgres.lost_answers import CommitTrace
from limpet.backends.postgres.pool import Pool, channel_of, notify
from limpet.backends.postgres.raw import PREPARE_THRESHOLD, raw_statement
from limpet.backends.postgres.tables import (
    AlreadyCommitted,
    ForkGroupLockNeeded,
    PostgresTables,
    RetryTransaction,
)
from limpet.backends.postgres.transaction import Connection, PostgresTransaction, statements_of
from limpet.backends.support import logs
from limpet.backends.support.backoff import Backoff
from limpet.backends.support.forks import abandon, opening_a_socket, renew_after_fork
from limpet.backends.support.queue import ThreadQueue
from limpet.core.encryption import NO_KEYS, Ciphers
from limpet.errors import InvalidInput, LimpetError, Unavailable
from limpet.model import ScopeKey
from limpet.protocol import Clock, Stamp

T = TypeVar("T")

_PAUSE_S_MIN = 0.002
_PAUSE_S_MAX = 0.1
_ANSWER_S_MAX = 2.0
_READ = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_WRITE = b"BEGIN ISOLATION LEVEL READ COMMITTED"
# A function that others put into a schema of the path could fit the types of a call better than
# PostgreSQL's own, and would run with our rights. Our tables are named with their schema.
_SEARCH_PATH = "search_path = pg_catalog"
_ONCE = ("save_in_one", "save_and_fold", "remove_note_in_one")

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
    """A pool of connections to one server, each opened when it is needed.

    `draw` is the source of the tokens by which a transaction is recognised after a lost answer:
    real randomness, so that no two processes can draw the same.
    """

    def __init__(
        self,
        conninfo: str,
        settings: Settings,
        clock: Clock,
        draw: Callable[[], Stamp],
        ciphers: Ciphers = NO_KEYS,
    ) -> None:
        self._settings = settings
        self._ciphers = ciphers
        self._clock = clock
        self._draw = draw
        self._conninfo = _complete(conninfo)
        self._secrets = _secrets(self._conninfo)
        self.channel = channel_of(settings.schema)
        self._statements = statements_of(settings.schema, notifies=settings.notifies)
        self._begin = [_WRITE]
        self._raw = {name: raw_statement(name, self._statements[name]) for name in _ONCE}
        if settings.pooler:  # what is set for a connection would be set for its other users too
            self._begin += [f"SET LOCAL {each}".encode() for each in self._limits()]
            self._raw = {}  # nor can a statement be prepared, or be alone without those limits
        self._connections: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._pool = self._new_pool()
        self._queues: weakref.WeakValueDictionary[ScopeKey, ThreadQueue] = (
            weakref.WeakValueDictionary()
        )
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
        self._queues = weakref.WeakValueDictionary()

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
        # All integers are sent as bigint, so that a statement is prepared once, and not once for
        # each integer type that its values happen to fit.
        conn.adapters.register_dumper(int, Int8Dumper)
        conn.adapters.register_dumper(int, Int8BinaryDumper)
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

    def draw_stamp(self) -> bytes:
        return bytes.fromhex(self._draw().nonce)

    def queued(self, scope: ScopeKey, action: Callable[[], T]) -> T:
        """Let the threads of this process change a scope one after the other.

        They would wait for its row lock anyway, each holding a connection. One at a time, what this
        process remembers about the scope stays true, so that a save is one statement.
        """
        queue = self._queues.get(scope)
        if queue is None:
            queue = self._queues.setdefault(scope, ThreadQueue())
        with queue.first(self._settings.lock_wait_s):
            return action()

    def query(self, action: Callable[[PostgresTables], T]) -> T:
        """Run statements without a transaction: each has a snapshot of its own."""
        return self._until_answered(
            lambda conn, _: action(PostgresTables(self._transaction(conn), self._ciphers))
        )

    def read(self, action: Callable[[PostgresTables], T]) -> T:
        """Run statements in one read-only transaction, which all see the same snapshot."""

        def attempt(conn: Connection, _: int) -> T:
            transaction = self._transaction(conn, _READ)
            result = action(PostgresTables(transaction, self._ciphers))
            transaction.commit()
            return result

        return self._until_answered(attempt)

    def write(self, action: Callable[[PostgresTables], T], lost: "Lost[T] | None" = None) -> T:
        """Run statements in one transaction: durable when this returns, or not applied at all.

        `lost` is the same change, sent before as one statement, whose answer was lost.
        """
        with_fork_group = False

        def attempt(conn: Connection, number: int) -> T:
            nonlocal lost, with_fork_group
            transaction = self._transaction(conn, *self._begin)
            tables = PostgresTables(
                transaction,
                self._ciphers,
                with_fork_group=with_fork_group,
                attempt=number,
                stamp=self.draw_stamp(),
            )
            # That there is no trace is final only when this attempt has been committed.
            if lost is not None:
                tables.lost_trace = lost.trace
                if tables.lost_trace.was_committed(tables):
                    return lost.result
            try:
                result = action(tables)
            except ForkGroupLockNeeded:
                with_fork_group = True
                raise
            except AlreadyCommitted:
                if lost is None:
                    raise
                return lost.result
            notifies = tables.changed and self._settings.notifies
            check = "check_version_and_listeners" if notifies else "check_version"
            heard = transaction.later(check, {"listeners": self.channel.key} if notifies else None)
            try:
                transaction.commit()
            except psycopg.Error as cause:
                if transaction.committing and is_gone(cause) and tables.trace is not None:
                    lost = Lost(tables.trace, result)
                raise
            if notifies and heard.fetchone() == (True, 1):
                notify(conn, self.channel, tables.changed)
            return result

        try:
            return self._until_answered(attempt)
        except (Unavailable, InvalidInput) as cause:
            if lost is None or (isinstance(cause, Unavailable) and not cause.outcome_known):
                raise
            raise Unavailable(str(cause), outcome_known=False) from cause

    def answers(self) -> bool:
        try:
            with self._pool.connection(_ANSWER_S_MAX) as conn:
                return self._transaction(conn).one("last_seq_and_time") is not None
        except (psycopg.Error, Unavailable):
            return False

    def once(self, name: str, values: dict[str, Any], session_id: str) -> tuple[int, ...] | None:
        """Run one statement that changes a session, without retries; return its row.

        That is None if it did not apply. It ends with whether listeners are to be notified.

        Raises:
            NoAnswer: it was sent, and its answer was lost.
        """
        sent = False
        try:
            with self._pool.connection(self._settings.retry_s) as conn:
                values["listeners"] = self.channel.key
                sent = True
                if self._raw:
                    found = self._raw[name].one(conn, values)
                else:
                    transaction = self._transaction(conn, *self._begin)
                    answer = transaction.later(name, values)
                    transaction.commit()
                    found = answer.fetchone()
                if found is not None and found[-1]:
                    notify(conn, self.channel, session_id)
                return found
        except psycopg.Error as cause:
            if is_gone(cause):
                if sent and not is_unprepared(cause):
                    raise NoAnswer from cause
            elif not is_race(cause):
                raise self._translated(cause) from cause
            return None

    def _transaction(self, conn: Connection, *begin: bytes) -> PostgresTransaction:
        return PostgresTransaction(conn, self._statements, begin)

    def _translated(self, cause: psycopg.Error) -> LimpetError:
        """Return our error for the driver's; a newer version may have replaced the tables."""
        if is_of_other_tables(cause):
            try:
                with self._pool.connection(self._settings.retry_s) as conn:
                    conn.execute(self._statements["check_version"])
            except psycopg.Error as newer:
                cause = newer
        return translated(cause)

    def _until_answered(self, attempt: Callable[[Connection, int], T]) -> T:
        """Retry conflicts for up to `lock_wait_s`, and lost connections for up to `retry_s`."""
        start = self._clock.monotonic()
        backoff = Backoff(self._clock, first_s=_PAUSE_S_MIN, longest_s=_PAUSE_S_MAX)
        for number in count():
            waited_s = self._clock.monotonic() - start
            try:
                with self._pool.connection(self._settings.retry_s - waited_s) as conn:
                    return attempt(conn, number)
            except ForkGroupLockNeeded:
                continue
            except RetryTransaction:
                if waited_s >= self._settings.lock_wait_s:
                    raise Unavailable(
                        "other transactions kept conflicting with this one: try again later. "
                        f"lock_wait_s=`{self._settings.lock_wait_s:g}`"
                    ) from None
            except psycopg.Error as cause:
                race, gone = is_race(cause), is_gone(cause)
                patience_s = self._settings.lock_wait_s if race else self._settings.retry_s
                if not (race or gone) or waited_s >= patience_s:
                    raise self._translated(cause) from cause
                if is_seq_taken(cause):
                    continue
                if gone:
                    logs.info(
                        "a request is sent again", engine="postgresql", reason="no connection"
                    )
            backoff.sleep()
        raise AssertionError  # count() does not end


class NoAnswer(Exception):
    """The answer to a statement was lost."""


class Lost(NamedTuple, Generic[T]):
    """A change whose answer was lost: the traces it leaves if applied, and its result."""

    trace: CommitTrace
    result: T


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
