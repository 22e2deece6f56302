"""A PostgreSQL store with 100,000 snapshots, made in seconds, and the plans of our statements."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from psycopg import sql

from limpet.backends.postgres.raw import Statement, statement_of
from limpet.backends.postgres.transaction import statements_of
from tests.servers.postgres import Connection

SNAPSHOTS = 100_000
BIG = {"scopes", "snapshots", "tails", "segments", "labels", "notes"}
LONG = 1  # the scope with every fifth snapshot; the others have about fifteen
SHORT = 130  # a scope like most

# Places are one microsecond apart. `i` counts snapshots; those of all scopes are mixed.
_FILL = """
INSERT INTO {0}.scopes (pk, session_id, kind, scope_id, version, last, floor, notes, tail_count,
                        tail_bytes, trail, epoch, checksum)
SELECT p, 'tenant-' || s % 50 || '/s-' || s, 'agent',
       CASE WHEN p <= 5000 THEN 'main' ELSE 'main~fork' END, p, 1, '', 1, 1, 1, '', 1, 0
  FROM (SELECT p, CASE WHEN p <= 5000 THEN p ELSE (p - 5000) * 10 END AS s
          FROM generate_series(1, 5500) AS p) AS x;
CREATE TEMPORARY TABLE made ON COMMIT DROP AS
SELECT i, i::bigint * 1024 AS seq, 'id-' || i AS id,
       CASE WHEN i % 5 = 0 THEN 1 ELSE 2 + (i::bigint * 7919) % 5499 END AS pk
  FROM generate_series(1, 100000) AS i;
CREATE TEMPORARY TABLE linked ON COMMIT DROP AS
SELECT m.*, lag(id) OVER w AS parent FROM made AS m WINDOW w AS (PARTITION BY pk ORDER BY seq);
INSERT INTO {0}.snapshots
       (seq, scope_pk, created_at, updated_at, size, checksum, rev, kept, apart, id,
        parent_id, nonce, status, labels, metadata, forked_from)
SELECT seq, pk, i, i, 2000, 0, 0, true, parent IS NULL OR i % 40 = 0, id, parent,
       left(md5(i::text), 16), 'completed', '{{}}', decode(repeat('20', 60), 'hex'), NULL
  FROM linked;
-- The newer half is in tails, but of the long scope no more than a tail can have.
INSERT INTO {0}.tails (scope_pk, seq, base, checksum, encoding, body)
SELECT pk, seq, NULL, 0, 0, decode(repeat(md5(i::text), 6), 'hex')
  FROM linked WHERE i > CASE WHEN pk = 1 THEN 99700 ELSE 50000 END;
INSERT INTO {0}.segments (scope_pk, first_seq, last_seq, checksum, body)
SELECT pk, min(seq), max(seq), 0, '' FROM linked WHERE i <= 50000 GROUP BY pk, i / 5000;
INSERT INTO {0}.labels (seq, name, value)
SELECT seq, 'kind', 'k' || i % 5 FROM made UNION ALL SELECT seq, 'run', 'r' || i % 2000 FROM made;
INSERT INTO {0}.notes (scope_pk, updated_at, checksum, rev, on_id, name, nonce, value)
SELECT pk, i, 0, 0, CASE WHEN i % 2 = 0 THEN id ELSE '' END, 'name-' || i, 'x', '1'
  FROM made WHERE i % 5 < 2;
UPDATE {0}.scopes AS s SET head = t.seq, tip = t.seq, last = t.seq
  FROM (SELECT pk, max(seq) AS seq FROM made GROUP BY pk) AS t WHERE t.pk = s.pk;
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
        return self._explain(*self._statements[name].with_values(values))

    def explain(self, text: str, values: Any) -> list[Node]:
        """The same for any statement."""
        return self._explain(*statement_of("any", text).with_values(values))

    def _explain(self, statement: Statement, values: Any) -> list[Node]:
        given = [_array(each) if isinstance(each, list) else each for each in values]
        called = sql.SQL(", ").join(map(sql.Literal, given))
        arguments = sql.SQL("({})").format(called) if given else sql.SQL("")
        command = sql.SQL("EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) EXECUTE plan {}")
        text = statement.text.decode().rstrip().rstrip(";")
        self._conn.execute(f"PREPARE plan AS {text}".encode())
        try:
            with self._conn.transaction(force_rollback=True):
                ((found,),) = self._conn.execute(command.format(arguments)).fetchall()
        finally:
            self._conn.execute("DEALLOCATE plan")
        return list(_nodes(found[0]["Plan"]))


def _array(items: list[Any]) -> str:
    return "{" + ",".join(f'"{each}"' for each in items) + "}"


def _nodes(plan: dict[str, Any]) -> Iterator[Node]:
    rows = plan["Actual Rows"]
    for removed in ("Rows Removed by Filter", "Rows Removed by Index Recheck"):
        rows += plan.get(removed, 0)
    yield Node(plan["Node Type"], plan.get("Relation Name"), rows * plan["Actual Loops"])
    for below in plan.get("Plans", ()):
        yield from _nodes(below)
