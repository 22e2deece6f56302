"""The plans of PostgreSQL: no statement of ours reads a whole table, and no listing is sorted anew.

Each is run with 100,000 snapshots, in both ways in which a server runs statements that a driver has
prepared: planned for the values at hand, and planned once for all.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import limpet
from tests.servers.postgres import Connection, Postgres
from tests.unit.plans import BIG, FORK, LONG, SHORT, SNAPSHOTS, Node, Planner, fill

MODES = ("force_custom_plan", "force_generic_plan")
PAGE = 20
ROWS_MAX = 1_000  # of one table, for one statement on one scope
PAGE_ROWS_MAX = 10 * PAGE

# These count everything; the last is asked only when something is damaged.
EVERYTHING = {
    "list_newest",
    "totals",
    "stored_bytes",
    "largest_sessions",
    "check.a_snapshot_without_body",
    "check.all_scopes",
    "check.all_sessions",
    "unfolded_scopes",
}
# Once for each scope that a repair has to make again, or whose row it cannot believe.
RARE = {"check.restore_scope", "check.fork_group_of"}
# LOCK TABLE is not planned; the versions are one row.
NO_PLAN = {"lock_everybody_out", "check_version", "check_version_and_listeners"}
CATALOGUE = {"check.tables", "check.indexes", "check.triggers", "check.walk_watermark"}

SESSION = f"tenant-{SHORT % 50}/s-{SHORT}"
SCOPE = {"session_id": SESSION, "scope_id": "main", "kind": "agent"}
LAST = SNAPSHOTS * 1024
SEQ = 60_000 * 1024  # of a snapshot in the long scope
ID = "id-60000"
NEW = LAST + 5
# Snapshots of the short scope, by how the tables are filled.
SOME = [f"id-{i}" for i in range(SNAPSHOTS) if i % 5 and 2 + i * 7919 % 5499 == SHORT][-16:]
# What is watched: what a scope shows, one of its snapshots, and what is not there.
TARGETS = json.dumps([[SESSION, "main", "agent", id] for id in (None, *SOME)] + [["x"] * 4] * 100)

ROW: dict[str, Any] = {
    "seq": NEW, "id": "new", "rev": 0, "nonce": "n", "kept": True, "parent_id": ID,
    "forked_from": None, "status": "completed", "labels": b"{}", "metadata": b"{}",
    "created_at": 1, "updated_at": 1, "saved_at": 1, "size": 2, "checksum": 0,
}  # fmt: skip
MOVE: dict[str, Any] = {"head_seq": NEW, "tip_seq": NEW, "next_seq": NEW + 1, "floor": ""}
NOTE = {"pk": SHORT, "on": "", "name": "name-1"}
RANGE: dict[str, Any] = {"low": "tenant-7/", "high": "tenant-70"}
QUERY: dict[str, Any] = {
    **SCOPE, **RANGE, "pk": LONG, "before": SEQ, "id": None, "status": None, "leaves": False,
    "labels": "{}", "limit": PAGE,
}  # fmt: skip
WALK = {"start": 2_000, "limit": PAGE}

SAVE: dict[str, Any] = {
    **ROW, **MOVE, "apart": False, "base": SEQ, "body": b"x", "body_checksum": 0, "codec": b"",
    "encoding": 0, "known": b"", "names": ["a"], "values": ["b"], "pk": SHORT, "stamps": b"",
    "fence": None, "listeners": 1, "overwrite": True, "scope_checksum": 0, "known_checksum": 0,
    "known_head": SEQ,
}  # fmt: skip
VALUES: dict[str, Any] = {
    "lock_scope": SCOPE, "lock_fork_group": SCOPE, "lock_session": (SESSION,),
    "lock_session_if_free": (SESSION,), "session_scopes": (SESSION,),
    "scope": SCOPE,
    "scope_to_commit": {**SCOPE, "id": ID}, "add_session": {"session_id": "new"},
    "add_scope": {**SCOPE, "scope_id": "new"},
    "add_scope_if_missing": {**SCOPE, "scope_id": "new"}, "chain_of_head": SCOPE,
    "join_fork_group": (SHORT, 0, FORK),
    "save_in_one": SAVE,
    "save_and_fold": {
        **SAVE, "whole": [SEQ, LAST], "sums": [1, 2], "seqs": [SEQ], "bases": [LAST],
        "encodings": [2], "bodies": [b"x"], "checksums": [0],
    },
    "small_bodies": (2048, LONG, SEQ, PAGE),
    "has_listeners": {"listeners": 1},
    "put_lease": ("key", "ann", 1, 0, SHORT), "revisions": (TARGETS,),
    "snapshot_by_id": (LONG, ID), "read_snapshot": {**SCOPE, "id": None},
    "read_snapshots": {**SCOPE, "ids": SOME}, "snapshot_info": {**SCOPE, "id": SOME[0]},
    "seq_and_size": (LONG, ID), "snapshot_by_seq": (LONG, SEQ),
    "snapshot_by_nonce": (SHORT, "not there"),
    "add_snapshot": (*ROW.values(), LONG, False), "replace_snapshot": {**ROW, "seq": SEQ},
    "remove_snapshots_of": (SHORT,), "set_apart": {"pk": LONG, "seq": SEQ},
    "remove_snapshot": (SEQ,), "add_label": ("a", "b", SEQ), "remove_labels": (SEQ,),
    "move_scope": (*MOVE.values(), 0, b"", b"", SHORT), "forget_chains": (SHORT,),
    "forget_chain": (SHORT,), "stamp_scope": (b"x", SHORT), "uncover": (SEQ, SEQ, 0, LONG),
    "newest_kept": (LONG,), "sum_scope": (0, SHORT), "sum_session": (0, SHORT),
    "has_notes": (SHORT,), "seqs_of_scope": (SHORT,), "scope_is_base": {"pk": SHORT},
    "session_is_base": {"pk": SHORT}, "unlisted_bases": (SHORT,), "remove_scope_bodies": (SHORT,),
    "last_seq_and_time": (), "unlisted": {"after": SEQ}, "scopes_above": (SEQ,),
    "lock_scopes": {"pks": [SHORT]},
    "remove_scope": (SHORT,), "remove_empty_session": (SESSION,), "note": NOTE,
    "note_in_scope": {**SCOPE, **NOTE},
    "notes_in_scope": {**SCOPE, "on": "", "names": ["name-1", "x"]},
    "put_note": {**NOTE, "rev": 1, "nonce": "n", "updated_at": 1, "value": b"1", "checksum": 0},
    "has_note": {**SCOPE, **NOTE},
    "remove_note_in_one": {**NOTE, "known": b"", "stamps": b"x", "fence": None, "listeners": 1},
    "remove_note": NOTE, "remove_notes_on": {"pk": LONG, "on": ID},
    "bodies.chain": {"seq": SEQ, "until": None}, "bodies.links": (SEQ,), "bodies.row": (SEQ,),
    "bodies.glance": (SEQ,), "bodies.dependents": ([SEQ, NEW],), "bodies.bases": ([SEQ, NEW],),
    "bodies.dependents_of_group": {"seq": SEQ, "until": None},
    "bodies.listed_of_group": {"seq": SEQ, "until": None},
    "bodies.checksums": ([SEQ, NEW],), "bodies.listed": ([SEQ, NEW],),
    "bodies.unused": ([SEQ + 1, SEQ],),
    "bodies.lock": ([SEQ + 1, SEQ],), "bodies.add": (NEW, SEQ, 2, b"x", 0),
    "bodies.add_many": ([NEW], [SEQ], [2], [b"x"], [0]), "bodies.remove": ([SEQ, NEW],),
    "check.tables": ("x",), "check.indexes": ("x",), "check.triggers": ("x",),
    **{f"check.walk_{each}": WALK for each in ("owners", "scopes", "sessions", "watermark")},
    **{
        f"check.walk_{each}": {"start": SEQ, "limit": PAGE}
        for each in ("snapshots", "bodies", "labels", "notes")
    },
    **{
        f"beginnings_of_{each}": {"start": start, "limit": PAGE}
        for each, start in {"snapshots": SEQ, "bodies": SEQ, "notes": 9, "scopes": 9}.items()
    },
    "check.has_scope": (SHORT,), "check.owned": {"pk": SHORT}, "check.scope": (LONG,),
    "check.session": (SHORT,), "check.snapshot": (SEQ,), "check.address_of_snapshot": (SEQ,),
    "check.address_of_scope": (SHORT,), "check.body": (SEQ,), "check.count_above": (SEQ,),
    "check.labels_of": (SEQ,), "check.has_snapshot": (SEQ,), "check.note": (9,),
    "check.drafts": (SHORT,), "check.ids_downwards": (SHORT,),
    "check.put_scope": {
        **MOVE, **SCOPE, "session_pk": SHORT, "fence": None, "lease_owner": None,
        "lease_until": None, "family": None, "checksum": 0, "pk": SHORT,
    },
    "check.put_session": {"session_id": SESSION, "checksum": 0, "pk": SHORT},
    "check.scopes_of_session": (SHORT,), "check.fork_group_of": {"pk": SHORT},
    "check.restore_session": {"pk": 99_999, "session_id": "new"},
    "check.restore_scope": {**SCOPE, "pk": 99_999, "scope_id": "new"},
    "check.set_apart": (SEQ,),
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
    "ids": ("list_ids", {"after": "id-4"}),
    "ids from the first": ("list_ids", {"after": ""}),
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
    "largest heads": ("largest_heads", {}),
    "refs by a prefix": ("find_refs", {"low": "id-4", "high": "id-5"}),
    "refs of everything": ("find_refs", {"low": "", "high": None}),
    "noted": ("list_noted", {"pk": SHORT, "after": ""}),
    "all notes": ("all_notes", {"pk": SHORT, "on": "", "after": ""}),
    "notes": ("list_notes", {"ons": [""], "after": ""}),
    "notes on an id": ("list_notes", {"ons": [ID], "after": "n"}),
    "notes of a scope, found": (
        "find_notes",
        {"values": True, "under": SESSION, "low": f"{SESSION}/", "high": f"{SESSION}0"},
    ),
    "notes on many ids": ("list_notes", {"ons": [*SOME, ID, "x"], "after": ""}),
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


def test_every_statement_has_a_plan_here(planner: Planner) -> None:
    listed = {name for name, _ in LISTINGS.values()}
    assert planner.names() == {*VALUES, *listed, *EVERYTHING, *NO_PLAN}


def test_no_statement_reads_a_whole_table(planner: Planner) -> None:
    offenders = {}
    for name in sorted(VALUES.keys() - CATALOGUE - RARE):
        nodes = planner.plan(name, VALUES[name])
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
    asked = {
        "totals": {"session_id": None},
        "largest_sessions": (10,),
        "unfolded_scopes": (2048,),
        "list_newest": {
            **QUERY,
            "after": "",
            "high": None,
            "low": "",
            "first": True,
            "newest": None,
        },
    }
    for name in sorted(EVERYTHING):
        rows = touched(planner.plan(name, asked.get(name, ())))
        assert max(rows.values()) <= 2.5 * SNAPSHOTS, name
    one = touched(planner.plan("totals", {"session_id": SESSION}))
    assert max(one.values()) <= ROWS_MAX


def test_the_plans_are_read_right(planner: Planner, store: tuple[Connection, str]) -> None:
    """Guard the guards: the words that they look for are those that PostgreSQL says."""
    _, schema = store
    text = f"SELECT n.id FROM {schema}.snapshots AS n WHERE n.size > %s ORDER BY n.nonce"
    nodes = planner.explain(text, (5,))
    assert Node("Seq Scan", "snapshots", SNAPSHOTS) in nodes
    assert [node.rows for node in nodes if node.kind == "Sort"] == [SNAPSHOTS]
