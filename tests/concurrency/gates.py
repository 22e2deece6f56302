"""Pauses inside PostgreSQL: a writer stops in the middle of its transaction until it is let go.

A trigger waits for an advisory lock that the test holds, so an interleaving is exact and nothing
depends on how long anything takes.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from tests.servers.postgres import LOCKED_HERE, Connection, with_option
from tests.waiting import until

T = TypeVar("T")

PAUSED = "paused"  # the name of the connections that stop at gates
_KEY = 4711

_FUNCTION = """
CREATE OR REPLACE FUNCTION {schema}.gate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('application_name') = 'paused' THEN
        PERFORM pg_advisory_xact_lock({key});
    END IF;
    RETURN NULL;
END $$
"""


def pausing(url: str) -> str:
    """Return a URL whose connections stop at gates."""
    return with_option(url, "application_name", PAUSED)


def waiting(conn: Connection, kind: str) -> int:
    """Return how many wait for a lock: `advisory` at a gate; others for rows and transactions."""
    query = f"SELECT locktype FROM pg_locks WHERE NOT granted AND {LOCKED_HERE}"
    found = [locktype for (locktype,) in conn.execute(query).fetchall()]
    return found.count("advisory") if kind == "advisory" else len(found) - found.count("advisory")


class Gate:
    """A closed gate. `begin` runs work that is to stop at it; `meanwhile` runs what may wait."""

    def __init__(self, conn: Connection, pool: ThreadPoolExecutor) -> None:
        self._conn = conn
        self._pool = pool

    def begin(self, work: Callable[[], T]) -> "Future[T]":
        """Begin work in a thread and return when it stands at the gate."""
        future = self._pool.submit(work)
        until(lambda: self._stands(future, "advisory"))
        assert not future.done(), future.result()
        return future

    def meanwhile(self, work: Callable[[], T]) -> "Future[T]":
        """Begin work in a thread and return when it is done or waits for a lock."""
        before = waiting(self._conn, "others")
        future = self._pool.submit(work)
        until(lambda: self._stands(future, "others", before))
        return future

    def open(self) -> None:
        self._conn.execute("SELECT pg_advisory_unlock_all()")

    def _stands(self, future: "Future[Any]", kind: str, before: int = 0) -> bool:
        return future.done() or waiting(self._conn, kind) > before


@contextmanager
def gate(conn: Connection, schema: str, table: str, event: str) -> Iterator[Gate]:
    """Stop whoever is named `paused` after a statement (`INSERT`, `UPDATE`, …) on a table."""
    conn.execute(_FUNCTION.format(schema=schema, key=_KEY))
    conn.execute(
        f"CREATE TRIGGER gate AFTER {event} ON {schema}.{table}"
        f" FOR EACH STATEMENT EXECUTE FUNCTION {schema}.gate()"
    )
    conn.execute(f"SELECT pg_advisory_lock({_KEY})")
    with ThreadPoolExecutor(max_workers=16) as pool:
        closed = Gate(conn, pool)
        try:
            yield closed
        finally:
            closed.open()
    conn.execute(f"DROP TRIGGER gate ON {schema}.{table}")
