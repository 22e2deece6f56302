"""The plans of PostgreSQL: no statement of ours reads a whole table, and no listing is sorted anew.

Each is run with 100,000 snapshots, in both ways in which a server runs statements that a driver has
prepared: planned for the values at hand, and planned once for all.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from psycopg import sql

import limpet
from limpet.backends.postgres.raw import Statement, statement_of
from limpet.backends.postgres.transaction import statements_of
from limpet.backends.sql.columns import COLUMNS
from tests.servers.postgres import Connection, Postgres

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


MODES = ("force_custom_plan", "force_generic_plan")
PAGE = 20
ROWS_MAX = 1_000  # of one table, for one statement on one scope
PAGE_ROWS_MAX = 10 * PAGE

# These read everything; some are asked only when something is damaged.
EVERYTHING = {
    "list_newest": {
        "after": "",
        "first": True,
        "newest": None,
        "low": "",
        "high": None,
        "limit": PAGE,
    },
    "sizes": {"session_id": None},
    "stored_bytes": {},
    "a_snapshot_without_state": {},
    "a_state_that_names": {"key": b"x" * 16},
    "a_state_built_on": {"first": 1, "last": 2},
    "all_scopes": {},
}
# LOCK TABLE is not planned; the versions are one row.
NO_PLAN = {"lock_everybody_out", "check_version"}
CATALOGUE = {"tables", "indexes", "triggers"}

SESSION = f"tenant-{SHORT % 50}/s-{SHORT}"
SCOPE = (SESSION, "agent", "main")
LAST = SNAPSHOTS * 1024
SEQ = 60_000 * 1024  # of a snapshot in the long scope
ID = "id-60000"
NEW = LAST + 5
# Snapshots of the short scope, by how the tables are filled.
SOME = [f"id-{i}" for i in range(SNAPSHOTS) if i % 5 and 2 + i * 7919 % 5499 == SHORT][-16:]
# What is watched: what a scope shows, one of its snapshots, and what is not there.
TARGETS = json.dumps([[SESSION, "main", "agent", id] for id in (None, *SOME)] + [["x"] * 4] * 100)

FACTS = (1, NEW, NEW, NEW, "", None, None, None, 0, 1, 1, None, b"", 1, 0)  # of a scope
ROW = (NEW, "new", 0, "n", True, ID, None, "completed", b"{}", b"{}", 1, 1, 2, 0, SHORT)
AT = {"pk": LONG, "value": SEQ}
NAME = b"x" * 16
NOTE = (SHORT, "", "name-1")
QUERY: dict[str, Any] = {
    "pk": LONG, "before": SEQ, "id": None, "status": None, "leaves": False, "labels": "{}",
    "low": "tenant-7/", "high": "tenant-70", "limit": PAGE,
}  # fmt: skip
WALK = {"after": 2_000, "limit": PAGE}

VALUES: dict[str, Any] = {
    "has_listeners": {"listeners": 1}, "store_id": (),
    **dict.fromkeys(("scope", "scope_to_change", "scope_to_fork", "with_scope", "head"), SCOPE),
    "row_at": AT,
    "row_by_nonce": {"pk": SHORT, "value": "not there"},
    **{each: {"pk": SHORT, "ids": SOME} for each in ("seqs_and_sizes", "rows_by_ids")},
    "tails_of": {"pk": SHORT, "ids": SOME, "head": False, "whole": True},
    "newest_segment_of": {"pk": SHORT, "ids": SOME, "head": False},
    "rows_between": {"pk": LONG, "first": SEQ, "last": SEQ},
    "newest_kept": {"pk": LONG, "without": [LAST]},
    "count_snapshots": (SHORT,), "tail_row": AT, "tail": {"pk": LONG}, "segment": AT,
    "newest_segment": {"pk": LONG}, "shared": (NAME,), "has_shared": (NAME,),
    "notes_on": {"pk": LONG, "on": [ID, "x"]},
    "notes_named": {"pk": LONG, "on": ["", ID], "names": ["name-1", "x"]},
    "note_addresses": {"pk": LONG, "on": [ID]},
    "save": (*FACTS, SHORT, SHORT, *ROW, False, NEW, SEQ, 0, b"x", 0, ["a"], ["b"], 1),
    "save_with_notes": (*FACTS, SHORT, SHORT, *ROW, False, NEW, SEQ, 0, b"x", 0, ["a"], ["b"],
                        [SHORT], [ID], ["n"], [1], ["n"], [1], [b"1"], [0], 1),
    "add_scope": (*FACTS, NEW, SESSION, "agent", "new"),
    "insert_scope": (*FACTS, NEW, SESSION, "agent", "new"),
    "move_scope": (*FACTS, SHORT, SHORT), "add_snapshot": (*ROW, False),
    "replace_snapshot": (*ROW[1:14], SEQ, LONG),
    **{
        f"remove_{each}": {"pk": LONG, "seqs": [SEQ, NEW]}
        for each in ("snapshots", "tails", "segments", "labels")
    },
    "set_apart": {"pk": LONG, "seqs": [SEQ, NEW]},
    "add_label": ("a", "b", SEQ), "put_tail": (SEQ, None, 0, b"x", 0),
    "put_segment": (SHORT, NEW, NEW, b"x", 0), "add_shared": (NAME, SESSION, b"x", 0),
    "lock_shared": (NAME,), "drop_shared": (NAME,), "put_note": (*NOTE, 1, "n", 1, b"1", 0),
    "save_note": (*FACTS, SHORT, SHORT, *NOTE, 1, "n", 1, b"1", 0),
    "remove_note": NOTE, "pks_of_session": {"session_id": SESSION},
    "pks_of_scope": {"session_id": SESSION, "kind": "agent", "scope_id": "main"},
    **dict.fromkeys(
        ("shared_of_scopes", "remove_all_labels", "remove_all_tails", "remove_all_segments",
         "remove_all_notes", "remove_all_snapshots", "remove_scopes"), ([SHORT],),
    ),
    "revisions": (TARGETS,), "stored_bytes_of_session": {"session_id": SESSION},
    "tables": ("x",), "indexes": ("x",), "triggers": ("x",),
    **{f"walk_{each}": WALK for each in ("scopes", "segments", "notes")},
    **{f"walk_{each}": {"after": SEQ, "limit": PAGE} for each in ("snapshots", "tails", "labels")},
    "walk_shared": {"after": b"", "limit": PAGE},
    **{f"check_{each}": {"key": SEQ} for each in ("snapshots", "tails", "labels")},
    **{f"check_{each}": {"key": SHORT} for each in ("scopes", "segments", "notes")},
    "check_shared": {"key": NAME}, "snapshots_between": {"pk": SHORT, "first": 0, "last": LAST},
    "rows_of_scope": {"pk": SHORT}, "notes_of_scope": {"pk": SHORT},
    "put_scope": dict(zip(COLUMNS["scope"].split(), (SHORT, *SCOPE, *FACTS), strict=True)),
    "put_apart": (SEQ,),
    "put_encrypted": ("s", b"", b"", 0, SEQ), "put_shared": (b"", 0, NAME),
}  # fmt: skip

# Each listing as it is asked for: name, and what differs from QUERY.
LISTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "history": ("history_of_scope", {}),
    "history from the top": ("history_of_scope", {"before": LAST + 1}),
    "history of a short scope": ("history_of_scope", {"pk": SHORT}),
    "history by status": ("history_of_scope", {"status": "completed"}),
    "history by label": ("history_of_scope", {"labels": '{"kind":"k0"}'}),
    "leaves": ("history_of_scope", {"pk": SHORT, "leaves": True}),
    "all history": ("history_of_sessions", {"low": "", "high": None}),
    "all history from the top": (
        "history_of_sessions", {"low": "", "high": None, "before": LAST + 1}
    ),
    "by a common label": (
        "history_by_label",
        {"name": "kind", "value": "k3", "labels": '{"kind":"k3"}', "low": "", "high": None},
    ),
    "by a rare label": (
        "history_by_label",
        {"name": "run", "value": "r7", "labels": '{"run":"r7"}', "low": "", "high": None},
    ),
    "by two labels": (
        "history_by_label",
        {"name": "run", "value": "r7", "labels": '{"run":"r7","kind":"k2"}'}
        | {"low": "", "high": None},
    ),
    "find": ("find", {"id": ID, "before": LAST + 1}),
    "ids": ("list_ids", {"pk": SHORT, "after": "id-4"}),  # sorted: its scope has no index of ids
    "sessions": ("list_sessions", {"after": "", "low": "", "high": None}),
    "sessions of a tenant": ("list_sessions", {"after": "tenant-7/s-1"}),
    "the end of a tenant's sessions": (
        "list_sessions", {"after": "tenant-1/s-951", "low": "tenant-1/", "high": "tenant-10"}
    ),
    "scopes": (
        "list_scopes",
        {"kind": None, "low": "", "high": None}
        | dict.fromkeys(("after_session", "after_kind", "after_scope"), ""),
    ),
    "scopes of a tenant": (
        "list_scopes",
        {"kind": "agent", "after_session": SESSION, "after_kind": "agent", "after_scope": "main"}
        | {"low": SESSION, "high": "tenant-31"},
    ),
    "scopes of a session": (
        "list_scopes",
        {"kind": None, "low": SESSION, "high": f"{SESSION}\x01"}
        | dict.fromkeys(("after_session", "after_kind", "after_scope"), ""),
    ),
    "refs by a prefix": ("find_refs", {"low": "id-4", "high": "id-5"}),
    "refs of everything": ("find_refs", {"low": "", "high": None}),
    "noted": ("noted", {"pk": SHORT, "after": ""}),
    "notes": ("note_page", {"pk": SHORT, "on": "", "after": ""}),
    "notes on an id": ("note_page", {"on": ID, "after": "n"}),
    "notes of a scope, found": (
        "find_notes",
        {"under": SESSION, "low": f"{SESSION}/", "high": f"{SESSION}0"}
        | {"scope_id": "main", "kind": "agent"},
    ),
}  # fmt: skip


@contextmanager
def filled(postgres: Postgres) -> Iterator[tuple[Connection, str]]:
    with postgres.schemas() as schemas, postgres.connect() as conn:
        limpet.open(schemas.url()).close()
        fill(conn, schemas.name())
        for table in BIG:
            conn.execute(f"ANALYZE {schemas.name()}.{table}")
        yield conn, schemas.name()


pytestmark = pytest.mark.slow  # it fills 100,000 rows; `make full` looks


@pytest.fixture(scope="module")
def store(postgres: Postgres) -> Iterator[tuple[Connection, str]]:
    with filled(postgres) as found:
        yield found


@pytest.fixture(scope="module", params=MODES)
def planner(request: pytest.FixtureRequest, store: tuple[Connection, str]) -> Planner:
    return Planner(*store, request.param)


def touched(nodes: list[Node]) -> dict[str, float]:
    """Return how many rows of each large table were looked at."""
    rows: dict[str, float] = {}
    for node in nodes:
        if node.table in BIG:
            rows[node.table] = rows.get(node.table, 0) + node.rows
    return rows


# A query that is sent before the key of a scope is known takes its address.
ADDRESS = {"session_id": SESSION, "kind": "agent", "scope_id": "main"}
AT_ADDRESS = {
    f"{name}_at": {**values, **ADDRESS} for name, values in VALUES.items() if "pk" in values
}


def test_every_statement_has_a_plan_here(planner: Planner) -> None:
    listed = {name for name, _ in LISTINGS.values()}
    at_address = AT_ADDRESS.keys() | {f"{name}_at" for name in listed}
    assert planner.names() - at_address == {*VALUES, *listed, *EVERYTHING, *NO_PLAN}


def test_no_statement_reads_a_whole_table(planner: Planner) -> None:
    offenders = {}
    every = VALUES | AT_ADDRESS
    assert "rows_by_ids_at" in planner.names()
    for name in sorted((every.keys() & planner.names()) - CATALOGUE):
        nodes = planner.plan(name, every[name])
        scans = [node for node in nodes if node.kind == "Seq Scan" and node.table in BIG]
        if scans or max(touched(nodes).values(), default=0) > ROWS_MAX:
            offenders[name] = scans or nodes
    assert offenders == {}


def test_a_page_of_a_listing_touches_few_rows(planner: Planner) -> None:
    """No more than it has to show, whatever there is: neither reads nor sorts the rest."""
    offenders = {}
    for title, (name, values) in LISTINGS.items():
        nodes = planner.plan(name, {**QUERY, **values})
        scans = [node for node in nodes if node.kind == "Seq Scan" and node.table in BIG]
        sorts = [node for node in nodes if "Sort" in node.kind and node.rows > PAGE_ROWS_MAX]
        if scans or sorts or max(touched(nodes).values()) > PAGE_ROWS_MAX:
            offenders[title] = nodes
    assert offenders == {}


def test_what_counts_everything_comes_to_an_end(planner: Planner) -> None:
    """It reads the tables, each once and not once for each row of another."""
    for name, values in EVERYTHING.items():
        rows = touched(planner.plan(name, values))
        assert max(rows.values()) <= 2.5 * SNAPSHOTS, name
    one = touched(planner.plan("sizes", {"session_id": SESSION}))
    assert max(one.values()) <= ROWS_MAX


def test_the_plans_are_read_right(planner: Planner, store: tuple[Connection, str]) -> None:
    """Guard the guards: the words that they look for are those that PostgreSQL says."""
    _, schema = store
    text = f"SELECT n.id FROM {schema}.snapshots AS n WHERE n.size > $1 ORDER BY n.nonce"
    nodes = planner.explain(text, (5,))
    assert Node("Seq Scan", "snapshots", SNAPSHOTS) in nodes
    assert [node.rows for node in nodes if node.kind == "Sort"] == [SNAPSHOTS]
