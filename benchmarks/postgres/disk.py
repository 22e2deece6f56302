"""Goal 3: the disk space of a long conversation on the server, including indexes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from psycopg import sql

import limpet
from benchmarks.deltas.peertable import text_bytes
from benchmarks.peers.race import Runner
from benchmarks.postgres.chat import THEIR_DELTA, THEIRS
from benchmarks.postgres.server import schema
from benchmarks.postgres.sizes import Sizes
from benchmarks.report import NONE, TIMES, Result
from benchmarks.traces import conversation
from tests.servers.postgres import Connection, Postgres, PrivatePostgres

DISK_MAX = 0.8
# Hours of use take seconds here, so autovacuum has to run more often.
SETTINGS = {"autovacuum_naptime": "1s"}
APART = 37  # sessions begin at so many turns from each other

# The bytes of each relation of a schema, and of its maps of free and of visible rows.
RELATIONS = """
    SELECT t.relname,
           CASE WHEN c.oid = t.oid THEN 'rows'
                WHEN c.oid = t.reltoastrelid THEN 'out of line'
                WHEN i.indrelid = t.reltoastrelid THEN 'index of out-of-line storage'
                ELSE c.relname END,
           pg_relation_size(c.oid),
           pg_relation_size(c.oid, 'fsm') + pg_relation_size(c.oid, 'vm')
             + pg_relation_size(c.oid, 'init')
      FROM pg_class AS t
      JOIN pg_class AS c
        ON c.oid IN (t.oid, t.reltoastrelid)
        OR c.oid IN (SELECT indexrelid FROM pg_index WHERE indrelid IN (t.oid, t.reltoastrelid))
      LEFT JOIN pg_index AS i ON i.indexrelid = c.oid
     WHERE t.relnamespace = to_regnamespace(%s) AND t.relkind = 'r'
     ORDER BY 1, 3 DESC, 2
"""
TOTAL = """
    SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint
      FROM pg_class WHERE relnamespace = to_regnamespace(%s) AND relkind = 'r'
"""


class Relation(NamedTuple):
    """A part of a table, and its bytes."""

    table: str
    part: str
    rows: int
    maps: int

    @property
    def bytes(self) -> int:
        """Return all of its bytes."""
        return self.rows + self.maps


Relations = Sequence[Relation]


class Filled(NamedTuple):
    """What the tables take before a conversation, after it, and after a VACUUM."""

    empty: Relations
    before: Relations
    after: Relations


def goals(server: Postgres, runners: Mapping[str, Runner], turns: int) -> Iterator[Result]:
    """Yield what one conversation takes."""
    text = text_bytes(turns)
    with schema(server) as name, server.connect() as connection:
        found = _filled(server, connection, name, turns)
    what = f"all tables after {turns} turns of 1 KB + 1 KB, everything kept, against the text"
    for state, relations in (("as they are", found.before), ("after VACUUM", found.after)):
        taken = _bytes(relations)
        yield Result(
            measure=f"{what}, {state}",
            goal=f"≤ {DISK_MAX:g} {TIMES}",
            measured=f"{taken:,} bytes ({_bytes(found.empty):,} when empty) against {text:,}",
            ratio=f"{taken / text:.2f} {TIMES}",
            met=taken <= DISK_MAX * text,
        )
    for key in (THEIRS, THEIR_DELTA):
        if key in runners and not runners[key].missing:
            taken = round(runners[key].disk(turns))
            ratio = f"{taken / text:.1f} {TIMES}"
            yield Result(f"the same of {runners[key].entry.title}", f"{taken:,} bytes", NONE, ratio)
    yield from _parts(found, text)


def many(sizes: Sizes) -> Iterator[Result]:
    """Yield what several conversations take that happen at the same time, cleaned meanwhile."""
    with (
        PrivatePostgres(settings=SETTINGS) as server,
        schema(server) as name,
        server.connect() as connection,
    ):
        found = _filled(server, connection, name, sizes.turns, sizes.conversations)
    text = sizes.conversations * text_bytes(sizes.turns)
    taken = _bytes(found.before)
    yield Result(
        measure=f"all tables after {sizes.turns} turns of each of {sizes.conversations} sessions, "
        "with autovacuum, against the text",
        measured=f"{taken:,} bytes against {text:,}",
        ratio=f"{taken / text:.2f} {TIMES}",
    )


def _filled(
    server: Postgres, connection: Connection, schema: str, turns: int, sessions: int = 1
) -> Filled:
    """Have some conversations, a turn of each at a time."""
    spoken = list(conversation(turns))
    with limpet.open(server.url, schema=schema) as store:
        empty = _relations(connection, schema)
        messages: list[list[dict[str, str]]] = [[] for _ in range(sessions)]
        for turn in range(turns):
            for number in range(sessions):
                said = spoken[(turn + number * APART) % turns]
                messages[number] = [*messages[number], *said]
                state: limpet.JSON = {"turn": turn, "messages": [*messages[number]]}
                store.scope(f"session {number}").save(state)
    before = _relations(connection, schema)
    for table in sorted({each.table for each in before}):
        connection.execute(sql.SQL("VACUUM {}").format(sql.Identifier(schema, table)))
    return Filled(empty, before, _relations(connection, schema))


def _relations(connection: Connection, schema: str) -> Relations:
    rows = connection.execute(RELATIONS.encode(), [schema]).fetchall()
    found = [Relation(str(row[0]), str(row[1]), int(row[2]), int(row[3])) for row in rows]
    ((total,),) = connection.execute(TOTAL.encode(), [schema]).fetchall()
    if _bytes(found) != total:
        raise AssertionError(f"the parts have {_bytes(found)} bytes, the whole has {total}")
    return found


def _bytes(relations: Relations) -> int:
    return sum(each.bytes for each in relations)


def _parts(found: Filled, text: int) -> Iterator[Result]:
    """Yield what each table takes, and the parts that it is made of."""
    for table in sorted({each.table for each in found.before}):
        before, after = ([r for r in each if r.table == table] for each in found[1:])
        parts = ", ".join(f"{each.part} {each.rows:,}" for each in before if each.rows)
        maps = sum(each.maps for each in before)
        yield Result(
            measure=f"bytes of the table `{table}`",
            measured=f"{_bytes(before):,}: {parts}, maps {maps:,}; after VACUUM {_bytes(after):,}",
            ratio=f"{_bytes(before) / text:.3f} {TIMES}",
        )
