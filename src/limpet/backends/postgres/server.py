"""One PostgreSQL server: transactions on its connections, and what becomes of a lost answer.

A transaction that met another one is tried again. So is one whose connection was lost before it
asked to be committed. If it was lost after that, the next attempt looks first, under the same lock,
for the traces that it would have left (`_postgres_evidence.py`): a commit is never repeated that
may have happened. The server's own numbers of transactions would not do: after a crash it gives
them again.
"""

import os
import weakref
from collections.abc import Callable
from itertools import count
from typing import Any, Generic, NamedTuple, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper

from limpet.backends.postgres.errors import is_gone, is_place_taken, is_race, translated
from limpet.backends.postgres.lost_answers import Evidence
from limpet.backends.postgres.pool import Pool, channel_of, tell
from limpet.backends.postgres.tables import Again, Landed, PostgresTables, Wider
from limpet.backends.postgres.transaction import Connection, PostgresTransaction, statements_of
from limpet.backends.support.queue import ThreadQueue
from limpet.errors import InvalidInput, Unavailable
from limpet.model import ScopeKey
from limpet.protocol import Clock

T = TypeVar("T")

_PAUSE_S_MIN = 0.002
_PAUSE_S_MAX = 0.1
_ANSWER_S_MAX = 2.0
_READ = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_WRITE = b"BEGIN ISOLATION LEVEL READ COMMITTED"

# What libpq is told unless the URL, a service or the environment says otherwise: a server that has
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
_IDLE_S_MAX = 60  # inside a transaction: then the server lets the scope go that a client holds


class Settings(NamedTuple):
    """How a server is used. docs/guides/postgres.md explains each."""

    schema: str
    connections: int
    lock_wait_s: float
    retry_s: float
    pooler: bool
    tells: bool


