"""A PostgreSQL store with 100,000 snapshots, made in seconds, and the plans of our statements."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from psycopg import sql

from limpet.backends.postgres.transaction import statements_of
from tests.servers.postgres import Connection

SNAPSHOTS = 100_000
BIG = {"sessions", "scopes", "snapshots", "bodies", "labels", "notes"}
LONG = 1  # the scope with every fifth snapshot; the others have about fifteen
SHORT = 130  # a scope like most, the origin of a fork, which is FORK
FORK = 5013

# Places are one microsecond apart. `i` counts snapshots; those of all scopes are mixed.
_FILL = """
SET LOCAL session_replication_role = replica; -- to check foreign keys would take most of the time
INSERT INTO {0}.sessions (pk, session_id)
SELECT n, 'tenant-' || n % 50 || '/s-' || n FROM generate_series(1, 5000) AS n;
INSERT INTO {0}.scopes (pk, session_pk, kind, scope_id, next_seq, family, stamps)
SELECT p, CASE WHEN p <= 5000 THEN p ELSE (p - 5000) * 10 END, 'agent',
       CASE WHEN p <= 5000 THEN 'main' ELSE 'main~fork' END, 1,
       CASE WHEN p > 5000 THEN (p - 5000) * 10 WHEN p % 10 = 0 THEN p END,
       decode(md5(p::text), 'hex')
  FROM generate_series(1, 5500) AS p;
CREATE TEMPORARY TABLE made ON COMMIT DROP AS
SELECT i, i::bigint * 1024 AS seq, 'id-' || i AS id,
       CASE WHEN i % 5 = 0 THEN 1 ELSE 2 + (i::bigint * 7919) % 5499 END AS pk
  FROM generate_series(1, 100000) AS i;
CREATE TEMPORARY TABLE linked ON COMMIT DROP AS
SELECT m.*, lag(id) OVER w AS parent, lag(seq) OVER w AS before, row_number() OVER w AS place
  FROM made AS m WINDOW w AS (PARTITION BY pk ORDER BY seq);
INSERT INTO {0}.snapshots
       (seq, scope_pk, created_at, updated_at, saved_at, size, checksum, rev, kept, apart, id,
        parent_id, nonce, status, labels, metadata, forked_from)
SELECT seq, pk, i, i, i, 2000, 0, 0, true, parent IS NULL OR i % 40 = 0, id, parent,
       left(md5(i::text), 16), 'completed', '{{}}', decode(repeat('20', 60), 'hex'), NULL
  FROM linked;
INSERT INTO {0}.bodies (seq, base, checksum, encoding, body)
SELECT seq, CASE WHEN place % 33 <> 1 THEN before END, 0, 2, decode(repeat(md5(i::text), 6), 'hex')
  FROM linked;
-- Some that are no snapshot's, and forks that build on their origin.
INSERT INTO {0}.bodies (seq, base, checksum, encoding, body)
SELECT seq + 1, seq, 0, 2, '' FROM linked WHERE i % 100 = 0;
INSERT INTO {0}.labels (seq, name, value)
SELECT seq, 'kind', 'k' || i % 5 FROM made UNION ALL SELECT seq, 'run', 'r' || i % 2000 FROM made;
INSERT INTO {0}.notes (scope_pk, updated_at, checksum, rev, on_id, name, nonce, value)
SELECT pk, i, 0, 0, CASE WHEN i % 2 = 0 THEN id ELSE '' END, 'name-' || i, 'x', '1'
  FROM made WHERE i % 5 < 2;
UPDATE {0}.scopes AS s SET head_seq = t.seq, tip_seq = t.seq, next_seq = t.seq + 1
  FROM (SELECT pk, max(seq) AS seq FROM made GROUP BY pk) AS t WHERE t.pk = s.pk;
SELECT setval(pg_get_serial_sequence('{0}.sessions', 'pk'), 10000),
       setval(pg_get_serial_sequence('{0}.scopes', 'pk'), 10000);
"""


def fill(conn: Connection, schema: str) -> None:
    """Make the rows by SQL: what they hold is never decoded here, but there is as much of it."""
    with conn.transaction():
        conn.execute(_FILL.format(schema))


class Node(NamedTuple):
    """One step of a plan: what it does to which table, and how many rows it looked at."""

    kind: str
    table: str | None
    rows: float


class Planner:
    """Explains statements by name as a client would have them run."""

    def __init__(self, conn: Connection, schema: str, mode: str) -> None:
        self._conn = conn
        self._statements = statements_of(schema)
        conn.execute(f"SET plan_cache_mode = {mode}")

    def names(self) -> set[str]:
        return set(self._statements)

    def plan(self, name: str, values: Any) -> list[Node]:
        """Run a statement and undo it; return the steps of its plan."""
        return self.explain(self._statements[name].decode(), values)

    def explain(self, text: str, values: Any) -> list[Node]:
        """The same for any statement."""
        text, given, types = numbered(text.rstrip().rstrip(";"), values)
        typed = f" ({', '.join(types)})" if types else ""
        called = sql.SQL(", ").join(map(sql.Literal, given))
        arguments = sql.SQL("({})").format(called) if given else sql.SQL("")
        command = sql.SQL("EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) EXECUTE plan {}")
        self._conn.execute(f"PREPARE plan{typed} AS {text}".encode())
        try:
            with self._conn.transaction(force_rollback=True):
                ((found,),) = self._conn.execute(command.format(arguments)).fetchall()
        finally:
            self._conn.execute("DEALLOCATE plan")
        return list(_nodes(found[0]["Plan"]))


_TYPES = {bool: "boolean", int: "bigint", bytes: "bytea", str: "unknown", type(None): "unknown"}


def numbered(text: str, values: Any) -> tuple[str, list[Any], list[str]]:
    """Return a statement with its parameters as $1, $2, …, their values, and the types we send."""
    given: list[Any] = []
    places: dict[str, int] = {}

    def number(found: re.Match[str]) -> str:
        if found[1] is None:
            given.append(values[len(given)])
        elif found[1] not in places:
            given.append(values[found[1]])
        else:
            return f"${places[found[1]]}"
        if found[1] is not None:
            places[found[1]] = len(given)
        return f"${len(given)}"

    text = re.sub(r"%\((\w+)\)s|%s", number, re.sub(r"--.*", "", text))
    types = ["unknown" if isinstance(each, list) else _TYPES[type(each)] for each in given]
    return text, given, types


def _nodes(plan: dict[str, Any]) -> Iterator[Node]:
    rows = plan["Actual Rows"]
    for removed in ("Rows Removed by Filter", "Rows Removed by Index Recheck"):
        rows += plan.get(removed, 0)
    yield Node(plan["Node Type"], plan.get("Relation Name"), rows * plan["Actual Loops"])
    for below in plan.get("Plans", ()):
        yield from _nodes(below)
