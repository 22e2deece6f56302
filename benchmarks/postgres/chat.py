"""Goals 2 and 3: a long conversation on the same server, saved by Holdfast and by LangGraph."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from psycopg import sql

import holdfast
from benchmarks.deltas.outcome import CLOCKS, NAMES
from benchmarks.deltas.peertable import text_bytes
from benchmarks.peers.catalogue import Entry
from benchmarks.peers.race import Runner, race, save_ratios
from benchmarks.plan import Plan
from benchmarks.postgres.server import schema
from benchmarks.postgres.sizes import Sizes
from benchmarks.report import TIMES, Result, milliseconds, spread
from benchmarks.traces import conversation
from tests.servers.postgres import Connection, Postgres

FASTER_MIN = 10.0
DISK_MAX = 0.8
OURS, APPEND, THEIRS, THEIR_DELTA = "save", "append", "langgraph", "langgraph-delta"
ENTRIES = (
    Entry(OURS, "Holdfast `save`", "ours_postgres", "", "save", postgres=True),
    Entry(THEIRS, "LangGraph `put`", "langgraph_put", "", "postgres", "langgraph", postgres=True),
    Entry(APPEND, "Holdfast `append`", "ours_postgres", "", "append", postgres=True),
    Entry(
        THEIR_DELTA,
        "LangGraph, DeltaChannel",
        "langgraph_delta",
        "",
        "postgres",
        "langgraph",
        postgres=True,
    ),
)
RELATIONS = """
    SELECT coalesce(t.relname, c.relname),
           CASE c.relkind WHEN 'r' THEN 'table' WHEN 't' THEN 'out of line' ELSE c.relname END,
           pg_relation_size(c.oid), pg_table_size(c.oid) - pg_relation_size(c.oid)
             - coalesce(pg_total_relation_size(nullif(c.reltoastrelid, 0)), 0)
      FROM pg_class AS c
      LEFT JOIN pg_index AS i ON i.indexrelid = c.oid
      LEFT JOIN pg_class AS o ON o.reltoastrelid IN (c.oid, i.indrelid) AND o.reltoastrelid <> 0
      LEFT JOIN pg_class AS t ON t.oid = coalesce(o.oid, i.indrelid, c.oid)
     WHERE t.relnamespace = to_regnamespace(%s) AND c.relkind IN ('r', 'i', 't')
     ORDER BY 1, 3 DESC, 2
"""
Relations = Sequence[tuple[str, str, int, int]]
"""A table, one of the relations it is made of, the bytes of its rows, and those of its maps."""


def measure(plan: Plan, server: Postgres, sizes: Sizes) -> Iterator[Result]:
    """Yield what a save takes at the last turn, and what all of them have taken on the disk."""
    entries = ENTRIES[:2] if sizes.quick else ENTRIES
    runners = race(plan, entries, server.url)
    yield _faster(runners[OURS], runners[THEIRS], "`save`", "`PostgresSaver.put`", plan, True)
    if APPEND in runners:
        theirs = "`PostgresSaver` with a DeltaChannel"
        yield _faster(runners[APPEND], runners[THEIR_DELTA], "`append`", theirs, plan, False)
    yield from _disk(server, runners, plan.turns)


def _faster(
    ours: Runner, theirs: Runner, what: str, against: str, plan: Plan, judged: bool
) -> Result:
    measure = f"{what} at turn {plan.turns} against LangGraph {against}: faster by"
    goal = f"≥ {FASTER_MIN:g} {TIMES}, wall" if judged else "-"
    if ours.missing or theirs.missing:
        return Result(measure, f"not measured: {theirs.missing or ours.missing}", goal)
    ratios = {clock: save_ratios(theirs, ours, plan.turns, clock) for clock in CLOCKS}
    contended = ours.contended + theirs.contended
    met: bool | None = median(ratios["wall"]) >= FASTER_MIN
    if not met and contended > len(ours.laps):
        met = None  # both waited for the same disk
    return Result(
        measure,
        f"{_both(ours, plan.turns)} against {_both(theirs, plan.turns)}",
        goal,
        "; ".join(f"{NAMES[clock]} {spread(each, digits=1)}" for clock, each in ratios.items()),
        met if judged else None,
        contended,
    )


def _both(runner: Runner, turn: int) -> str:
    cpu, wall = (milliseconds(runner.save_seconds(turn, clock)) for clock in CLOCKS)
    return f"{cpu} CPU, {wall} wall"


def _disk(server: Postgres, runners: Mapping[str, Runner], turns: int) -> Iterator[Result]:
    text = text_bytes(turns)
    with schema(server) as name, server.connect() as connection:
        empty, before, after = _filled(server, connection, name, turns)
    what = f"all tables after {turns} turns of 1 KB + 1 KB, everything kept, against the text"
    for state, found in (("as they are", before), ("after VACUUM", after)):
        taken = _bytes(found)
        yield Result(
            measure=f"{what}, {state}",
            goal=f"≤ {DISK_MAX:g} {TIMES}",
            measured=f"{taken:,} bytes ({_bytes(empty):,} when empty) against {text:,}",
            ratio=f"{taken / text:.2f} {TIMES}",
            met=taken <= DISK_MAX * text,
        )
    for runner in runners.values():
        if not runner.missing and runner.entry.key in (THEIRS, THEIR_DELTA):
            taken = round(runner.disk(turns))
            yield Result(
                measure=f"the same of {runner.entry.title}",
                measured=f"{taken:,} bytes",
                ratio=f"{taken / text:.1f} {TIMES}",
            )
    yield from _parts(before, after, text)


def _filled(
    server: Postgres, connection: Connection, schema: str, turns: int
) -> tuple[Relations, Relations, Relations]:
    """Save the conversation; return what is there before it, after it, and after a VACUUM."""
    with holdfast.open(server.url, schema=schema) as store:
        empty = _relations(connection, schema)
        scope, messages = store.scope("session"), []
        for turn, new in enumerate(conversation(turns), 1):
            messages = [*messages, *new]
            scope.save({"turn": turn, "messages": messages})
    before = _relations(connection, schema)
    for table in sorted({table for table, _, _, _ in before}):
        connection.execute(sql.SQL("VACUUM {}").format(sql.Identifier(schema, table)))
    return empty, before, _relations(connection, schema)


def _relations(connection: Connection, schema: str) -> Relations:
    return [
        (str(table), str(part), int(rows), int(maps))
        for table, part, rows, maps in connection.execute(RELATIONS.encode(), [schema]).fetchall()
    ]


def _bytes(relations: Relations) -> int:
    return sum(rows + maps for _, _, rows, maps in relations)


def _parts(before: Relations, after: Relations, text: int) -> Iterator[Result]:
    """Yield what each table takes, and the largest of what it is made of."""
    later = {(table, part): rows + maps for table, part, rows, maps in after}
    for table in sorted({table for table, _, _, _ in before}):
        found = [each for each in before if each[0] == table]
        parts = [
            f"{part} {rows + maps:,}" + (f" ({maps:,} of it maps)" if maps else "")
            for _, part, rows, maps in found
            if rows + maps
        ]
        taken = _bytes(found)
        vacuumed = sum(size for (name, _), size in later.items() if name == table)
        yield Result(
            measure=f"bytes of the table `{table}`, of it",
            measured=f"{taken:,}: {', '.join(parts)}; after VACUUM {vacuumed:,}",
            ratio=f"{taken / text:.3f} {TIMES}",
        )