class PostgresServer:
    """A pool of connections to one server, each opened when it is needed."""

    def __init__(self, conninfo: str, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._conninfo = _complete(conninfo)
        self._secrets = _secrets(self._conninfo)
        self.channel = channel_of(settings.schema)
        self._statements = statements_of(settings.schema, tells=settings.tells)
        self._begin = [_WRITE]
        if settings.pooler:  # behind one, what is set for a connection would be set for strangers
            self._begin += [f"SET LOCAL {each}".encode() for each in self._limits()]
        self._pool = self._new_pool()
        self._queues: weakref.WeakValueDictionary[ScopeKey, ThreadQueue] = (
            weakref.WeakValueDictionary()
        )
        _servers.add(self)

    def _new_pool(self) -> Pool:
        return Pool(self.connect, self._settings.connections, self._clock)

    def forget_after_fork(self) -> None:
        """Leave the parent's connections to the parent; more are opened when they are needed."""
        _left_alone.append(self._pool)
        self._pool = self._new_pool()
        self._queues = weakref.WeakValueDictionary()  # who had a turn is not there

    def close(self) -> None:
        """Close the connections that are idle; those in use are closed when they are let go."""
        self._pool.close()

    def check_open(self) -> None:
        """Raise InvalidInput once it is closed."""
        self._pool.check_open()

    def connect(self) -> Connection:
        """Return a new connection."""
        try:
            conn = psycopg.connect(
                self._conninfo,
                autocommit=True,  # transactions are begun and ended by us alone
                prepare_threshold=None if self._settings.pooler else 2,
            )
        except psycopg.Error as cause:
            if any(each in str(cause) for each in self._secrets):
                raise psycopg.OperationalError("an option of the URL is not acceptable") from None
            raise
        if not self._settings.pooler:
            conn.execute("; ".join(f"SET {each}" for each in self._limits()).encode())
        # All whole numbers are sent as bigint, so that a statement is prepared once and not once
        # for each size that its numbers happen to have.
        conn.adapters.register_dumper(int, Int8Dumper)
        conn.adapters.register_dumper(int, Int8BinaryDumper)
        return conn

    def _limits(self) -> list[str]:
        lock_ms = max(1, int(self._settings.lock_wait_s * 1000))
        return [
            f"lock_timeout = {lock_ms}",
            f"idle_in_transaction_session_timeout = {_IDLE_S_MAX * 1000}",
        ]

    # Transactions

    def in_turn(self, scope: ScopeKey, action: Callable[[], T]) -> T:
        """Change a scope, one thread of this process after the other.

        They would wait for each other at its row anyway, each with a connection in its hands. In
        turn, what this process knows of the scope stays true, so that a save is one statement.
        """
        queue = self._queues.get(scope)
        if queue is None:
            queue = self._queues.setdefault(scope, ThreadQueue())
        with queue.first(self._settings.lock_wait_s):
            return action()

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

    def write(self, action: Callable[[PostgresTables], T], lost: "Lost[T] | None" = None) -> T:
        """Run statements as one step, durable when this returns, or not at all.

        `lost` is the same step, made before in another way, whose answer has not come.
        """
        wide = False

        def attempt(conn: Connection, number: int) -> T:
            nonlocal lost, wide
            turn = self._turn(conn, *self._begin)
            tables = PostgresTables(turn, wide=wide, attempt=number, mark=self._mark())
            # That there is no trace is final only when this attempt has been committed.
            if lost is not None:
                tables.doubt = lost.evidence
                if tables.doubt.holds(tables):
                    return lost.result
            try:
                result = action(tables)
            except Wider:
                wide = True
                raise
            except Landed:
                if lost is None:
                    raise
                return lost.result
            heard = None
            if tables.changed and self._settings.tells:
                heard = turn.later("is_heard", {"listeners": self.channel.key})
            try:
                turn.commit()
            except psycopg.Error as cause:
                if turn.committing and is_gone(cause) and tables.evidence is not None:
                    lost = Lost(tables.evidence, result)
                raise
            if heard is not None and heard.fetchone() == (True,):
                tell(conn, self.channel, tables.changed)
            return result

        try:
            return self._until_answered(attempt)
        except (Unavailable, InvalidInput) as cause:
            if lost is None or (isinstance(cause, Unavailable) and not cause.outcome_known):
                raise
            raise Unavailable(str(cause), outcome_known=False) from cause

    def answers(self) -> bool:
        """Tell whether a connection of the pool can be used at this moment."""
        try:
            with self._pool.connection(_ANSWER_S_MAX) as conn:
                return self._turn(conn).one("newest_place") is not None
        except (psycopg.Error, Unavailable):
            return False

    def once(self, name: str, values: Any, session_id: str) -> bool:
        """Run one statement by itself, once, that changes a session; tell whether it did.

        Raises:
            NoAnswer: it was sent, and its answer was lost.
        """
        sent = False
        try:
            with self._pool.connection(self._settings.retry_s) as conn:
                # Behind a pooler it is a transaction, so that its limits are its own.
                turn = self._turn(conn, *(self._begin if self._settings.pooler else ()))
                values = {**values, "listeners": self.channel.key}
                sent = True
                if not self._settings.pooler:
                    found = turn.one(name, values)
                else:
                    answer = turn.later(name, values)
                    turn.commit()
                    found = answer.fetchone()
                if found is not None and found[-1]:
                    tell(conn, self.channel, session_id)
                return found is not None
        except psycopg.Error as cause:
            if is_gone(cause):
                if sent:
                    raise NoAnswer from cause
            elif not is_race(cause):
                raise translated(cause) from cause
            return False

    def _turn(self, conn: Connection, *begin: bytes) -> PostgresTransaction:
        return PostgresTransaction(conn, self._statements, begin)

    def _mark(self) -> bytes:
        return int(self._clock.jitter() * 2**63).to_bytes(8)

    def _until_answered(self, attempt: Callable[[Connection, int], T]) -> T:
        """Try until there is an answer, for as long as that is worth while."""
        start = self._clock.monotonic()
        pause_s = _PAUSE_S_MIN
        for number in count():
            waited_s = self._clock.monotonic() - start
            try:
                with self._pool.connection(self._settings.retry_s - waited_s) as conn:
                    return attempt(conn, number)
            except Wider:
                continue
            except Again:
                if waited_s >= self._settings.lock_wait_s:
                    raise Unavailable("other writers were in the way for too long") from None
            except psycopg.Error as cause:
                race, gone = is_race(cause), is_gone(cause)
                patience_s = self._settings.lock_wait_s if race else self._settings.retry_s
                if not (race or gone) or waited_s >= patience_s:
                    raise translated(cause) from cause
                if is_place_taken(cause):
                    continue
            self._clock.sleep(pause_s * (0.5 + self._clock.jitter()))
            pause_s = min(pause_s * 1.5, _PAUSE_S_MAX)
        raise AssertionError  # it counts for ever


class NoAnswer(Exception):
    """The answer to a statement was lost."""


class Lost(NamedTuple, Generic[T]):
    """A step whose answer was lost: the traces it would have left, and what it would have said."""

    evidence: Evidence
    result: T


def check_url(url: str) -> str:
    """Return a URL that libpq understands, or raise InvalidInput."""
    try:
        given = conninfo_to_dict(url)
    except psycopg.Error:
        # Its message quotes the text, which may hold a password.
        raise InvalidInput("the URL or one of its options is not one of PostgreSQL's") from None
    if "@" in str(given.get("host", "")):
        raise InvalidInput("an `@` in a user's name or password is written as %40")
    return url


def _complete(conninfo: str) -> str:
    """Return what libpq is told, with our defaults where nothing was said."""
    said = {option.keyword.decode() for option in Conninfo.get_defaults() if option.val}
    said |= conninfo_to_dict(check_url(conninfo)).keys()
    extra: dict[str, Any] = dict(_ALWAYS)
    if "service" not in said:
        extra |= {name: each for name, each in _DEFAULTS.items() if name not in said}
    return make_conninfo(conninfo, **extra)


def _secrets(conninfo: str) -> list[str]:
    """Return what no message may show: it may be a password, in its place or in a wrong one."""
    given = conninfo_to_dict(conninfo)
    return [str(each) for name, each in given.items() if name not in _HARMLESS and each]


_servers: "weakref.WeakSet[PostgresServer]" = weakref.WeakSet()
_left_alone: list[Any] = []  # the pools of a parent: to end them here would end them there


def _after_fork_in_child() -> None:
    for server in list(_servers):
        server.forget_after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
