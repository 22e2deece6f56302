"""A prototype for measurement only: saves on psycopg's asyncio connections.

It does what `PostgresBackend.commit` does, by the same functions and the same statements. The one
statement of a writer that is alone is awaited on the event loop. The ordinary way, which few saves
take, runs in a thread, as its code is synchronous; each of its questions is awaited on the loop.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeAlias, cast

import psycopg
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper
from psycopg_pool import AsyncConnectionPool

import limpet
from limpet.backends.postgres.backend import PostgresBackend
from limpet.backends.postgres.one_statement import OneStatement, as_one_statement
from limpet.backends.postgres.tables import PostgresTables
from limpet.backends.postgres.transaction import PostgresTransaction, statements_of
from limpet.backends.sql.commit import PreparedDelta, apply_commit
from limpet.backends.sql.continuing import KnownScope, known_scope
from limpet.core import prepare
from limpet.opening import CLOCK, draw
from limpet.protocol import Commit

Connection: TypeAlias = "psycopg.AsyncConnection[tuple[Any, ...]]"
BEGIN = b"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
STATE_BYTES_MAX = 1 << 30
WAIT_S_MAX = 120  # for a connection, while all sessions begin at once


class Answer:
    """What a statement returned, once it was sent."""

    rows: Sequence[Any] = ()
    rowcount = -1

    def fetchone(self) -> Any:
        """Return the first row, or None."""
        return self.rows[0] if self.rows else None

    def fetchall(self) -> list[Any]:
        """Return all rows."""
        return list(self.rows)


class NativeTurn:
    """A transaction whose questions are put from a thread and awaited on the loop."""

    def __init__(self, conn: Connection, statements: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._conn = conn
        self._statements = statements
        self._loop = loop
        self._waiting: list[tuple[Answer, bytes, Any]] = [(Answer(), BEGIN, None)]

    def later(self, name: str, values: Any = ()) -> Answer:
        """Say something together with what is asked next."""
        self._waiting.append((Answer(), self._statements[name], _plain(values)))
        return self._waiting[-1][0]

    def _ask(self, name: str, values: Any) -> Answer:
        answer = self.later(name, values)
        asyncio.run_coroutine_threadsafe(self._send(), self._loop).result()
        return answer

    async def _send(self, last: bytes | None = None) -> None:
        waiting, self._waiting = self._waiting, []
        cursors = []
        async with self._conn.pipeline():
            for answer, text, values in waiting:
                cursor = self._conn.cursor(binary=True)
                await cursor.execute(text, values)
                cursors.append((answer, cursor))
            if last is not None:
                await self._conn.execute(last)
        for answer, cursor in cursors:
            answer.rowcount = cursor.rowcount
            if cursor.description is not None:
                answer.rows = await cursor.fetchall()

    async def commit(self) -> None:
        """Send what waits and end the transaction."""
        await self._send(b"COMMIT")

    def one(self, name: str, values: Any = ()) -> Any:
        """Return the first row of a statement, or None."""
        return self._ask(name, values).fetchone()

    def all(self, name: str, values: Any = ()) -> list[Any]:
        """Return all rows of a statement."""
        return list(self._ask(name, values).rows)

    def count(self, name: str, values: Any = ()) -> int:
        """Write, and return how many rows were touched."""
        return self._ask(name, values).rowcount

    def do(self, name: str, values: Any = ()) -> None:
        """Write, together with what is asked next."""
        self.later(name, values)

    def do_many(self, name: str, rows: Iterable[Any]) -> None:
        """Write the same with each of several rows of values."""
        for row in rows:
            self.later(name, row)

    def many(self, keys: Iterable[int]) -> Any:
        """Return several keys as one value."""
        return list(keys)


class NativeStore:
    """`save`, and nothing else."""

    def __init__(
        self,
        backend: PostgresBackend,
        statements: Mapping[str, bytes],
        pool: "AsyncConnectionPool[Connection]",
        workers: int,
    ) -> None:
        self._backend = backend
        self._pool = pool
        self._statements = statements
        self._threads = ThreadPoolExecutor(workers)

    async def save(self, key: limpet.ScopeKey, state: limpet.JSON) -> limpet.SnapshotInfo:
        """Save a state as `Scope.save` does without options."""
        commit = prepare.save(
            key,
            state,
            id=None,
            parent=limpet.HEAD,
            keep=True,
            head=True,
            overwrite=False,
            status="completed",
            labels=None,
            metadata=None,
            created_at=None,
            forked_from=None,
            expect=limpet.ANY,
            fence=None,
            stamp=draw(),
            state_bytes_max=STATE_BYTES_MAX,
        )
        return await self._commit(commit)

    async def _commit(self, commit: Commit) -> limpet.SnapshotInfo:
        backend = self._backend
        line = backend._known_scopes.get(commit.scope)
        prepared = backend._prepare(commit, line)
        quick = None if line is None else as_one_statement(line, commit, prepared)
        async with self._pool.connection() as conn:
            if quick is not None and await self._landed(conn, quick):
                row, body = quick.row, quick.body
                left: KnownScope | None = quick.left
            else:
                row, body, moved, added = await self._ordinary(conn, commit, prepared, line)
                left = known_scope(moved, body, added)
        return backend._remember(commit, row, body, left)

    async def _landed(self, conn: Connection, quick: OneStatement) -> bool:
        try:
            values = {**quick.values, "listeners": self._backend._server.channel.key}
            cursor = await conn.execute(self._statements[quick.name], values, binary=True)
            return await cursor.fetchone() is not None
        except psycopg.errors.UniqueViolation:
            return False  # another scope took the very place

    async def _ordinary(
        self,
        conn: Connection,
        commit: Commit,
        prepared: PreparedDelta | None,
        line: KnownScope | None,
    ) -> Any:
        loop = asyncio.get_running_loop()
        attempt = 0
        while True:
            turn = NativeTurn(conn, self._statements, loop)
            tables = PostgresTables(cast(PostgresTransaction, turn), attempt=attempt)
            tables.is_new = line is None
            work = partial(apply_commit, tables, commit, prepared)
            try:
                row, body = await loop.run_in_executor(self._threads, work)
                await turn.commit()
                return row, body, tables.moved, tables.bodies.added
            except psycopg.errors.UniqueViolation:
                await conn.execute(b"ROLLBACK")
                attempt += 1

    def close(self) -> None:
        """Let the threads go."""
        self._threads.shutdown(wait=False, cancel_futures=True)


@asynccontextmanager
async def open_native(dsn: str, schema: str, connections: int) -> AsyncIterator[NativeStore]:
    """Open the prototype; the tables are made by the engine itself."""
    backend = PostgresBackend(dsn, clock=CLOCK, draw=draw, schema=schema)
    pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
        dsn,
        kwargs={"autocommit": True, "prepare_threshold": 2},
        min_size=connections,
        max_size=connections,
        timeout=WAIT_S_MAX,
        configure=_adapt,
        open=False,
    )
    async with pool:
        await pool.wait()
        store = NativeStore(backend, statements_of(schema), pool, connections)
        try:
            yield store
        finally:
            store.close()
            backend.close()


async def _adapt(conn: Connection) -> None:
    # As the engine does: one prepared statement, however large its numbers are.
    conn.adapters.register_dumper(int, Int8Dumper)
    conn.adapters.register_dumper(int, Int8BinaryDumper)


def _plain(values: Any) -> Any:
    return tuple(values) if isinstance(values, tuple) else values
